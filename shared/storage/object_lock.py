"""A lock that is an object: taken by a conditional write, rewritten while held, taken over when the rewriting stops.

No other machine's clock is trusted: a holder counts as dead when a waiting process has seen the same version for
`DEAD_S` by its own clock. A holder that stood still and lost the lock notices at its next beat.
"""

import json
import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from obstore import UpdateVersion

logger = logging.getLogger(__name__)

BEAT_S: Final = 2.0
# Several beats, and longer than a request is retried.
DEAD_S: Final = 25.0
# How often a waiting process looks.
_LOOK_S: Final = 0.5

# The object's content while nobody holds the lock. It is not removed, because removal cannot be made conditional.
_FREE: Final = b"{}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """An object: its bytes, and the version to name in a conditional write."""

    content: bytes
    version: "UpdateVersion"


class ConditionalWrites(Protocol):
    """What a lock needs from a store."""

    def find(self, key: str) -> Found | None:
        """An object, or None if it is absent."""

    def swap(self, key: str, content: bytes, old: "UpdateVersion | None") -> "UpdateVersion | None":
        """Write an object if its version is `old` (None: if it is absent). Returns the new version, None if refused."""


class ObjectLocks:
    """The locks of one store; raises what the store raises, an `OSError`."""

    def __init__(self, objects: ConditionalWrites, *, beat_s: float = BEAT_S, dead_s: float = DEAD_S) -> None:
        self._objects, self._beat_s, self._dead_s = objects, beat_s, dead_s
        self._seen: dict[str, tuple[Found, float]] = {}

    def is_held(self, key: str) -> bool:
        """Whether somebody holds the lock; a dead holder is detected by two calls more than `dead_s` apart."""
        found = self._objects.find(key)
        if found is None or found.content == _FREE:
            return False
        return not self._is_dead(key, found)

    def _is_dead(self, key: str, found: Found) -> bool:
        seen, since = self._seen.get(key, (None, 0.0))
        if seen != found:
            self._seen[key] = found, time.monotonic()
            return False
        return time.monotonic() - since > self._dead_s

    @contextmanager
    def held(self, key: str) -> Iterator[Callable[[], bool] | None]:
        """Hold the lock during the block, or yield None; a dead holder's lock is waited for and taken over."""
        version = self._take(key)
        if version is None:
            yield None
            return
        beat = _Beat(self._objects, key, version, self._beat_s)
        with beat:
            yield beat.is_ours

    def _take(self, key: str) -> "UpdateVersion | None":
        """The version of the lock as taken; None if its holder is alive."""
        watched = self._objects.find(key)
        while (found := self._objects.find(key)) is not None and found.content != _FREE:
            if found != watched:
                return None  # its holder is alive
            if self._is_dead(key, found):
                logger.warning("lock_taken_over", extra={"key": key, "holder": found.content.decode(errors="replace")})
                break
            time.sleep(_LOOK_S)
        return self._objects.swap(key, _mine(), None if found is None else found.version)


class _Beat:
    """Rewrites a held lock from a thread, and frees it at the end."""

    def __init__(self, objects: ConditionalWrites, key: str, version: "UpdateVersion", beat_s: float) -> None:
        self._objects, self._key, self._version, self._beat_s = objects, key, version, beat_s
        self._unanswered: set[bytes] = set()  # beats that may or may not have been written
        self._is_lost, self._ended = False, threading.Event()
        self._thread = threading.Thread(target=self._keep, name="lock", daemon=True)

    def is_ours(self) -> bool:
        """Whether nobody has taken the lock over."""
        return not self._is_lost

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        if not self._is_lost:
            with suppress(OSError):  # others will take it for dead
                self._objects.swap(self._key, _FREE, self._version)

    def _keep(self) -> None:
        while not self._is_lost and not self._ended.wait(self._beat_s):
            beat = _mine()
            try:
                version = self._objects.swap(self._key, beat, self._version) or self._version_of_unanswered()
            except OSError as error:
                logger.warning("lock_not_renewed", extra={"key": self._key, "reason": str(error)})
                self._unanswered.add(beat)
                continue
            self._unanswered.clear()
            self._is_lost = version is None
            self._version = version or self._version

    def _version_of_unanswered(self) -> "UpdateVersion | None":
        """The lock's version if it is a beat of ours that was written after all; None if it is another holder's."""
        found = self._objects.find(self._key) if self._unanswered else None
        return found.version if found is not None and found.content in self._unanswered else None


def _mine() -> bytes:
    """Who holds the lock, for people; each call differs, so that each beat is a new version."""
    return json.dumps({"host": socket.gethostname(), "pid": os.getpid(), "beat": uuid.uuid4().hex}).encode()
