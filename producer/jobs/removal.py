"""Removes a job: writes a note that it is removed, gives its workers time to see the note, then removes its files.

The process may be killed after any step: the same command, or a submit under the same name, finishes the removal.
"""

import logging
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

from redis.exceptions import RedisError

from producer.jobs.control import note_of, scopes_of, tell_redis
from producer.state.local_lock import has_local_run
from producer.state.runs import runs_of, with_its_folds
from producer.state.status import job_status
from producer.state.stored import TERMINAL, is_cancelled, load_job, run_state, stored_state
from shared import faults
from shared.command import hint
from shared.errors import FormatError, PlanError
from shared.jobs.identity import is_name, is_removed, read_job_file, read_request
from shared.jobs.job import Job
from shared.jobs.paths import JobPaths, RunPaths
from shared.leasing.lease import RENEW_MOST_S
from shared.leasing.ledger import Ledger
from shared.leasing.scopes import is_run_unit, run_scope
from shared.specs.run import RunSpec
from shared.storage import Storage
from shared.text import counted

logger = logging.getLogger(__name__)

# Whoever holds a lease renews it at least this often, and learns at that moment that its job is cancelled.
WAIT_FOR_HOLDERS_S: Final = RENEW_MOST_S + 1.0
# A local run looks at its job twice a second, and then ends its processes.
WAIT_FOR_LOCAL_RUN_S: Final = 40.0
_PAUSE_S: Final = 0.1


def remove(storage: Storage, ledger: Ledger | None, name: str, run: str | None = None) -> str:
    """Remove the outputs of a job and its runs, or only those of its run `run`, or what an interrupted removal left.

    The pictures are never touched.

    Returns:
        What was done, for a person.

    Raises:
        PlanError: There is no such job or run, it is running (cancel it first), or a local run does not stop.
        FormatError: `job.json` cannot be read, or is of another job (a copied folder), so it is not ours to remove.
    """
    job = read_job_file(storage, name)
    if run is not None:
        return _remove_one_run(storage, ledger, name, run)
    if job is None:
        return _remove_rest(storage, name)
    _refuse_running(storage, ledger, job)
    storage.write(JobPaths(name).removed, note_of(job))
    storage.write(JobPaths(name).cancelled, note_of(job))
    scopes = scopes_of(storage, job)
    untold = tell_redis(ledger, job, scopes, cancelled=True)
    faults.reached("rm:after_note")
    _await_local_run(storage, name)
    if ledger is not None and not untold:
        _await_holders(ledger, job, scopes)
    remove_files(storage, job)
    return f"{name} is removed{_forget(ledger, scopes)}"


def require_removable(storage: Storage, ledger: Ledger | None, name: str, run: str | None = None) -> None:
    """Check that there is something that may be removed, before anybody is asked about it.

    Raises:
        PlanError: There is no such job or run, or it is running.
        FormatError: `job.json` cannot be read.
    """
    if run is not None:
        _removable_run(storage, name, run)
    elif (job := read_job_file(storage, name)) is None:
        _require_rest(storage, name)
    else:
        _refuse_running(storage, ledger, job)


def _removable_run(storage: Storage, name: str, run: str) -> RunSpec:
    """The added run of that name, if it may be removed; a PlanError if it is the job's own run or is training."""
    if load_job(storage, name).run == (asked := load_job(storage, name, run).run) or asked is None:
        again = hint("rm", name, store=storage)
        raise PlanError(f"{run} is the run that {name} was submitted with: `{again}` removes both")
    if run_state(storage, asked) == "TRAINING":
        raise PlanError(f"run {run} is not finished: `{hint('cancel', name, '--run', run, store=storage)}` first")
    return asked


def _remove_one_run(storage: Storage, ledger: Ledger | None, name: str, run: str) -> str:
    """Remove an added run. It is noted as cancelled first, so that a trainer that holds it stops."""
    asked, job = _removable_run(storage, name, run), load_job(storage, name)
    removed = with_its_folds(storage, job, asked)
    scopes = list(map(run_scope, removed))
    for each in removed:
        storage.write(RunPaths(each.run).cancelled, note_of(job, run=run))
    untold = tell_redis(ledger, job, scopes, cancelled=True)
    if has_local_run(storage, name):
        _await_local_run(storage, name)
    if ledger is not None and not untold:
        _await_holders(ledger, job, scopes)
    for each in removed[::-1]:
        storage.remove_tree(RunPaths(each.run).root)
    folds = f", and {counted(len(removed) - 1, 'fold')} with it" if removed[1:] else ""
    return f"run {run} of {name} is removed{folds}{_forget(ledger, scopes)}"


