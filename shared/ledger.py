"""Leases, attempts and progress in Redis: the live view of what storage says, rebuilt from it whenever it is gone.

A *scope* is a job or a run; its *units* are the job's shards, or the run itself (one unit, `run`). Keys and types:

    voc:generation               string   set when the reconciler has rebuilt the ledger; absent: Redis was wiped
    voc:leader                   string   token of the leading reconciler, expires
    voc:reconciled               string   unix time in s of the reconciler's last whole round
    voc:touched                  set      jobs that a command line changed in storage
    voc:worker:<name>            string   JSON heartbeat of a worker or trainer, expires
    voc:<scope>                  hash     state, attempts, written, quarantined, cancelled, last_error; progress
    voc:<scope>:queued           zset     unit -> unix time in s at which its message was sent
    voc:<scope>:leased           hash     unit -> JSON of who works on it and how far
    voc:<scope>:attempts         hash     unit -> claims so far without success
    voc:<scope>:errors           hash     unit -> last error
    voc:<scope>:done             bitmap   by ordinal of the unit
    voc:<scope>:lease:<unit>     string   the holder's token, expires

Nothing here grows with the number of pictures: the hashes hold what is under way, the bitmap one bit a shard.
"""

import json
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Final, Literal

import redis
from redis.backoff import ExponentialBackoff
from redis.client import NEVER_DECODE
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.retry import Retry

ClaimOutcome = Literal["claimed", "cancelled", "done", "held", "exhausted"]
RenewOutcome = Literal["ok", "cancelled", "lost"]

# Raised by every method while Redis cannot be reached; callers that can go on without it catch just these.
UNREACHABLE: Final = (RedisConnectionError, RedisTimeoutError)

# A heartbeat is written every 5 s; three missed ones and the worker is no longer counted.
HEARTBEAT_EXPIRY_S: Final = 15

RUN_UNIT: Final = "run"


def job_scope(job: str) -> str:
    """The scope of a job's shards."""
    return f"job:{job}"


def run_scope(run: str) -> str:
    """The scope of a run, whose one unit is `RUN_UNIT` with ordinal 0."""
    return f"run:{run}"


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
    """What the ledger knows of a scope's units that are neither done nor failed."""

    queued: dict[str, float]
    leased: dict[str, dict[str, Any]]
    expired: frozenset[str]
    attempts: dict[str, int]
    errors: dict[str, str]


def connect(url: str) -> "redis.Redis":
    """A client that retries with backoff what is idempotent, and everything here is: scripts, SET, HSET, reads."""
    retry = Retry(ExponentialBackoff(cap=1.0, base=0.05), 3)
    return redis.Redis.from_url(
        url,
        decode_responses=True,
        socket_connect_timeout=5,
        socket_timeout=10,
        **({} if url.startswith("unix://") else {"socket_keepalive": True}),
        health_check_interval=10,
        retry=retry,
        retry_on_error=[RedisConnectionError, RedisTimeoutError],
    )


