"""`contents.json`: what is kept of a plan, when it is written, and what becomes of a damaged one."""

from pathlib import Path

import pytest

from producer.jobs.submit import Request
from shared.errors import FormatError
from shared.jobs.contents import SAMPLED, contents_of, planned_shards, rules_digest
from shared.jobs.identity import find_job
from shared.jobs.job import Job
from shared.jobs.paths import JobPaths
from shared.jobs.schema import SHARD_FORMAT
from shared.specs.data import JobSpec
from shared.storage import Storage
from tests.tiny import make_tiny_voc
from tests.unit.producer.folders import lint_and_submit

PICTURES = 100


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage(str(tmp_path / "store"))


@pytest.fixture
def job(storage: Storage, tmp_path: Path) -> Job:
    folder = make_tiny_voc(tmp_path / "voc", PICTURES)
    request = Request(dataset=folder, name="job", spec=JobSpec(shard_images=32, image_size=32), run=None)
    return lint_and_submit(request, storage=storage, data_root=folder).job


def test_contents_are_those_of_the_plan_and_are_kept_beside_it(storage: Storage, job: Job) -> None:
    contents = contents_of(storage, "job")
    assert contents is not None
    shards = list(planned_shards(storage, job))
    assert [digest[: len(kept)] for (_, digest, _), kept in zip(shards, contents.shards, strict=True)] == [
        *contents.shards
    ]
    fingerprints = sorted({pair["fingerprint"] for _, _, pairs in shards for pair in pairs})
    assert contents.sample == tuple(fingerprints[:SAMPLED])
    assert (contents.pairs, contents.dataset, contents.incarnation) == (PICTURES, job.dataset, job.incarnation)
    assert contents.rules == rules_digest(job.spec, job.labels, SHARD_FORMAT)
    storage.remove(JobPaths("job").plan(job.incarnation))  # it is not read again
    assert contents_of(storage, "job") == contents


def test_damaged_contents_are_made_again_from_the_plan(storage: Storage, job: Job) -> None:
    contents = contents_of(storage, job.job)
    for damaged in (b"", b"{}", b'{"schema_version":9}', b"\xff"):
        storage.write(JobPaths("job").contents, damaged)
        assert contents_of(storage, "job") == contents
        assert contents is not None
        assert storage.read(JobPaths("job").contents) == contents.to_json().encode()


def test_rules_differ_with_every_option_the_classes_their_order_and_the_format() -> None:
    spec = JobSpec()
    rules = {
        rules_digest(spec, ("a", "b"), 4),
        rules_digest(spec, ("b", "a"), 4),
        rules_digest(spec, ("a", "b", "c"), 4),
        rules_digest(spec, ("a", "b"), 5),
        *(
            rules_digest(spec.model_copy(update=changes), ("a", "b"), 4)
            for changes in ({"image_size": 64}, {"voc_coords": "voc1"}, {"difficult": "drop"}, {"resize": "letterbox"})
        ),
    }
    assert len(rules) == 8


def test_a_plan_with_a_line_too_few_or_too_many_is_damaged(storage: Storage, job: Job) -> None:
    key = JobPaths(job.job).plan(job.incarnation)
    lines = storage.read(key).splitlines(keepends=True)
    for damaged in (lines[:-1], [*lines, lines[0]]):
        storage.write(key, b"".join(damaged))
        with pytest.raises(ValueError, match="zip"):
            list(planned_shards(storage, job))


def test_no_job_has_no_contents_and_a_copied_folder_is_refused(storage: Storage, job: Job) -> None:
    assert contents_of(storage, "other") is None
    storage.write(JobPaths("copy").job, storage.read(JobPaths(job.job).job))
    with pytest.raises(FormatError, match="a copied folder"):
        contents_of(storage, "copy")


def test_a_job_whose_file_is_damaged_is_refused_with_what_to_do(storage: Storage, job: Job) -> None:
    storage.write(JobPaths(job.job).job, b"{")
    with pytest.raises(
        FormatError, match=r"job\.json: .*damaged.* restore the file from a backup, or remove its folder"
    ):
        find_job(storage, job.job)
