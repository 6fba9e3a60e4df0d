"""Commands → processes that are kept running and end with the process that started them.

On Linux however it ends, by the kernel; elsewhere unless it is killed.
"""

import ctypes
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from shared.errors import PipelineError

logger = logging.getLogger(__name__)

# A process that has died this often is not started again: something is wrong that a restart does not mend.
DEATHS: Final = 10
PR_SET_PDEATHSIG: Final = 1  # linux/prctl.h


def die_with(parent: int) -> None:
    """Have the kernel send SIGTERM to the new process when `parent`, which started it, dies (prctl(2))."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # it died before it could be watched
            os._exit(1)


@dataclass(slots=True, kw_only=True)
class Child:
    """One subprocess that is kept running; one that `ends_last` is needed by the others when they take their leave."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str]
    log: Path
    stop_s: float
    ends_last: bool = False
    at_start: Callable[[int], None] = die_with  # called in the new process, with the id of this one
    process: "subprocess.Popen[bytes] | None" = None
    deaths: int = 0

    def start(self) -> None:
        """Start it, its output appended to its log; an interrupt must not come in between (`interrupts.held`)."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with open(self.log, "ab") as log:
            # A session of its own: Ctrl-C at the terminal reaches this process only, which then stops the others.
            self.process = subprocess.Popen(  # noqa: S603  # our own command, no shell
                self.command,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=partial(self.at_start, os.getpid()),
            )

    def is_running(self) -> bool:
        """Whether it has been started and has not ended."""
        return self.process is not None and self.process.poll() is None

    def tail(self, lines: int = 15) -> str:
        """The last lines of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])


class Crew:
    """Subprocesses: kept running by `keep`, ended by `stop`."""

    def __init__(self) -> None:
        self._children: list[Child] = []

    def start(self, child: Child) -> None:
        """Start `child` and keep it from now on."""
        self._children.append(child)
        child.start()

    def keep(self) -> None:
        """Start again what has died.

        Raises:
            PipelineError: One has died too often; the text ends with the last lines of its log.
        """
        for child in self._children:
            if child.is_running():
                continue
            child.deaths += 1
            logger.warning("process_died", extra={"child": child.name, "deaths": child.deaths})
            if child.deaths == DEATHS:
                raise PipelineError(f"the {child.name} died {DEATHS} times; {child.log} ends:\n{child.tail()}")
            child.start()

    def kill(self) -> None:
        """End all by force, at once: for a crew that has nothing left to do, whose leave takes Celery 2 s."""
        for child in self._children:
            if child.process is not None:
                _kill(child.process)

    def stop(self) -> None:
        """Ask all to end, in two rounds (`ends_last`); end by force what does not within its time."""
        for last in (False, True):
            running = [child for child in self._children if child.is_running() and child.ends_last == last]
            for child in running:
                child.process.terminate()  # type: ignore[union-attr]  # it is running
            for child in running:
                _wait_or_kill(child)


def _wait_or_kill(child: Child) -> None:
    process = child.process
    if process is None:
        return
    try:
        process.wait(child.stop_s)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        logger.warning("process_killed", extra={"child": child.name})
        _kill(process)


def _kill(process: "subprocess.Popen[bytes]") -> None:
    """End a process and its children; it may have ended by itself meanwhile."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
