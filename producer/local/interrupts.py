"""Ctrl-C and SIGTERM, deferred until a moment at which they do no harm."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def deferred() -> Iterator[Callable[[float], None]]:
    """Defer SIGINT and SIGTERM to the next pause; a second one interrupts at once. For the main thread only.

    A KeyboardInterrupt at any other moment is not safe: an import that it cuts short fails with another error, and a
    process that was started but not yet noted would be ended by nobody.

    Yields:
        A pause in seconds, which raises KeyboardInterrupt if a signal has come or comes.
    """
    has_come = is_pausing = False

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        nonlocal has_come
        is_second, has_come = has_come, True
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

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield pause
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
