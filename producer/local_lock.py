"""A job's folder → whether an embedded run is at work on it: a lock that the kernel drops however its process ends."""

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import Final

from shared.errors import PlanError, StorageError

# A look at the lock holds it for a moment, so a run asks as often as this before it gives up.
_TRIES: Final = 5
_PAUSE_S: Final = 0.05


@contextmanager
def only_run_of(job_folder: Path) -> Iterator[None]:
    """Keep other embedded runs, and services on this machine, off a job: each Redis knows of its own leases only.

    Raises:
        PlanError: Another embedded run has it.
        StorageError: The lock's file cannot be written or locked.
    """
    path = _lock_file(job_folder)
    try:
        file = path.open("w")
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror or error}") from error
    with file:
        if not _is_taken(file, path):
            raise PlanError(
                f"job {job_folder.name}: another --local command works on it already (it holds {path}); "
                "let it end, or stop it with Ctrl-C and give this command again"
            )
        yield


def has_run(job_folder: Path) -> bool:
    """Whether an embedded run of this machine is at work on a job."""
    try:
        with _lock_file(job_folder).open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False  # no such file, or a store without locks, where no embedded run could begin either
    return False


def _lock_file(job_folder: Path) -> Path:
    return job_folder / "local.lock"


def _is_taken(file: TextIOWrapper, path: Path) -> bool:
    """Take the lock; False if it stays another's."""
    for _ in range(_TRIES):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_PAUSE_S)
        except OSError as error:
            raise StorageError(
                f"cannot lock {path}: {error.strerror or error}; --local needs a store on a file system with locks"
            ) from error
        else:
            return True
    return False
