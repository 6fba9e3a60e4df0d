"""The scopes and units of the ledger, and how texts from Redis are read safely, whatever somebody wrote there.

No input or output here; `shared/leasing/ledger.py` lists the keys.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from shared.jobs.job import Job, ShardTask
from shared.specs.run import RunSpec
from shared.text import printable

# The facts about a holder that are words; all others are numbers.
_WORDS: Final = frozenset({"worker", "phase", "form", "note"})
_WORD_LENGTH: Final = 200
# No number of ours comes near it. Larger ones cannot be shown as a time, or added up as floats.
_NUMBER_MOST: Final = 2**53
_SLOTS_MOST: Final = 4096
_TEXT_LENGTH: Final = 2000

RUN_UNIT: Final = "run"

# The queues that hints wait in: Redis lists with these names.
SHARD_QUEUE: Final = "shards"
RUN_QUEUE: Final = "train"


def is_run_unit(name: str) -> bool:
    """Whether `name` is the one unit of a run's scope."""
    return name == RUN_UNIT


def job_scope(of: Job | ShardTask) -> str:
    """The scope of a job's shards."""
    return f"job:{of.job}@{of.incarnation}".removesuffix("@")


def run_scope(run: RunSpec) -> str:
    """The scope of a run, whose one unit is `RUN_UNIT` with ordinal 0."""
    return f"run:{run.run}@{run.incarnation}".removesuffix("@")


def message_id(scope: str, unit: str) -> str:
    """The Celery task id of a unit's hint."""
    return f"{scope}/{unit}"


def run_of(message: str) -> tuple[str, str] | None:
    """The name and identity of the run that a hint is about, from its Celery task id; None if it is not about a run."""
    scope, _, unit = message.rpartition("/")
    kind, _, run = scope.partition(":")
    name, _, incarnation = run.partition("@")
    return (name, incarnation) if kind == "run" and unit == RUN_UNIT else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """One thing that can be leased: a shard of a job, or a run."""

    scope: str
    name: str
    ordinal: int

    def key(self, part: str) -> str:
        """The Redis key of `part` of this unit's scope."""
        return f"voc:{self.scope}:{part}"

    @property
    def state_key(self) -> str:
        """The scope's own hash."""
        return f"voc:{self.scope}"

    @property
    def lease_key(self) -> str:
        """The string that holds the token of whoever owns this unit."""
        return f"voc:{self.scope}:lease:{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class UnderWay:
    """What the ledger knows about a scope's units that are neither done nor failed."""

    queued: dict[str, float]
    leased: dict[str, dict[str, Any]]
    expired: frozenset[str]
    attempts: dict[str, int]
    errors: dict[str, str]


NOTHING_UNDER_WAY: Final = UnderWay(queued={}, leased={}, expired=frozenset(), attempts={}, errors={})


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeState:
    """The scope's own hash; `attempts` is None if nobody has counted yet."""

    state: str
    cancelled: bool
    attempts: int | None
    written: int
    quarantined: int
    images_per_s: float
    retried: int
    last_error: str | None

    @classmethod
    def read(cls, found: Mapping[str, str]) -> Self:
        """What the hash holds; a number that cannot be read counts as absent."""
        return cls(
            state=found.get("state", "")[:_WORD_LENGTH],
            cancelled=found.get("cancelled") == "1",
            attempts=as_count(found["attempts"]) if "attempts" in found else None,
            written=as_count(found.get("written")),
            quarantined=as_count(found.get("quarantined")),
            images_per_s=max(0.0, as_number(found.get("images_per_s")) or 0.0),
            retried=as_count(found.get("retried")),
            last_error=found["last_error"][:_TEXT_LENGTH] if "last_error" in found else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """What a worker or trainer says about itself: `kind` is worker or trainer, `slots` its number of processes."""

    kind: str
    slots: int

    @classmethod
    def read(cls, text: str | None) -> Self | None:
        """What a heartbeat's `text` says; None if it is not in our form."""
        facts = _facts(text)
        kind, slots = facts.get("kind"), facts.get("slots")
        if kind not in ("worker", "trainer") or not isinstance(slots, int) or not 0 <= slots <= _SLOTS_MOST:
            return None
        return cls(kind=kind, slots=slots)


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """How many `shards` and `runs` remain to be done, whether somebody is at work on them or not."""

    shards: int
    runs: int

    @classmethod
    def read(cls, text: str | None) -> Self | None:
        """What `text` says; None if it is not in our form."""
        facts = _facts(text)
        counts = [facts.get(name) for name in ("shards", "runs")]
        if not all(isinstance(count, int) and 0 <= count <= 2**31 for count in counts):
            return None
        return cls(shards=int(facts["shards"]), runs=int(facts["runs"]))


def as_number(text: str | None) -> float | None:
    """`text` as a finite number, or None if it is not one."""
    try:
        value = float(text) if text is not None else math.nan
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def as_count(text: str | None) -> int:
    """`text` as a whole number from 0 to 2**31, or 0 if it is not one."""
    value = as_number(text)
    return int(value) if value is not None and 0 <= value <= 2**31 and value == int(value) else 0


def _facts(text: str | None) -> dict[str, Any]:
    """`text` as a JSON object, or an empty one if it is not one."""
    try:
        facts = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {}
    return facts if isinstance(facts, dict) else {}


def read_holder(text: str) -> dict[str, Any]:
    """Who holds a unit, since when, and how far it is: words and finite numbers, whatever was written there."""
    facts = {"worker": "unknown", "pid": 0, "since": 0.0}
    for name, value in _facts(text).items():
        if name in _WORDS:
            facts[name] = printable(str(value))[:_WORD_LENGTH]
        elif name.isidentifier() and isinstance(value, int | float) and abs(value) <= _NUMBER_MOST:
            facts[name] = value
    return facts
