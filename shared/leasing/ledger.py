"""Leases, attempts and progress in Redis: a live view of what storage says, rebuilt from storage if it is lost.

A *scope* is one incarnation of a job or of a run; its *units* are the job's shards, or the run itself (one unit,
`run`). So the leases of a removed job and of the next job with its name never mix. Keys and types:

    voc:generation               string   set when the reconciler has rebuilt the ledger; absent: Redis was wiped
    voc:leader                   string   token of the leading reconciler, expires
    voc:reconciled               string   unix time in s of the reconciler's last complete round, expires
    voc:refused                  string   the error of the store that ended the reconciler's last round, expires
    voc:demand                   string   JSON: shards and runs that were neither done nor given up in that round
    voc:touched                  set      jobs that a command line changed in storage
    voc:worker:<name>            string   JSON heartbeat of a worker or trainer, expires
    voc:<scope>                  hash     the fields of `ScopeState`
    voc:<scope>:queued           zset     unit -> unix time in s at which its message was sent
    voc:<scope>:leased           hash     unit -> JSON of who works on it and how far
    voc:<scope>:attempts         hash     unit -> claims so far without success
    voc:<scope>:errors           hash     unit -> last error
    voc:<scope>:done             bitmap   by ordinal of the unit
    voc:<scope>:lease:<unit>     string   the holder's token, expires

Nothing here grows with the number of pictures: the hashes hold what is under way, the bitmap has one bit per shard.

Whoever has a service's password may write anything into its keys, so nothing that is read is trusted: a value of the
wrong type or form counts as absent and is filled in again from storage, which decides.
"""

import json
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import asdict
from importlib.resources import files
from typing import Any, Final, Literal

from redis.client import NEVER_DECODE, Redis
from redis.exceptions import RedisError

from shared.leasing.redis_client import empty_if_wrong_type, suppress_wrong_type
from shared.leasing.scopes import Demand, Heartbeat, ScopeState, UnderWay, Unit, as_count, as_number, read_holder

ClaimOutcome = Literal["claimed", "cancelled", "done", "held", "exhausted"]
RenewOutcome = Literal["ok", "cancelled", "lost"]

# A heartbeat is written every 5 s; after three missed ones the worker is no longer counted.
HEARTBEAT_EXPIRY_S: Final = 15

# The settings allow no longer lease; a lease key that would live longer, or for ever, was not written by us.
LONGEST_LEASE_S: Final = 3600
# How long processes that still work on a removed job are told that it is cancelled.
FAREWELL_S: Final = 3600

# How long the last complete round is remembered: longer than anybody needs. Its age follows from what is left of this.
_ROUND_KEPT_S: Final = 365 * 86_400

# How long a refusal is remembered if no complete round follows: longer than a round in which a bucket is asked again.
_REFUSAL_KEPT_S: Final = 300

# The keys of a scope besides its own hash and the leases.
_PARTS: Final = ("queued", "leased", "attempts", "errors", "done")


