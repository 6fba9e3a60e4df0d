"""The store in a local folder: a file is written beside its target, fsynced and renamed, and its folder fsynced."""

import errno
import fcntl
import os
import shutil
import socket
import stat
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final

from shared.errors import StorageError
from shared.storage.files import FolderMark, Stamp, T

# In a temporary file's name, between the target's name and the writer's. The reconciler removes such files once nobody
# can be writing them.
TEMPORARY_MARK = ".tmp-"

# No common file system allows a longer name.
_MOST_NAME_BYTES: Final = 255

# A whole group writes into a folder with these bits: what is made in it belongs to the group, which may write.
_GROUPS_OWN: Final = stat.S_ISGID | stat.S_IWGRP

_NO_LINKS: Final = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)

# Checking whether a lock is held takes it for a moment, so taking it is tried this often before giving up.
_TRIES: Final = 5
_PAUSE_S: Final = 0.05


class _StagedFile:
    """A temporary file and the name that it may get; the new name is synced to disk."""

    def __init__(self, temporary: Path, target: Path) -> None:
        self._temporary, self._target = temporary, target

    def publish(self) -> None:
        """Rename the temporary file."""
        os.replace(self._temporary, self._target)
        _sync_folder(self._target.parent)

    def create(self) -> bool:
        """Link it, which fails if there is a file: of several simultaneous calls exactly one returns True.

        Raises:
            StorageError: The file system has no hard links.
        """
        try:
            os.link(self._temporary, self._target)
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno in _NO_LINKS:
                raise StorageError(
                    f"{self._target.parent}: expected a file system with hard links for the store, found one without "
                    "(exFAT, FAT and some network shares); choose a --store elsewhere, such as on the system's own disk"
                ) from error
            raise
        _sync_folder(self._target.parent)
        return True

    def replace(self, seen: object) -> bool:
        """Rename it if the file that has the name still has the stamp `seen`."""
        if _stamp(self._target.lstat()) != seen:
            return False
        self.publish()
        return True