class Ledger:
    """The scripts and keys above on one client."""

    def __init__(self, client: "redis.Redis") -> None:
        self.client: Any = client  # redis-py's methods are typed for its sync and async clients at once
        folder = files("shared")
        self._scripts = {
            name: self.client.register_script((folder / f"{name}.lua").read_text())
            for name in ("claim", "renew", "release", "complete")
        }

    # --- a unit's life -----------------------------------------------------------------------------------------

    def claim(
        self, unit: Unit, token: str, *, lease_s: float, limit: int, holder: dict[str, Any]
    ) -> tuple[ClaimOutcome, int]:
        """Take the lease of `unit`, count the attempt; its number from 1, or why not."""
        keys = [unit.lease_key, unit.state_key, *map(unit.key, ("attempts", "leased", "queued", "done"))]
        arguments: list[str | int] = [token, int(lease_s * 1000), unit.name, unit.ordinal, limit, json.dumps(holder)]
        outcome, attempt = self._scripts["claim"](keys=keys, args=arguments)
        return outcome, int(attempt)

    def renew(self, unit: Unit, token: str, *, lease_s: float, holder: dict[str, Any]) -> RenewOutcome:
        """Prolong our lease of `unit`, or take it again where nobody holds it."""
        keys = [unit.lease_key, unit.state_key, unit.key("leased")]
        outcome: RenewOutcome = self._scripts["renew"](
            keys=keys, args=[token, int(lease_s * 1000), unit.name, json.dumps(holder)]
        )
        return outcome

    def release(self, unit: Unit, token: str, *, counted: bool, error: str = "") -> bool:
        """Give `unit` back; whether the lease was ours."""
        keys = [unit.lease_key, *map(unit.key, ("attempts", "leased", "errors")), unit.state_key]
        return bool(self._scripts["release"](keys=keys, args=[token, unit.name, int(counted), error[:2000]]))

    def complete(self, unit: Unit, token: str, *, written: int = 0, quarantined: int = 0) -> None:
        """Note that the receipt of `unit` is in storage."""
        parts = ("attempts", "leased", "queued", "done", "errors")
        keys = [unit.lease_key, unit.state_key, *map(unit.key, parts)]
        self._scripts["complete"](keys=keys, args=[token, unit.name, unit.ordinal, written, quarantined])

    # --- the reconciler's view ---------------------------------------------------------------------------------

    def under_way(self, scope: str) -> UnderWay:
        """What is queued and leased; `expired` are the leased whose lease is gone."""
        prefix = f"voc:{scope}"
        pipe = self.client.pipeline(transaction=False)
        pipe.zrange(f"{prefix}:queued", 0, -1, withscores=True)
        for part in ("leased", "attempts", "errors"):
            pipe.hgetall(f"{prefix}:{part}")
        queued, leased, attempts, errors = pipe.execute()
        pipe = self.client.pipeline(transaction=False)
        for unit in leased:
            pipe.exists(f"{prefix}:lease:{unit}")
        alive = dict(zip(leased, pipe.execute(), strict=True))
        return UnderWay(
            queued=dict(queued),
            leased={unit: json.loads(text) for unit, text in leased.items()},
            expired=frozenset(unit for unit, exists in alive.items() if not exists),
            attempts={unit: int(count) for unit, count in attempts.items()},
            errors=errors,
        )

    def done_bits(self, scope: str) -> bytes:
        """The bitmap of done units, most significant bit of byte 0 first, as Redis keeps it."""
        return bytes(self.client.execute_command("GET", f"voc:{scope}:done", **{NEVER_DECODE: True}) or b"")

    def mark_queued(self, scope: str, unit: str) -> None:
        """Note that a message for `unit` is being sent now."""
        self.client.zadd(f"voc:{scope}:queued", {unit: time.time()})

    def forget_queued(self, scope: str, unit: str) -> None:
        """`unit` is not in the queue any more, or its message was not sent."""
        self.client.zrem(f"voc:{scope}:queued", unit)

    def forget_leased(self, scope: str, unit: str) -> None:
        """The lease of `unit` has expired: it is nobody's."""
        self.client.hdel(f"voc:{scope}:leased", unit)

    def forget_attempts(self, scope: str, units: Iterable[str]) -> None:
        """Start counting anew (a person asked to retry, or the unit is done or failed)."""
        names = list(units)
        if names:
            self.client.hdel(f"voc:{scope}:attempts", *names)
            self.client.hdel(f"voc:{scope}:errors", *names)

    def mark_done(self, scope: str, ordinals: Iterable[int]) -> None:
        """Set the bits of units whose receipts were found in storage."""
        pipe = self.client.pipeline(transaction=False)
        for ordinal in ordinals:
            pipe.setbit(f"voc:{scope}:done", ordinal, 1)
        pipe.execute()

    def unmark_done(self, scope: str, ordinal: int) -> None:
        """The receipt of this unit was taken back: it is to be done again."""
        self.client.setbit(f"voc:{scope}:done", ordinal, 0)

    def write_state(self, scope: str, **fields: str | int | float) -> None:
        """Set fields of the scope's own hash."""
        self.client.hset(f"voc:{scope}", mapping=fields)

    def read_state(self, scope: str) -> dict[str, str]:
        """The scope's own hash; empty where the ledger does not know it."""
        state: dict[str, str] = self.client.hgetall(f"voc:{scope}")
        return state

    def done_count(self, scope: str) -> int:
        """Number of done units."""
        return int(self.client.bitcount(f"voc:{scope}:done"))

    def forget_scope(self, scope: str) -> None:
        """Remove all keys of `scope` (its files in storage are gone, or it is rebuilt)."""
        parts = ("queued", "leased", "attempts", "errors", "done")
        self.client.delete(f"voc:{scope}", *(f"voc:{scope}:{part}" for part in parts))

    # --- who is there ------------------------------------------------------------------------------------------

    def touch(self, job: str) -> None:
        """Tell the reconciler that `job` changed in storage."""
        self.client.sadd("voc:touched", job)

    def touched(self) -> set[str]:
        """The jobs touched since the last call."""
        return set(self.client.spop("voc:touched", 10_000) or ())

    def beat(self, worker: str, **facts: str | int | float) -> None:
        """Write the heartbeat of `worker`."""
        self.client.set(f"voc:worker:{worker}", json.dumps(facts), ex=HEARTBEAT_EXPIRY_S)

    def leave(self, worker: str) -> None:
        """Remove the heartbeat of a worker that stops."""
        self.client.delete(f"voc:worker:{worker}")

    def workers(self) -> dict[str, dict[str, Any]]:
        """Heartbeats by worker name."""
        keys = sorted(self.client.scan_iter("voc:worker:*", count=1000))
        texts = self.client.mget(keys) if keys else []
        return {
            key.removeprefix("voc:worker:"): json.loads(text) for key, text in zip(keys, texts, strict=True) if text
        }

    def lead(self, token: str, expiry_s: int) -> bool:
        """Become or stay the leading reconciler."""
        if self.client.set("voc:leader", token, nx=True, ex=expiry_s):
            return True
        if self.client.get("voc:leader") != token:
            return False
        self.client.expire("voc:leader", expiry_s)
        return True

    def stop_leading(self, token: str) -> None:
        """Let another reconciler lead at once."""
        if self.client.get("voc:leader") == token:
            self.client.delete("voc:leader")

    def note_round(self) -> None:
        """Say that the reconciler has done a whole round just now."""
        self.client.set("voc:reconciled", time.time())

    def round_age_s(self) -> float | None:
        """Seconds since the reconciler's last whole round; None where there was none since Redis was emptied."""
        at = self.client.get("voc:reconciled")
        return None if at is None else max(0.0, time.time() - float(at))

    def identity(self) -> tuple[str, str | None]:
        """Redis's own run id, and the ledger's generation (None after a wipe)."""
        return self.client.info("server")["run_id"], self.client.get("voc:generation")

    def set_generation(self, generation: str) -> None:
        """Say that the ledger was rebuilt."""
        self.client.set("voc:generation", generation)

    def queue_length(self, queue: str) -> int:
        """Messages that wait in `queue`."""
        return int(self.client.llen(queue))

    def queued_ids(self, queue: str) -> set[str]:
        """The Celery task ids of the messages that wait in `queue`; what is no message has none."""
        ids = set()
        for text in self.client.lrange(queue, 0, -1):
            with suppress(ValueError, TypeError, KeyError):
                ids.add(str(json.loads(text)["headers"]["id"]))
        return ids

    def is_reachable(self) -> bool:
        """Whether Redis answers."""
        try:
            return bool(self.client.ping())
        except RedisError:
            return False
