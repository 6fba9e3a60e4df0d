"""`Files`: what any store can do, whether it is a folder (`folder.py`) or an object store (`objects.py`)."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

T = TypeVar("T")

# When a folder and certain folders in it last gained, lost or renamed an entry, in ns of Unix time.
FolderMark = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """What a listing says about a file without reading it; a file that replaces it has another stamp.

    `mark` is the inode and the time of the last write in ns; in an object store it is the ETag and the time in whole
    seconds, the finest time that listings and single requests both give. `written_at` is that time in seconds of Unix
    time.
    """

    size_bytes: int
    mark: tuple[int | str, ...]
    written_at: float


class Staged(Protocol):
    """A file that is written but has no name yet; each method gives it its name or leaves it unnamed."""

    def publish(self) -> None:
        """Give it its name, replacing what is there."""

    def create(self) -> bool:
        """Give it its name unless a file has it already; of several simultaneous calls exactly one returns True."""

    def replace(self, seen: object) -> bool:
        """Give it its name if the file there still has the version `seen`; in a folder this is not quite atomic."""


class Files(Protocol):
    """The files below one root; keys are relative, with `/` as separator. A folder exists while it holds a file.

    Raises (every method): `OSError`, as a `FileNotFoundError` if there is no such file; `StorageError` if the reason
    needs a sentence of its own.
    """

    root: str

    def path(self, key: str) -> Path | None:
        """The path of `key` on this machine; None in an object store."""

    def begin(self, call: Callable[[], T]) -> Callable[[], T]:
        """A function that returns the result of `call` or raises its error; object stores begin the call at once."""

    def at_once(self, calls: Iterable[Callable[[], None]]) -> None:
        """Make all calls, in parallel in an object store; raises what the first failed call raised."""

    def make_root(self) -> None:
        """Make the root if it has to be made."""

    def make_shared_folder(self, key: str) -> None:
        """Make the folder `key` as `Storage.make_shared_folder` says."""

    def remove_temporaries(self, folder: str) -> None:
        """Remove half-written and half-removed files directly in `folder`."""

    def write(self, key: str, chunks: Iterable[bytes]) -> None:
        """Write a file from a stream, whole or not at all: if `chunks` raises, nothing is left."""

    def staged(self, key: str, content: bytes) -> AbstractContextManager[Staged]:
        """Keep `content` ready during the block, which may give it its name."""

    def version(self, key: str) -> object:
        """The version of a file for `Staged.replace`; a `FileNotFoundError` if there is no such file."""

    def link(self, source: str, key: str) -> None:
        """Give the file `source` the further name `key`, if possible without reading its bytes."""

    def locked(self, key: str) -> AbstractContextManager[Callable[[], bool] | None]:
        """Hold the lock `key` during the block, which gets None if another process holds it.

        Otherwise the block gets a function that tells whether the lock is still held: not if this process stood still
        for so long that another took it over. The lock of a process that died becomes free, in a while at the latest.
        """

    def is_locked(self, key: str) -> bool:
        """Whether a process holds the lock `key`."""

    def written_at(self, key: str) -> float:
        """When a file was written, in seconds of Unix time, by the clock of the machine that stores it."""

    def read(self, key: str, start: int = 0, end: int | None = None) -> bytes:
        """The bytes of a file from `start` up to `end`, or up to its own end if that comes first."""

    def lines(self, key: str) -> Iterator[bytes]:
        """The lines of a file with their ends, streamed, all of one version of it."""

    def stamp(self, key: str) -> Stamp | None:
        """The stamp of a file; None if what is there is not a file."""

    def names(self, folder: str) -> list[str]:
        """The names directly in a folder, without temporary ones."""

    def stamps(self, folder: str) -> dict[str, Stamp]:
        """The files directly in a folder, without temporary ones, by name."""

    def marks(self, folder: str, names: Iterable[str], inside: Sequence[str]) -> dict[str, FolderMark | None]:
        """The marks of the folders `names` in a folder, each with the folders `inside` it; None if not known."""

    def walk(self, folder: str) -> Iterator[tuple[str, Stamp]]:
        """The key and stamp of each file in a folder and below, temporary ones too."""

    def remove(self, key: str) -> None:
        """Remove a file."""

    def remove_tree(self, folder: str) -> None:
        """Remove every file in a folder and below."""
