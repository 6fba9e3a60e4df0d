"""The state of a job as storage tells it, and how it is shown: storage decides, the ledger adds what is under way."""

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from shared.errors import PlanError
from shared.job import Job
from shared.ledger import RUN_UNIT, Ledger, UnderWay, job_scope, run_scope
from shared.manifest import JobPaths, RunPaths, shards_done
from shared.storage import Storage
from shared.stored import read_stored

State = Literal["SUBMITTED", "RUNNING", "FINALIZED", "TRAINING", "DONE", "CANCELLED", "FAILED"]
TERMINAL: frozenset[State] = frozenset({"DONE", "CANCELLED", "FAILED"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """What one look at storage says of a job: its state, its shards done, and those given up with their reason."""

    state: State
    done: frozenset[str]
    failed: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStatus:
    """What `producer status --json` prints of a job; counts of shards sum to `shards`."""

    job: str
    state: State
    shards: int
    done: int
    queued: int
    leased: int
    failed: int
    pending: int
    images: int
    images_done: int
    quarantined: int
    attempts: int
    images_per_s: float
    eta_s: float | None
    last_error: str | None
    failures: dict[str, str] = field(default_factory=dict)
    holders: tuple[dict[str, Any], ...] = ()
    run: dict[str, Any] | None = None

    def as_json(self) -> dict[str, Any]:
        """The fields as JSON values."""
        return asdict(self)


def load_job(storage: Storage, job: str) -> Job:
    """Read `job.json`.

    Raises:
        PlanError: There is no such job.
        FormatError: It was written by another version, or is damaged.
    """
    text = storage.read_or_none(JobPaths(job).job)
    if text is None:
        known = ", ".join(job_names(storage)) or "none"
        raise PlanError(f"no job {job!r} in {storage.root} (there are: {known})")
    return read_stored(Job, text, storage.url(JobPaths(job).job))


def job_names(storage: Storage) -> list[str]:
    """The names of all jobs in the store, sorted; a folder without `job.json` is none."""
    return [name for name in storage.list_names("jobs") if storage.exists(JobPaths(name).job)]


def stored_state(storage: Storage, job: Job, failed_share: float) -> Stored:
    """What storage says of `job` (a few listings)."""
    paths = JobPaths(job.job)
    done = frozenset(shards_done(storage, job.job))
    failed = {
        name.removesuffix(".json"): storage.read(f"{paths.failed}/{name}").decode()
        for name in storage.list_names(paths.failed)
        if name.removesuffix(".json") not in done
    }
    return Stored(state=_state(storage, job, done, failed, failed_share), done=done, failed=failed)


def _state(storage: Storage, job: Job, done: frozenset[str], failed: dict[str, str], failed_share: float) -> State:
    paths = JobPaths(job.job)
    if storage.exists(paths.cancelled):
        return "CANCELLED"
    if not storage.exists(paths.manifest):
        if len(done) + len(failed) == len(job.shards) and is_hopeless(job, len(failed), failed_share):
            return "FAILED"
        return "RUNNING" if done or failed else "SUBMITTED"
    return "DONE" if job.run is None else run_state(storage, job.run.run)


def run_state(storage: Storage, run: str) -> State:
    """The state of a run as storage tells it; FINALIZED while nobody has asked for it yet."""
    paths = RunPaths(run)
    for key, state in ((paths.run, "DONE"), (paths.cancelled, "CANCELLED"), (paths.failed, "FAILED")):
        if storage.exists(key):
            return state  # type: ignore[return-value]  # the three names above are states
    return "TRAINING" if storage.exists(paths.request) else "FINALIZED"


def is_hopeless(job: Job, failed: int, failed_share: float) -> bool:
    """Whether so many shards failed that the job has failed."""
    return failed > failed_share * len(job.shards)


def job_status(storage: Storage, ledger: Ledger | None, job: Job, failed_share: float) -> JobStatus:
    """The status of `job`: storage's counts, and what the ledger (None: unreachable) knows of the shards under way."""
    stored = stored_state(storage, job, failed_share)
    scope = job_scope(job.job)
    view = ledger.read_state(scope) if ledger else {}
    under_way = _live(ledger, scope, stored)
    shards = job.shards
    leased = {name: holder for name, holder in under_way.leased.items() if name not in under_way.expired}
    queued = under_way.queued.keys() - leased.keys()
    images = sum(plan.pairs for plan in job.splits.values())
    images_done = int(view.get("written", 0)) + int(view.get("quarantined", 0))
    if len(stored.done) == len(shards):
        images_done = images
    working = sum(int(holder.get("images", 0)) for holder in leased.values())
    rate = float(view.get("images_per_s", 0)) if stored.state in ("RUNNING", "SUBMITTED") else 0.0
    return JobStatus(
        job=job.job,
        state=stored.state,
        shards=len(shards),
        done=len(stored.done),
        queued=len(queued),
        leased=len(leased),
        failed=len(stored.failed),
        pending=len(shards) - len(stored.done) - len(stored.failed) - len(queued) - len(leased),
        images=images,
        images_done=min(images, images_done + working),
        quarantined=int(view.get("quarantined", 0)),
        attempts=int(view.get("attempts", 0)),
        images_per_s=rate,
        eta_s=(images - images_done - working) / rate if rate > 0 else None,
        last_error=view.get("last_error"),
        failures=stored.failed,
        holders=tuple({"shard": name, **holder} for name, holder in sorted(leased.items())),
        run=_run_view(ledger, job),
    )


def _live(ledger: Ledger | None, scope: str, stored: Stored) -> UnderWay:
    """The ledger's view, less what storage has settled since."""
    settled = stored.done | stored.failed.keys()
    view = (
        ledger.under_way(scope)
        if ledger and stored.state in ("SUBMITTED", "RUNNING")
        else UnderWay(queued={}, leased={}, expired=frozenset(), attempts={}, errors={})
    )
    return UnderWay(
        queued={name: at for name, at in view.queued.items() if name not in settled},
        leased={name: holder for name, holder in view.leased.items() if name not in settled},
        expired=view.expired,
        attempts=view.attempts,
        errors=view.errors,
    )


def _run_view(ledger: Ledger | None, job: Job) -> dict[str, Any] | None:
    """Progress of the job's run: who works on it, and what the trainer last said."""
    if job.run is None:
        return None
    leased = ledger.under_way(run_scope(job.run.run)).leased if ledger else {}
    return {"run": job.run.run, **leased.get(RUN_UNIT, {})}