def _refuse_running(storage: Storage, ledger: Ledger | None, job: Job) -> None:
    """Raise a PlanError if somebody may be at work on a job that was not cancelled, or on a run of it.

    What was interrupted and has been left alone since may be removed. Not if a local run holds the job: the run may
    begin again in a moment, or only look interrupted because its machine's clock differs.
    """
    if is_removed(storage, job) or is_cancelled(storage, job):
        return
    status = job_status(storage, ledger, job, failed_share=0.0)
    stored = stored_state(storage, job, failed_share=0.0)
    is_alone = not has_local_run(storage, job.job)
    left = {str(run["run"]) for run in status.runs if run["state"] == "INTERRUPTED" and is_alone}
    runs = [asked for asked in runs_of(storage, job) if stored.is_finalized and asked.run not in left]
    going = [asked.run for asked in runs if run_state(storage, asked) not in TERMINAL]
    is_going = stored.state == "RUNNING" and status.state != "INTERRUPTED"
    if is_going or (job.run is not None and job.run.run in going):
        raise PlanError(f"{job.job} is running: `{hint('cancel', job.job, store=storage)}` first")
    if going:
        first = hint("cancel", job.job, "--run", going[0], store=storage)
        raise PlanError(f"run {going[0]} of {job.job} is not finished: `{first}` first")


def _await_local_run(storage: Storage, name: str) -> None:
    if not _wait_while(lambda: has_local_run(storage, name), WAIT_FOR_LOCAL_RUN_S):
        again = hint("rm", name, store=storage)
        raise PlanError(f"a --local command works on {name}: stop it with Ctrl-C, then `{again}` again")


def remove_files(storage: Storage, job: Job) -> None:
    """Remove the files of a job that nobody works on any more, and those of its runs."""
    for asked in runs_of(storage, job):
        remove_run(storage, asked.run, job.job)
    faults.reached("rm:after_run")
    # Somebody else may have finished this removal meanwhile, and submitted a new job under the name.
    found = read_job_file(storage, job.job)
    if found is None or found.incarnation == job.incarnation:
        # `job.json` goes first: in a bucket files go one by one, and if this process is killed, no `job.json` may be
        # left without the note that the job is removed.
        storage.remove(JobPaths(job.job).job)
        storage.remove_tree(JobPaths(job.job).root)
    for folder in ("jobs", "runs"):
        storage.remove_temporaries(folder)


def remove_run(storage: Storage, run: str, job: str, *, but: str | None = None) -> None:
    """Remove the run `run` if `job` asked for it, but not if the incarnation `but` of that job did.

    A run of that name that another job asked for stays, and so does one that cannot be read.
    """
    try:
        request = read_request(storage, run)
    except FormatError:
        return
    if request is None or (request.job == job and request.incarnation != but):
        storage.remove_tree(RunPaths(run).root)


def _remove_rest(storage: Storage, name: str) -> str:
    """Remove what is left if a removal was killed after it removed `job.json`; a PlanError if there is nothing."""
    _require_rest(storage, name)
    remove_run(storage, name, name)
    storage.remove_tree(JobPaths(name).root)
    return f"what was left of {name} is removed"


def _require_rest(storage: Storage, name: str) -> None:
    if not is_name(name) or not (storage.has_files(JobPaths(name).root) or _has_run_of(storage, name)):
        raise PlanError(f"no job {name!r} in {storage.root}: nothing to remove")


def _has_run_of(storage: Storage, name: str) -> bool:
    """Whether the run of this name was asked for by the job of this name."""
    with suppress(FormatError):
        request = read_request(storage, name)
        return request is not None and request.job == name
    return False


def _await_holders(ledger: Ledger, job: Job, scopes: Iterable[str]) -> None:
    """Wait until nobody holds a lease in `scopes`, at most until every live holder has renewed once."""

    def is_held() -> bool:
        views = (ledger.under_way(scope, lambda unit: is_run_unit(unit) or job.has(unit)) for scope in scopes)
        return any(view.leased.keys() - view.expired for view in views)

    try:
        _wait_while(is_held, WAIT_FOR_HOLDERS_S)
    except RedisError as error:
        logger.warning("holders_not_awaited", extra={"job": job.job, "reason": str(error)})


def _wait_while(condition: Callable[[], bool], seconds: float) -> bool:
    """Wait while `condition()` is true, at most `seconds`; return whether it became false."""
    ends_at = time.monotonic() + seconds
    while condition():
        if time.monotonic() > ends_at:
            return False
        time.sleep(_PAUSE_S)
    return True


def _forget(ledger: Ledger | None, scopes: Iterable[str]) -> str:
    """Take a job or a run out of the live view; return what to say if Redis could not be told, else ""."""
    if ledger is None:
        return ""
    try:
        for scope in scopes:
            ledger.end_scope(scope)
    except RedisError:
        return "; Redis could not be told, but will notice by itself"
    return ""
