"""`Lease`: a guard that owns a unit of work in the ledger, renewed by a thread of the working process.

The thread renews only while the work advances. A process that hangs ends itself, and its attempt counts. While Redis
cannot be reached the work goes on, and only publishing waits.
"""

import logging
import os
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from redis.exceptions import RedisError

from shared.errors import Cancelled, LeaseLost, StopRequested
from shared.leasing.ledger import ClaimOutcome, Ledger, RenewOutcome
from shared.leasing.redis_client import UNREACHABLE
from shared.leasing.scopes import Unit

logger = logging.getLogger(__name__)

# However long a lease is, its holder renews it at least this often, so that all live holders are soon known again after
# a wipe of Redis.
RENEW_MOST_S: Final = 5.0

# Facts that are kept when the phase of training ends: how many steps and seconds it took.
_KEPT: Final = ("trained", "seconds")


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A process that takes leases, and the terms of its leases.

    `worker` is the name of its worker, `lease_s` how long a lease lasts, `stall_s` how long work may stand still (both
    in seconds), `attempts` how often a unit may be tried; `should_stop` tells whether it must give back what it holds.
    """

    ledger: Ledger
    worker: str
    lease_s: float
    stall_s: float
    attempts: int
    should_stop: Callable[[], bool] = lambda: False


class Lease:
    """The lease of one unit while it is worked on; a `Guard`."""

    def __init__(
        self,
        holder: Holder,
        unit: Unit,
        *,
        require_wanted: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        end_process: Callable[[], None] = lambda: os.kill(os.getpid(), signal.SIGKILL),
    ) -> None:
        """`require_wanted` asks storage and raises `Cancelled` if the job is gone; the others are for tests."""
        self._holder, self._unit, self.require_wanted = holder, unit, require_wanted
        self._clock, self._sleep, self._end_process = clock, sleep, end_process
        # Unique to this lease; the worker's name and the process id in it are for people.
        self.token = f"{holder.worker}:{os.getpid()}:{uuid.uuid4().hex}"
        self._outcome: RenewOutcome = "ok"
        self._progress: dict[str, Any] = {}
        self._since = time.time()
        self._advanced_at = clock()
        self._ended = threading.Event()

    def facts(self) -> dict[str, Any]:
        """Who holds the unit and how far the work is, for people."""
        return {"worker": self._holder.worker, "pid": os.getpid(), "since": round(self._since, 3), **self._progress}

    def claim(self) -> tuple[ClaimOutcome, int]:
        """Try to take the unit; returns the outcome and the number of this attempt, from 1."""
        own, facts = self._holder, self.facts()
        return own.ledger.claim(self._unit, self.token, lease_s=own.lease_s, limit=own.attempts, holder=facts)

    @contextmanager
    def renewed(self) -> Iterator["Lease"]:
        """Keep the lease alive from a thread until the block ends."""
        thread = threading.Thread(target=self._keep, name="lease", daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._ended.set()
            thread.join(timeout=5)

    def advance(self, **progress: float | int | str) -> None:
        """Report that the work advanced; see `Guard.advance`."""
        self._advanced_at = self._clock()
        if progress.get("phase", self._progress.get("phase")) != self._progress.get("phase"):
            # A phase shows its own facts, not those of the phase before, except for how long the run trained.
            self._progress = {name: value for name, value in self._progress.items() if name in _KEPT}
        self._progress.update(progress)
        self._raise_unless_ours()
        if self._holder.should_stop():
            raise StopRequested(f"{self._unit.scope} {self._unit.name}: asked to stop")

    def before_publish(self) -> None:
        """Renew now, waiting for Redis if need be; see `Guard.before_publish`."""
        while True:
            self._advanced_at = self._clock()
            try:
                self._renew()
                break
            except UNREACHABLE:
                logger.warning("publish_waits_for_redis", extra={"unit": self._unit.name})
                self._sleep(1)
        self._raise_unless_ours()
        self.require_wanted()

    def complete(self, *, written: int = 0, quarantined: int = 0) -> None:
        """Note the unit as done; if Redis cannot be told, the reconciler finds the receipt."""
        try:
            self._holder.ledger.complete(self._unit, self.token, written=written, quarantined=quarantined)
        except UNREACHABLE:
            logger.warning("ledger_not_told", extra={"unit": self._unit.name})

    def release(self, *, counted: bool, error: str = "") -> None:
        """Give the unit back; if Redis cannot be told, the lease expires by itself."""
        try:
            self._holder.ledger.release(self._unit, self.token, counted=counted, error=error)
        except UNREACHABLE:
            logger.warning("lease_left_to_expire", extra={"unit": self._unit.name})

    def _renew(self) -> None:
        holder = self._holder
        self._outcome = holder.ledger.renew(self._unit, self.token, lease_s=holder.lease_s, holder=self.facts())

    def _keep(self) -> None:
        """Renew the lease while it is ours; watch the work even afterwards: a hang would block a slot of the worker."""
        limit_s = self._holder.stall_s
        while not self._ended.wait(min(self._holder.lease_s / 3, RENEW_MOST_S)):
            if self._clock() - self._advanced_at > limit_s:
                logger.error("work_stands_still", extra={"unit": self._unit.name, "limit_s": limit_s})
                self._end_process()
            try:
                if self._outcome == "ok":
                    self._renew()
            except RedisError as error:  # Redis may also answer but refuse: a full disk, no memory
                logger.warning("lease_not_renewed", extra={"unit": self._unit.name, "reason": str(error)})

    def _raise_unless_ours(self) -> None:
        if self._outcome == "cancelled":
            raise Cancelled(f"{self._unit.scope} {self._unit.name}: cancelled")
        if self._outcome == "lost":
            raise LeaseLost(f"{self._unit.scope} {self._unit.name}: another process holds the lease")


def give_back(ledger: Ledger, scopes: list[str], worker: str) -> list[str]:
    """Give back every lease of `worker`'s children without counting the attempts; for the parent when it must end.

    Returns:
        The names of the units given back.
    """
    returned = []
    for scope in scopes:
        for name, holder in ledger.under_way(scope, is_unit=lambda _: True).leased.items():
            unit = Unit(scope=scope, name=name, ordinal=0)
            token = ledger.client.get(unit.lease_key)
            if holder["worker"] == worker and token and ledger.release(unit, token, counted=False):
                returned.append(f"{scope}:{name}")
    return returned
