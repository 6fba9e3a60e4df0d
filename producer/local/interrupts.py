"""Defers Ctrl-C, SIGTERM and the SIGHUP of a closed terminal until a moment at which they do no harm."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

from shared.command import leave_closed_terminal, stop_signals

_ASKED_BY_A_PERSON: Final = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def deferred() -> Iterator[Callable[[float], None]]:
    """Defer stop signals to the next pause; a second signal interrupts at once. For the main thread only.

    A second SIGHUP does not: the kernel and the shell both send one when a terminal is closed.

    A KeyboardInterrupt at any other moment is not safe: an import that it cuts short fails with another error, and a
    process that was started but not yet noted would never be ended.

    Yields:
        A function that pauses for a number of seconds, and raises KeyboardInterrupt if a signal has come or comes.
    """
    has_come = is_pausing = False

    def on_signal(number: int, _frame: FrameType | None) -> None:
        nonlocal has_come
        leave_closed_terminal()
        is_second, has_come = has_come and number in _ASKED_BY_A_PERSON, True
        if is_second or is_pausing:
            raise KeyboardInterrupt

    def pause(seconds: float) -> None:
        nonlocal is_pausing
        is_pausing = True
        try:
            if has_come:
                raise KeyboardInterrupt
            time.sleep(seconds)
        finally:
            is_pausing = False

    before = {number: signal.signal(number, on_signal) for number in stop_signals()}
    try:
        yield pause
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
