"""How far a run is -> `runs/<run>/progress.json`, for whoever can read the store but not Redis.

A thread of the training process writes it, so that a slow store does not delay steps and a long phase does not let the
note grow old.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final

from shared.errors import Cancelled, LeaseLost, StorageError
from shared.jobs.identity import make_note
from shared.jobs.paths import RunPaths
from shared.leasing.guard import Guard
from shared.specs.run import RunSpec
from shared.storage import Storage

logger = logging.getLogger(__name__)

# Often enough to watch the loss fall, seldom enough for an object store; the `FRESH_S` of its readers is longer.
NOTE_EVERY_S: Final = 3.0


@contextmanager
def noted(request: RunSpec, facts: Callable[[], Mapping[str, Any]], guard: Guard, storage: Storage) -> Iterator[None]:
    """Note who holds the run and how far it is, every few seconds until the block ends; the last note says so.

    Args:
        request: The run.
        facts: Returns who works on it and how far it is, as words and numbers.
        guard: Asked before each note whether the run's job still exists.
        storage: Where the note is written; if that fails, the run goes on.
    """
    ended = threading.Event()
    trained: dict[str, Any] = {}  # only the training phase says how long the run trained, but all notes have it

    def write(*, held: bool) -> None:
        try:
            with suppress(Cancelled):  # the lease tells the training itself
                guard.require_wanted()
                now = facts()
                trained.update({name: now[name] for name in ("seconds",) if name in now})
                told = {**trained, **now, "at": round(time.time(), 3), "held": held}
                content = make_note(request.incarnation, **told)
                storage.write(RunPaths(request.run).progress, content)
        except StorageError as error:
            logger.warning("progress_not_noted", extra={"run": request.run, "reason": str(error)})

    def keep() -> None:
        write(held=True)
        while not ended.wait(NOTE_EVERY_S):
            write(held=True)

    thread = threading.Thread(target=keep, name="progress", daemon=True)
    thread.start()
    is_ours = True
    try:
        yield
    except LeaseLost:
        is_ours = False  # another process writes the notes now
        raise
    finally:
        ended.set()
        thread.join(timeout=5)
        if is_ours and not thread.is_alive():
            write(held=False)
