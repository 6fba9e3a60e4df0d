"""Sends hints for a few shards at a time, taking the jobs in turn, and never more than can soon be done."""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final, TypeVar

from shared.broker import RUN_TASK, SHARD_TASK, Broker, RunHint
from shared.jobs.job import ShardTask
from shared.leasing.ledger import Ledger
from shared.leasing.scopes import RUN_QUEUE, RUN_UNIT, SHARD_QUEUE, job_scope, message_id, run_scope
from shared.specs.run import RunSpec

T = TypeVar("T")

# Two hints per slot keep a worker busy until the next round; four in all let a first worker start at once.
HINTS_PER_SLOT: Final = 2
LEAST_WINDOW: Final = 4


def window(slots: int, queued: int) -> int:
    """How many messages may be sent now, with `slots` live slots and `queued` messages waiting."""
    return max(LEAST_WINDOW, HINTS_PER_SLOT * slots) - queued


def in_turn(pending: Iterable[Iterator[T]]) -> Iterator[T]:
    """One unit of each stream in turn, until all are empty, so that a large job does not starve a small one."""
    streams = deque(pending)
    while streams:
        stream = streams.popleft()
        unit = next(stream, None)
        if unit is not None:
            yield unit
            streams.append(stream)


def send_shard(broker: Broker, ledger: Ledger, task: ShardTask) -> None:
    """Send the hint for one shard.

    The hint is noted first: one noted but not sent is sent again later, but one sent and not noted would be sent twice.

    Raises:
        BrokerError: Redis did not take it.
    """
    scope = job_scope(task)
    ledger.mark_queued(scope, task.shard)
    broker.send(task=SHARD_TASK, queue=SHARD_QUEUE, message=task, task_id=message_id(scope, task.shard))


def send_run(broker: Broker, ledger: Ledger, asked: RunSpec) -> None:
    """Send the hint for one run.

    Raises:
        BrokerError: Redis did not take it.
    """
    scope, hint = run_scope(asked), RunHint(run=asked.run, incarnation=asked.incarnation)
    ledger.mark_queued(scope, RUN_UNIT)
    broker.send(task=RUN_TASK, queue=RUN_QUEUE, message=hint, task_id=message_id(scope, RUN_UNIT))
