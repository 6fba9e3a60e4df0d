"""`retry`: what plain and `--failed` take back, what is verified, when a model stands in the way; safe to repeat."""

from pathlib import Path

import pytest

from producer.finalize.dataset_files import dataset_files
from producer.jobs.control import cancel, note_of, retry
from producer.jobs.submit import Request
from producer.state.standing import State
from producer.state.status import times_retried
from producer.state.stored import load_job, stored_state
from shared.errors import PlanError
from shared.jobs.identity import read_receipt
from shared.jobs.job import ShardTask
from shared.jobs.paths import JobPaths, RunPaths
from shared.leasing.guard import Unguarded
from shared.specs.data import JobSpec
from shared.specs.training import TrainingOptions
from shared.storage import Storage
from tests.tiny import make_tiny_voc
from tests.unit.producer.folders import lint_and_submit
from worker.shard import write_shard

PATHS, RUN = JobPaths("job"), RunPaths("job")
SHARD = "train-00000-of-00008"


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    """A job with a run, all its shards written but one, which was given up."""
    made, folder = Storage(str(tmp_path / "store")), make_tiny_voc(tmp_path / "voc", 160)
    spec = JobSpec(shard_images=32, image_size=32)
    request = Request(dataset=folder, name="job", spec=spec, run=TrainingOptions())
    job = lint_and_submit(request, storage=made, data_root=folder).job
    for line in made.lines(PATHS.plan(job.incarnation)):
        task = ShardTask.model_validate_json(line)
        if task.shard != SHARD:
            write_shard(task, job, storage=made, data_root=folder, guard=Unguarded(), attempt=1)
    made.write(PATHS.failure(SHARD), note_of(job, shard=SHARD, reason="disk full"))
    return made


def state(storage: Storage) -> State:
    return stored_state(storage, load_job(storage, "job"), 0.1).state


def write_rest(storage: Storage) -> None:
    """Write the shard that was given up, after all."""
    job = load_job(storage, "job")
    storage.remove(PATHS.failure(SHARD))
    tasks = map(ShardTask.model_validate_json, storage.lines(PATHS.plan(job.incarnation)))
    task = next(task for task in tasks if task.shard == SHARD)
    write_shard(task, job, storage=storage, data_root=Path(job.dataset), guard=Unguarded(), attempt=1)


def finalize(storage: Storage, *notes: str) -> None:
    """Write the manifest without the shard that was given up, and `notes` of the run."""
    job = load_job(storage, "job")
    receipts = [receipt for shard in job.shards if (receipt := read_receipt(storage, job, shard))]
    dataset_files(job, receipts, storage)
    for key in notes:
        storage.write(key, note_of(job, reason="gate"))


def test_failed_shard_is_queued_again_once(storage: Storage) -> None:
    finalize(storage)
    assert retry(storage, None, "job", only_failed=True) == "job: 1 failed shard is queued again"
    assert not storage.exists(PATHS.failure(SHARD))
    assert not storage.exists(PATHS.manifest)  # to be made anew
    assert retry(storage, None, "job", only_failed=True) == "job: nothing failed, nothing to do again"
    assert times_retried(storage, load_job(storage, "job")) == 2


def test_only_failed_leaves_a_cancel_and_plain_retry_takes_it_back(storage: Storage) -> None:
    cancel(storage, None, "job")
    assert "stays cancelled" in retry(storage, None, "job", only_failed=True)
    assert state(storage) == "CANCELLED"
    assert storage.exists(RUN.cancelled)
    assert retry(storage, None, "job") == "job: the cancel is taken back"
    assert state(storage) == "RUNNING"
    assert not storage.exists(RUN.cancelled)


@pytest.mark.parametrize("only_failed", [True, False])
def test_failed_run_is_queued_again_without_touching_the_shards(storage: Storage, only_failed: bool) -> None:
    write_rest(storage)
    finalize(storage, RUN.request, RUN.failed)
    assert state(storage) == "FAILED"
    assert retry(storage, None, "job", only_failed=only_failed) == "job: the failed run is queued again"
    assert state(storage) == "TRAINING"
    assert storage.exists(PATHS.manifest)


@pytest.mark.parametrize(("done", "what_to_do"), [(False, "cancel job --store"), (True, "another --job")])
def test_model_made_without_the_failed_shards_stands_in_the_way(storage: Storage, done: bool, what_to_do: str) -> None:
    finalize(storage, RUN.request, *([RUN.run] if done else []))
    with pytest.raises(PlanError, match=what_to_do):
        retry(storage, None, "job")
    assert storage.exists(PATHS.failure(SHARD))
    assert storage.exists(PATHS.manifest)


@pytest.mark.parametrize("fault", ["flipped byte", "no receipt", "no records", "other boxes"])
def test_what_does_not_hold_any_more_is_written_again(storage: Storage, fault: str) -> None:
    write_rest(storage)
    finalize(storage, RUN.request, RUN.run)
    assert state(storage) == "DONE"
    records = storage.local_path(PATHS.tfrecord(SHARD))
    if fault == "flipped byte":
        content = bytearray(records.read_bytes())
        content[len(content) // 2] ^= 1
        records.write_bytes(content)
    elif fault == "other boxes":
        storage.write(PATHS.shard_annotations(SHARD), b"{}")
    else:
        storage.remove(PATHS.receipt(SHARD) if fault == "no receipt" else PATHS.tfrecord(SHARD))
        assert state(storage) == "RUNNING"  # seen without looking into files
    assert "1 shard that does not match its receipt is written again" in retry(storage, None, "job")
    assert state(storage) == "RUNNING"
    assert not storage.exists(PATHS.receipt(SHARD))
    write_rest(storage)
    finalize(storage)
    assert state(storage) == "DONE"
