"""One message -> one shard, claimed, written and noted; independent of Celery.

It stands between the queue and `write_shard`: it refuses messages that are not in a plan, and owns the lease.
"""

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from shared import faults, logs
from shared.errors import ELSEWHERE, FormatError, MessageError, ShardError
from shared.jobs.identity import find_job, read_note, read_receipt, require_job
from shared.jobs.job import Job, ShardTask
from shared.jobs.paths import JobPaths
from shared.jobs.receipts import ShardReceipt, check_shard
from shared.jobs.versioned import read_message
from shared.leasing.lease import Holder, Lease
from shared.leasing.runner import Done, Runner, store_may_refuse
from shared.leasing.scopes import Unit, job_scope
from shared.storage import BucketFolder, DataFolder, Storage
from worker.isolate import Isolated, Limits
from worker.record.fetched_files import files_of
from worker.shard import write_shard

logger = logging.getLogger(__name__)

_RUNNER: Final = Runner(kind="shard", logger=logger)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardWorker:
    """What a worker's process needs to write shards: the store, the pictures, and its terms as a lease holder.

    `limits` and `fault` (for tests) are for the child that prepares the pictures of a repeated attempt.
    """

    storage: Storage
    data_root: DataFolder
    holder: Holder
    limits: Limits
    fault: str


@store_may_refuse(logger)
def do_task(message: Any, worker: ShardWorker) -> None:
    """Write the shard that `message` asks for, unless it is refused, done, held or cancelled.

    The message is a JSON value from the queue; anybody may have put it there.

    Raises:
        Exception: Whatever `write_shard` raises that is not a passing fault, after the lease was given back with it;
            Celery logs it.
    """
    try:
        task, job = admit(message, worker.storage)
        cancelled = JobPaths(job.job).cancelled
        cancellation = worker.storage.begin(partial(read_note, worker.storage, cancelled, job.incarnation))
        receipt = _held_receipt(worker.storage, job, task.shard)
    except (MessageError, FormatError) as error:
        logger.error("message_refused", extra={"reason": str(error)})
        return
    logs.bind(job=task.job, shard=task.shard)
    unit = Unit(scope=job_scope(job), name=task.shard, ordinal=job.ordinal(task.shard))
    lease = Lease(worker.holder, unit, require_wanted=partial(require_job, worker.storage, job.job, job.incarnation))
    settled = "cancelled" if cancellation() is not None else _settled(receipt, lease)
    done = _RUNNER.run(lease, settled, lambda attempt: _attempt(task, job, lease, attempt, worker))
    if done is not None:
        faults.reached("shard:after_ledger")
        logger.info("shard_written", extra={"examples": done.written, "quarantined": done.quarantined})


def admit(message: Any, storage: Storage) -> tuple[ShardTask, Job]:
    """Compare a message with its job's plan.

    Raises:
        MessageError: It is malformed, its job is unknown or was removed, or it is not the line of the plan that it
            claims to be.
        FormatError: The job was written by another version, or its file is damaged.
    """
    task = read_message(ShardTask, message)
    job = find_job(storage, task.job)
    if job is None:
        raise MessageError(f"no job {task.job!r} in {storage.root}: {ELSEWHERE}")
    if task.incarnation != job.incarnation:
        raise MessageError(f"{task.shard} is of another job {task.job!r} than that in {storage.root}: {ELSEWHERE}")
    try:
        expected = job.task_digest(task.shard)
    except KeyError as error:
        raise MessageError(f"job {task.job!r} has no shard {task.shard}") from error
    if task.digest() != expected:
        raise MessageError(f"{task.shard} of job {task.job!r} differs from its plan: digest {task.digest()[:12]}…")
    return task, job


def _held_receipt(storage: Storage, job: Job, shard: str) -> ShardReceipt | None:
    """The receipt of `shard` if its file exists with the stated size; None means that the shard is written again."""
    receipt = read_receipt(storage, job, shard)
    try:
        if receipt is not None:
            check_shard(storage, receipt, with_digest=False)
    except ShardError as error:
        logger.warning("shard_does_not_hold", extra={"shard": shard, "reason": str(error)})
        return None
    return receipt


def _settled(receipt: ShardReceipt | None, lease: Lease) -> str | None:
    """`done` if the shard has a receipt, else None; also tells the ledger, which may have missed it."""
    if receipt is None:
        return None
    lease.complete(written=receipt.written, quarantined=receipt.quarantined)
    return "done"


def _attempt(task: ShardTask, job: Job, lease: Lease, attempt: int, worker: ShardWorker) -> Done:
    """Write the shard; from the second attempt on in a child, because a picture may have killed the first attempt."""
    storage, data_root = worker.storage, worker.data_root
    with ExitStack() as stack:
        prepare = stack.enter_context(_prepared_apart(task, job, lease, worker)) if attempt > 1 else None
        receipt = write_shard(
            task, job, storage=storage, data_root=data_root, guard=lease, attempt=attempt, prepare=prepare
        )
    return Done(written=receipt.written, quarantined=receipt.quarantined)


@contextmanager
def _prepared_apart(task: ShardTask, job: Job, lease: Lease, worker: ShardWorker) -> Iterator[Isolated]:
    """Prepare pairs in a child, which reads a folder itself; files in a bucket are fetched by this process."""
    if not isinstance(worker.data_root, BucketFolder):
        with Isolated(job, worker.data_root, worker.limits, worker.fault) as apart:
            yield apart
        return
    with (
        files_of(task, job, worker.data_root, lease) as read,
        Isolated(job, None, worker.limits, worker.fault, read) as apart,
    ):
        yield apart
