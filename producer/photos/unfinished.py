"""A temporary folder for what is being written, beside its final place; what a killed command left there is removed.

The writing process holds a lock on the folder itself, which the system releases however the process ends. So a folder
with the name of an unfinished one and without a lock belongs to nobody.
"""

import fcntl
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

# What `tempfile` appends to the prefix. A folder of another name, or with more in it than we write, is a person's.
_DRAWN: Final = re.compile(r"[a-z0-9_]{8}")
_MOST_ENTRIES: Final = 1


@contextmanager
def unfinished_folder(parent: Path, prefix: str) -> Iterator[Path]:
    """A new folder in `parent` for one file or folder to be renamed to its place; what is left is removed at the end.

    What killed commands left there under this `prefix` is removed first.

    Raises:
        OSError: It cannot be made.
    """
    _remove_left(parent, prefix)
    folder, lock = _locked_folder(parent, prefix)
    try:
        with folder as name:
            yield Path(name)
    finally:
        os.close(lock)


def make_writable(folder: Path) -> None:
    """Let the owner write into a folder and all folders below it: a copy may have the mode of a read-only original."""
    for place, _, _ in os.walk(folder):
        Path(place).chmod(Path(place).stat().st_mode | stat.S_IRWXU)


def _locked_folder(parent: Path, prefix: str) -> tuple[tempfile.TemporaryDirectory[str], int]:
    """A new folder and the file descriptor whose lock says that somebody is at work in it."""
    while True:
        folder = tempfile.TemporaryDirectory(dir=parent, prefix=prefix, ignore_cleanup_errors=True)
        try:
            lock = os.open(folder.name, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue  # before it had a lock, another command removed it as nobody's
        is_ours = _lock(lock) is not False and Path(folder.name).exists()
        if is_ours:
            return folder, lock
        os.close(lock)


def _lock(descriptor: int) -> bool | None:
    """Whether the lock is ours now; None where the file system has no locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _remove_left(parent: Path, prefix: str) -> None:
    for path in sorted(parent.iterdir()):
        name = path.name.removeprefix(prefix)
        if name == path.name or not _DRAWN.fullmatch(name) or path.is_symlink() or not path.is_dir():
            continue
        with suppress(OSError):  # it belongs to another user, and does no harm
            lock = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                if _lock(lock) and len(list(path.iterdir())) <= _MOST_ENTRIES:
                    make_writable(path)
                    shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(lock)
