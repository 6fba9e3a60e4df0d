"""Pairs -> the groups of them whose pictures hold the same bytes, and what is to be said of each."""

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from producer.dataset.pairing import grouped
from producer.dataset.read_pairs import Pair, read_xml
from shared.annotation import Box, read_annotation
from shared.errors import AnnotationError
from shared.jobs.findings import Finding
from shared.jobs.job import Split
from shared.jobs.specs import JobSpec


def equal_pictures(folder: Path, pairs: Sequence[Pair], pictures: Sequence[int]) -> list[list[int]]:
    """Groups of indices into `pairs` whose picture files hold the same bytes.

    Only files of equal size and equal sample (`pictures`) are read whole. A file that cannot be read equals no other.
    """
    repeated = {key for key, count in Counter(pictures).items() if count > 1}
    candidates = (index for index, key in enumerate(pictures) if key in repeated)
    groups = grouped(candidates, lambda index: (pictures[index], _digest_of_file(folder / pairs[index][0])))
    return sorted(group for (_, digest), group in groups.items() if digest is not None and len(group) > 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Duplicates:
    """`groups` of indices into `pairs` whose pictures are equal; `pairs` have paths below `folder`."""

    folder: Path
    pairs: Sequence[Pair]
    groups: Sequence[Sequence[int]]
    spec: JobSpec

    def findings(self, splits: Sequence[Split | None]) -> Iterator[Finding]:
        """One for each copy of an earlier picture, unless all there is to say is that it straddles `splits`."""
        for first, *copies in self.groups:
            labels = self._labels(first)
            for copy in copies:
                is_conflicting = None not in (labels, others := self._labels(copy)) and labels != others
                if is_conflicting or splits[copy] == splits[first]:
                    yield self._finding(first, copy, is_conflicting=is_conflicting)

    def _finding(self, first: int, copy: int, *, is_conflicting: bool) -> Finding:
        kind = "duplicate_conflicting" if is_conflicting else "duplicate"
        found = f"the same bytes as {self.pairs[first][0]}" + (", but other labels" if is_conflicting else "")
        return Finding(file=self.pairs[copy][0], rank="info", kind=kind, found=found, done="both kept")

    def _labels(self, index: int) -> set[tuple[str, Box]] | None:
        """Class and box of each object of a pair; None where its XML cannot be read, which is said elsewhere."""
        path = self.pairs[index][1]
        if path is None:
            return set()
        with suppress(OSError, AnnotationError):
            annotation = read_annotation(read_xml(f"{self.folder}/{path}"), file=path, spec=self.spec)
            return {(voc_object.name, voc_object.box) for voc_object in annotation.objects}
        return None


def _digest_of_file(path: Path) -> bytes | None:
    with suppress(OSError), open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").digest()
    return None
