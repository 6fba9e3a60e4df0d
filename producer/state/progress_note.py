"""Who works on a job's shards and its run, and how far they are: from Redis, or from what they note in storage.

A run's `progress.json` is written by its trainer (`trainer/progress_note.py`), a job's by the command that waits for it
(`producer/run/shards_note.py`).
"""

import json
import time
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import Any, Final

from producer.state.local_lock import has_local_run
from shared.jobs.identity import read_note
from shared.jobs.job import Job
from shared.jobs.paths import JobPaths, RunPaths
from shared.leasing.ledger import Ledger
from shared.leasing.scopes import RUN_UNIT, ScopeState, as_count, is_run_unit, job_scope, read_holder, run_scope
from shared.specs.run import RunSpec
from shared.storage import Storage

# Notes are written every 2 or 3 s. One older than this is from a process that died; a slow store may get notes late.
FRESH_S: Final = 15.0
# The fields of `JobStatus` that are noted for a job's shards, besides who holds them.
COUNTED: Final = ("attempts", "images_per_s", "last_error")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardsUnderWay:
    """What is known of a job's shards beyond the store's files: who holds which (`leased`), how many are queued."""

    view: ScopeState
    leased: dict[str, dict[str, Any]] = field(default_factory=dict)
    queued: int = 0


def read_run_progress(storage: Storage, asked: RunSpec) -> dict[str, Any] | None:
    """What the trainer of a run noted last: words and finite numbers; None if it never noted anything."""
    note = read_note(storage, RunPaths(asked.run).progress, asked.incarnation)
    return None if note is None else read_holder(json.dumps(note))


def run_holder(ledger: Ledger | None, asked: RunSpec, progress: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Who works on a run and how far it is; empty if nobody does. `progress` is what its trainer noted last."""
    under_way = None if ledger is None else ledger.under_way(run_scope(asked), is_run_unit)
    if under_way is not None and RUN_UNIT in under_way.leased and RUN_UNIT not in under_way.expired:
        return under_way.leased[RUN_UNIT]
    # The trainer also notes in storage that it holds the run, in case it uses another Redis or Redis was just emptied.
    return progress if progress is not None and _is_live(progress) else {}


def shards_under_way(storage: Storage, ledger: Ledger | None, job: Job, settled: Set[str] | None) -> ShardsUnderWay:
    """Who works on the shards that are not in `settled`; if that is None, the shards are finished and nobody does."""
    # A local run has its own Redis, even if another one is configured.
    if ledger is None or (settled is not None and has_local_run(storage, job.job)):
        noted = _noted_shards(storage, job)
        return noted if settled is not None else ShardsUnderWay(view=noted.view)
    view = ledger.read_state(job_scope(job))
    if settled is None:
        return ShardsUnderWay(view=view if view.attempts is not None else _noted_shards(storage, job).view)
    under_way = ledger.under_way(job_scope(job), lambda name: name not in settled and job.has(name))
    leased = {name: holder for name, holder in under_way.leased.items() if name not in under_way.expired}
    return ShardsUnderWay(view=view, leased=leased, queued=len(under_way.queued.keys() - leased.keys()))


def _is_live(note: Mapping[str, Any]) -> bool:
    """Whether the process that wrote `note` is still at work."""
    return bool(note.get("held")) and abs(time.time() - float(note.get("at", 0))) < FRESH_S


def _noted_shards(storage: Storage, job: Job) -> ShardsUnderWay:
    """What the command that waits for `job` noted last; who holds what is left out if the note is old."""
    note = read_note(storage, JobPaths(job.job).progress, job.incarnation) or {}
    view = ScopeState.read({name: str(note[name]) for name in COUNTED if note.get(name) is not None})
    facts = read_holder(json.dumps({name: value for name, value in note.items() if name in ("at", "held")}))
    if not _is_live(facts):
        return ShardsUnderWay(view=view)
    holders = note.get("holders")
    leased = {
        str(holder["shard"]): read_holder(json.dumps(holder))
        for holder in (holders if isinstance(holders, list) else [])
        if isinstance(holder, dict) and job.has(str(holder.get("shard")))
    }
    return ShardsUnderWay(view=view, leased=leased, queued=as_count(str(note.get("queued"))))
