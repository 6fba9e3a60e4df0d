"""A job's folder -> whether a local run is at work on it: a lock that the kernel drops however its process ends."""

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import Final

from shared.errors import PlanError, StorageError
from shared.jobs.paths import JobPaths
from shared.storage import Storage

# Asking whether the lock is held takes it for a moment, so a run tries this often before it gives up.
_TRIES: Final = 5
_PAUSE_S: Final = 0.05


@contextmanager
def lock_for_local_run(storage: Storage, name: str) -> Iterator[None]:
    """Keep other local runs, and services on this machine, off the job `name`: each Redis knows of its own leases only.

    Raises:
        PlanError: Another local run has it.
        StorageError: The lock's file cannot be written or locked.
    """
    path = _lock_file(storage, name)
    try:
        file = path.open("w")
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror or error}") from error
    with file:
        if not _try_to_lock(file):
            raise PlanError(
                f"job {name}: another --local command works on it already (it holds {path}); "
                "let it end, or stop it with Ctrl-C and give this command again"
            )
        yield


def has_local_run(storage: Storage, name: str) -> bool:
    """Whether a local run of this machine is at work on the job `name`."""
    if not storage.is_local:
        return False
    try:
        with _lock_file(storage, name).open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False  # no such file, or a store without locks, where no local run could begin either
    return False


def _lock_file(storage: Storage, name: str) -> Path:
    return storage.local_path(JobPaths(name).root) / "local.lock"


def _try_to_lock(file: TextIOWrapper) -> bool:
    """Take the lock; False if another process keeps it."""
    for _ in range(_TRIES):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            time.sleep(_PAUSE_S)
        except OSError as error:
            reason = f"{error.strerror or error}; --local needs a store on a file system with locks"
            raise StorageError(f"cannot lock {file.name}: {reason}") from error
    return False
