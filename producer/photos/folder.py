"""A data set in a folder: `Photos` read from the file system."""

import hashlib
import os
from collections.abc import Collection, Iterable, Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from producer.photos.copied import CopiedPhotos
from producer.photos.files import Entry, PairFiles
from shared.annotation.parse import MAX_XML_BYTES
from shared.jobs.fingerprint import sample_file


@dataclass(frozen=True)
class FolderPhotos:
    """The files below a folder."""

    folder: Path

    def entries(self, folder: str) -> AbstractContextManager[Iterable[Entry]]:
        """What is directly in a folder."""
        return os.scandir(self.folder / folder)

    def content(self, path: str) -> bytes:
        """The whole of a file."""
        return (self.folder / path).read_bytes()

    def xmls(self, paths: Iterable[str]) -> Iterator[bytes | OSError]:
        """XML files."""
        return (self._xml_or_error(path) for path in paths)

    def pairs(self, pairs: Iterable[tuple[str, str | None]]) -> Iterator[PairFiles]:
        """The XML and the sample of the picture of each pair."""
        for image, path in pairs:
            xml = b"" if path is None else self._xml_or_error(path)
            try:
                yield PairFiles(xml, sample_file(f"{self.folder}/{image}"))
            except OSError as error:
                yield PairFiles(xml, error)

    def digests(self, paths: Iterable[str]) -> Iterator[bytes | None]:
        """The SHA-256 of files."""
        return (self._digest(path) for path in paths)

    def changed_at(self, path: str) -> float:
        """When a file last changed or was moved there; for a copy that we made, when the original did."""
        return self._copied.changed_at(path, (self.folder / path).stat())

    @property
    def names_before(self) -> Collection[str]:
        """If this is a corrected copy: the classes of the original data set that options named."""
        return self._copied.names

    @cached_property
    def _copied(self) -> CopiedPhotos:
        return CopiedPhotos(self.folder)

    def _xml_or_error(self, path: str) -> bytes | OSError:
        try:
            with open(f"{self.folder}/{path}", "rb") as file:
                return file.read(MAX_XML_BYTES + 1)
        except OSError as error:
            return error

    def _digest(self, path: str) -> bytes | None:
        with suppress(OSError), open(self.folder / path, "rb") as file:
            return hashlib.file_digest(file, "sha256").digest()
        return None
