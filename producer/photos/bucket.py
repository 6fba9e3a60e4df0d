"""A data set in a bucket: `Photos` that lists the bucket once and makes many requests at the same time."""

import hashlib
from collections.abc import Collection, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from producer.photos.files import Entry, PairFiles
from shared.annotation.parse import MAX_XML_BYTES
from shared.errors import LintError
from shared.jobs.fingerprint import END_BYTES, Sample, sample_ends, sample_span
from shared.storage import BucketFolder, Stamp
from shared.storage.ahead import Admit, Ahead

# How much of a picture is fetched first; the end of a smaller picture needs no second request.
_HEAD_BYTES: Final = 4 * END_BYTES

# How many neighbours of an empty folder an error names: enough to notice a typing mistake.
_MOST_NAMED: Final = 20

# Name -> what is in that folder, or None for a file.
_Tree = dict[str, "_Tree | None"]


def latest_change(stamp: Stamp) -> float:
    """The latest time an object may have been written, in seconds of Unix time: listings give whole seconds only."""
    return float(stamp.mark[-1]) + 0.999


@dataclass(frozen=True, slots=True)
class _Named:
    """A name that a listing found: an `Entry`. A bucket has no links."""

    name: str
    path: str
    is_folder: bool

    def is_symlink(self) -> bool:
        """Never."""
        return False

    def is_file(self, *, follow_symlinks: bool = True) -> bool:  # noqa: ARG002  # there are none
        """Whether it is an object."""
        return not self.is_folder

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:  # noqa: ARG002
        """Whether objects lie below it."""
        return self.is_folder


class BucketPhotos:
    """The files below a folder of a bucket. The folder is listed once, when it is first needed."""

    def __init__(self, folder: BucketFolder) -> None:
        self._folder = folder

    def entries(self, folder: str) -> AbstractContextManager[Iterable[Entry]]:
        """What is directly in a folder."""
        tree: _Tree = self._tree
        for name in folder.split("/") if folder else ():
            tree = tree[name] or {}
        inside = f"{folder}/" if folder else ""
        return nullcontext([_Named(name, inside + name, below is not None) for name, below in tree.items()])

    def content(self, path: str) -> bytes:
        """The whole of an object."""
        return self._folder.fetch(path).content

    def xmls(self, paths: Iterable[str]) -> Iterator[bytes | OSError]:
        """XML files."""
        with Ahead(paths, self._xml_or_error) as found:
            yield from found

    def pairs(self, pairs: Iterable[tuple[str, str | None]]) -> Iterator[PairFiles]:
        """The XML and the sample of the picture of each pair."""
        with Ahead(pairs, self._pair) as found:
            yield from found

    def digests(self, paths: Iterable[str]) -> Iterator[bytes | None]:
        """The SHA-256 of files."""
        with Ahead(paths, self._digest) as found:
            yield from found

    @property
    def names_before(self) -> Collection[str]:
        """Empty, because corrected copies are only written into folders."""
        return ()

    def changed_at(self, path: str) -> float:
        """The latest time an object may have been written, in seconds of Unix time."""
        try:
            return latest_change(self._stamps[path])
        except KeyError:
            raise FileNotFoundError("no such object") from None

    @cached_property
    def _stamps(self) -> dict[str, Stamp]:
        return dict(self._folder.files())

    @cached_property
    def _tree(self) -> _Tree:
        tree: _Tree = {}
        for key, _ in self._folder.files():
            *folders, name = key.split("/")
            inside = tree
            for folder in folders:
                below = inside.get(folder)
                if below is None:
                    below = inside[folder] = {}
                inside = below
            inside.setdefault(name, None)
        if not tree:
            raise LintError(f"{self._folder}: expected images and Pascal-VOC XML, found nothing{self._beside()}")
        return tree

    def _beside(self) -> str:
        """The names beside the empty folder, one of which may have been meant."""
        above = self._folder.parent
        names = ", ".join(above.names()[:_MOST_NAMED]) if above != self._folder else ""
        return f" (in {above} there are: {names or 'none'})"

    def _xml_or_error(self, path: str, admit: Admit) -> bytes | OSError:
        try:
            return self._folder.fetch(path, (0, MAX_XML_BYTES + 1), admit).content
        except FileNotFoundError as error:
            return error

    def _pair(self, pair: tuple[str, str | None], admit: Admit) -> PairFiles:
        image, path = pair
        xml = b"" if path is None else self._xml_or_error(path, admit)
        try:
            return PairFiles(xml, self._sample(image, admit))
        except FileNotFoundError as error:
            return PairFiles(xml, error)

    def _sample(self, path: str, admit: Admit) -> Sample:
        head = self._folder.fetch(path, (0, _HEAD_BYTES), admit)
        start, end = sample_span(head.size_bytes)
        if end <= len(head.content):
            return sample_ends(head.size_bytes, head.content, head.content[start:])
        return sample_ends(head.size_bytes, head.content, self._folder.fetch(path, (start, end), admit).content)

    def _digest(self, path: str, admit: Admit) -> bytes | None:
        try:
            return hashlib.sha256(self._folder.fetch(path, None, admit).content).digest()
        except FileNotFoundError:
            return None
