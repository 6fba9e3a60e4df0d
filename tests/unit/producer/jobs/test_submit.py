"""Admission: names, folders, and recognising the same request."""

from collections.abc import Callable
from pathlib import Path

import pytest

from producer.jobs.control import cancel, note_of, retry
from producer.jobs.removal import remove
from producer.jobs.submit import Request, folder_below, name_from, request_digest
from producer.state.stored import load_job, stored_state
from shared.command import hint
from shared.errors import LintError, OptionError, PlanError
from shared.jobs.paths import JobPaths
from shared.specs.data import JobSpec
from shared.specs.training import TrainingOptions
from shared.storage import Storage
from tests.tiny import make_tiny_voc
from tests.unit.producer.folders import lint_and_submit

SPEC = JobSpec(shard_images=8)


def request(
    folder: Path, name: str | None = "job", spec: JobSpec = SPEC, run: TrainingOptions | None = None
) -> Request:
    return Request(dataset=folder, name=name, spec=spec, run=run)


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage(str(tmp_path / "store"))


def test_job_is_in_storage_with_its_plan_before_anything_is_queued(storage: Storage, small_voc: Path) -> None:
    made = lint_and_submit(request(small_voc), storage=storage, data_root=small_voc.parent)
    assert made.outcome == "new"
    job = load_job(storage, "job")
    assert job == made.job
    assert job.folder == "shapes"
    assert len(list(storage.lines(JobPaths("job").plan(job.incarnation)))) == len(job.shards)
    assert stored_state(storage, job, 0.1).state == "SUBMITTED"


def test_same_request_is_recognised_and_another_never_overwrites(storage: Storage, small_voc: Path) -> None:
    lint_and_submit(request(small_voc), storage=storage, data_root=small_voc)
    before = storage.read(JobPaths("job").job)
    again = lint_and_submit(request(small_voc), storage=storage, data_root=small_voc)
    assert again.outcome == "known"
    other = request(small_voc, spec=JobSpec(shard_images=8, image_size=64))
    with pytest.raises(PlanError, match=r"other options \(image_size\) and is never overwritten") as refused:
        lint_and_submit(other, storage=storage, data_root=small_voc)
    command = hint("submit", small_voc, "--job", "job-2", *["--image-size", "64", "--shard-images", "8", "--no-train"])
    assert f"`{command} --store {storage.root}` makes one beside it" in str(refused.value)
    folder = make_tiny_voc(small_voc.parent / "tiny", 10)
    with pytest.raises(PlanError, match=rf"exists with other photos \({small_voc}\) and is never overwritten"):
        lint_and_submit(request(folder), storage=storage, data_root=folder)
    both = request(folder, spec=JobSpec(shard_images=8, image_size=64))
    with pytest.raises(PlanError, match=rf"other photos \({small_voc}\) and options \(image_size\) and is never"):
        lint_and_submit(both, storage=storage, data_root=folder)
    assert storage.read(JobPaths("job").job) == before


def test_a_photo_removed_since_leaves_two_ways_on(storage: Storage, copied_voc: Callable[[], Path]) -> None:
    photos, run = copied_voc(), TrainingOptions(model="nano")
    lint_and_submit(request(photos, run=run), storage=storage, data_root=photos)
    next(iter((photos / "Annotations").glob("*.xml"))).unlink()
    with pytest.raises(PlanError, match="exists with other pictures") as refused:
        lint_and_submit(request(photos, run=run), storage=storage, data_root=photos)
    assert f"`{hint('resume', 'job', store=storage)}` goes on with those of its pictures that are still there" in str(
        refused.value
    )
    # `auto` was asked for then and now: what it meant for the photos of then is nothing to type.
    assert "--backbone" not in str(refused.value)


def test_digest_follows_what_is_asked_and_not_the_names(small_voc: Path) -> None:
    run = TrainingOptions()
    digest = request_digest(request(small_voc, run=run), "f")
    assert request_digest(request(small_voc, name="other", run=TrainingOptions()), "f") == digest
    assert request_digest(request(small_voc, run=None), "f") != digest
    assert request_digest(request(small_voc, run=run), "g") != digest
    assert request_digest(request(small_voc, run=TrainingOptions(epochs=3)), "f") != digest


def test_digest_is_the_one_that_version_0_1_0_made(small_voc: Path) -> None:
    # A request for a known run has the precision that version wrote down (`with_backbone`).
    asked = request(small_voc, spec=JobSpec(), run=TrainingOptions(backbone="conv", precision="float32"))
    assert request_digest(asked, "f") == "5eed3322f019186ab0c373ad975b4d323b997fd99d532b9277eb74aa2a082d03"


@pytest.mark.parametrize("name", ["Job", "../job", "-job", "a b", "", "x" * 65])
def test_name_that_is_no_folder_name_everywhere_is_refused(storage: Storage, small_voc: Path, name: str) -> None:
    if not name:
        assert name_from(Path("/Ünïcode Photos/")) == "n-code-photos"
        return
    with pytest.raises(OptionError, match="no job name"):
        lint_and_submit(request(small_voc, name=name), storage=storage, data_root=small_voc)
    assert not storage.exists(JobPaths("job").job)


def test_folder_outside_the_data_root_is_refused_with_what_to_do(small_voc: Path, tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="VOC_DATA_ROOT"):
        folder_below(small_voc, tmp_path)
    with pytest.raises(PlanError, match=r"found no folder \(in .* there are: "):
        folder_below(tmp_path / "absent", tmp_path)


def test_unusable_set_stops_before_anything_is_written(storage: Storage, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(LintError):
        lint_and_submit(request(tmp_path / "empty"), storage=storage, data_root=tmp_path)
    assert not Path(storage.root).exists()


def test_cancel_retry_and_rm_are_safe_to_repeat(storage: Storage, small_voc: Path) -> None:
    lint_and_submit(request(small_voc), storage=storage, data_root=small_voc)
    job = load_job(storage, "job")
    for _ in range(2):
        cancel(storage, None, "job")
        assert stored_state(storage, job, 0.1).state == "CANCELLED"
    for _ in range(2):
        retry(storage, None, "job")
        assert stored_state(storage, job, 0.1).state == "SUBMITTED"
    remove(storage, None, "job")
    assert storage.list_names("jobs/job") == []
    with pytest.raises(PlanError, match="no job 'job'"):
        remove(storage, None, "job")


def test_job_fails_only_above_its_share_of_failed_shards(storage: Storage, small_voc: Path) -> None:
    lint_and_submit(request(small_voc), storage=storage, data_root=small_voc)
    job = load_job(storage, "job")
    for shard in job.shards:
        storage.write(JobPaths("job").failure(shard), note_of(job, shard=shard))
    assert stored_state(storage, job, 0.1).state == "FAILED"
    assert stored_state(storage, job, 1.0).state == "RUNNING"
