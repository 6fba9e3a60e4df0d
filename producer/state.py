"""The state of a job as storage tells it, and how it is shown: storage decides, the ledger adds what is under way."""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from shared.errors import FormatError, PlanError
from shared.job import Job
from shared.ledger import RUN_UNIT, Ledger, UnderWay, job_scope, run_scope
from shared.manifest import JobPaths, Manifest, RunPaths, ShardReceipt, read_receipt, shards_done
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
    """What `producer status --json` prints of a job: fields are added, never renamed or taken away.

    Each of the `shards` is in one of `done`, `failed`, `leased`, `queued` and `pending`; `reused` of the done ones came
    from other jobs. Of the `images`, `images_done` are written or `quarantined`, or read by who holds their shard.
    `attempts` are claims of shards, None where Redis was emptied after the end. `images_per_s` is smoothed, `eta_s`
    in seconds. `failures` is shard -> reason, `holders` who works on what since when (Unix time), `run` the training.
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
        name.removesuffix(".json"): _reason(storage.read(f"{paths.failed}/{name}"))
        for name in storage.list_names(paths.failed)
        if name.removesuffix(".json") not in done
    }
    return Stored(state=_state(storage, job, done, failed, failed_share), done=done, failed=failed)


def _reason(failure: bytes) -> str:
    """Why, from a failure's file."""
    return str(json.loads(failure).get("reason", "unknown"))


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
    counts = _counts(storage, ledger, job, stored, view)
    working = sum(int(holder.get("images", 0)) for holder in leased.values())
    images_done = min(images, counts.images + working)
    rate = float(view.get("images_per_s", 0)) if stored.state in ("RUNNING", "SUBMITTED") else 0.0
    return JobStatus(
        job=job.job,
        state=stored.state,
        shards=len(shards),
        done=len(stored.done),
        reused=reused_shards(storage, job.job),
        queued=len(queued),
        leased=len(leased),
        failed=len(stored.failed),
        pending=len(shards) - len(stored.done) - len(stored.failed) - len(queued) - len(leased),
        images=images,
        images_done=images_done,
        quarantined=counts.quarantined,
        attempts=counts.attempts,
        images_per_s=rate,
        eta_s=round((images - images_done) / rate, 1) if rate > 0 else None,
        last_error=view.get("last_error") or next(iter(stored.failed.values()), None),
        failures=stored.failed,
        holders=tuple({"shard": name, **holder} for name, holder in sorted(leased.items())),
        run=_run_view(storage, ledger, job),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Counts:
    """Of the shards done: pictures in them, those quarantined, and claims so far (None: not known)."""

    images: int
    quarantined: int
    attempts: int | None


def _counts(storage: Storage, ledger: Ledger | None, job: Job, stored: Stored, view: Mapping[str, str]) -> _Counts:
    """From the manifest, if there is one; else from the ledger, or where it knows less than storage, from receipts."""
    attempts = int(view["attempts"]) if "attempts" in view else None
    text = storage.read_or_none(JobPaths(job.job).manifest)
    if text is not None:
        counters = read_stored(Manifest, text, storage.url(JobPaths(job.job).manifest)).counters
        quarantined = counters["quarantined"]
        return _Counts(images=counters["written"] + quarantined, quarantined=quarantined, attempts=attempts)
    if ledger is not None and ledger.done_count(job_scope(job.job)) >= len(stored.done):
        quarantined = int(view.get("quarantined", 0))
        return _Counts(
            images=int(view.get("written", 0)) + quarantined, quarantined=quarantined, attempts=attempts or 0
        )
    receipts = list(_receipts(storage, job.job, stored.done))
    quarantined = sum(receipt.quarantined for receipt in receipts)
    claims = sum(receipt.attempt for receipt in receipts) - reused_shards(storage, job.job)
    return _Counts(
        images=sum(receipt.written for receipt in receipts) + quarantined,
        quarantined=quarantined,
        attempts=max(claims, attempts or 0),
    )


def _receipts(storage: Storage, job: str, shards: Iterable[str]) -> Iterator[ShardReceipt]:
    """Those that can be read; the reconciler has a damaged one written again."""
    for shard in shards:
        with suppress(FormatError):
            receipt = read_receipt(storage, job, shard)
            if receipt is not None:
                yield receipt


def reused_shards(storage: Storage, job: str) -> int:
    """How many shards of `job` were taken over from other jobs when it was submitted."""
    text = storage.read_or_none(JobPaths(job).reused)
    return 0 if text is None else int(json.loads(text)["shards"])


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


def _run_view(storage: Storage, ledger: Ledger | None, job: Job) -> dict[str, Any] | None:
    """The job's run: why it failed, or who works on it and what the trainer last said."""
    if job.run is None:
        return None
    view: dict[str, Any] = {"run": job.run.run}
    failure = storage.read_or_none(RunPaths(job.run.run).failed)
    if failure is not None:
        return view | {"failed": _reason(failure)}
    under_way = ledger.under_way(run_scope(job.run.run)) if ledger else None
    if under_way is None or RUN_UNIT in under_way.expired:
        return view
    return view | under_way.leased.get(RUN_UNIT, {})
