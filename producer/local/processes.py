"""Commands -> processes that are kept running and end with the process that started them.

On Linux the kernel ends them, however that process dies; elsewhere they stay if it is killed.
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

# A process that has died this often is not started again: something is wrong that a restart does not fix.
DEATHS: Final = 10
LINES_SHOWN: Final = 15
PR_SET_PDEATHSIG: Final = 1  # linux/prctl.h


def die_with(parent: int) -> None:
    """Have the kernel send SIGTERM to the new process when `parent`, which started it, dies (prctl(2))."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # it died before the kernel was asked to watch it
            os._exit(1)


@dataclass(slots=True, kw_only=True)
class Child:
    """One subprocess that is kept running. If it `ends_last`, the others need it until they have ended."""

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
        """Start it, appending its output to its log; no interrupt may come meanwhile (`interrupts.deferred`)."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with open(self.log, "ab") as log:
            # In a new session, so that Ctrl-C at the terminal reaches only this process, which then stops the others.
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

    def tail(self) -> str:
        """The last lines of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-LINES_SHOWN:])

    def terminate(self) -> None:
        """Ask it to end."""
        if self.process is not None:
            self.process.terminate()

    def wait(self) -> None:
        """Wait until it has ended; after `stop_s` or at an interrupt, kill it."""
        if self.process is None:
            return
        try:
            self.process.wait(self.stop_s)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            logger.warning("process_killed", extra={"child": self.name})
            self.kill()

    def kill(self) -> None:
        """Kill it and its own children, if it has not ended by itself meanwhile."""
        if self.process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


class Processes:
    """Subprocesses that belong together."""

    def __init__(self) -> None:
        self._children: list[Child] = []

    def start(self, child: Child) -> None:
        """Start `child` and keep it running from now on."""
        self._children.append(child)
        child.start()

    def restart_dead(self) -> None:
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
        """Kill all at once, for when nothing is left to do: an orderly end takes Celery 2 s."""
        for child in self._children:
            child.kill()

    def stop(self) -> None:
        """Ask all to end, those that end last in a second round; kill what does not end within its time."""
        for last in (False, True):
            running = [child for child in self._children if child.is_running() and child.ends_last == last]
            for child in running:
                child.terminate()
            for child in running:
                child.wait()
