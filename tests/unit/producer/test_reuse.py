"""Shards of another job in a new one: the same bytes as a fresh run, or none."""

import os
from pathlib import Path

import pytest

from producer.control import remove
from producer.reuse import reuse_shards, why_not
from producer.state import job_status, load_job, stored_state
from producer.submit import Admission, Request, submit
from shared.guard import Unguarded
from shared.job import Job, JobSpec, ShardTask
from shared.manifest import JobPaths, read_receipt
from shared.storage import Storage
from tests.tiny import add_tiny_picture, make_tiny_voc
from worker.shard import write_shard

PICTURES = 300
SPEC = JobSpec(shard_images=32, image_size=32)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_tiny_voc(tmp_path / "voc", PICTURES)


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage(str(tmp_path / "store"))


def ask(folder: Path, name: str, storage: Storage, spec: JobSpec = SPEC) -> Admission:
    request = Request(dataset=folder, name=name, spec=spec, run=None)
    return submit(request, storage=storage, data_root=folder, progress=lambda *_: None)


def work(storage: Storage, job: Job, folder: Path) -> list[str]:
    """Write what is missing, as a worker does; the names of those shards."""
    written = []
    for line in storage.lines(JobPaths(job.job).plan):
        task = ShardTask.model_validate_json(line)
        if read_receipt(storage, job.job, task.shard) is None:
            write_shard(task, job, storage=storage, data_root=folder, guard=Unguarded(), attempt=1)
            written.append(task.shard)
    return written


def shard_bytes(storage: Storage, job: str) -> dict[str, bytes]:
    folder = storage.local_path(JobPaths(job).shards)
    return {path.name: path.read_bytes().replace(f'"job":"{job}"'.encode(), b"") for path in folder.iterdir()}


def test_added_photo_leads_to_one_new_shard_and_to_the_bytes_of_a_fresh_run(
    storage: Storage, folder: Path, tmp_path: Path
) -> None:
    work(storage, ask(folder, "first", storage).job, folder)
    add_tiny_picture(folder, PICTURES)
    admission = ask(folder, "second", storage)
    assert admission.reuse is not None
    shards = len(admission.job.shards)
    assert (admission.reuse.shards, admission.reuse.lenders) == (shards - 1, ("first",))
    assert job_status(storage, None, admission.job, 0.1).reused == shards - 1
    assert len(work(storage, admission.job, folder)) == 1
    fresh = Storage(str(tmp_path / "fresh"))
    work(fresh, ask(folder, "second", fresh).job, folder)
    assert shard_bytes(storage, "second") == shard_bytes(fresh, "second")


def test_lender_may_be_removed(storage: Storage, folder: Path) -> None:
    work(storage, ask(folder, "first", storage).job, folder)
    second = ask(folder, "second", storage).job
    assert len(stored_state(storage, second, 0.1).done) == len(second.shards)
    before = shard_bytes(storage, "second")
    storage.write(JobPaths("first").cancelled, b"{}")
    remove(storage, None, "first")
    assert shard_bytes(storage, "second") == before


def test_taking_over_again_changes_nothing(storage: Storage, folder: Path) -> None:
    work(storage, ask(folder, "first", storage).job, folder)
    second = ask(folder, "second", storage).job
    before = shard_bytes(storage, "second")
    again = reuse_shards(second, storage=storage, folder=folder, progress=lambda *_: None)
    assert again.shards == 0
    receipt = JobPaths("second").receipt(second.shards[0])
    storage.remove(receipt)  # as if it had been killed just before it
    assert reuse_shards(second, storage=storage, folder=folder, progress=lambda *_: None).shards == 1
    assert shard_bytes(storage, "second") == before
    assert not [name for name in before if ".tmp-" in name]


def test_damaged_shard_is_not_lent(storage: Storage, folder: Path) -> None:
    first = ask(folder, "first", storage).job
    work(storage, first, folder)
    damaged = storage.local_path(JobPaths("first").tfrecord(first.shards[0]))
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"\0")
    second = ask(folder, "second", storage)
    assert second.reuse is not None
    assert second.reuse.shards == len(first.shards) - 1
    assert read_receipt(storage, "second", first.shards[0]) is None


def test_shard_with_a_picture_touched_since_is_not_lent(storage: Storage, folder: Path) -> None:
    first = ask(folder, "first", storage).job
    work(storage, first, folder)
    picture = folder / "JPEGImages/000007.jpg"
    before = picture.stat()
    picture.write_bytes(picture.read_bytes())
    os.utime(picture, ns=(before.st_atime_ns, before.st_mtime_ns))
    second = ask(folder, "second", storage)
    assert second.reuse is not None
    assert second.reuse.shards == len(first.shards) - 1


def test_what_a_second_attempt_set_aside_is_tried_anew(storage: Storage, folder: Path) -> None:
    first = ask(folder, "first", storage).job
    work(storage, first, folder)
    shard = first.shards[0]
    receipt = read_receipt(storage, "first", shard)
    assert receipt is not None
    changed = receipt.model_copy(update={"attempt": 2, "quarantined": 1})
    storage.write(JobPaths("first").receipt(shard), changed.to_json().encode())
    second = ask(folder, "second", storage)
    assert second.reuse is not None
    assert second.reuse.shards == len(first.shards) - 1


def test_other_options_program_or_classes_say_why_nothing_is_lent(storage: Storage, folder: Path) -> None:
    first = ask(folder, "first", storage).job
    work(storage, first, folder)
    other = ask(folder, "other", storage, JobSpec(shard_images=32, image_size=64))
    assert other.reuse is not None
    assert other.reuse.shards == 0
    assert other.reuse.refusals == ("first: other image_size",)
    assert "an older program" in str(why_not(first, first.model_copy(update={"made_by": ""})))
    assert "other classes: y" in str(why_not(first, first.model_copy(update={"labels": ("x", "y")})))
    assert why_not(first, load_job(storage, "first")) is None
