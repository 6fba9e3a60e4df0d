"""A worker's presence: its heartbeat for people and health checks, its stop request, and the watchdog of its parent.

All of it lives in the parent process of a Celery prefork pool; children only look for the stop file.
"""

import logging
import os
import socket
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from redis.exceptions import RedisError

from shared.ledger import UNREACHABLE, Ledger

logger = logging.getLogger(__name__)

BEAT_S: Final = 5.0
# A worker that idles this long beside a waiting message, or cannot reach Redis for this long while it has no task,
# has lost its consumer (celery#8030, #8091): it ends itself and is started anew by whoever runs it.
WATCHDOG_S: Final = 60.0


def worker_name(parent_pid: int) -> str:
    """The name of the worker whose parent process is `parent_pid`, unique among all hosts."""
    return f"{socket.gethostname()}-{parent_pid}"


def _stop_file(parent_pid: int) -> Path:
    return Path(tempfile.gettempdir(), f"voc-{parent_pid}.stop")


def ask_children_to_stop(parent_pid: int, within_s: float) -> None:
    """Ask the children of `parent_pid` to give back what they cannot finish in `within_s` seconds."""
    _stop_file(parent_pid).write_text(str(time.time() + within_s))


def forget_stop(parent_pid: int) -> None:
    """Remove a stop request; a new process may have the process id of an old one."""
    _stop_file(parent_pid).unlink(missing_ok=True)


def should_stop(parent_pid: int) -> bool:
    """Whether the children of `parent_pid` are to give back their work now."""
    try:
        deadline = float(_stop_file(parent_pid).read_text() or "inf")
    except FileNotFoundError:
        return False
    return time.time() >= deadline


@dataclass(frozen=True, slots=True, kw_only=True)
class Post:
    """What a worker says of itself: its name, kind, queue, number of slots, and where its heartbeat file is."""

    name: str
    kind: str
    queue: str
    slots: int
    heartbeat_file: Path | None


class Presence:
    """The thread that beats in a worker's parent, and ends the process when it is of no use any more."""

    def __init__(self, ledger: Ledger, post: Post, *, is_idle: Callable[[], bool]) -> None:
        self._ledger, self._post, self._is_idle = ledger, post, is_idle
        self._well_at = time.monotonic()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat_on, name="presence", daemon=True)

    def start(self) -> None:
        """Beat until `stop`."""
        self._thread.start()

    def stop(self) -> None:
        """Stop beating; take the name out of the ledger."""
        self._ended.set()
        try:
            self._ledger.leave(self._post.name)
        except UNREACHABLE:
            logger.warning("heartbeat_left_to_expire", extra={"worker": self._post.name})

    def _beat_on(self) -> None:
        while True:
            if self._beat():
                self._well_at = time.monotonic()
            if time.monotonic() - self._well_at > WATCHDOG_S:
                logger.error("worker_of_no_use", extra={"worker": self._post.name, "seconds": WATCHDOG_S})
                os._exit(1)
            if self._ended.wait(BEAT_S):
                return

    def _beat(self) -> bool:
        """Beat once; whether this worker is of use: Redis answers, and it does not idle beside a waiting message."""
        post = self._post
        try:
            self._ledger.beat(post.name, kind=post.kind, slots=post.slots, pid=os.getpid(), queue=post.queue)
            waiting = self._ledger.queue_length(post.queue)
            if post.heartbeat_file is not None:
                post.heartbeat_file.touch()
        except (RedisError, OSError) as error:
            logger.warning("heartbeat_not_written", extra={"worker": post.name, "reason": str(error)})
            return not self._is_idle()
        return not (waiting and self._is_idle())
