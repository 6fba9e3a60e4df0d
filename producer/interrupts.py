"""Ctrl-C and SIGTERM, kept until a moment at which they do no harm."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


class _Interrupts:
    def __init__(self) -> None:
        self._has_come = False
        self._is_pausing = False

    def come(self, _number: int, _frame: FrameType | None) -> None:
        is_second, self._has_come = self._has_come, True
        if is_second or self._is_pausing:
            raise KeyboardInterrupt

    def pause(self, seconds: float) -> None:
        self._is_pausing = True
        try:
            if self._has_come:
                raise KeyboardInterrupt
            time.sleep(seconds)
        finally:
            self._is_pausing = False


@contextmanager
def held() -> Iterator[Callable[[float], None]]:
    """Hold SIGINT and SIGTERM back; to be entered by the main thread.

    An exception in the middle of anything is not safe: an import that it cuts short fails with another error, a
    process that has started but has not been noted is nobody's to end. Whoever asks a second time does not wait.

    Yields:
        A pause in seconds, which raises KeyboardInterrupt if one has come or comes.
    """
    interrupts = _Interrupts()
    before = {number: signal.signal(number, interrupts.come) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield interrupts.pause
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