class FolderStorage:
    """The files of a local folder; raises the system's `OSError`, and `StorageError` if the folder is not there."""

    def __init__(self, root: str) -> None:
        folder = Path(root.removeprefix("file://")).expanduser().absolute()
        if folder.is_file():
            raise StorageError(f"{folder}: expected a folder for the store, found a file")
        self.root = str(folder)

    def path(self, key: str) -> Path:
        """The path of `key`."""
        return Path(self.root, key)

    def begin(self, call: Callable[[], T]) -> Callable[[], T]:
        """The call itself: there is no gain in making it early."""
        return call

    def at_once(self, calls: Iterable[Callable[[], None]]) -> None:
        """Make the calls one after another, until one raises."""
        for call in calls:
            call()

    def make_root(self) -> None:
        """Make the folder."""
        Path(self.root).mkdir(parents=True, exist_ok=True)

    def make_shared_folder(self, key: str) -> None:
        """Make a folder; its group may write into it if the first folder of `key` has the setgid bit."""
        folder = self.path(key)
        self._make_folder(folder)
        is_shared = self.path(key.split("/")[0]).stat().st_mode & stat.S_ISGID
        mode = stat.S_IMODE(folder.stat().st_mode)
        if is_shared and mode & _GROUPS_OWN != _GROUPS_OWN:
            folder.chmod(mode | stat.S_ISGID | stat.S_IRWXG)

    def remove_temporaries(self, folder: str) -> None:
        """Remove temporary files and folders directly in `folder`."""
        with suppress(FileNotFoundError, NotADirectoryError):
            for name in os.listdir(self.path(folder)):
                if TEMPORARY_MARK in name:
                    _remove(self.path(f"{folder}/{name}"))

    def write(self, key: str, chunks: Iterable[bytes]) -> None:
        """Write a file from a stream, whole or not at all."""
        with self._written(key, chunks) as temporary:
            _StagedFile(temporary, self.path(key)).publish()

    @contextmanager
    def staged(self, key: str, content: bytes) -> Iterator["_StagedFile"]:
        """Write `content` under a temporary name that lasts for the block, which may publish it."""
        with self._written(key, [content]) as temporary:
            yield _StagedFile(temporary, self.path(key))

    def version(self, key: str) -> Stamp:
        """The stamp of whatever has the name, even a circular link: it is going to be replaced."""
        return _stamp(self.path(key).lstat())

    def link(self, source: str, key: str) -> None:
        """Give a file a further name; copy it if the file system or the file's owner allows no links."""
        with self._temporary(key) as temporary:
            try:
                os.link(self.path(source), temporary)
            except OSError:
                self.write(key, [self.read(source)])
                return
            # If both names are the same file already, rename(2) does nothing; `_temporary` then removes its own.
            _StagedFile(temporary, self.path(key)).publish()

    @contextmanager
    def _written(self, key: str, chunks: Iterable[bytes]) -> Iterator[Path]:
        """A temporary file beside `key` that holds `chunks` and is flushed to disk."""
        with self._temporary(key) as temporary:
            with _new_file(temporary) as file:
                file.writelines(chunks)
                file.flush()
                os.fsync(file.fileno())
            yield temporary

    @contextmanager
    def _temporary(self, key: str) -> Iterator[Path]:
        """A name beside `key` that nobody else uses; whatever still has it at the end of the block is removed."""
        target = self.path(key)
        self._make_folder(target.parent)
        mark = f"{TEMPORARY_MARK}{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        name = os.fsencode(target.name)[: _MOST_NAME_BYTES - len(mark)].decode(errors="ignore")
        temporary = target.with_name(name + mark)
        try:
            yield temporary
        finally:
            with suppress(OSError):
                temporary.unlink()

    def _make_folder(self, folder: Path) -> None:
        """Make `folder` if the store exists: nothing must be written into the mount point of a vanished mount."""
        if not Path(self.root).is_dir():
            raise StorageError(f"cannot write {folder}: the store {self.root} is not there (mounted?)")
        folder.mkdir(parents=True, exist_ok=True)

    def written_at(self, key: str) -> float:
        """When a file was written, in seconds of Unix time."""
        return self.path(key).stat().st_mtime

    def read(self, key: str, start: int = 0, end: int | None = None) -> bytes:
        """The bytes of a file from `start` up to `end`."""
        with open(self.path(key), "rb") as file:
            if start:
                file.seek(start)
            return file.read(-1 if end is None else end - start)

    def lines(self, key: str) -> Iterator[bytes]:
        """The lines of a file."""
        with open(self.path(key), "rb") as file:
            yield from file

    def stamp(self, key: str) -> Stamp | None:
        """The stamp of a regular file; None if it is not one."""
        status = self.path(key).stat()
        return _stamp(status) if stat.S_ISREG(status.st_mode) else None

    def names(self, folder: str) -> list[str]:
        """The names in a folder, without temporary ones."""
        return [name for name in os.listdir(self.path(folder)) if TEMPORARY_MARK not in name]

    def stamps(self, folder: str) -> dict[str, Stamp]:
        """The regular files in a folder, without temporary ones, by name."""
        found = {}
        with os.scandir(self.path(folder)) as entries:
            for entry in entries:
                # A file that vanishes between listing and stat counts as absent.
                with suppress(FileNotFoundError):
                    # We make no symbolic links, and a foreign one may be circular.
                    if TEMPORARY_MARK not in entry.name and entry.is_file(follow_symlinks=False):
                        found[entry.name] = _stamp(entry.stat(follow_symlinks=False))
        return found

    def walk(self, folder: str) -> Iterator[tuple[str, Stamp]]:
        """The key and stamp of each regular file in a folder and below, without symbolic links."""
        for root, _, names in os.walk(self.path(folder)):
            for path in (Path(root, name) for name in names):
                with suppress(FileNotFoundError):
                    status = path.lstat()
                    if stat.S_ISREG(status.st_mode):
                        yield path.relative_to(self.root).as_posix(), _stamp(status)

    @contextmanager
    def locked(self, key: str) -> Iterator[Callable[[], bool] | None]:
        """Hold a lock, which the kernel drops however this process ends."""
        with self.path(key).open("w") as file:
            yield (lambda: True) if _try_to_lock(file) else None

    def is_locked(self, key: str) -> bool:
        """Whether a process on this machine, or on one that shares the file system's locks, holds a lock."""
        try:
            with self.path(key).open() as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False  # no such file, or a file system without locks, on which nobody could take one either
        return False

    def marks(self, folder: str, names: Iterable[str], inside: Sequence[str]) -> dict[str, FolderMark | None]:
        """The times of the folders `names`, each with the folders `inside` it; None if one cannot be read."""
        found: dict[str, FolderMark | None] = {}
        for name in names:
            path = f"{self.root}/{folder}/{name}"
            try:
                below = [os.stat(f"{path}/{each}").st_mtime_ns for each in inside]  # noqa: PTH116
                found[name] = (os.stat(path).st_mtime_ns, *below)  # noqa: PTH116  # making a Path costs more than stat
            except OSError:
                found[name] = None
        return found

    def remove(self, key: str) -> None:
        """Remove a file."""
        self.path(key).unlink()

    def remove_tree(self, folder: str) -> None:
        """Remove a folder and everything in it; it vanishes at once because it is renamed first."""
        path = self.path(folder)
        aside = path.with_name(f"{path.name}{TEMPORARY_MARK}{uuid.uuid4().hex}")
        path.rename(aside)
        _remove(aside)


def _new_file(path: Path) -> IO[bytes]:
    """The new file `path`, which the group may write if it may write into the folder.

    Linux lets nobody link another user's file without the right to write it (`fs.protected_hardlinks`); otherwise a
    shard that one job shares with another would have to be copied.
    """
    file = open(path, "xb")  # noqa: SIM115  # the caller's to close
    if path.parent.stat().st_mode & _GROUPS_OWN == _GROUPS_OWN:
        os.fchmod(file.fileno(), stat.S_IMODE(os.fstat(file.fileno()).st_mode) | stat.S_IRGRP | stat.S_IWGRP)
    return file


def _try_to_lock(file: IO[str]) -> bool:
    """Take the lock; returns False if another process keeps it."""
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


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _stamp(status: os.stat_result) -> Stamp:
    return Stamp(size_bytes=status.st_size, mark=(status.st_ino, status.st_mtime_ns), written_at=status.st_mtime)


def _remove(path: Path) -> None:
    """Remove a file or a folder; another process may be removing it too."""
    if not path.is_dir() or path.is_symlink():
        path.unlink(missing_ok=True)
        return
    # The first pass stops at a file that another process removed; the second removes the rest.
    with suppress(FileNotFoundError):
        shutil.rmtree(path)
    if path.exists():
        shutil.rmtree(path)
