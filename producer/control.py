"""A person's hand on a job: cancel, retry, resume, remove. Each changes storage first, and is safe to repeat."""

from producer.state import load_job, run_state, stored_state
from shared.errors import PlanError
from shared.job import Job, canonical_json
from shared.ledger import RUN_UNIT, UNREACHABLE, Ledger, job_scope, run_scope
from shared.manifest import JobPaths, RunPaths
from shared.storage import Storage


def cancel(storage: Storage, ledger: Ledger | None, name: str) -> str:
    """Cancel a job and its run; workers see it at their next claim and renewal.

    Returns:
        What was done, for a person.
    """
    job = load_job(storage, name)
    state = stored_state(storage, job, failed_share=1.0).state
    if state in ("DONE", "CANCELLED"):
        return f"{name} is {state}: nothing to cancel"
    note = canonical_json({"job": name}).encode()
    storage.write(JobPaths(name).cancelled, note)
    scopes = [job_scope(name)]
    if job.run is not None:
        storage.write(RunPaths(job.run.run).cancelled, note)
        scopes.append(run_scope(job.run.run))
    _tell(ledger, name, scopes, cancelled=1)
    return f"{name} is cancelled"


def retry(storage: Storage, ledger: Ledger | None, name: str, *, only_failed: bool = False) -> str:
    """Have a job's failed shards and its failed run done again, and take its cancel back; what is done stays.

    Args:
        storage: Holds the job.
        ledger: To be told, if Redis can be reached.
        name: The job.
        only_failed: Leave a cancel as it is.

    Raises:
        PlanError: Its model was trained, or is being trained, without the failed shards.

    Returns:
        What was done, for a person.
    """
    job = load_job(storage, name)
    failed = [shard.removesuffix(".json") for shard in storage.list_names(JobPaths(name).failed)]
    if failed:
        _refuse_behind_a_run(storage, job, len(failed))
    deeds = _forget_failures(storage, job, failed)
    stays_cancelled = storage.exists(JobPaths(name).cancelled)
    if stays_cancelled and only_failed:
        deeds.append(f"it stays cancelled: `producer retry {name}` goes on with it")
    elif stays_cancelled:
        _take_cancel_back(storage, job)
        deeds.append("the cancel is taken back")
        stays_cancelled = False
    scopes = [job_scope(name), *([run_scope(job.run.run)] if job.run else [])]
    _tell(ledger, name, scopes, cancelled=int(stays_cancelled), forget=[*failed, RUN_UNIT])
    return f"{name}: {', '.join(deeds) or 'nothing failed, nothing to do again'}"


def _forget_failures(storage: Storage, job: Job, failed: list[str]) -> list[str]:
    """Remove what says that shards and the run have failed; what was done, for a person."""
    deeds = []
    if failed:
        # Before the failures: killed in between, the same manifest is made again, and nothing is forgotten.
        storage.remove(JobPaths(job.job).manifest)
        deeds.append(f"{len(failed)} failed shards are queued again")
    for shard in failed:
        storage.remove(JobPaths(job.job).failure(shard))
    if job.run is not None and storage.exists(RunPaths(job.run.run).failed):
        storage.remove(RunPaths(job.run.run).failed)
        deeds.append("the failed run is queued again")
    return deeds


def _take_cancel_back(storage: Storage, job: Job) -> None:
    """The run's first: as long as the job's own is there, the job stays cancelled."""
    if job.run is not None:
        storage.remove(RunPaths(job.run.run).cancelled)
    storage.remove(JobPaths(job.job).cancelled)


def _refuse_behind_a_run(storage: Storage, job: Job, failed: int) -> None:
    """A model must not be shown beside shards that it was not trained on.

    Raises:
        PlanError: The job's run is done or under way.
    """
    state = run_state(storage, job.run.run) if job.run else "FINALIZED"
    if state == "TRAINING":
        raise PlanError(f"{job.job} trains without its {failed} failed shards: `producer cancel {job.job}`, then retry")
    if state == "DONE":
        raise PlanError(
            f"the model of {job.job} was trained without its {failed} failed shards: submit the folder again under "
            "another --job (its other shards are reused)"
        )


def remove(storage: Storage, ledger: Ledger | None, name: str) -> str:
    """Remove a job's outputs and its run's; the pictures are never touched.

    Raises:
        PlanError: The job is running: cancel it first.

    Returns:
        What was done, for a person.
    """
    job = load_job(storage, name)
    if stored_state(storage, job, failed_share=0.0).state in ("RUNNING", "FINALIZED", "TRAINING"):
        raise PlanError(f"{name} is running: `producer cancel {name}` first")
    # job.json goes first: from then on the job does not exist, whatever is left of its files.
    storage.remove(JobPaths(name).job)
    storage.remove_tree(JobPaths(name).root)
    scopes = [job_scope(name)]
    if job.run is not None:
        storage.remove(RunPaths(job.run.run).request)
        storage.remove_tree(RunPaths(job.run.run).root)
        scopes.append(run_scope(job.run.run))
    try:
        for scope in scopes if ledger else ():
            ledger.forget_scope(scope)  # type: ignore[union-attr]  # the loop is empty without a ledger
    except UNREACHABLE:
        return f"{name} is removed; Redis could not be told and will notice by itself"
    return f"{name} is removed"


def _tell(
    ledger: Ledger | None, job: str, scopes: list[str], *, cancelled: int, forget: list[str] | None = None
) -> None:
    """Write the change into the live view; where Redis is away the reconciler finds it in storage."""
    if ledger is None:
        return
    try:
        for scope in scopes:
            ledger.write_state(scope, cancelled=cancelled)
            ledger.forget_attempts(scope, forget or [])
        ledger.touch(job)
    except UNREACHABLE:
        return
