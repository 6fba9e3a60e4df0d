"""What all parts of one reconciler work with."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from producer.settings import ProducerSettings
from shared.broker import Broker
from shared.leasing.ledger import Ledger
from shared.storage import Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The store, the ledger and the broker, the settings, and the time.

    `clock` counts the seconds between two moments of this process; `unix_time` is the time of day in seconds, which is
    compared with what other processes have noted in Redis.
    """

    storage: Storage
    ledger: Ledger
    broker: Broker
    settings: ProducerSettings
    clock: Callable[[], float] = time.monotonic
    unix_time: Callable[[], float] = time.time

    def is_overdue(self, sent_at: float) -> bool:
        """Whether a hint was sent over `lost_after_s` ago, or in the future because a clock was set back since."""
        return not 0 <= self.unix_time() - sent_at <= self.settings.lost_after_s
