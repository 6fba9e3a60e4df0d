"""What storage says of jobs and runs: which exist, their states, and why they failed."""

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from typing import Any

from producer.state.runs import run_words, runs_of, with_run
from producer.state.standing import State
from shared.command import hint
from shared.errors import FormatError, PlanError, StorageError, VersionError
from shared.jobs.identity import (
    DoneShard,
    done_shards,
    file_digest,
    find_job,
    is_name,
    read_manifest,
    read_note,
    read_request,
)
from shared.jobs.job import Job
from shared.jobs.manifest import Manifest
from shared.jobs.paths import JobPaths, RunPaths
from shared.specs.run import RunSpec
from shared.storage import Storage

TERMINAL: frozenset[State] = frozenset({"DONE", "CANCELLED", "FAILED"})


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredState:
    """What storage says of a job: its state, its finished shards, and those that failed with the reason.

    `is_finalized`: the data set is finished, and trainers may use it.
    """

    state: State
    is_finalized: bool
    done: Mapping[str, DoneShard]
    failed: dict[str, str]


def load_job(storage: Storage, job: str, run: str | None = None) -> Job:
    """The job of this name, seen with its run `run` (None: with the run that it was submitted with).

    Raises:
        PlanError: There is no such job or run, or the job is being removed.
        FormatError: `job.json` was written by another version, is damaged, or names another job.
    """
    found = find_job(storage, job)
    if found is not None:
        return found if run is None else with_run(storage, found, run)
    if is_name(job) and storage.has_files(JobPaths(job).root):
        clear = hint("rm", job, store=storage)
        raise PlanError(f"job {job!r} was only partly removed: `{clear}` removes what is left")
    raise PlanError(f"no job {job!r} in {storage.root} (there are: {', '.join(job_names(storage)) or 'none'})")


def require_same(storage: Storage, job: Job) -> None:
    """Check that `job` and the run that it is seen with are still there; do nothing if the whole store is away.

    Raises:
        PlanError: The job or the run was removed.
    """
    found = find_job(storage, job.job)
    if found is None and storage.is_local and not storage.local_path("jobs").is_dir():
        return  # perhaps a mount that comes back
    if found is None or found.incarnation != job.incarnation:
        successor = "" if found is None else "; another job has its name now"
        raise PlanError(f"job {job.job!r} was removed while it was waited for{successor}")
    # The request of an added run exists from its submit on; that of the job's own run only once the shards are done.
    if job.run is None or (found.run is not None and found.run.run == job.run.run):
        return
    if read_note(storage, RunPaths(job.run.run).request, job.incarnation) is None:
        raise PlanError(f"run {job.run.run!r} of job {job.job!r} was removed while it was waited for")


def job_names(storage: Storage) -> list[str]:
    """The names of the store's jobs, sorted; folders of other names, or without `job.json`, are left out."""
    return [name for name in storage.list_names("jobs") if is_name(name) and _has_job_file(storage, name)]


def _has_job_file(storage: Storage, name: str) -> bool:
    try:
        return storage.exists(JobPaths(name).job)
    except StorageError:
        return True  # the folder may not be readable: whoever asks for this job gets the error


def stored_state(storage: Storage, job: Job, failed_share: float) -> StoredState:
    """What storage says of `job` (a few listings).

    Raises:
        VersionError: A file of the job was written by another version.
    """
    done = done_shards(storage, job)
    failed = _failures(storage, job)
    manifest = _manifest(storage, job)
    # A receipt counts more than a failure, unless the manifest was made without the shard.
    without = manifest.failed if manifest is not None else ()
    failed = {shard: reason for shard, reason in failed.items() if shard not in done or shard in without}
    shards = _shards_state(storage, job, done.keys(), failed.keys(), manifest, failed_share)
    is_finalized = shards == "FINALIZED"
    own = _state_without_run(manifest) if job.run is None else run_state(storage, job.run)
    state = own if is_finalized else shards
    return StoredState(state=state, is_finalized=is_finalized, done=done, failed=failed)


def _state_without_run(manifest: Manifest | None) -> State:
    """How a job without training has ended: FAILED if its shards hold no photo."""
    return "FAILED" if manifest is not None and manifest.counters.get("written") == 0 else "DONE"


def _failures(storage: Storage, job: Job) -> dict[str, str]:
    """Shard -> reason, for the shards that failed."""
    paths = JobPaths(job.job)
    notes = {
        shard: read_note(storage, paths.failure(shard), job.incarnation)
        for name in storage.list_names(paths.failed)
        if job.has(shard := name.removesuffix(".json")) and shard != name
    }
    return {shard: str(note.get("reason", "unknown")) for shard, note in notes.items() if note is not None}


def _manifest(storage: Storage, job: Job) -> Manifest | None:
    """The job's manifest; a damaged one counts as absent, so it is made again."""
    try:
        return read_manifest(storage, job)
    except VersionError:
        raise
    except FormatError:
        return None


