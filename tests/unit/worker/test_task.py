"""One message -> one shard: what is refused, what is settled, what is written, and by whom in a repeated attempt."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shared.jobs.identity import make_note, read_receipt
from shared.jobs.job import Job, ShardTask
from shared.jobs.paths import JobPaths
from shared.leasing.lease import Lease
from shared.leasing.scopes import Unit, job_scope
from shared.storage import Storage
from tests.cluster import Broker
from tests.task_logs import events
from tests.unit.shared.leasing.holders import holder
from tests.unit.worker.pictures import encode, make_job, soft_picture, voc_xml, write_pair
from worker.isolate import Limits
from worker.task import ShardWorker, do_task

pytestmark = pytest.mark.usefixtures("task_logs")


PATHS = JobPaths("job")
SHARD = "train-00000-of-00001"


class Submitted:
    """A job of one shard in a store, and a worker's process for it."""

    def __init__(self, folder: Path, broker: Broker) -> None:
        (folder / "store").mkdir()
        self.folder, self.broker = folder, broker
        self.storage = Storage(str(folder / "store"))
        pair = write_pair(folder / "set", "a", encode(soft_picture(100, 80)), voc_xml((10, 10, 60, 50)))
        self.job, self.task = make_job(pair)
        self.storage.write(PATHS.job, self.job.to_json().encode())

    def do(self, message: Any = None, *, fault: str = "", stop: Callable[[], bool] = lambda: False) -> None:
        worker = ShardWorker(
            storage=self.storage,
            data_root=self.folder,
            holder=holder(self.broker, should_stop=stop),
            limits=Limits(memory_mb=4096, picture_s=60),
            fault=fault,
        )
        do_task(self.task.model_dump(mode="json") if message is None else message, worker)

    @property
    def receipt_attempt(self) -> int | None:
        """The attempt that wrote the shard; None where it is not written."""
        receipt = read_receipt(self.storage, self.job, SHARD)
        return None if receipt is None else receipt.attempt

    @property
    def done(self) -> int:
        return self.broker.ledger().done_count(job_scope(self.job))

    def errors(self) -> dict[str, str]:
        return self.broker.ledger().under_way(job_scope(self.job), lambda _: True).errors


@pytest.fixture
def submitted(tmp_path: Path, broker: Broker) -> Submitted:
    return Submitted(tmp_path, broker)


def test_a_message_of_the_plan_becomes_a_shard(submitted: Submitted, caplog: pytest.LogCaptureFixture) -> None:
    submitted.do(fault="isolated:start")  # which ends a child: the first attempt has none
    assert (submitted.receipt_attempt, submitted.done) == (1, 1)
    assert events(caplog) == [("shard_written", 1)]


def test_pairs_that_are_set_aside_are_counted_in_the_ledger_too(submitted: Submitted) -> None:
    (submitted.folder / "set/JPEGImages/a.jpg").write_bytes(b"another picture")
    submitted.do()
    state = submitted.broker.ledger().read_state(job_scope(submitted.job))
    assert (state.written, state.quarantined, submitted.done) == (0, 1, 1)


def message(task: ShardTask, **changes: Any) -> Any:
    return json.loads(task.to_json()) | changes


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"job": "other"}, "no job 'other'"),
        ({"incarnation": "0" * 32}, "of another job 'job'"),
        ({"split": "val"}, "has no shard val-"),
        ({"pairs": []}, "differs from its plan"),
        ({"schema_version": 2}, "schema version 2"),
        ({"surplus": 1}, "not a ShardTask"),
    ],
)
def test_a_message_that_is_not_of_the_plan_is_refused_with_the_reason(
    submitted: Submitted, caplog: pytest.LogCaptureFixture, changes: dict[str, Any], reason: str
) -> None:
    submitted.do(message(submitted.task, **changes))
    ((event, found),) = events(caplog)
    assert event == "message_refused"
    assert reason in found
    assert submitted.receipt_attempt is None


@pytest.mark.parametrize("path", [PATHS.job, PATHS.receipt(SHARD)])
@pytest.mark.parametrize(("content", "reason"), [(b'{"schema_version": 2}', "schema version 2"), (b"{", "damaged")])
def test_files_that_this_version_cannot_judge_are_left_alone_and_a_damaged_receipt_counts_as_none(
    submitted: Submitted, caplog: pytest.LogCaptureFixture, path: str, content: bytes, reason: str
) -> None:
    submitted.storage.write(path, content)
    submitted.do()
    ((event, found),) = events(caplog)
    if (path, reason) == (PATHS.receipt(SHARD), "damaged"):
        assert (event, submitted.receipt_attempt) == ("shard_written", 1)
    else:
        assert event == "message_refused"
        assert reason in found
        assert submitted.storage.read(path) == content


