"""`Photos`: what lint asks of a data set, whether it is a folder (`folder.py`) or in a bucket (`bucket.py`)."""

from collections.abc import Collection, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

from shared.jobs.fingerprint import Sample


class Entry(Protocol):
    """One name in a folder, as `os.DirEntry` has it."""

    @property
    def name(self) -> str:
        """The name alone."""

    @property
    def path(self) -> str:
        """The whole path, used to follow a link."""

    def is_symlink(self) -> bool:
        """Whether it is a link."""

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        """Whether it is a file."""

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        """Whether it is a folder."""


class PairFiles(NamedTuple):
    """The XML of a pair (b"" if it has none) and the sample of its picture, or why they cannot be read."""

    xml: bytes | OSError
    sample: Sample | OSError


class Photos(Protocol):
    """The files of one data set; all paths are relative to it, with `/` as separator.

    Every method raises a `StorageError` if a bucket does not answer, which is no fault of a file.
    """

    def entries(self, folder: str) -> AbstractContextManager[Iterable[Entry]]:
        """What is directly in a folder, in any order; an `OSError` if it cannot be listed."""

    def content(self, path: str) -> bytes:
        """The whole of a file; an `OSError` if it cannot be read."""

    def xmls(self, paths: Iterable[str]) -> Iterator[bytes | OSError]:
        """XML files, each cut one byte beyond what `read_annotation` accepts, or the error if one cannot be read."""

    def pairs(self, pairs: Iterable[tuple[str, str | None]]) -> Iterator[PairFiles]:
        """The XML and the sample of the picture of each pair (picture, XML or None), in order."""

    def digests(self, paths: Iterable[str]) -> Iterator[bytes | None]:
        """The SHA-256 of files; None for one that cannot be read."""

    @property
    def names_before(self) -> Collection[str]:
        """If this is a corrected copy: the classes of the original data set that options named."""

    def changed_at(self, path: str) -> float:
        """The latest time a file may have changed or been put there, in s of Unix time; an `OSError` if absent."""
