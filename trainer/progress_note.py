"""How far a run is -> `runs/<run>/progress.json`, for whoever looks at the store and sees no Redis.

A thread of the process that trains writes it, so that neither a slow store holds up a step nor a long phase ages it.
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

# Often enough to watch a loss fall, seldom enough for an object store; `FRESH_S` of its readers is longer.
NOTE_EVERY_S: Final = 3.0


@contextmanager
def noted(request: RunSpec, facts: Callable[[], Mapping[str, Any]], guard: Guard, storage: Storage) -> Iterator[None]:
    """Note who holds the run and how far it is, every few seconds until the block ends; the last note says it ended.

    Args:
        request: The run.
        facts: Who works on it, and how far it is: words and numbers.
        guard: Asked whether the run's job is still there, before each note.
        storage: Gets the note; a store that refuses it stops nothing.
    """
    ended = threading.Event()
    trained: dict[str, Any] = {}  # how long it trained is told by the phase of training only, and asked for in all

    def write(*, held: bool) -> None:
        try:
            with suppress(Cancelled):  # the work is told by its lease
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
        is_ours = False  # another process notes it now
        raise
    finally:
        ended.set()
        thread.join(timeout=5)
        if is_ours and not thread.is_alive():
            write(held=False)
