"""The state of a job for a person: if it has not ended and nobody works on it, why not, and what to type."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from producer.state.local_lock import has_local_run
from producer.state.outcome import written_at
from producer.state.runs import retry_hint, run_words, ways_on
from shared.command import hint, start_hint
from shared.jobs.identity import is_name, read_note
from shared.jobs.job import Job
from shared.jobs.paths import JobPaths, RunPaths
from shared.leasing.ledger import Ledger
from shared.leasing.scopes import RUN_QUEUE, RUN_UNIT, job_scope, message_id, run_of, run_scope
from shared.specs.run import RunSpec
from shared.storage import Storage
from shared.text import collapsed, counted

State = Literal["SUBMITTED", "RUNNING", "FINALIZED", "TRAINING", "INTERRUPTED", "DONE", "CANCELLED", "FAILED"]

# A reconciler makes a round every 2 s. If the leader has finished none for this long, it is in a long round.
_ROUND_S = 10.0
# What is happening when all shards of a job are done but its manifest is not there yet.
_FINISHING = "the data set is put together"
# Why stores cannot share a Redis, although leases and queues tell jobs apart by their identities: only one service
# leads on a Redis, and workers take any hint.
_ELSEWHERE = "another store, and each store needs a Redis of its own (VOC_BROKER_URL)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A job's state as shown to a person; if nobody is at work, `why`, and the command to go on with (`next`)."""

    state: State
    why: str | None = None
    next: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What a standing is made from: the job as storage has it, and who can be seen at work on it.

    `state`, `done` and `failed` (numbers of shards) are from storage. `ledger` is None if there is none to ask, and
    `is_unreachable` says if that is a fault. `run` is what is known of the run, `progress` what its trainer noted last.
    `is_held`: somebody works on what is due, a shard or the run. `at_work` is a run of the job that somebody works on.
    """

    storage: Storage
    ledger: Ledger | None
    is_unreachable: bool
    job: Job
    state: State
    done: int
    failed: int
    run: Mapping[str, Any] | None
    progress: Mapping[str, Any] | None
    is_held: bool
    at_work: str = ""

    def hint(self, command: str) -> str:
        """The command line that applies `command` to this job and the run that it is seen with."""
        run = None if self.job.run is None else self.job.run.run
        return hint(command, self.job.job, *run_words(self.job.job, run), store=self.storage)

    def is_settled(self) -> bool:
        """Whether every shard is done or given up."""
        return self.done + self.failed >= len(self.job.shards)


def standing_of(scene: Scene) -> Standing:
    """Where a job stands; whenever it is not done and nobody is at work on it, with a reason."""
    match scene.state:
        case "DONE":
            return Standing(state="DONE")
        case "CANCELLED":
            return Standing(state="CANCELLED", why="a person cancelled it", next=retry_hint(scene.storage, scene.job))
        case "FAILED":
            if scene.run is None and not scene.failed:
                return _without_photos(scene)
            shards = f"{scene.failed} of {counted(len(scene.job.shards), 'shard')} failed"
            why = collapsed((scene.run or {}).get("failed", shards))
            ways = [*ways_on(scene.storage, scene.job), retry_hint(scene.storage, scene.job)]
            return Standing(state="FAILED", why=why, next=ways[0])
    if scene.is_held:
        return Standing(state="TRAINING" if scene.state == "FINALIZED" else scene.state)
    return _idle_standing(scene)


def _without_photos(scene: Scene) -> Standing:
    """The standing of a job whose shards are written but hold no photo."""
    photos = counted(sum(plan.pairs for plan in scene.job.splits.values()), "photo")
    why = f"no photo could be used ({photos} set aside): lint.csv says why"
    return Standing(state="FAILED", why=why, next=hint("lint", scene.job.dataset, "--pixels", store=scene.storage))


def _idle_standing(scene: Scene) -> Standing:
    """The standing of a job that has not ended while nobody holds one of its shards or its run."""
    is_training = scene.state in ("FINALIZED", "TRAINING")
    before = _interruption(scene.storage, scene.job.run, scene.progress) if is_training else _shards_text(scene)
    state: State = scene.state
    if is_training:
        state = "INTERRUPTED" if before else "FINALIZED"
    waits = _waits_for(scene) if is_training else ""
    if waits:
        return Standing(state=state, why=_joined(before, waits))
    if has_local_run(scene.storage, scene.job.job):
        # A local run does one training at a time.
        turn = f"waits until {scene.at_work} is done" if scene.at_work else "its trainer starts"
        starts = turn if is_training else "its workers start"
        starts = starts if is_training or not scene.is_settled() else _FINISHING
        return Standing(state=state, why=_joined(before, f"{starts} (--local)"))
    if scene.ledger is None:
        return _without_ledger(scene, state, before)
    if not scene.ledger.is_led():
        return Standing(state=state, why=_joined(before, "no `serve` is running"), next=start_hint("producer"))
    if refusal := scene.ledger.refusal():
        return Standing(state=state, why=_joined(before, f"the store refuses `serve`: {collapsed(refusal)}"))
    age_s = scene.ledger.round_age_s()
    if age_s is None:
        why = "`serve` makes its first round: where Redis is new or was emptied it lets leases run out first (15 s)"
        return Standing(state=state, why=_joined(before, why))
    if age_s > _ROUND_S:
        why = f"`serve` is in a long round, as the store or a data set is large; the last one ended {age_s:.0f} s ago"
        return Standing(state=state, why=_joined(before, why))
    if _is_unseen(scene, scene.ledger):
        elsewhere = f"the service that leads ({scene.ledger.leader()}) does not see this job: it serves {_ELSEWHERE}"
        return Standing(state=state, why=_joined(before, elsewhere))
    if not is_training and scene.is_settled():
        return Standing(state=state, why=_joined(before, _FINISHING))
    return _waiting(scene, scene.ledger, state, before, "trainer" if is_training else "worker")


def _is_unseen(scene: Scene, ledger: Ledger) -> bool:
    """Whether the leading service has had time to look at the job but has noted nothing about it."""
    if ledger.read_state(job_scope(scene.job)).state:
        return False
    submitted = written_at(scene.storage, JobPaths(scene.job.job).job)
    return submitted is not None and time.time() - submitted > _ROUND_S


def _waits_for(scene: Scene) -> str:
    """A text on the runs that have to be done before the one that audits them; empty if it waits for none."""
    audits = () if scene.job.run is None else scene.job.run.audits
    done = [name for name in audits if read_note(scene.storage, RunPaths(name).run, scene.job.incarnation) is not None]
    return "" if len(done) == len(audits) else f"waits for its folds, {len(done)} of {len(audits)} done"


def _without_ledger(scene: Scene, state: State, before: str) -> Standing:
    """The standing if only storage can be asked: its notes and locks say that nobody is at work."""
    if scene.is_unreachable:
        return Standing(
            state=state, why=_joined(before, "Redis cannot be reached to ask who works on it"), next=hint("doctor")
        )
    state = "INTERRUPTED" if scene.done and state == "RUNNING" else state
    return Standing(state=state, why=_joined(before, "nobody works on it"), next=scene.hint("resume"))


def _waiting(scene: Scene, ledger: Ledger, state: State, before: str, kind: str) -> Standing:
    alive = ledger.slots(kind)
    place = _place(scene, ledger) if kind == "trainer" else ""
    start = start_hint(kind, "train" if kind == "trainer" else "shards")
    why = _joined(before, f"waits for a {kind} ({alive} alive{place})")
    return Standing(state=state, why=why, next=None if alive else start)


def _place(scene: Scene, ledger: Ledger) -> str:
    """The place of this run in the trainers' queue; hints of removed or ended runs do not count: trainers drop them."""
    line = ledger.queued_ids(RUN_QUEUE)
    ours = message_id(run_scope(scene.job.run), RUN_UNIT) if scene.job.run else ""
    if ours not in line:
        return ""
    ahead = sum(_is_wanted(scene.storage, message) for message in set(line[: line.index(ours)]))
    return f", {_ordinal(ahead + 1)} in line"


