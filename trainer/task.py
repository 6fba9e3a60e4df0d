"""One message -> one run, claimed, done and noted; independent of Celery.

The request is in the run's `request.json`; the message only names the run. TensorFlow is imported by the work itself.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from shared import logs
from shared.broker import RunHint
from shared.errors import ELSEWHERE, FormatError, MessageError, PipelineError
from shared.jobs.identity import find_job, make_note, read_note, read_request, require_job
from shared.jobs.paths import RunPaths
from shared.jobs.versioned import read_message
from shared.leasing.guard import Guard
from shared.leasing.lease import Holder, Lease
from shared.leasing.runner import Done, Runner, store_may_refuse
from shared.leasing.scopes import RUN_UNIT, Unit, run_scope
from shared.specs.run import RunSpec
from shared.storage import Storage
from trainer.progress_note import noted

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunWorker:
    """What a trainer's process needs to do runs: the store, its terms as a lease holder, and the work itself."""

    storage: Storage
    holder: Holder
    train: Callable[[RunSpec, Guard], None]


@store_may_refuse(logger)
def do_task(message: Any, worker: RunWorker) -> None:
    """Do the run that `message` names, unless it is refused, settled or held.

    Args:
        message: The JSON value from the queue; anybody may have put it there.
        worker: This process.

    Raises:
        Exception: Whatever the work raises that is neither a `PipelineError` nor a passing fault, after the lease was
            given back with it; Celery logs it.
    """
    try:
        request = admit(message, worker.storage)
    except MessageError as error:
        logger.error("message_refused", extra={"reason": str(error)})
        return
    except FormatError as error:
        hint = read_message(RunHint, message)
        _fail_for_good(hint.run, hint.incarnation, worker.storage, error)
        return
    logs.bind(run=request.run)
    unit = Unit(scope=run_scope(request), name=RUN_UNIT, ordinal=0)
    require_wanted = partial(require_job, worker.storage, request.job, request.incarnation)
    lease = Lease(worker.holder, unit, require_wanted=require_wanted)

    def work(_attempt: int) -> Done:
        with noted(request, lease.facts, lease, worker.storage):
            worker.train(request, lease)
        return Done()

    fail_for_good = partial(_fail_for_good, request.run, request.incarnation, worker.storage)
    runner = Runner(kind="run", logger=logger, fail_for_good=fail_for_good)
    if runner.run(lease, "settled" if _is_settled(request, worker.storage) else None, work) is not None:
        logger.info("run_done")


def admit(message: Any, storage: Storage) -> RunSpec:
    """Check a message against the store.

    Raises:
        MessageError: The message is malformed, nobody asked for such a run, or its job was removed.
        FormatError: The request was written by another version, or its file is damaged.
    """
    hint = read_message(RunHint, message)
    request = read_request(storage, hint.run)
    if request is None:
        raise MessageError(f"no run {hint.run!r} was asked for in {storage.root}: {ELSEWHERE}")
    job = find_job(storage, request.job)
    if job is None or not hint.incarnation == request.incarnation == job.incarnation:
        raise MessageError(f"run {hint.run!r} was asked for by another job than those in {storage.root}: {ELSEWHERE}")
    return request


def _is_settled(request: RunSpec, storage: Storage) -> bool:
    paths = RunPaths(request.run)
    keys = (paths.run, paths.failed, paths.cancelled)
    return any(read_note(storage, key, request.incarnation) is not None for key in keys)


def _fail_for_good(run: str, incarnation: str, storage: Storage, error: PipelineError) -> None:
    """Note that a run failed and must not be tried again: the same data and request would fail the same way.

    A person has to decide, except for a `ShardError`: then the reconciler has the shard written again.
    """
    if read_note(storage, RunPaths(run).run, incarnation) is not None:
        logger.warning("run_finished_meanwhile", extra={"run": run, "reason": str(error)})
        return  # a manual export that passed has finished it
    logger.error("run_failed_for_good", extra={"run": run, "reason": str(error)})
    kind = type(error).__name__
    facts = {"run": run, "kind": kind, "reason": f"{kind}: {error}", "at": round(time.time(), 3)}
    storage.write(RunPaths(run).failed, make_note(incarnation, **facts))
