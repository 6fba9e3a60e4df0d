"""The window of messages: hints for a few shards at a time, in turn over the jobs, never more than can soon be done."""

from array import array
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final, TypeVar

from shared.broker import RUN_QUEUE, RUN_TASK, SHARD_QUEUE, SHARD_TASK, Broker, RunHint
from shared.errors import PlanError
from shared.job import Job, ShardTask
from shared.ledger import RUN_UNIT, Ledger, job_scope, run_scope
from shared.manifest import JobPaths
from shared.storage import Storage
from shared.stored import read_stored

T = TypeVar("T")

# Two hints a slot keep a worker busy while the next round comes; four let a first worker start at once.
HINTS_PER_SLOT: Final = 2
LEAST_WINDOW: Final = 4


class PlanReader:
    """The lines of a job's plan by ordinal; keeps their byte offsets, not their text."""

    def __init__(self, storage: Storage, job: Job) -> None:
        self._storage, self._job = storage, job
        self._offsets = array("Q", [0])
        for line in storage.lines(JobPaths(job.job).plan):
            self._offsets.append(self._offsets[-1] + len(line) + 1)
        if len(self._offsets) - 1 != len(job.shards):
            raise PlanError(
                f"{storage.url(JobPaths(job.job).plan)} has {len(self._offsets) - 1} lines, job.json lists "
                f"{len(job.shards)} shards: restore the file, or `producer rm {job.job}` and submit anew"
            )

    def task(self, ordinal: int) -> ShardTask:
        """The task of the shard at `ordinal`.

        Raises:
            PlanError: The line's digest is not the one that `job.json` lists.
            FormatError: The line is of another version, or damaged.
        """
        start, end = self._offsets[ordinal], self._offsets[ordinal + 1]
        key = JobPaths(self._job.job).plan
        text = self._storage.read_range(key, start, end - start - 1)
        task = read_stored(ShardTask, text, f"{self._storage.url(key)}, line {ordinal + 1}")
        if task.digest() != self._job.task_digest(task.shard):
            raise PlanError(f"{self._storage.url(key)}, line {ordinal + 1}: its digest is not the one in job.json")
        return task


def window(slots: int, queued: int) -> int:
    """How many messages may be sent now, with `slots` live slots and `queued` messages waiting."""
    return max(LEAST_WINDOW, HINTS_PER_SLOT * slots) - queued


def in_turn(pending: Iterable[Iterator[T]]) -> Iterator[T]:
    """One unit of each stream in turn, until all are empty: a large job does not starve a small one."""
    streams = deque(pending)
    while streams:
        stream = streams.popleft()
        unit = next(stream, None)
        if unit is not None:
            yield unit
            streams.append(stream)


def shard_message_id(job: str, shard: str) -> str:
    """The Celery task id of a shard's hint."""
    return f"{job}/{shard}"


def run_message_id(run: str) -> str:
    """The Celery task id of a run's hint."""
    return f"{run}/{RUN_UNIT}"


def send_shard(broker: Broker, ledger: Ledger, task: ShardTask) -> None:
    """Send the hint for one shard. Noted first: a hint noted and not sent is sent again, the other way it is doubled.

    Raises:
        BrokerError: Redis did not take it.
    """
    ledger.mark_queued(job_scope(task.job), task.shard)
    task_id = shard_message_id(task.job, task.shard)
    broker.send(task=SHARD_TASK, queue=SHARD_QUEUE, message=task, task_id=task_id)


def send_run(broker: Broker, ledger: Ledger, run: str) -> None:
    """Send the hint for one run.

    Raises:
        BrokerError: Redis did not take it.
    """
    ledger.mark_queued(run_scope(run), RUN_UNIT)
    broker.send(task=RUN_TASK, queue=RUN_QUEUE, message=RunHint(run=run), task_id=run_message_id(run))