def _is_wanted(storage: Storage, message: str) -> bool:
    """Whether a hint is for a run that exists and has not ended."""
    name, incarnation = run_of(message) or ("", "")
    if not is_name(name):
        return False
    paths = RunPaths(name)
    ends = (paths.cancelled, paths.failed, paths.run)
    is_there = read_note(storage, paths.request, incarnation) is not None
    return is_there and all(read_note(storage, end, incarnation) is None for end in ends)


def _shards_text(scene: Scene) -> str:
    return f"{scene.done} of {counted(len(scene.job.shards), 'shard')} done"


def _interruption(storage: Storage, asked: RunSpec | None, progress: Mapping[str, Any] | None) -> str:
    """How far a training was when its trainer left it; empty if none has begun."""
    if asked is None:
        return ""
    progress = progress or {}
    saved = storage.list_names(RunPaths(asked.run).checkpoints)
    if "step" in progress:
        steps = f" of {progress['steps']}" if "steps" in progress else ""
        again = "" if saved else " (no checkpoint yet, it begins again)"
        return f"interrupted at step {progress['step']}{steps}{again}"
    if "phase" in progress and progress["phase"] != "check":
        return f"interrupted in its phase {progress['phase']}"
    return "interrupted in training" if saved else ""  # an older version noted no progress


def _joined(*texts: str) -> str:
    return ", ".join(filter(None, texts))


def _ordinal(number: int) -> str:
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
