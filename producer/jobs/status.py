"""The state of a job: storage decides it, the ledger adds what is under way."""

import time
from collections.abc import Iterable, Mapping, Set
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from producer.jobs.outcome import Outcome, read_outcome, seconds_taken, written_at
from producer.jobs.progress_note import ShardsUnderWay, read_run_progress, run_holder, shards_under_way
from producer.jobs.runs import Requests, runs_of, with_run
from producer.jobs.standing import Scene, State, standing_of
from shared.command import hint
from shared.errors import FormatError, PlanError, StorageError, VersionError
from shared.jobs.identity import (
    DoneShard,
    asked_now,
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
from shared.leasing.ledger import Ledger
from shared.specs.run import ReleaseOptions, RunSpec
from shared.storage import Storage

# A trainer notes how far it is every 3 s; of one that has not for so long a person is told.
SILENT_S: Final = 10.0

TERMINAL: frozenset[State] = frozenset({"DONE", "CANCELLED", "FAILED"})


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredState:
    """What storage says of a job: its state, its shards done, and those given up with their reason.

    `is_finalized`: the data set is finished, and trainers may have it.
    """

    state: State
    is_finalized: bool
    done: Mapping[str, DoneShard]
    failed: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStatus:
    """What `status --json` prints of a job: fields are added, never renamed or taken away.

    Each of the `shards` is counted in one of `done`, `failed`, `leased`, `queued` and `pending`; `reused` counts those
    of the done ones that came from other jobs. `images_done` counts the `images` that are written, `quarantined`, or
    read by the holder of their shard. `attempts` are claims of shards, None where nobody knows any more.
    `images_per_s` is smoothed, `eta_s` in seconds. `failures` is shard -> reason, `holders` who works on what since
    when (Unix time), `run` the training; `runs` are all trainings of the job, each with its `state`, `why` and `next`
    and, in `changed`, the options changed since its submit, that one first. `why` says why nobody is at work, or how it
    ended, `next` the command that goes on. `age_s` counts from the submit; `took_s`, the `model`'s figures (fractions)
    and `warnings` are those of `Outcome`.
    `size_bytes` is what job and runs take on disk, None where nobody has looked, as while a job is watched.
    """

    job: str
    state: State
    shards: int
    done: int
    reused: int
    queued: int
    leased: int
    failed: int
    pending: int
    images: int
    images_done: int
    quarantined: int
    attempts: int | None
    images_per_s: float
    eta_s: float | None
    last_error: str | None
    failures: dict[str, str] = field(default_factory=dict)
    holders: tuple[dict[str, Any], ...] = ()
    run: dict[str, Any] | None = None
    runs: tuple[dict[str, Any], ...] = ()
    size_bytes: int | None = None
    why: str | None = None
    next: str | None = None
    age_s: float | None = None
    took_s: float | None = None
    map50: float | None = None
    map50_interval: tuple[float, float] | None = None
    map: float | None = None
    map_interval: tuple[float, float] | None = None
    objects: int | None = None
    model: str | None = None
    warnings: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """The fields as JSON values."""
        return asdict(self)


def load_job(storage: Storage, job: str, run: str | None = None) -> Job:
    """The job of this name, seen with its run `run` (None: with the one that it was submitted with).

    Raises:
        PlanError: There is no such job or run, or the job is being removed.
        FormatError: It was written by another version, or is damaged, or of another name.
    """
    found = find_job(storage, job)
    if found is not None:
        return found if run is None else with_run(storage, found, run)
    if is_name(job) and storage.has_files(JobPaths(job).root):
        clear = hint("rm", job, store=storage)
        raise PlanError(f"job {job!r} was removed, and not to the end: `{clear}` clears what is left")
    raise PlanError(f"no job {job!r} in {storage.root} (there are: {', '.join(job_names(storage)) or 'none'})")


def require_same(storage: Storage, job: Job) -> None:
    """Do nothing if `job` is still there, and the run that it is seen with, or if its whole store is away.

    Raises:
        PlanError: One of them was removed.
    """
    found = find_job(storage, job.job)
    if found is None and storage.is_local and not storage.local_path("jobs").is_dir():
        return  # perhaps a mount that comes back
    if found is None or found.incarnation != job.incarnation:
        successor = "" if found is None else "; another job has its name now"
        raise PlanError(f"job {job.job!r} was removed while it was waited for{successor}")
    # An added run is there from its submit on; that of the job's own submit is asked for once the shards are done.
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
        return True  # a folder that may not be read: whoever asks for this job is told so


def stored_state(storage: Storage, job: Job, failed_share: float) -> StoredState:
    """What storage says of `job` (a few listings).

    Raises:
        VersionError: A file of it was written by another version.
    """
    done = done_shards(storage, job)
    failed = _failures(storage, job)
    manifest = _manifest(storage, job)
    # A receipt counts more than a failure, unless the manifest was made without the shard.
    without = manifest.failed if manifest is not None else ()
    failed = {shard: reason for shard, reason in failed.items() if shard not in done or shard in without}
    shards = _shards_state(storage, job, done.keys(), failed.keys(), manifest, failed_share)
    is_finalized = shards == "FINALIZED"
    state = shards if not is_finalized else "DONE" if job.run is None else run_state(storage, job.run)
    return StoredState(state=state, is_finalized=is_finalized, done=done, failed=failed)


def _failures(storage: Storage, job: Job) -> dict[str, str]:
    """The shards given up, and why."""
    paths = JobPaths(job.job)
    notes = {
        shard: read_note(storage, paths.failure(shard), job.incarnation)
        for name in storage.list_names(paths.failed)
        if job.has(shard := name.removesuffix(".json")) and shard != name
    }
    return {shard: str(note.get("reason", "unknown")) for shard, note in notes.items() if note is not None}


def _manifest(storage: Storage, job: Job) -> Manifest | None:
    """The job's manifest; a damaged one counts as absent, and is made again."""
    try:
        return read_manifest(storage, job)
    except VersionError:
        raise
    except FormatError:
        return None


def _shards_state(
    storage: Storage, job: Job, done: Set[str], failed: Set[str], manifest: Manifest | None, failed_share: float
) -> State:
    """The state of a job as far as its shards decide it: FINALIZED where they are finished."""
    if is_cancelled(storage, job):
        return "CANCELLED"
    # All that the manifest lists has to be there still: shards done, and the notes of those that it was made without.
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
    """The state of a run as storage tells it; FINALIZED while nobody has asked for it yet."""
    paths, incarnation = RunPaths(asked.run), asked.incarnation
    summary = read_note(storage, paths.run, incarnation)
    if summary is not None:
        return "DONE" if is_of_its_shards(storage, asked, summary) else "FAILED"
    notes: dict[State, str] = {"CANCELLED": paths.cancelled, "FAILED": paths.failed, "TRAINING": paths.request}
    for state, key in notes.items():
        if read_note(storage, key, incarnation) is not None:
            return _with_those_it_waits_for(storage, asked) if state == "TRAINING" else state
    return "FINALIZED"


def _with_those_it_waits_for(storage: Storage, asked: RunSpec) -> State:
    """The state of a run that was asked for and has not ended: where it audits others, it ends as the first of them."""
    states = [state for state, _ in audited_states(storage, asked)]
    return next((state for state in ("CANCELLED", "FAILED") if state in states), "TRAINING")


def audited_states(storage: Storage, asked: RunSpec) -> list[tuple[State, str]]:
    """State and name of each of the runs that a run audits; one that was removed counts as failed."""
    found: list[tuple[State, str]] = []
    for name in asked.audits:
        audited = read_request(storage, name)
        is_there = audited is not None and (audited.job, audited.incarnation) == (asked.job, asked.incarnation)
        found.append((run_state(storage, audited) if audited is not None and is_there else "FAILED", name))
    return found


def is_ready(storage: Storage, asked: RunSpec) -> bool:
    """Whether a trainer can do a run now: one that audits others waits for their ends."""
    return all(state == "DONE" for state, _ in audited_states(storage, asked))


def is_of_its_shards(storage: Storage, asked: RunSpec, summary: Mapping[str, Any]) -> bool:
    """Whether a finished run was trained on the shards that its job has now, whatever became of them since."""
    return summary.get("manifest_digest") in (None, file_digest(storage, JobPaths(asked.job).manifest))


def is_hopeless(job: Job, failed: int, failed_share: float) -> bool:
    """Whether so many shards failed that the job has failed."""
    return failed > failed_share * len(job.shards)


def job_status(
    storage: Storage,
    ledger: Ledger | None,
    job: Job,
    failed_share: float,
    requests: Requests | None = None,
    *,
    is_unreachable: bool = False,
) -> JobStatus:
    """The status of `job`: storage's counts, and what is known of the work under way.

    That is asked of the `ledger`; where there is none, of what those at work note in the store. `is_unreachable`: there
    should be one. `requests` are those of the whole store, if they are read already.
    """
    stored = stored_state(storage, job, failed_share)
    is_open = stored.state in ("SUBMITTED", "RUNNING")
    now = shards_under_way(storage, ledger, job, stored.done.keys() | stored.failed.keys() if is_open else None)
    progress = None if job.run is None else read_run_progress(storage, job.run)
    run = None if job.run is None else _run_view(storage, ledger, job.run, progress)
    scene = Scene(
        storage=storage,
        ledger=ledger,
        is_unreachable=is_unreachable,
        job=job,
        state=stored.state,
        done=len(stored.done),
        failed=len(stored.failed),
        run=run,
        progress=progress,
        is_held=bool(now.leased) if is_open else "worker" in (run or {}),
    )
    is_counted = is_open or now.view.attempts is not None
    return JobStatus(
        job=job.job,
        **_shard_counts(job, stored, now, is_open=is_open),
        reused=reused_shards(storage, job),
        attempts=claims_of(storage, job, stored.done, now.view.attempts) if is_counted else None,
        last_error=now.view.last_error or next(iter(stored.failed.values()), None),
        failures=stored.failed,
        holders=tuple({"shard": name, **holder} for name, holder in sorted(now.leased.items())),
        run=run,
        runs=_runs_view(scene, requests, is_finalized=stored.is_finalized),
        **asdict(standing_of(scene)),
        **_outcome_fields(storage, job, (progress or {}).get("seconds")),
    )


def _outcome_fields(storage: Storage, job: Job, trained_s: float | None) -> dict[str, Any]:
    """The fields of `JobStatus` that say what has come of it, and how long it took; `trained_s` so far."""
    outcome = Outcome() if job.run is None else read_outcome(storage, job.run)
    submitted, figures = written_at(storage, JobPaths(job.job).job), asdict(outcome)
    run_s = figures.pop("seconds") or trained_s
    age_s = None if submitted is None else round(max(0.0, time.time() - submitted), 1)
    return {"age_s": age_s, "took_s": seconds_taken(storage, job, run_s), **figures}


def _shard_counts(job: Job, stored: StoredState, now: ShardsUnderWay, *, is_open: bool) -> dict[str, Any]:
    """The fields of `JobStatus` that count shards and pictures, and how fast they are done."""
    settled = stored.done.keys() | stored.failed.keys()
    images = sum(plan.pairs for plan in job.splits.values())
    working = sum(int(holder.get("images", 0)) for holder in now.leased.values())
    images_done = min(images, sum(shard.written + shard.quarantined for shard in stored.done.values()) + working)
    rate = now.view.images_per_s if is_open else 0.0
    return {
        "shards": len(job.shards),
        "done": len(stored.done.keys() - stored.failed.keys()),
        "queued": now.queued,
        "leased": len(now.leased),
        "failed": len(stored.failed),
        "pending": max(0, len(job.shards) - len(settled) - now.queued - len(now.leased)),
        "images": images,
        "images_done": images_done,
        "quarantined": sum(shard.quarantined for shard in stored.done.values()),
        "images_per_s": rate,
        "eta_s": round((images - images_done) / rate, 1) if rate > 0 else None,
    }


def claims_of(storage: Storage, job: Job, done: Mapping[str, DoneShard], counted: int | None) -> int:
    """How often shards were claimed: as `counted`, or if more by the receipts; those reused were never claimed."""
    return max(counted or 0, sum(shard.attempt for shard in done.values()) - reused_shards(storage, job))


def reused_shards(storage: Storage, job: Job) -> int:
    """How many shards of `job` were reused from other jobs when it was submitted."""
    return _noted_count(storage, job, JobPaths(job.job).reused, "shards")


def times_retried(storage: Storage, job: Job) -> int:
    """How often a person has used `retry`: attempts are counted from 0 again each time."""
    return _noted_count(storage, job, JobPaths(job.job).retried, "times")


def _noted_count(storage: Storage, job: Job, key: str, name: str) -> int:
    """A number of the job's note at `key`; 0 where it has none."""
    count = (read_note(storage, key, job.incarnation) or {}).get(name)
    return count if isinstance(count, int) else 0


def _runs_view(scene: Scene, requests: Requests | None, *, is_finalized: bool) -> tuple[dict[str, Any], ...]:
    """All runs of the job, the one that it is seen with first; those that wait for shards have the job's state."""
    storage, views = scene.storage, []
    asked_for = runs_of(storage, scene.job, requests)
    progresses = {asked.run: read_run_progress(storage, asked) for asked in asked_for}
    found = {asked.run: _run_view(storage, scene.ledger, asked, progresses[asked.run]) for asked in asked_for}
    at_work = next((run for run, view in found.items() if "worker" in view), "")
    for asked in asked_for:
        progress, state, view = progresses[asked.run], run_state(storage, asked), found[asked.run]
        if state in ("FINALIZED", "TRAINING") and not is_finalized:
            state = scene.state
        is_held = "worker" in view if is_finalized else scene.is_held
        seen = scene.job.model_copy(update={"run": asked})
        known: dict[str, Any] = {
            "state": state,
            "run": view,
            "progress": progress,
            "is_held": is_held,
            "at_work": at_work,
        }
        standing = standing_of(replace(scene, job=seen, **known))
        outcome = asdict(read_outcome(storage, asked))
        figures = {name: outcome[name] for name in ("map50", "map50_interval", "objects", "model")}
        page = {"page": storage.url(RunPaths(asked.run).audit_page)} if asked.audits and state == "DONE" else {}
        views.append({**view, **asdict(standing), **figures, **page})
    return tuple(views)


def _run_view(
    storage: Storage, ledger: Ledger | None, asked: RunSpec, progress: Mapping[str, Any] | None
) -> dict[str, Any]:
    """A run: why it failed, or who works on it and how far it is."""
    failure = run_failure(storage, asked)
    facts = run_holder(ledger, asked, progress) if failure is None else {"failed": failure}
    with suppress(FormatError):  # a request that cannot be read is why the run has failed, or will
        changed = ReleaseOptions.between(asked, asked_now(storage, asked)).typed
        facts = {**({"changed": changed} if changed else {}), **facts}
    heard_s = time.time() - float((progress or {}).get("at", time.time()))
    if "worker" in facts and heard_s > SILENT_S:
        facts = {**facts, "heard_s": round(heard_s, 1)}
    part = {"fold": asked.fold} if asked.fold else {"audits": list(asked.audits)} if asked.audits else {}
    return {"run": asked.run, **part, **facts}


def last_change(storage: Storage, job: Job, runs: Iterable[str]) -> float:
    """When something last happened to `job` or to one of its `runs`, in seconds of Unix time."""
    paths = JobPaths(job.job)
    keys = [paths.job, paths.manifest, paths.cancelled, paths.retried]
    keys += [f"{paths.failed}/{name}" for name in storage.list_names(paths.failed)]
    keys += [key for run in map(RunPaths, runs) for key in (run.request, run.run, run.failed, run.cancelled)]
    return max((storage.written_at(key) for key in keys if storage.exists(key)), default=0.0)


def run_failure(storage: Storage, asked: RunSpec) -> str | None:
    """Why a run has failed, or its result does not count; None where neither is so."""
    summary = read_note(storage, RunPaths(asked.run).run, asked.incarnation)
    if summary is not None and not is_of_its_shards(storage, asked, summary):
        again = hint("retry", asked.job, store=storage)
        what = "the model was trained" if asked.has_model else "this part of an audit was made"
        return f"{what} on other shards than those that are here now: `{again}` does it again"
    note = read_note(storage, RunPaths(asked.run).failed, asked.incarnation)
    if note is None and summary is None:
        failed = next((name for state, name in audited_states(storage, asked) if state == "FAILED"), None)
        return None if failed is None else f"run {failed}, which it audits, has failed or was removed"
    return None if note is None or summary is not None else str(note.get("reason", "unknown"))
