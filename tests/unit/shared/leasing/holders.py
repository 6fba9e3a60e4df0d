"""Holders of leases on a test's broker, and a clock that a test moves."""

from collections.abc import Callable

from shared.leasing.lease import Holder
from tests.cluster import Broker


class Clock:
    """Seconds that pass only when the test says so."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s

    def pass_(self, seconds: float) -> None:
        self.now_s += seconds


def holder(
    broker: Broker, worker: str = "host-1", *, lease_s: float = 60, should_stop: Callable[[], bool] = lambda: False
) -> Holder:
    """A process that takes leases, with 30 s to stand still and 3 attempts."""
    return Holder(
        ledger=broker.ledger(), worker=worker, lease_s=lease_s, stall_s=30, attempts=3, should_stop=should_stop
    )