class Ledger:
    """The scripts and keys above on one client."""

    def __init__(self, client: "Redis") -> None:
        self.client: Any = client  # redis-py's methods are typed for its sync and async clients at once
        folder = files("shared.leasing")
        types = (folder / "types.lua").read_text()
        self._scripts: dict[str, Any] = {
            name: self.client.register_script(types + (folder / f"{name}.lua").read_text())
            for name in ("claim", "renew", "release", "complete")
        }

    # --- a unit's life -----------------------------------------------------------------------------------------

    def claim(
        self, unit: Unit, token: str, *, lease_s: float, limit: int, holder: dict[str, Any]
    ) -> tuple[ClaimOutcome, int]:
        """Take the lease of `unit` and count the attempt. Returns `claimed` and its number from 1, or why not."""
        keys = [unit.lease_key, unit.state_key, *map(unit.key, ("attempts", "leased", "queued", "done"))]
        lease_ms, most_ms = int(lease_s * 1000), 1000 * LONGEST_LEASE_S
        arguments = [token, lease_ms, unit.name, unit.ordinal, limit, json.dumps(holder), most_ms]
        outcome, attempt = self._scripts["claim"](keys=keys, args=arguments)
        return outcome, int(attempt)

    def renew(self, unit: Unit, token: str, *, lease_s: float, holder: dict[str, Any]) -> RenewOutcome:
        """Prolong our lease of `unit`, or take it again if nobody holds it."""
        keys = [unit.lease_key, unit.state_key, unit.key("leased")]
        arguments = [token, int(lease_s * 1000), unit.name, json.dumps(holder), 1000 * LONGEST_LEASE_S]
        outcome: RenewOutcome = self._scripts["renew"](keys=keys, args=arguments)
        return outcome

    def release(self, unit: Unit, token: str, *, counted: bool, error: str = "") -> bool:
        """Give `unit` back; returns whether the lease was ours."""
        keys = [unit.lease_key, *map(unit.key, ("attempts", "leased", "errors")), unit.state_key]
        return bool(self._scripts["release"](keys=keys, args=[token, unit.name, int(counted), error[:2000]]))

    def complete(self, unit: Unit, token: str, *, written: int = 0, quarantined: int = 0) -> None:
        """Note that the receipt of `unit` is in storage."""
        keys = [unit.lease_key, unit.state_key, *map(unit.key, ("attempts", "leased", "queued", "done", "errors"))]
        self._scripts["complete"](keys=keys, args=[token, unit.name, unit.ordinal, written, quarantined])

    # --- the reconciler's view ---------------------------------------------------------------------------------

    def under_way(self, scope: str, is_unit: Callable[[str], bool]) -> UnderWay:
        """Which units that pass `is_unit` are queued or leased; `expired` are leased units whose lease key is gone."""
        prefix = f"voc:{scope}"
        pipe = self.client.pipeline(transaction=False)
        pipe.zrange(f"{prefix}:queued", 0, -1, withscores=True)
        for part in ("leased", "attempts", "errors"):
            pipe.hgetall(f"{prefix}:{part}")
        queued, leased, attempts, errors = map(empty_if_wrong_type, pipe.execute(raise_on_error=False))
        alive, still = self._leases(prefix, [unit for unit in leased if is_unit(unit)])
        return UnderWay(
            queued={unit: at for unit, at in queued if is_unit(unit)},
            leased={unit: read_holder(text) for unit, text in still.items()},
            expired=frozenset(still.keys() - alive),
            attempts={unit: as_count(count) for unit, count in attempts.items() if is_unit(unit)},
            errors={unit: text[:2000] for unit, text in errors.items() if is_unit(unit)},
        )

    def _leases(self, prefix: str, units: list[str]) -> tuple[set[str], dict[str, str]]:
        """Those of `units` whose lease is alive, and what is noted about those that are still leased.

        Both are read in one transaction: a unit completed between two reads would look expired.
        """
        pipe = self.client.pipeline(transaction=True)
        for unit in units:
            pipe.pttl(f"{prefix}:lease:{unit}")
        pipe.hgetall(f"{prefix}:leased")
        *ends_ms, leased = pipe.execute(raise_on_error=False)
        still = {unit: text for unit, text in dict(empty_if_wrong_type(leased)).items() if unit in set(units)}
        alive = {unit for unit, end in zip(units, ends_ms, strict=True) if 0 < end <= 1000 * LONGEST_LEASE_S}
        return alive, still

    def done_bits(self, scope: str, units: int) -> bytes:
        """Which of the first `units` units are done, as Redis stores them: most significant bit of byte 0 first.

        Empty if the key holds another type.
        """
        with suppress_wrong_type():
            command = ("GETRANGE", f"voc:{scope}:done", 0, (units - 1) // 8)
            return bytes(self.client.execute_command(*command, **{NEVER_DECODE: True}) or b"")
        return b""

    def mark_queued(self, scope: str, unit: str) -> None:
        """Note that a message for `unit` is being sent now."""
        self.client.zadd(f"voc:{scope}:queued", {unit: time.time()})

    def forget_queued(self, scope: str, unit: str) -> None:
        """Note that `unit` is no longer in the queue, or that its message was not sent."""
        self.client.zrem(f"voc:{scope}:queued", unit)

    def forget_leased(self, scope: str, unit: str) -> None:
        """Note that the lease of `unit` has expired, so nobody holds it."""
        self.client.hdel(f"voc:{scope}:leased", unit)

    def start_counting_anew(self, scope: str, retried: int) -> None:
        """Forget all attempts and errors of `scope`, and note that it was retried `retried` times."""
        self.client.delete(f"voc:{scope}:attempts", f"voc:{scope}:errors")
        self.client.hset(f"voc:{scope}", mapping={"retried": retried})

    def mark_done(self, scope: str, ordinals: Iterable[int]) -> None:
        """Set the bits of units whose receipts were found in storage."""
        pipe = self.client.pipeline(transaction=False)
        for ordinal in ordinals:
            pipe.setbit(f"voc:{scope}:done", ordinal, 1)
        pipe.execute()

    def unmark_done(self, scope: str, ordinal: int) -> None:
        """Note that the receipt of this unit was taken back, so it must be done again."""
        self.client.setbit(f"voc:{scope}:done", ordinal, 0)

    def write_state(self, scope: str, **fields: str | int | float) -> None:
        """Set fields of the scope's own hash."""
        self.client.hset(f"voc:{scope}", mapping=fields)

    def read_state(self, scope: str) -> ScopeState:
        """The scope's own hash; all counts are 0 if the ledger does not know the scope."""
        with suppress_wrong_type():
            return ScopeState.read(self.client.hgetall(f"voc:{scope}"))
        return ScopeState.read({})

    def done_count(self, scope: str) -> int:
        """Number of done units."""
        with suppress_wrong_type():
            return int(self.client.bitcount(f"voc:{scope}:done"))
        return 0

    def forget_scope(self, scope: str) -> None:
        """Remove all keys of `scope`, because it will be rebuilt from storage or its files are gone."""
        self.client.delete(f"voc:{scope}", *(f"voc:{scope}:{part}" for part in _PARTS))

    def end_scope(self, scope: str) -> None:
        """Remove all keys of `scope`, whose job was removed; tell whoever still works on it that it is cancelled."""
        pipe = self.client.pipeline(transaction=True)
        pipe.delete(f"voc:{scope}", *(f"voc:{scope}:{part}" for part in _PARTS))
        pipe.hset(f"voc:{scope}", mapping={"state": "REMOVED", "cancelled": 1})
        pipe.expire(f"voc:{scope}", FAREWELL_S)
        pipe.execute()

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

    def workers(self) -> dict[str, Heartbeat]:
        """Heartbeats by worker name."""
        keys = sorted(self.client.scan_iter("voc:worker:*", count=1000))
        texts = self.client.mget(keys) if keys else []
        beats = {key.removeprefix("voc:worker:"): Heartbeat.read(text) for key, text in zip(keys, texts, strict=True)}
        return {name: beat for name, beat in beats.items() if beat is not None}

    def slots(self, kind: str) -> int:
        """Number of live processes of a kind: worker or trainer."""
        return sum(beat.slots for beat in self.workers().values() if beat.kind == kind)

    def lead(self, token: str, expiry_s: int) -> bool:
        """Become or stay the leading reconciler."""
        if self.client.set("voc:leader", token, nx=True, ex=expiry_s):
            return True
        if self.client.get("voc:leader") == token:
            self.client.expire("voc:leader", expiry_s)
            return True
        if self.client.pttl("voc:leader") == -1:
            self.client.delete("voc:leader")  # our leaders always set an expiry
        return False

    def stop_leading(self, token: str) -> None:
        """Let another reconciler lead at once."""
        if self.client.get("voc:leader") == token:
            self.client.delete("voc:leader")

    def note_round(self, demand: Demand) -> None:
        """Note that the reconciler has just finished a complete round, and what it left to do."""
        pipe = self.client.pipeline()
        pipe.set("voc:reconciled", time.time(), ex=_ROUND_KEPT_S).set("voc:demand", json.dumps(asdict(demand)))
        pipe.delete("voc:refused").execute()

    def note_refusal(self, reason: str) -> None:
        """Note that an error of the store has ended the reconciler's round, and what it said."""
        self.client.set("voc:refused", reason, ex=_REFUSAL_KEPT_S)

    def refusal(self) -> str:
        """What ended the reconciler's last round early; empty if it was complete."""
        with suppress_wrong_type():
            return self.client.get("voc:refused") or ""
        return ""

    def demand(self) -> Demand | None:
        """What the reconciler's last round left to do; None if there was none since Redis was emptied."""
        with suppress_wrong_type():
            return Demand.read(self.client.get("voc:demand"))
        return None

    def round_age_s(self) -> float | None:
        """Seconds since the reconciler's last complete round; None if there was none since Redis was emptied.

        Measured by Redis's clock alone: ours may be hours off from that of the reconciler's machine.
        """
        with suppress_wrong_type():
            at, left_ms = as_number(self.client.get("voc:reconciled")), self.client.pttl("voc:reconciled")
            if at is not None and 0 < left_ms <= 1000 * _ROUND_KEPT_S:
                return float(_ROUND_KEPT_S - left_ms / 1000)
            return None if at is None else max(0.0, time.time() - at)  # by an older version, which set no expiry
        return None

    def identity(self) -> tuple[str, str | None]:
        """Redis's own run id and the ledger's generation, which is None after a wipe."""
        return self.client.info("server")["run_id"], self.client.get("voc:generation")

    def set_generation(self, generation: str) -> None:
        """Note that the ledger was rebuilt."""
        self.client.set("voc:generation", generation)

    def queue_length(self, queue: str) -> int:
        """How many messages wait in `queue`."""
        return int(self.client.llen(queue))

    def queued_ids(self, queue: str) -> list[str]:
        """The Celery task ids of the messages that wait in `queue`, next one first; anything else there is skipped."""
        ids = []
        for text in reversed(self.client.lrange(queue, 0, -1)):  # Celery pushes left and pops right
            with suppress(ValueError, TypeError, KeyError, RecursionError):
                ids.append(str(json.loads(text)["headers"]["id"]))
        return ids

    def is_led(self) -> bool:
        """Whether a reconciler is at work, be it that of `serve` or of a command that waits for its job."""
        return bool(self.client.exists("voc:leader"))

    def leader(self) -> str:
        """The host and process of the leading reconciler, for a person; empty if none leads."""
        with suppress_wrong_type():
            host, _, rest = (self.client.get("voc:leader") or "").partition("/")
            return f"{host}, process {rest.partition('/')[0]}" if rest else host
        return ""

    def is_reachable(self) -> bool:
        """Whether Redis answers."""
        try:
            return bool(self.client.ping())
        except RedisError:
            return False
