"""`Files`: what a store has to do, whether it is a folder (`folder.py`) or an object store (`objects.py`)."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

T = TypeVar("T")

# When a folder, and folders in it, last got, lost or renamed an entry: ns of Unix time.
FolderMark = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """What a listing tells of a file without reading it; a file that replaces it has another stamp.

    `mark` is the inode and the time of the last write in ns; in an object store the ETag and the time in whole seconds,
    because a listing and a look at one object tell no finer time that both have. `written_at` is that time in seconds
    of Unix time.
    """

    size_bytes: int
    mark: tuple[int | str, ...]
    written_at: float


class Staged(Protocol):
    """A file that is written and has no name yet; each method gives it its name or leaves it as it is."""

    def publish(self) -> None:
        """Give it its name, replacing what is there."""

    def create(self) -> bool:
        """Give it its name unless a file has it: of all that try at once, exactly one is told True."""

    def replace(self, seen: object) -> bool:
        """Give it its name if that still has the version `seen`; in a folder not quite at once with the look."""


class Files(Protocol):
    """The files below one root. Keys are relative, with `/` as separator; a folder is there while it holds a file.

    Raises (every method): an `OSError`, a `FileNotFoundError` where there is no such file; `StorageError` where the
    reason needs a sentence of its own.
    """

    root: str

    def path(self, key: str) -> Path | None:
        """The path of `key` on this machine; None where files have none."""

    def begin(self, call: Callable[[], T]) -> Callable[[], T]:
        """What gives the result of `call`, or raises what it raised: begun at once where a request means waiting."""

    def at_once(self, calls: Iterable[Callable[[], None]]) -> None:
        """Make all calls, side by side where a request means waiting; raises what the first of them raised."""

    def make_root(self) -> None:
        """Make the root where it has to be made."""

    def make_shared_folder(self, key: str) -> None:
        """Make the folder `key` as `Storage.make_shared_folder` says."""

    def remove_temporaries(self, folder: str) -> None:
        """Remove what is half written or half removed directly in `folder`."""

    def write(self, key: str, chunks: Iterable[bytes]) -> None:
        """Write a file from a stream, whole or not at all: where `chunks` raises, nothing is left."""

    def staged(self, key: str, content: bytes) -> AbstractContextManager[Staged]:
        """Have `content` ready for the length of the block, which may give it its name."""

    def version(self, key: str) -> object:
        """The version of a file for `Staged.replace`; a `FileNotFoundError` where there is none."""

    def link(self, source: str, key: str) -> None:
        """Give the file `source` the further name `key`, without its bytes passing through here where possible."""

    def locked(self, key: str) -> AbstractContextManager[Callable[[], bool] | None]:
        """Hold the lock `key` for the length of the block; None where another process holds it.

        The block gets a function that tells whether the lock is still held: not if this process stood still for so
        long that another one took it over. The lock of a process that died is free, after a while at the latest.
        """

    def is_locked(self, key: str) -> bool:
        """Whether a process holds the lock `key`."""

    def written_at(self, key: str) -> float:
        """When a file was written, in seconds of Unix time, by the clock of whoever keeps it."""

    def read(self, key: str, start: int = 0, end: int | None = None) -> bytes:
        """The bytes of a file from `start` up to `end`, or up to its own end if that comes first."""

    def lines(self, key: str) -> Iterator[bytes]:
        """The lines of a file with their ends, streamed, all of one version of it."""

    def stamp(self, key: str) -> Stamp | None:
        """The stamp of a file; None where something is there that is no file."""

    def names(self, folder: str) -> list[str]:
        """The names directly in a folder, without temporary ones."""

    def stamps(self, folder: str) -> dict[str, Stamp]:
        """The files directly in a folder, without temporary ones, by name."""

    def marks(self, folder: str, names: Iterable[str], inside: Sequence[str]) -> dict[str, FolderMark | None]:
        """The marks of the folders `names` in a folder, each with those `inside` it; None where there is no telling."""

    def walk(self, folder: str) -> Iterator[tuple[str, Stamp]]:
        """Key and stamp of each file in a folder and below, temporary ones too."""

    def remove(self, key: str) -> None:
        """Remove a file."""

    def remove_tree(self, folder: str) -> None:
        """Remove every file in a folder and below."""
