"""What `status` says of a job: storage decides its state, and the ledger adds what is under way."""

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from producer.state.outcome import Outcome, read_outcome, seconds_taken, written_at
from producer.state.progress_note import ShardsUnderWay, read_run_progress, run_holder, shards_under_way
from producer.state.runs import Requests, runs_of
from producer.state.standing import Scene, State, standing_of
from producer.state.stored import StoredState, run_failure, run_state, stored_state
from shared.errors import FormatError
from shared.jobs.identity import DoneShard, asked_now, read_note
from shared.jobs.job import Job
from shared.jobs.paths import JobPaths, RunPaths
from shared.leasing.ledger import Ledger
from shared.specs.run import ReleaseOptions, RunSpec
from shared.storage import Storage

# A trainer notes how far it is every 3 s; if it has not for this long, a person is told.
SILENT_S: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStatus:
    """What `status --json` prints of a job: fields are added, never renamed or removed.

    Each of the `shards` is counted in one of `done`, `failed`, `leased`, `queued` and `pending`; `reused` counts those
    of the done ones that came from other jobs. `images_done` counts the `images` that are written, `quarantined`, or
    already read by the holder of their shard. `attempts` are claims of shards, None if that is no longer known.
    `images_per_s` is smoothed, `eta_s` is in seconds. `failures` is shard -> reason, `holders` says who works on what
    since when (Unix time in s). `run` is the training that the job is seen with; `runs` are all trainings of the job,
    that one first, each with its `state`, `why` and `next` and, in `changed`, the options changed since its submit.
    `why` says why nobody is at work, or how the job ended; `next` is the command to go on with. `age_s` counts from the
    submit; `took_s`, the `model`, its figures (fractions) and `warnings` are described at `Outcome`.
    `size_bytes` is what job and runs take on disk, None if it was not measured, as while a job is watched.
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

    The latter comes from the `ledger`, or if that is None, from what those at work note in the store. `is_unreachable`:
    a Redis is configured but does not answer. `requests` are those of the whole store, if they are read already.
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
    """The fields of `JobStatus` on the result and the time taken; `trained_s` are the seconds trained so far."""
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
    """How often shards were claimed: `counted`, or more if the receipts say so; reused shards were never claimed."""
    return max(counted or 0, sum(shard.attempt for shard in done.values()) - reused_shards(storage, job))


def reused_shards(storage: Storage, job: Job) -> int:
    """How many shards of `job` were reused from other jobs when it was submitted."""
    return _noted_count(storage, job, JobPaths(job.job).reused, "shards")


def times_retried(storage: Storage, job: Job) -> int:
    """How often a person has used `retry`, which makes attempts count from 0 again."""
    return _noted_count(storage, job, JobPaths(job.job).retried, "times")


def _noted_count(storage: Storage, job: Job, key: str, name: str) -> int:
    """The number `name` in the job's note at `key`; 0 if there is none."""
    count = (read_note(storage, key, job.incarnation) or {}).get(name)
    return count if isinstance(count, int) else 0


def _runs_view(scene: Scene, requests: Requests | None, *, is_finalized: bool) -> tuple[dict[str, Any], ...]:
    """All runs of the job, the one that it is seen with first; runs that wait for shards have the job's state."""
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
    with suppress(FormatError):  # if the request cannot be read, the run has failed for that, or will
        changed = ReleaseOptions.between(asked, asked_now(storage, asked)).typed
        facts = {**({"changed": changed} if changed else {}), **facts}
    heard_s = time.time() - float((progress or {}).get("at", time.time()))
    if "worker" in facts and heard_s > SILENT_S:
        facts = {**facts, "heard_s": round(heard_s, 1)}
    part = {"fold": asked.fold} if asked.fold else {"audits": list(asked.audits)} if asked.audits else {}
    return {"run": asked.run, **part, **facts}