def _shards_state(
    storage: Storage, job: Job, done: Set[str], failed: Set[str], manifest: Manifest | None, failed_share: float
) -> State:
    """The state of a job as far as its shards decide it: FINALIZED if they are finished."""
    if is_cancelled(storage, job):
        return "CANCELLED"
    # All that the manifest lists must still be there: finished shards, and the notes of the failed ones it leaves out.
    if manifest is not None and all(shard in (failed if shard in manifest.failed else done) for shard in job.shards):
        return "FINALIZED"
    is_settled = all(shard in done or shard in failed for shard in job.shards)
    if is_settled and is_hopeless(job, len(failed - done), failed_share):
        return "FAILED"
    return "RUNNING" if done or failed or manifest is not None else "SUBMITTED"


def is_cancelled(storage: Storage, job: Job) -> bool:
    """Whether a person has cancelled `job`."""
    return read_note(storage, JobPaths(job.job).cancelled, job.incarnation) is not None


def run_state(storage: Storage, asked: RunSpec) -> State:
    """The state of a run according to storage; FINALIZED until it is asked for."""
    paths, incarnation = RunPaths(asked.run), asked.incarnation
    summary = read_note(storage, paths.run, incarnation)
    if summary is not None:
        return "DONE" if is_of_its_shards(storage, asked, summary) else "FAILED"
    notes: dict[State, str] = {"CANCELLED": paths.cancelled, "FAILED": paths.failed, "TRAINING": paths.request}
    for state, key in notes.items():
        if read_note(storage, key, incarnation) is not None:
            return _with_those_it_waits_for(storage, asked) if state == "TRAINING" else state
    return "FINALIZED"


def ended_badly(storage: Storage, job: Job) -> list[RunSpec]:
    """The runs of a job that have failed or were cancelled; those that audit others come last."""
    runs = sorted(runs_of(storage, job), key=lambda asked: bool(asked.audits))
    return [asked for asked in runs if run_state(storage, asked) in ("FAILED", "CANCELLED")]


def _with_those_it_waits_for(storage: Storage, asked: RunSpec) -> State:
    """The state of a run that was asked for and has not ended; an audit is CANCELLED or FAILED if a run of it is."""
    states = [state for state, _ in audited_states(storage, asked)]
    return next((state for state in ("CANCELLED", "FAILED") if state in states), "TRAINING")


def audited_states(storage: Storage, asked: RunSpec) -> list[tuple[State, str]]:
    """State and name of each run that `asked` audits; one that was removed counts as failed."""
    found: list[tuple[State, str]] = []
    for name in asked.audits:
        audited = read_request(storage, name)
        is_there = audited is not None and (audited.job, audited.incarnation) == (asked.job, asked.incarnation)
        found.append((run_state(storage, audited) if audited is not None and is_there else "FAILED", name))
    return found


def is_ready(storage: Storage, asked: RunSpec) -> bool:
    """Whether a trainer can do a run now: an audit has to wait until all its runs are done."""
    return all(state == "DONE" for state, _ in audited_states(storage, asked))


def is_of_its_shards(storage: Storage, asked: RunSpec, summary: Mapping[str, Any]) -> bool:
    """Whether a finished run was trained on the shards of the job's present manifest, or did not note on which."""
    return summary.get("manifest_digest") in (None, file_digest(storage, JobPaths(asked.job).manifest))


def is_hopeless(job: Job, failed: int, failed_share: float) -> bool:
    """Whether so many shards have failed that the whole job has failed."""
    return failed > failed_share * len(job.shards)


def run_failure(storage: Storage, asked: RunSpec) -> str | None:
    """Why a run has failed, or why its result does not count; None if neither is so."""
    summary = read_note(storage, RunPaths(asked.run).run, asked.incarnation)
    if summary is not None and not is_of_its_shards(storage, asked, summary):
        again = hint("retry", asked.job, *run_words(asked.job, asked.run), store=storage)
        what = "the model was trained" if asked.has_model else "this part of an audit was made"
        return f"{what} on other shards than those that are here now: `{again}` does it again"
    note = read_note(storage, RunPaths(asked.run).failed, asked.incarnation)
    if note is None and summary is None:
        failed = next((name for state, name in audited_states(storage, asked) if state == "FAILED"), None)
        return None if failed is None else f"run {failed}, which it audits, has failed or was removed"
    return None if note is None or summary is not None else str(note.get("reason", "unknown"))


def last_change(storage: Storage, job: Job, runs: Iterable[str]) -> float:
    """When something last happened to `job` or one of its `runs`, in seconds of Unix time."""
    paths = JobPaths(job.job)
    keys = [paths.job, paths.manifest, paths.cancelled, paths.retried]
    keys += [f"{paths.failed}/{name}" for name in storage.list_names(paths.failed)]
    keys += [key for run in map(RunPaths, runs) for key in (run.request, run.run, run.failed, run.cancelled)]
    return max((storage.written_at(key) for key in keys if storage.exists(key)), default=0.0)
