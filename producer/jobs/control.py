"""What a person can do to a job: cancel, retry, verify. Each changes storage first, and is safe to repeat."""

import logging
import time
from collections.abc import Iterable
from typing import Final

from redis.exceptions import RedisError

from producer.jobs.verify import broken_shards, manifest_faults, queue_again, released_faults, weights_are_intact
from producer.progress import Progress, no_progress
from producer.state.runs import Requests, change_release, names_of, runs_of, with_its_folds
from producer.state.status import times_retried
from producer.state.stored import (
    TERMINAL,
    StoredState,
    is_cancelled,
    is_of_its_shards,
    load_job,
    run_state,
    stored_state,
)
from shared.command import hint
from shared.errors import PlanError
from shared.jobs.identity import make_note, read_note
from shared.jobs.job import Job
from shared.jobs.paths import JobPaths, RunPaths
from shared.leasing.ledger import Ledger
from shared.leasing.scopes import job_scope, run_scope
from shared.specs.run import ReleaseOptions, RunSpec
from shared.storage import Storage
from shared.text import counted

logger = logging.getLogger(__name__)

_UNCHANGED: Final = ReleaseOptions()


def cancel(storage: Storage, ledger: Ledger | None, name: str, run: str | None = None) -> str:
    """Cancel a job and its runs, or just its run `run`; workers see it at their next claim or renewal.

    Returns:
        What was done, for a person.
    """
    job = load_job(storage, name, run)
    chosen = runs_of(storage, load_job(storage, name)) if run is None else with_its_folds(storage, job, _run_of(job))
    going = [asked for asked in chosen if run_state(storage, asked) not in TERMINAL]
    what, state = _what(name, run), stored_state(storage, job, failed_share=1.0).state
    if state in ("DONE", "CANCELLED"):
        # One command is enough for an audit, whose folds end with it.
        with_others = {fold for asked in going if asked.folds for fold in asked.audits}
        alone = [asked.run for asked in going if run is None and asked.run not in with_others]
        commands = [hint("cancel", name, "--run", each, store=storage) for each in alone]
        return f"{what} is {state}: nothing to cancel" + "".join(f"; `{one}` cancels that run" for one in commands)
    if run is None:
        storage.write(JobPaths(name).cancelled, note_of(job, at=round(time.time(), 3)))
    for asked in going:
        storage.write(
            RunPaths(asked.run).cancelled, note_of(job, at=round(time.time(), 3), **({"run": run} if run else {}))
        )
    scopes = [*([job_scope(job)] if run is None else []), *map(run_scope, going)]
    return f"{what} is cancelled{tell_redis(ledger, job, scopes, cancelled=True)}"


def retry(
    storage: Storage,
    ledger: Ledger | None,
    name: str,
    *,
    run: str | None = None,
    only_failed: bool = False,
    changes: ReleaseOptions = _UNCHANGED,
    progress: Progress = no_progress,
) -> str:
    """Have everything done again that failed or is damaged, and undo a cancel unless `only_failed`.

    What is done and undamaged stays. If `run` is given, only that run of the job is looked at; otherwise all runs, but
    those that were cancelled by name stay cancelled. `changes` says how that run, or the job's own, is exported and
    judged from now on. `progress` is told how far the verification of the shards is.

    Returns:
        What was done, for a person.

    Raises:
        PlanError: A model was or is being trained without the failed shards; or `run` is given but the whole job is
            cancelled; or there are changes to a run that is done.
        OptionError: The changes do not fit what was asked.
    """
    job = load_job(storage, name, run)
    stored, was_cancelled = stored_state(storage, job, failed_share=1.0), is_cancelled(storage, job)
    runs = with_its_folds(storage, job, _run_of(job)) if run is not None else runs_of(storage, job)
    if run is not None and was_cancelled:
        raise PlanError(f"job {name} is cancelled as a whole: `{hint('retry', name, store=storage)}` goes on with it")
    if stored.failed:
        _refuse_after_training(storage, job, len(stored.failed))
    done = change_release(storage, job, changes)
    # This comes first: otherwise a service that sees a failure removed before it knows of the retry would give up the
    # shard again at once.
    count_retry(storage, job)
    done += verify(storage, ledger, job, stored, progress, runs) + _forget_failures(storage, job, stored.failed, runs)
    if was_cancelled and only_failed:
        done.append(f"it stays cancelled: `{hint('retry', name, store=storage)}` goes on with it")
    elif not only_failed and _take_cancel_back(storage, job, runs, run):
        done.append("the cancel is taken back")
    scopes = [job_scope(job), *map(run_scope, runs)]
    untold = tell_redis(ledger, job, scopes, cancelled=was_cancelled and only_failed)
    return f"{_what(name, run)}: {', '.join(done) or 'nothing failed, nothing to do again'}{untold}"


def _what(name: str, run: str | None) -> str:
    return name if run is None else f"run {run} of {name}"


def _run_of(job: Job) -> RunSpec:
    """The run that a job was loaded with; there must be one."""
    assert job.run is not None  # noqa: S101  # the caller's promise, for the type checker
    return job.run


def _take_cancel_back(storage: Storage, job: Job, runs: list[RunSpec], run: str | None) -> bool:
    """Remove the notes that the job and `runs`, or just the run `run`, are cancelled; whether there were any."""
    is_done = False
    # The notes of the runs go first: while the job's own note is there, the job stays cancelled.
    for asked in runs:
        key = RunPaths(asked.run).cancelled
        note = read_note(storage, key, job.incarnation)
        if note is not None and (run is not None or "run" not in note):
            storage.remove(key)
            is_done = True
    is_done = is_done or is_cancelled(storage, job)
    if run is None:
        storage.remove(JobPaths(job.job).cancelled)
    return is_done


