"""A worker's presence: its heartbeat for people and health checks, its stop request, and the watchdog of its parent.

All of it runs in the parent process of a Celery prefork pool; the children only look at the stop request.
"""

import ctypes
import logging
import mmap
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from redis.exceptions import RedisError

from shared.leasing.ledger import Ledger
from shared.leasing.redis_client import UNREACHABLE

logger = logging.getLogger(__name__)

BEAT_S: Final = 5.0
# A worker that has had no task for this long, although a message waits or because it cannot reach Redis, has lost its
# consumer (celery#8030, #8091): it ends itself, and its supervisor restarts it.
WATCHDOG_S: Final = 60.0


class StopRequest:
    """A parent's request that its children give back whatever they cannot finish in time.

    Create it before the children are forked: it lies in memory that only they and their parent share.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` in seconds, the same for all processes of this machine."""
        self._clock = clock
        # When the request is due, in seconds of the clock; 0 if there is none.
        self._due_at = ctypes.c_double.from_buffer(mmap.mmap(-1, ctypes.sizeof(ctypes.c_double)))

    def ask(self, within_s: float) -> None:
        """Ask the children to give back whatever they cannot finish within `within_s` seconds."""
        self._due_at.value = self._clock() + within_s

    def is_due(self) -> bool:
        """Whether the children should give back their work now."""
        return 0 < self._due_at.value <= self._clock()


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """What a worker says about itself: its name, kind, queue, number of slots, and where its heartbeat file is."""

    name: str
    kind: str
    queue: str
    slots: int
    heartbeat_file: Path | None


class Presence:
    """The thread of a worker's parent that sends heartbeats, and ends the process when it is no longer of use."""

    def __init__(
        self,
        ledger: Ledger,
        registration: Registration,
        *,
        is_idle: Callable[[], bool],
        clock: Callable[[], float] = time.monotonic,
        end_process: Callable[[int], None] = os._exit,
    ) -> None:
        """`is_idle` tells whether the worker has no task; `clock` and `end_process` are for tests."""
        self._ledger, self._registration, self._is_idle = ledger, registration, is_idle
        self._clock, self._end_process = clock, end_process
        self._of_use_at = clock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat_on, name="presence", daemon=True)

    def start(self) -> None:
        """Beat until `stop`."""
        self._thread.start()

    def stop(self) -> None:
        """Stop beating and remove the name from the ledger."""
        self._ended.set()
        try:
            self._ledger.leave(self._registration.name)
        except UNREACHABLE:
            logger.warning("heartbeat_left_to_expire", extra={"worker": self._registration.name})

    def _beat_on(self) -> None:
        while True:
            self.beat()
            if self._ended.wait(BEAT_S):
                return

    def beat(self) -> None:
        """Beat once; end the process if it has been of no use for `WATCHDOG_S`."""
        if self._is_of_use():
            self._of_use_at = self._clock()
        if self._clock() - self._of_use_at > WATCHDOG_S:
            logger.error("worker_of_no_use", extra={"worker": self._registration.name, "seconds": WATCHDOG_S})
            self._end_process(1)

    def _is_of_use(self) -> bool:
        """Write the heartbeat. Returns False if this worker idles although messages wait or Redis does not answer."""
        one = self._registration
        try:
            self._ledger.beat(one.name, kind=one.kind, slots=one.slots, pid=os.getpid(), queue=one.queue)
            waiting = self._ledger.queue_length(one.queue)
            if one.heartbeat_file is not None:
                one.heartbeat_file.touch()
        except (RedisError, OSError) as error:
            logger.warning("heartbeat_not_written", extra={"worker": one.name, "reason": str(error)})
            return not self._is_idle()
        return not (waiting and self._is_idle())
