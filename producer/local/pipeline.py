"""The whole pipeline on one machine without Docker: a broker, workers and a trainer as subprocesses.

Workers and trainer are started by the same commands as in the containers.
"""

import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote

from producer.local.processes import Child, Processes
from producer.local.redis_server import embedded_server, server_or_url, servers_here
from shared.errors import BrokerError
from shared.leasing.ledger import Ledger
from shared.leasing.redis_client import connect

BROKER_OPTIONS: Final = (
    *("--port", "0"),
    *("--appendonly", "yes", "--appendfsync", "everysec", "--save", ""),
    *("--maxmemory-policy", "noeviction"),
    *("--daemonize", "no"),
)
# Variables that the processes do not get: this process announces the end, and the password is another broker's.
_NOT_FOR_THEM: Final = ("VOC_NOTIFY_URL", "VOC_BROKER_PASSWORD_FILE")
# The longest path of a unix socket: `sun_path` less the NUL at its end, in Linux's unix(7) and macOS's unix(4).
_SOCKET_BYTES: Final = 107 if sys.platform == "linux" else 103


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalPipeline:
    """What is to be started here besides a broker; `workers` is the number of worker processes.

    `logs` is a folder; without it the logs are removed at the end. The broker at `broker_url` is only used if none can
    be started here, because workers on it may read below another data root, without the photos of this job.
    """

    store: str
    logs: Path | None
    data_root: str
    workers: int
    with_trainer: bool
    broker_url: str | None


@contextmanager
def run_pipeline(local: LocalPipeline) -> Iterator[tuple[str, Processes]]:
    """Run the processes until the block ends.

    Yields:
        The broker's URL, and the processes, which the caller has to keep running.

    Raises:
        BrokerError: No server was found for the broker, or it does not start.
    """
    # All temporary files are in this folder and removed with it, including the broker's socket and TensorFlow's
    # generated code. It is not below the store, whose path may be too long for a unix socket.
    with tempfile.TemporaryDirectory(prefix="voc-") as name:
        folder, processes = Path(name), Processes()
        try:
            found = server_or_url(local.broker_url, servers_here())
            url = found if isinstance(found, str) else start_broker(processes, folder)
            environment = _environment(local, url, folder)
            processes.start(_celery(local, environment, "worker", "shards", local.workers, stop_s=8))
            if local.with_trainer:
                processes.start(_celery(local, environment, "trainer", "train", 1, stop_s=30))
            yield url, processes
        finally:
            processes.stop()


def start_broker(processes: Processes, folder: Path) -> str:
    """Start a broker on a unix socket in `folder`, with an append-only file there; return its URL.

    Raises:
        BrokerError: The path is not possible for a socket, no server was found, or it does not start.
    """
    socket, log = folder / "redis.sock", folder / "broker.log"
    url = _socket_url(socket)
    command = [str(embedded_server().path), *BROKER_OPTIONS, "--dir", str(folder), "--unixsocket", str(socket)]
    child = Child(name="broker", command=command, environment=os.environ, log=log, stop_s=10, ends_last=True)
    processes.start(child)
    ledger = Ledger(connect(url))
    deadline = time.monotonic() + 20
    while not ledger.is_reachable():
        if not child.is_running() or time.monotonic() > deadline:
            raise BrokerError(f"the embedded broker did not start; its log ends:\n{child.tail()}")
        time.sleep(0.05)
    return url


def _socket_url(socket: Path) -> str:
    """The URL of a unix socket, with `#`, `?` and `%` escaped: redis-py and kombu both unescape them once."""
    try:
        size_bytes = len(str(socket).encode())
    except UnicodeEncodeError as error:
        raise BrokerError(
            f"{str(socket)!r}, the broker's socket: its path is not UTF-8; set TMPDIR to another folder"
        ) from error
    if size_bytes > _SOCKET_BYTES:
        raise BrokerError(
            f"{socket}, the broker's socket: its path has {size_bytes} bytes, expected at most {_SOCKET_BYTES}; "
            "set TMPDIR to a folder with a shorter path, such as /tmp"
        )
    return f"unix://{quote(str(socket))}"


def _environment(local: LocalPipeline, broker_url: str, temporary: Path) -> dict[str, str]:
    """This process's environment with the settings for the services."""
    paths = [str(Path(__file__).resolve().parents[2]), os.environ.get("PYTHONPATH")]
    return {
        **{name: value for name, value in os.environ.items() if name not in _NOT_FOR_THEM},
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "TMPDIR": str(temporary),
        "VOC_BROKER_URL": broker_url,
        "VOC_STORE": local.store,
        "VOC_DATA_ROOT": local.data_root,
        "VOC_SOFT_STOP_S": "4",
    }


def _celery(
    local: LocalPipeline, environment: Mapping[str, str], service: str, queue: str, concurrency: int, *, stop_s: float
) -> Child:
    command = [
        *(sys.executable, "-m", "celery", "-A", f"{service}.app", "worker", "-Q", queue),
        *("-n", f"{queue}-{os.getpid()}@%h", "--concurrency", str(concurrency)),
        *("--without-mingle", "--without-gossip", "--loglevel", "warning"),
    ]
    log = (local.logs or Path(environment["TMPDIR"], "logs")) / f"{service}.log"
    return Child(name=service, command=command, environment=environment, log=log, stop_s=stop_s)
