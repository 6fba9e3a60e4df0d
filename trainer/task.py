"""One message → one run, claimed, done and noted; free of Celery.

What is asked is in the run's `request.json`; the message only names the run. TensorFlow is imported by the work itself.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from shared import logs
from shared.broker import RunHint
from shared.errors import (
    Cancelled,
    FormatError,
    LeaseLost,
    MessageError,
    PipelineError,
    StopRequested,
    StorageError,
)
from shared.guard import Guard
from shared.job import RunSpec, canonical_json
from shared.lease import Lease, LeaseTerms
from shared.ledger import RUN_UNIT, Ledger, Unit, run_scope
from shared.manifest import RunPaths
from shared.storage import Storage
from shared.stored import read_message, read_stored

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """Where a trainer works: its store, its ledger, its name and terms, and the work itself."""

    storage: Storage
    ledger: Ledger
    worker: str
    terms: LeaseTerms
    should_stop: Callable[[], bool]
    work: Callable[[RunSpec, Guard], None]


def do_task(message: Any, bench: Bench) -> None:
    """Do the run that `message` names, if it is ours to do.

    Args:
        message: The JSON value from the queue; anybody may have put it there.
        bench: Where this trainer works.

    Raises:
        Exception: Whatever the work raises that no `PipelineError` or `OSError` explains, after the lease went back
            with it; Celery logs it.
    """
    try:
        request = admit(message, bench.storage)
    except MessageError as error:
        logger.error("message_refused", extra={"reason": str(error)})
        return
    except FormatError as error:
        _fail_for_good(read_message(RunHint, message).run, error, bench.storage)
        return
    logs.bind(run=request.run)
    if _is_settled(request.run, bench.storage):
        logger.info("run_not_claimed", extra={"outcome": "settled"})
        return
    unit = Unit(scope=run_scope(request.run), name=RUN_UNIT, ordinal=0)
    lease = Lease(bench.ledger, unit, bench.terms, worker=bench.worker, should_stop=bench.should_stop)
    outcome, attempt = lease.claim()
    if outcome != "claimed":
        logger.info("run_not_claimed", extra={"outcome": outcome})
        return
    logs.bind(attempt=attempt)
    with lease.renewed():
        _work(request, lease, bench)


def admit(message: Any, storage: Storage) -> RunSpec:
    """Hold a message against the store.

    Raises:
        MessageError: It is malformed, or nobody asked for such a run.
        FormatError: The request was written by another version, or its file is damaged.
    """
    hint = read_message(RunHint, message)
    key = RunPaths(hint.run).request
    text = storage.read_or_none(key)
    if text is None:
        raise MessageError(f"no run {hint.run!r} was asked for in {storage.root}")
    return read_stored(RunSpec, text, storage.url(key))


def _is_settled(run: str, storage: Storage) -> bool:
    paths = RunPaths(run)
    return any(storage.exists(key) for key in (paths.run, paths.failed, paths.cancelled))


def _work(request: RunSpec, lease: Lease, bench: Bench) -> None:
    try:
        bench.work(request, lease)
    except StopRequested:
        logger.info("run_given_back")
        lease.release(counted=False)
    except (Cancelled, LeaseLost) as error:
        logger.warning("run_left", extra={"reason": str(error)})
        lease.release(counted=False)
    except (StorageError, OSError) as error:
        logger.error("run_failed", extra={"reason": str(error)})
        lease.release(counted=True, error=str(error))
    except PipelineError as error:
        _fail_for_good(request.run, error, bench.storage)
        lease.release(counted=True, error=str(error))
    except BaseException as error:
        lease.release(counted=True, error=f"{type(error).__name__}: {error}")
        raise
    else:
        lease.complete()
        logger.info("run_done")


def _fail_for_good(run: str, error: PipelineError, storage: Storage) -> None:
    """The same data and request fail the same way again: no second attempt, a person has to decide."""
    logger.error("run_failed_for_good", extra={"run": run, "reason": str(error)})
    failure = canonical_json({"run": run, "reason": f"{type(error).__name__}: {error}"})
    storage.write(RunPaths(run).failed, failure.encode())
