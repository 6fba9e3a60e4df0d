"""Pairs -> the groups of them whose pictures hold the same bytes, and the findings about each group."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from producer.dataset.pairing import grouped
from producer.dataset.read_pairs import Pair
from producer.photos import Photos
from shared.annotation.reader import read_annotation
from shared.annotation.voc import Box
from shared.errors import AnnotationError
from shared.jobs.findings import Finding
from shared.jobs.job import Split
from shared.specs.data import JobSpec


def equal_pictures(photos: Photos, pairs: Sequence[Pair], pictures: Sequence[int]) -> list[list[int]]:
    """Groups of indices into `pairs` whose picture files hold the same bytes.

    Only files of equal size and equal sample (`pictures`) are read whole. A file that cannot be read equals no other.
    """
    repeated = {key for key, count in Counter(pictures).items() if count > 1}
    candidates = [index for index, key in enumerate(pictures) if key in repeated]
    digests = dict(zip(candidates, photos.digests(pairs[index][0] for index in candidates), strict=True))
    groups = grouped(candidates, lambda index: (pictures[index], digests[index]))
    return sorted(group for (_, digest), group in groups.items() if digest is not None and len(group) > 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Duplicates:
    """`groups` of indices into `pairs` whose pictures are equal; `pairs` have paths in `photos`."""

    photos: Photos
    pairs: Sequence[Pair]
    groups: Sequence[Sequence[int]]
    spec: JobSpec

    def findings(self, splits: Sequence[Split | None]) -> Iterator[Finding]:
        """One for each copy of an earlier picture, if it is in the same split or has other labels.

        The other copies have a finding of their own, because they are in another split.
        """
        labels = self._labels()
        for first, *copies in self.groups:
            for copy in copies:
                is_conflicting = None not in (labels[first], labels[copy]) and labels[first] != labels[copy]
                if is_conflicting or splits[copy] == splits[first]:
                    yield self._finding(first, copy, is_conflicting=is_conflicting)

    def _finding(self, first: int, copy: int, *, is_conflicting: bool) -> Finding:
        kind = "duplicate_conflicting" if is_conflicting else "duplicate"
        found = f"the same bytes as {self.pairs[first][0]}" + (", but other labels" if is_conflicting else "")
        return Finding(file=self.pairs[copy][0], rank="info", kind=kind, found=found, done="both kept")

    def _labels(self) -> Mapping[int, set[tuple[str, Box]] | None]:
        """Class and box of each object, by pair; None where the XML cannot be read, which has its own finding."""
        found: dict[int, set[tuple[str, Box]] | None] = {}
        paths = {index: path for group in self.groups for index in group if (path := self.pairs[index][1]) is not None}
        found.update({index: set() for group in self.groups for index in group})
        for (index, path), xml in zip(paths.items(), self.photos.xmls(paths.values()), strict=True):
            found[index] = None
            with suppress(AnnotationError):
                if not isinstance(xml, OSError):
                    annotation = read_annotation(xml, file=path, spec=self.spec)
                    found[index] = {(voc_object.name, voc_object.box) for voc_object in annotation.objects}
        return found
