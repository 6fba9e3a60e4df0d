"""What is posted of a job that failed and of an added run, and that an end which is no news is not."""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from producer.jobs.control import note_of
from producer.reconcile.announce import SINCE, Announcer, announcement
from producer.settings import ProducerSettings
from producer.state.status import job_status
from producer.state.stored import load_job
from shared.jobs.paths import JobPaths, RunPaths
from shared.specs.data import JobSpec
from shared.storage import Storage
from tests.queue.test_announce import Receiver
from tests.tiny import make_tiny_voc
from tests.unit.producer.jobs.test_reuse import ask
from tests.unit.producer.state.test_runs import add, finished_job


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.server.shutdown()
    made.server.server_close()


def announce(storage: Storage, receiver: Receiver, job: str = "job") -> None:
    announcer = Announcer(storage, ProducerSettings(notify_url=SecretStr(receiver.url)))
    announcer.see(load_job(storage, job))
    announcer.stop(wait=True)


def test_a_failed_job_says_why(tmp_path: Path, receiver: Receiver) -> None:
    storage = Storage(str(tmp_path / "store"))
    job = ask(make_tiny_voc(tmp_path / "voc", 12), "job", storage, JobSpec(image_size=32)).job
    announce(storage, receiver)
    assert receiver.posts == []
    for shard in job.shards:
        storage.write(JobPaths("job").failure(shard), note_of(job, reason="disk full\nand more"))
    announce(storage, receiver)
    announce(storage, receiver)  # another process
    [told] = receiver.posts
    assert (told["state"], told["run"], told["error"]) == ("FAILED", None, "disk full")
    assert (told["text"], told["shards_failed"]) == ("job job failed: disk full", len(job.shards))


def test_lint_that_opens_the_pictures_is_not_announced(tmp_path: Path, receiver: Receiver) -> None:
    storage = Storage(str(tmp_path / "store"))
    job = ask(make_tiny_voc(tmp_path / "voc", 12), "lint-1", storage, JobSpec(image_size=32, dry=True)).job
    for shard in job.shards:
        storage.write(JobPaths(job.job).failure(shard), note_of(job, reason="disk full"))
    announce(storage, receiver, job.job)
    assert receiver.posts == []


def test_an_added_run_is_told_by_its_name(tmp_path: Path, receiver: Receiver) -> None:
    storage = finished_job(tmp_path, make_tiny_voc(tmp_path / "voc", 24))
    announce(storage, receiver)
    add(storage)
    storage.write(RunPaths("two").failed, note_of(load_job(storage, "job"), reason="gate"))
    announce(storage, receiver)
    assert [(told["run"], told["text"]) for told in receiver.posts] == [("two", "run two of job job failed: gate")]


def test_the_text_of_a_finished_run_says_how_good_it_is_and_how_sure_that_is(tmp_path: Path) -> None:
    storage = finished_job(tmp_path, make_tiny_voc(tmp_path / "voc", 24))
    job = load_job(storage, "job")
    sure: dict[str, Any] = {"map50": 0.914, "map50_interval": (0.88, 0.941), "objects": 26, "took_s": 725.0}
    status = replace(job_status(storage, None, job, 0.1), state="DONE", **sure)
    told = announcement(job, status)
    assert told["text"] == "job job is done after 12 minutes of work: mAP50 91.4 % (88.0 to 94.1, 26 objects)"
    assert (told["map50_interval"], told["objects"]) == ((0.88, 0.941), 26)
    assert announcement(job, replace(status, state="CANCELLED"))["text"] == "job job was cancelled"


def test_jobs_that_ended_before_notify_was_set_are_not_announced(tmp_path: Path, receiver: Receiver) -> None:
    storage = finished_job(tmp_path, make_tiny_voc(tmp_path / "voc", 24))
    storage.write(RunPaths("job").failed, note_of(load_job(storage, "job"), reason="gate"))
    time.sleep(0.05)
    announce(storage, receiver)
    assert storage.exists(SINCE)
    assert receiver.posts == []
