"""Which files of a store belong to a job: those of its name and identity, whatever else lies in its folder."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shared.errors import Cancelled, FormatError, VersionError
from shared.jobs.identity import (
    asked_now,
    done_shards,
    file_digest,
    find_job,
    is_name,
    is_removed,
    make_note,
    read_manifest,
    read_note,
    read_receipt,
    read_request,
    readable_jobs,
    readable_requests,
    require_job,
    words_of,
)
from shared.jobs.job import Job, SplitPlan
from shared.jobs.manifest import Manifest
from shared.jobs.paths import JobPaths, RunPaths
from shared.jobs.receipts import ShardReceipt
from shared.specs.data import JobSpec
from shared.specs.run import RunSpec
from shared.storage import Storage

OURS, ANOTHER = "0" * 32, "1" * 32
PATHS, SHARD = JobPaths("job"), "train-00000-of-00001"
CONTENT = b"records"
DEEP = b"[" * 100_000


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage(str(tmp_path))


def a_job(storage: Storage, name: str = "job", incarnation: str = OURS, folder: str | None = None) -> Job:
    """A job of one shard, written into the folder `folder`, by default that of its name."""
    job = Job(
        job=name,
        incarnation=incarnation,
        dataset="set",
        folder="set",
        spec=JobSpec(),
        run=None,
        labels=("cat",),
        splits={"train": SplitPlan(pairs=1, digests=("d",))},
        request_digest="r",
    )
    storage.write(JobPaths(folder or name).job, job.to_json().encode())
    return job


def a_receipt(storage: Storage, shard: str = SHARD, **changes: Any) -> None:
    values = {"job": "job", "incarnation": OURS, "shard": SHARD, "split": "train", "index": 0, "count": 1}
    values |= {"task_digest": "d", "attempt": 1, "size_bytes": len(CONTENT), "sha256": "s", "annotations_sha256": "a"}
    values |= dict.fromkeys(("written", "quarantined", "background", "objects_read", "objects_written"), 0)
    values |= {"class_counts": {}, "counters": {}, "findings": ()}
    storage.write(PATHS.receipt(shard), ShardReceipt.model_validate(values | changes).to_json().encode())


def a_shard(storage: Storage, **changes: Any) -> None:
    storage.write(PATHS.tfrecord(SHARD), CONTENT)
    storage.write(PATHS.shard_annotations(SHARD), b"{}")
    a_receipt(storage, **changes)


@pytest.mark.parametrize("name", ["job", "a", "0.1_x-y", "a" * 64])
def test_a_name_is_a_word_that_can_be_a_folder_and_a_part_of_a_key(name: str) -> None:
    assert is_name(name)


@pytest.mark.parametrize("name", ["", "Job", ".job", "-a", "a/b", "..", "a\n", "a" * 65, "job.tmp-0123", "jöb"])
def test_what_we_never_name_a_job_is_no_name_of_one(storage: Storage, name: str) -> None:
    assert not is_name(name)
    assert find_job(storage, name) is None
    assert read_request(storage, name) is None


def test_a_job_that_is_being_removed_is_none_and_the_next_one_of_its_name_is_one(storage: Storage) -> None:
    removed = a_job(storage)
    assert find_job(storage, "job") == removed
    storage.write(PATHS.removed, make_note(OURS))
    assert find_job(storage, "job") is None
    assert is_removed(storage, removed)
    following = a_job(storage, incarnation=ANOTHER)
    assert find_job(storage, "job") == following
    assert not is_removed(storage, following)


def test_a_copied_folder_is_no_job_and_is_named(storage: Storage) -> None:
    a_job(storage, folder="copy")
    with pytest.raises(FormatError, match=r"copy/job\.json: the file of job 'job': a copied folder\? give"):
        find_job(storage, "copy")


def test_a_job_of_a_newer_version_is_not_called_damaged(storage: Storage) -> None:
    storage.write(PATHS.job, b'{"schema_version": 2}')
    with pytest.raises(VersionError, match=r"upgrade this program, or submit the photos anew under another name$"):
        find_job(storage, "job")
    storage.write(PATHS.job, b"{}")
    with pytest.raises(FormatError, match="restore the file from a backup, or remove its folder"):
        find_job(storage, "job")


def test_nothing_is_published_for_a_job_that_is_gone_damaged_or_another(storage: Storage) -> None:
    with pytest.raises(Cancelled, match=r"job job was removed$"):
        require_job(storage, "job", OURS)
    a_job(storage)
    require_job(storage, "job", OURS)
    with pytest.raises(Cancelled, match="was removed, and another one submitted under its name"):
        require_job(storage, "job", ANOTHER)
    storage.write(PATHS.job, b"{}")
    with pytest.raises(Cancelled, match="damaged"):
        require_job(storage, "job", OURS)


@pytest.mark.parametrize("incarnation", [OURS, ""])
def test_a_note_is_that_of_its_job_alone(storage: Storage, incarnation: str) -> None:
    storage.write(PATHS.cancelled, make_note(incarnation, at=7))
    assert (read_note(storage, PATHS.cancelled, incarnation) or {})["at"] == 7
    assert read_note(storage, PATHS.cancelled, ANOTHER) is None
    assert ("incarnation" in json.loads(storage.read(PATHS.cancelled))) is bool(incarnation)


@pytest.mark.parametrize("content", [b"", b"not ours", b"[1]", b"7", b"null", b"\xff\xfe", DEEP])
def test_what_is_no_note_counts_as_none(storage: Storage, content: bytes) -> None:
    storage.write(PATHS.cancelled, content)
    assert read_note(storage, PATHS.cancelled, "") is None


def test_a_request_is_that_of_its_run_and_names_it_to_a_command(storage: Storage) -> None:
    asked = RunSpec(run="job", job="job", incarnation=OURS)
    further = RunSpec(run="medium", job="job", incarnation=OURS)
    for each in (asked, further):
        storage.write(RunPaths(each.run).request, each.to_json().encode())
    storage.write(RunPaths("copy").request, asked.to_json().encode())
    assert (words_of(storage, "job"), words_of(storage, "medium")) == (["job"], ["job", "--run", "medium"])
    assert words_of(storage, "none") == ["none"]
    with pytest.raises(FormatError, match=r"the request of run 'job': a copied folder\?"):
        read_request(storage, "copy")
    assert list(readable_requests(storage)) == [asked, further]


def test_the_request_of_now_counts_unless_it_is_for_another_training(storage: Storage) -> None:
    run = RunSpec(run="job", job="job", incarnation=OURS)
    assert asked_now(storage, run) == run
    for changes in ({"epochs": 3}, {"incarnation": ANOTHER}):
        storage.write(RunPaths("job").request, run.model_copy(update=changes).to_json().encode())
        assert asked_now(storage, run) == run
    judged = run.model_copy(update={"max_drop": 7.5})
    storage.write(RunPaths("job").request, judged.to_json().encode())
    assert asked_now(storage, run) == judged


def test_jobs_that_cannot_be_read_hide_no_other(storage: Storage) -> None:
    a_job(storage, folder="a-copy")
    storage.write(JobPaths("damaged").job, b"{")
    storage.local_path(JobPaths("loop").root).symlink_to(storage.local_path(JobPaths("loop").root))
    unreadable = storage.local_path(JobPaths("broken").job)
    unreadable.parent.mkdir(parents=True)
    unreadable.symlink_to("/proc/self/mem")  # a file whose read fails with EIO, as a broken disk's does
    last = a_job(storage, "last")
    assert list(readable_jobs(storage)) == [last]


def test_a_manifest_of_another_job_of_the_name_counts_as_absent(storage: Storage) -> None:
    job = a_job(storage)
    values = {"job": "job", "request_digest": "r", "labels": ("cat",), "image_size": 320, "resize": "stretch"}
    values |= {"splits": {}, "failed": (), "counters": {}, "class_counts": {}}
    for incarnation, is_ours in ((OURS, True), (ANOTHER, False), ("", False)):
        manifest = Manifest.model_validate({**values, "incarnation": incarnation})
        storage.write(PATHS.manifest, manifest.to_json().encode())
        assert read_manifest(storage, job) == (manifest if is_ours else None)


def test_a_receipt_proves_the_shard_whose_identity_it_carries(storage: Storage) -> None:
    job = a_job(storage)
    a_shard(storage)
    receipt = read_receipt(storage, job, SHARD)
    assert receipt is not None
    (done,) = done_shards(storage, job).values()
    assert (done.attempt, done.size_bytes) == (receipt.attempt, len(CONTENT))


@pytest.mark.parametrize(
    "changes", [{"job": "other"}, {"incarnation": ANOTHER}, {"incarnation": ""}, {"shard": "x"}, {"task_digest": "e"}]
)
def test_a_receipt_of_another_job_shard_or_plan_proves_nothing(storage: Storage, changes: dict[str, Any]) -> None:
    job = a_job(storage)
    a_shard(storage, **changes)
    assert read_receipt(storage, job, SHARD) is None
    assert done_shards(storage, job) == {}


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", DEEP])
def test_a_damaged_receipt_is_none_and_that_of_another_version_is_not_judged(storage: Storage, content: bytes) -> None:
    job = a_job(storage)
    a_shard(storage)
    storage.write(PATHS.receipt(SHARD), content)
    assert read_receipt(storage, job, SHARD) is None
    assert done_shards(storage, job) == {}
    storage.write(PATHS.receipt(SHARD), b'{"schema_version": 2}')
    for read in (lambda: read_receipt(storage, job, SHARD), lambda: done_shards(storage, job)):
        with pytest.raises(VersionError):
            read()


@pytest.mark.parametrize(
    "damage",
    [
        lambda storage: storage.remove(PATHS.tfrecord(SHARD)),
        lambda storage: storage.write(PATHS.tfrecord(SHARD), CONTENT[:-1]),
        lambda storage: storage.remove(PATHS.shard_annotations(SHARD)),
        lambda storage: storage.remove(PATHS.receipt(SHARD)),
    ],
    ids=["no records", "records cut short", "no annotations", "no receipt"],
)
def test_a_shard_without_all_of_its_files_is_not_done(storage: Storage, damage: Callable[[Storage], None]) -> None:
    job = a_job(storage)
    a_shard(storage)
    assert done_shards(storage, job).keys() == {SHARD}
    damage(storage)
    assert done_shards(storage, job) == {}


def test_a_shard_of_a_dry_job_is_done_without_files_and_foreign_names_are_no_shards(storage: Storage) -> None:
    job = a_job(storage)
    a_receipt(storage, size_bytes=None, sha256=None, annotations_sha256=None)
    receipt = storage.read(PATHS.receipt(SHARD))
    for name in (SHARD, f"{SHARD} (1).json", "train-00001-of-00001.json", "train-00000-of-00002.json", ".DS_Store"):
        storage.write(f"{PATHS.shards}/{name}", receipt)
    assert done_shards(storage, job).keys() == {SHARD}


def test_a_digest_is_remembered_until_the_file_is_replaced(storage: Storage) -> None:
    assert file_digest(storage, "a") is None
    storage.write("a", b"x")
    first = file_digest(storage, "a")
    storage.write("a", b"y")
    assert file_digest(storage, "a") not in (None, first)
