"""`retry`: what plain and `--failed` take back, and when a model stands in the way; each safe to repeat."""

from pathlib import Path

import pytest

from producer.control import cancel, retry
from producer.state import State, load_job, stored_state
from producer.submit import Request, submit
from shared.errors import PlanError
from shared.job import JobSpec, RunSpec
from shared.manifest import JobPaths, RunPaths
from shared.storage import Storage

PATHS, RUN = JobPaths("job"), RunPaths("job")
SHARD = "train-00000-of-00008"


@pytest.fixture
def storage(tmp_path: Path, small_voc: Path) -> Storage:
    """A job with a run, and one shard given up."""
    made = Storage(str(tmp_path / "store"))
    request = Request(
        dataset=small_voc, name="job", spec=JobSpec(shard_images=4), run=RunSpec(run="job", job="job"), strict=False
    )
    submit(request, storage=made, data_root=small_voc, progress=lambda *_: None)
    made.write(PATHS.failure(SHARD), b'{"reason":"disk full"}')
    return made


def state(storage: Storage) -> State:
    return stored_state(storage, load_job(storage, "job"), 0.1).state


def test_failed_shard_is_queued_again_once(storage: Storage) -> None:
    storage.write(PATHS.manifest, b"{}")
    assert retry(storage, None, "job", only_failed=True) == "job: 1 failed shards are queued again"
    assert not storage.exists(PATHS.failure(SHARD))
    assert not storage.exists(PATHS.manifest)  # to be made anew
    assert retry(storage, None, "job", only_failed=True) == "job: nothing failed, nothing to do again"


def test_only_failed_leaves_a_cancel_and_plain_retry_takes_it_back(storage: Storage) -> None:
    cancel(storage, None, "job")
    assert "stays cancelled" in retry(storage, None, "job", only_failed=True)
    assert state(storage) == "CANCELLED"
    assert storage.exists(RUN.cancelled)
    assert retry(storage, None, "job") == "job: the cancel is taken back"
    assert state(storage) == "SUBMITTED"
    assert not storage.exists(RUN.cancelled)


@pytest.mark.parametrize("only_failed", [True, False])
def test_failed_run_is_queued_again_without_touching_the_shards(storage: Storage, only_failed: bool) -> None:
    storage.remove(PATHS.failure(SHARD))
    for key in (PATHS.manifest, RUN.request, RUN.failed):
        storage.write(key, b'{"reason":"gate"}')
    assert state(storage) == "FAILED"
    assert retry(storage, None, "job", only_failed=only_failed) == "job: the failed run is queued again"
    assert state(storage) == "TRAINING"
    assert storage.exists(PATHS.manifest)


@pytest.mark.parametrize(("done", "what_to_do"), [(False, "producer cancel job"), (True, "another --job")])
def test_model_made_without_the_failed_shards_stands_in_the_way(storage: Storage, done: bool, what_to_do: str) -> None:
    for key in (PATHS.manifest, RUN.request, *([RUN.run] if done else [])):
        storage.write(key, b"{}")
    with pytest.raises(PlanError, match=what_to_do):
        retry(storage, None, "job")
    assert storage.exists(PATHS.failure(SHARD))
    assert storage.exists(PATHS.manifest)
