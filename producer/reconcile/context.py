"""What all parts of a reconciler share."""

import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from producer.settings import ProducerSettings
from shared.broker import Broker
from shared.errors import StorageError
from shared.leasing.ledger import Ledger
from shared.storage import Storage

# While Redis or the store is away, this is logged at most this often.
COMPLAINT_S: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The store, the ledger and the broker, the settings, and the time.

    `clock` is a monotonic clock in seconds, for intervals in this process; `unix_time` is the Unix time in seconds, to
    compare with what other processes have noted in Redis.
    """

    storage: Storage
    ledger: Ledger
    broker: Broker
    settings: ProducerSettings
    clock: Callable[[], float] = time.monotonic
    unix_time: Callable[[], float] = time.time
    _complained_s: dict[str, float] = field(default_factory=dict)

    def complain(self, logger: logging.Logger, error: StorageError, **of: str) -> None:
        """Log that the store refuses what is needed `of` a job or a run, at most every `COMPLAINT_S` for each."""
        what = " ".join(of.values())
        if self.clock() - self._complained_s.get(what, -math.inf) > COMPLAINT_S:
            logger.error("store_refuses", extra={**of, "reason": str(error)})
            self._complained_s[what] = self.clock()

    def is_overdue(self, sent_at: float) -> bool:
        """Whether a hint was sent over `lost_after_s` ago, or in the future because a clock was set back since."""
        return not 0 <= self.unix_time() - sent_at <= self.settings.lost_after_s
