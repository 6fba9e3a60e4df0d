"""One message → one shard, claimed, written and noted; free of Celery.

The door between the queue and `write_shard`: it refuses messages that are not of a plan, owns the lease, and turns
what is raised into a release with its reason. It never retries; only the reconciler queues again.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from shared import faults, logs
from shared.errors import Cancelled, FormatError, LeaseLost, MessageError, StopRequested, StorageError
from shared.job import Job, ShardTask
from shared.lease import Lease, LeaseTerms
from shared.ledger import Ledger, Unit, job_scope
from shared.manifest import JobPaths, ShardReceipt, read_receipt
from shared.storage import Storage
from shared.stored import read_message, read_stored
from worker.isolate import Limits, isolated
from worker.shard import write_shard

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """Where a worker works: its store, its pictures, its ledger, its name and terms."""

    storage: Storage
    data_root: Path
    ledger: Ledger
    worker: str
    terms: LeaseTerms
    limits: Limits
    fault: str
    should_stop: Callable[[], bool]


def do_task(message: Any, bench: Bench) -> ShardReceipt | None:
    """Do what `message` hints at, if it is ours to do.

    Args:
        message: The JSON value from the queue; anybody may have put it there.
        bench: Where this worker works.

    Returns:
        The receipt, or None where the message was refused, or the shard is done, held, cancelled or given back.

    Raises:
        Exception: Whatever `write_shard` raises that no `PipelineError` or `OSError` explains, after the lease went
            back with it; Celery logs it.
    """
    try:
        task, job = admit(message, bench.storage)
        receipt = read_receipt(bench.storage, task.job, task.shard)
    except (MessageError, FormatError) as error:
        logger.error("message_refused", extra={"reason": str(error)})
        return None
    logs.bind(job=task.job, shard=task.shard)
    unit = Unit(scope=job_scope(task.job), name=task.shard, ordinal=job.ordinal(task.shard))
    lease = Lease(bench.ledger, unit, bench.terms, worker=bench.worker, should_stop=bench.should_stop)
    if _is_settled(task, receipt, lease, bench.storage):
        return None
    outcome, attempt = lease.claim()
    if outcome != "claimed":
        logger.info("shard_not_claimed", extra={"outcome": outcome})
        return None
    logs.bind(attempt=attempt)
    with lease.renewed():
        return _write(task, job, lease, attempt, bench)


def admit(message: Any, storage: Storage) -> tuple[ShardTask, Job]:
    """Hold a message against its job's plan.

    Raises:
        MessageError: It is malformed, its job is unknown, or it is not the line of the plan that it says to be.
        FormatError: The job was written by another version, or its file is damaged.
    """
    task = read_message(ShardTask, message)
    text = storage.read_or_none(JobPaths(task.job).job)
    if text is None:
        raise MessageError(f"no job {task.job!r} in {storage.root}")
    job = read_stored(Job, text, storage.url(JobPaths(task.job).job))
    try:
        expected = job.task_digest(task.shard)
    except KeyError as error:
        raise MessageError(f"job {task.job!r} has no shard {task.shard}") from error
    if task.digest() != expected:
        raise MessageError(f"{task.shard} of job {task.job!r} differs from its plan: digest {task.digest()[:12]}…")
    return task, job


def _is_settled(task: ShardTask, receipt: ShardReceipt | None, lease: Lease, storage: Storage) -> bool:
    """Whether storage says that there is nothing to do, whatever Redis says."""
    if storage.exists(JobPaths(task.job).cancelled):
        logger.info("shard_not_claimed", extra={"outcome": "cancelled"})
        return True
    if receipt is None:
        return False
    lease.complete(written=receipt.written, quarantined=receipt.quarantined)
    logger.info("shard_not_claimed", extra={"outcome": "done"})
    return True


def _write(task: ShardTask, job: Job, lease: Lease, attempt: int, bench: Bench) -> ShardReceipt | None:
    try:
        receipt = _attempt(task, job, lease, attempt, bench)
    except StopRequested:
        logger.info("shard_given_back")
        lease.release(counted=False)
        return None
    except (Cancelled, LeaseLost) as error:
        logger.warning("shard_left", extra={"reason": str(error)})
        lease.release(counted=False)
        return None
    except (StorageError, OSError, MemoryError) as error:
        # Celery would end the whole worker on a MemoryError.
        logger.error("shard_failed", extra={"reason": repr(error)})
        lease.release(counted=True, error=str(error) or type(error).__name__)
        return None
    except BaseException as error:
        lease.release(counted=True, error=f"{type(error).__name__}: {error}")
        raise
    lease.complete(written=receipt.written, quarantined=receipt.quarantined)
    faults.reached("shard:after_ledger")
    logger.info("shard_written", extra={"examples": receipt.written, "quarantined": receipt.quarantined})
    return receipt


def _attempt(task: ShardTask, job: Job, lease: Lease, attempt: int, bench: Bench) -> ShardReceipt:
    """Write the shard; from the second attempt on in isolation, because something in it may have killed the first."""
    write = partial(
        write_shard, task, job, storage=bench.storage, data_root=bench.data_root, guard=lease, attempt=attempt
    )
    if attempt == 1:
        return write()
    with isolated(job, bench.data_root, bench.limits, bench.fault) as prepare:
        return write(prepare=prepare)