def verify(
    storage: Storage, ledger: Ledger | None, job: Job, stored: StoredState, progress: Progress, runs: Iterable[RunSpec]
) -> list[str]:
    """Compare all that is done with its receipts, byte for byte; return what was found, for a person.

    Shards that differ will be written again, a manifest that is wrong made again, and damaged models of `runs` released
    again.
    """
    found = []
    finished = stored.state in ("DONE", "FINALIZED", "TRAINING") or storage.exists(JobPaths(job.job).manifest)
    settled = [shard for shard in job.shards if shard not in stored.failed] if finished else stored.done
    broken = broken_shards(storage, job, settled, progress)
    if broken:
        queue_again(storage, ledger, job, broken)
        do = "does not match its receipt is" if len(broken) == 1 else "do not match their receipts are"
        found.append(f"{counted(len(broken), 'shard')} that {do} written again ({next(iter(broken.values()))})")
    faults = list(manifest_faults(storage, job))
    if faults:
        storage.remove(JobPaths(job.job).manifest)
        found.append(f"the manifest and the files that describe the data set are made again ({faults[0]})")
    for asked in runs:
        altered = next(released_faults(storage, asked), None)
        if altered is not None:
            found.append(f"{_release_again(storage, asked)} ({altered})")
    return found


def _release_again(storage: Storage, asked: RunSpec) -> str:
    """Mark a run as not finished; if its weights are undamaged, its trainer only exports them again."""
    paths = RunPaths(asked.run)
    is_kept = weights_are_intact(storage, asked)
    if is_kept:
        # `run.json` says what was trained, on which shards, and which weights it gave.
        storage.write(paths.trained, storage.read(paths.run))
    storage.remove(paths.run)
    if is_kept:
        return "the model is released again from its weights, without training"
    if not asked.has_model:
        return f"run {asked.run} of an audit is done again"
    if storage.list_names(paths.checkpoints):
        return "the model is released again from the newest checkpoint"
    return f"run {asked.run} is trained again: neither its model.keras nor a checkpoint is left"


def count_retry(storage: Storage, job: Job) -> None:
    """Have attempts counted from 0 again."""
    # Noted in storage, because Redis may be away now and still remember all attempts when it is back.
    storage.write(JobPaths(job.job).retried, note_of(job, times=times_retried(storage, job) + 1))


def note_of(job: Job, **facts: float | str) -> bytes:
    """A note of `job`, for `shared.jobs.identity.read_note`."""
    return make_note(job.incarnation, job=job.job, **facts)


def scopes_of(storage: Storage, job: Job, requests: Requests | None = None) -> list[str]:
    """The ledger's scopes of a job: one for its shards, and one for each of its runs."""
    return [job_scope(job), *map(run_scope, runs_of(storage, job, requests))]


def tell_redis(ledger: Ledger | None, job: Job, scopes: Iterable[str] = (), *, cancelled: bool = False) -> str:
    """Tell the reconciler that `job` changed, and note in the live view whether `scopes` are `cancelled`.

    If Redis is away, the reconciler finds the change in storage, and the text to tell a person is returned.
    """
    if ledger is None:
        return ""
    try:
        for scope in scopes:
            ledger.write_state(scope, cancelled=int(cancelled))
        ledger.touch(job.job)
    except RedisError as error:
        logger.warning("reconciler_not_told", extra={"job": job.job, "reason": str(error)})
        return "; Redis could not be told now, the service will tell it later"
    return ""


def _forget_failures(storage: Storage, job: Job, failed: Iterable[str], runs: Iterable[RunSpec]) -> list[str]:
    """Remove the notes that shards and runs have failed; return what was done, for a person."""
    done, shards = [], list(failed)
    if shards:
        # The manifest goes before the failures: if this process is killed in between, the same manifest is made again.
        storage.remove(JobPaths(job.job).manifest)
        done.append(f"{counted(len(shards), 'failed shard')} {'is' if len(shards) == 1 else 'are'} queued again")
    for shard in shards:
        storage.remove(JobPaths(job.job).failure(shard))
    forgotten = [asked for asked in runs if _forget_failed_run(storage, asked)]
    if forgotten:
        is_own = job.run is not None and [asked.run for asked in forgotten] == [job.run.run]
        done.append("the failed run is queued again" if is_own else f"queued again: run {names_of(forgotten)}")
    return done


def _forget_failed_run(storage: Storage, asked: RunSpec) -> bool:
    """Remove the note that a run has failed, or its result if that is of other shards; whether there was either."""
    paths = RunPaths(asked.run)
    summary = read_note(storage, paths.run, asked.incarnation)
    is_stale = summary is not None and not is_of_its_shards(storage, asked, summary)
    is_stale = is_stale and storage.exists(JobPaths(asked.job).manifest)  # otherwise it is being made again
    has_failed = read_note(storage, paths.failed, asked.incarnation) is not None
    if is_stale:
        storage.remove(paths.run)
    storage.remove(paths.failed)
    return is_stale or has_failed


def _refuse_after_training(storage: Storage, job: Job, failed: int) -> None:
    """Raise a PlanError if a model was trained, or is being trained, without the shards that are to be retried."""
    states = [run_state(storage, asked) for asked in runs_of(storage, job)]
    is_finished = storage.exists(JobPaths(job.job).manifest)  # an added run may have been asked for before
    shards = counted(failed, "failed shard")
    if "TRAINING" in states and is_finished:
        cancel = hint("cancel", job.job, store=storage)
        raise PlanError(f"{job.job} trains without its {shards}: `{cancel}`, then retry")
    if "DONE" in states:
        raise PlanError(
            f"the model of {job.job} was trained without its {shards}: submit the folder again under another --job "
            "(its other shards are reused)"
        )
