"""A person's hand on a job: cancel, retry, resume, remove. Each changes storage first, and is safe to repeat."""

from producer.state import load_job, stored_state
from shared.errors import PlanError
from shared.job import canonical_json
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


def retry(storage: Storage, ledger: Ledger | None, name: str) -> str:
    """Take a job's failures and its cancel back, so that what is missing is done again; done shards stay.

    Returns:
        What was done, for a person.
    """
    job = load_job(storage, name)
    paths = JobPaths(name)
    failed = [shard.removesuffix(".json") for shard in storage.list_names(paths.failed)]
    for shard in failed:
        storage.remove(paths.failure(shard))
    # A manifest without those shards is made anew; a finished run keeps what it was trained on.
    if failed and not (job.run and storage.exists(RunPaths(job.run.run).run)):
        storage.remove(paths.manifest)
    storage.remove(paths.cancelled)
    scopes = [job_scope(name)]
    if job.run is not None:
        for key in (RunPaths(job.run.run).failed, RunPaths(job.run.run).cancelled):
            storage.remove(key)
        scopes.append(run_scope(job.run.run))
    _tell(ledger, name, scopes, cancelled=0, forget=[*failed, RUN_UNIT])
    return f"{name}: {len(failed)} failed shards are queued again" if failed else f"{name} goes on where it was"


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
