"""`Lease`: a guard that owns a unit of work in the ledger, renewed by a thread of the process that works.

The thread renews only while the work advances; a process that hangs ends itself, so that its attempt counts. While
Redis cannot be reached the work goes on, and only publishing waits.
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
from shared.ledger import UNREACHABLE, ClaimOutcome, Ledger, RenewOutcome, Unit

logger = logging.getLogger(__name__)

# No holder renews less often, however long its lease: after a wipe of Redis all that live are known again within this.
RENEW_MOST_S: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTerms:
    """How long a lease runs, how long work may stand still, how often a unit may be tried; times in seconds."""

    lease_s: float
    stall_s: float
    attempts: int


class Lease:
    """The lease of one unit while it is worked on; a `Guard`."""

    def __init__(
        self, ledger: Ledger, unit: Unit, terms: LeaseTerms, *, worker: str, should_stop: Callable[[], bool]
    ) -> None:
        self._ledger, self._unit, self._terms = ledger, unit, terms
        self._worker, self._should_stop = worker, should_stop
        # Starts with the worker's name, so that a stopping parent can tell the leases of its own children.
        self.token = f"{worker}:{os.getpid()}:{uuid.uuid4().hex}"
        self._outcome: RenewOutcome = "ok"
        self._progress: dict[str, Any] = {}
        self._since = time.time()
        self._advanced_at = time.monotonic()
        self._ended = threading.Event()

    def claim(self) -> tuple[ClaimOutcome, int]:
        """Try to own the unit: the outcome, and the number of this attempt from 1."""
        return self._ledger.claim(
            self._unit, self.token, lease_s=self._terms.lease_s, limit=self._terms.attempts, holder=self._holder()
        )

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
        """Tell that work advanced; see `Guard.advance`."""
        self._advanced_at = time.monotonic()
        self._progress.update(progress)
        self._raise_unless_ours()
        if self._should_stop():
            raise StopRequested(f"{self._unit.scope} {self._unit.name}: asked to stop")

    def before_publish(self) -> None:
        """Renew now, waiting for Redis if need be; see `Guard.before_publish`."""
        while True:
            self._advanced_at = time.monotonic()
            try:
                self._renew()
                break
            except UNREACHABLE:
                logger.warning("publish_waits_for_redis", extra={"unit": self._unit.name})
                time.sleep(1)
        self._raise_unless_ours()

    def complete(self, *, written: int = 0, quarantined: int = 0) -> None:
        """Note the unit as done, if Redis can be told; the reconciler finds the receipt otherwise."""
        try:
            self._ledger.complete(self._unit, self.token, written=written, quarantined=quarantined)
        except UNREACHABLE:
            logger.warning("ledger_not_told", extra={"unit": self._unit.name})

    def release(self, *, counted: bool, error: str = "") -> None:
        """Give the unit back; where Redis cannot be told, the lease expires by itself."""
        try:
            self._ledger.release(self._unit, self.token, counted=counted, error=error)
        except UNREACHABLE:
            logger.warning("lease_left_to_expire", extra={"unit": self._unit.name})

    def _holder(self) -> dict[str, Any]:
        return {"worker": self._worker, "pid": os.getpid(), "since": round(self._since, 3), **self._progress}

    def _renew(self) -> None:
        self._outcome = self._ledger.renew(self._unit, self.token, lease_s=self._terms.lease_s, holder=self._holder())

    def _keep(self) -> None:
        """Renew the lease while it is ours; watch the work until it ends, for what hangs holds its worker's slot."""
        while not self._ended.wait(min(self._terms.lease_s / 3, RENEW_MOST_S)):
            if time.monotonic() - self._advanced_at > self._terms.stall_s:
                logger.error("work_stands_still", extra={"unit": self._unit.name, "limit_s": self._terms.stall_s})
                os.kill(os.getpid(), signal.SIGKILL)
            try:
                if self._outcome == "ok":
                    self._renew()
            except RedisError as error:  # also one that is there and refuses: a full disk, no memory
                logger.warning("lease_not_renewed", extra={"unit": self._unit.name, "reason": str(error)})

    def _raise_unless_ours(self) -> None:
        if self._outcome == "cancelled":
            raise Cancelled(f"{self._unit.scope} {self._unit.name}: cancelled")
        if self._outcome == "lost":
            raise LeaseLost(f"{self._unit.scope} {self._unit.name}: another process holds the lease")


def give_back(ledger: Ledger, scopes: list[str], worker: str) -> list[str]:
    """Give back, uncounted, every lease of `worker`'s children; for its parent when it is to end.

    Returns:
        The names of the units given back.
    """
    returned = []
    for scope in scopes:
        for name, holder in ledger.under_way(scope).leased.items():
            unit = Unit(scope=scope, name=name, ordinal=0)
            token = ledger.client.get(unit.lease_key)
            if holder["worker"] == worker and token and ledger.release(unit, token, counted=False):
                returned.append(f"{scope}:{name}")
    return returned