def test_a_cancelled_job_is_left_alone_whatever_redis_says(
    submitted: Submitted, caplog: pytest.LogCaptureFixture
) -> None:
    submitted.storage.write(PATHS.cancelled, make_note(submitted.job.incarnation))
    submitted.do()
    assert events(caplog) == [("shard_not_claimed", "cancelled")]
    assert submitted.receipt_attempt is None


def test_a_shard_that_is_written_is_noted_again_after_a_wipe_and_not_written(
    submitted: Submitted, caplog: pytest.LogCaptureFixture
) -> None:
    submitted.do()
    submitted.broker.ledger().client.flushall()
    caplog.clear()
    submitted.do()
    assert events(caplog) == [("shard_not_claimed", "done")]
    assert submitted.done == 1


def test_a_receipt_whose_file_is_truncated_does_not_count(
    submitted: Submitted, caplog: pytest.LogCaptureFixture
) -> None:
    submitted.do()
    submitted.storage.write(PATHS.tfrecord(SHARD), b"cut")
    submitted.broker.ledger().client.flushall()
    caplog.clear()
    submitted.do()
    assert [event for event, _ in events(caplog)] == ["shard_does_not_hold", "shard_written"]
    assert submitted.storage.size_or_none(PATHS.tfrecord(SHARD)) != 3


def test_a_request_to_stop_gives_the_shard_back_uncounted_and_leaves_no_file(
    submitted: Submitted, caplog: pytest.LogCaptureFixture
) -> None:
    submitted.do(stop=lambda: True)
    assert [event for event, _ in events(caplog)] == ["shard_given_back"]
    assert submitted.storage.list_names(PATHS.shards) == []
    submitted.do()
    assert submitted.receipt_attempt == 1


@pytest.mark.parametrize("is_followed", [False, True], ids=["removed", "removed and submitted again"])
def test_a_job_that_is_removed_while_a_picture_is_prepared_gets_no_file(
    submitted: Submitted, caplog: pytest.LogCaptureFixture, is_followed: bool
) -> None:
    def remove() -> bool:
        if is_followed:
            following = submitted.job.model_copy(update={"incarnation": "1" * 32})
            submitted.storage.write(PATHS.job, following.to_json().encode())
        else:
            submitted.storage.write(PATHS.removed, make_note(submitted.job.incarnation))
        return False

    submitted.do(stop=remove)
    ((event, reason),) = events(caplog)
    assert event == "shard_left"
    assert reason.startswith("job job was removed")
    assert submitted.storage.list_names(PATHS.shards) == []


def _claimed(job: Job, broker: Broker) -> Lease:
    lease = Lease(holder(broker), Unit(scope=job_scope(job), name=SHARD, ordinal=0))
    lease.claim()
    return lease


def test_a_repeated_attempt_is_made_apart_and_writes_the_same_bytes(submitted: Submitted) -> None:
    submitted.do()
    first = submitted.storage.read(PATHS.tfrecord(SHARD))
    submitted.storage.remove(PATHS.receipt(SHARD))
    submitted.broker.ledger().client.flushall()
    _claimed(submitted.job, submitted.broker).release(counted=True, error="x")
    submitted.do()
    assert submitted.receipt_attempt == 2
    assert submitted.storage.read(PATHS.tfrecord(SHARD)) == first


def test_a_child_that_dies_in_its_start_is_a_failed_attempt_and_no_pictures_fault(
    submitted: Submitted, caplog: pytest.LogCaptureFixture
) -> None:
    _claimed(submitted.job, submitted.broker).release(counted=True, error="x")
    submitted.do(fault="isolated:start")
    assert [event for event, _ in events(caplog)] == ["shard_failed"]
    assert "ended its process by SIGKILL in its start" in submitted.errors()[SHARD]
    assert submitted.receipt_attempt is None


def test_a_missing_data_set_fails_the_attempt_with_the_reason(
    submitted: Submitted, caplog: pytest.LogCaptureFixture
) -> None:
    (submitted.folder / "set").rename(submitted.folder / "gone")
    submitted.do()
    assert [event for event, _ in events(caplog)] == ["shard_failed"]
    assert "the folder of the data set is absent" in submitted.errors()[SHARD]
