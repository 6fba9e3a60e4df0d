"""`lint.csv` of a job -> its findings by kind and page, read once as long as the file stays as it is."""

import csv
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from producer.finalize.lint_csv import COLUMNS
from shared.errors import FormatError, PlanError
from shared.jobs.paths import JobPaths
from shared.storage import Stamp, Storage

MOST_BYTES: Final = 256 << 20
PAGE: Final = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the table: its `number` from 0, and its cells."""

    number: int
    file: str
    object_index: int | None
    rank: str
    kind: str
    found: str
    done: str


class FindingsTable:
    """The findings of a job. Kept are the file's bytes and where each line begins."""

    def __init__(self, content: bytes, name: str) -> None:
        """Read the lines of `content`; `name` is the file's, for errors."""
        self._content, self._name = content, name
        self._starts = array("Q", _line_starts(content))

    def __len__(self) -> int:
        return len(self._starts)

    def row(self, number: int) -> Row:
        """One line.

        Raises:
            PlanError: There is no such line.
            FormatError: It is none of ours.
        """
        if not 0 <= number < len(self._starts):
            raise PlanError(f"{self._name} has {len(self._starts)} findings, and no number {number}")
        end = self._starts[number + 1] if number + 1 < len(self._starts) else len(self._content)
        text = self._content[self._starts[number] : end].decode("utf-8", "replace").rstrip("\r\n")
        cells = next(csv.reader([text]), [])
        if len(cells) != len(COLUMNS):
            raise FormatError(f"{self._name}: line {number + 2} has {len(cells)} cells, {len(COLUMNS)} were expected")
        file, index, rank, kind, found, done = cells
        at = int(index) if index.isascii() and index.isdigit() else None
        return Row(number=number, file=file, object_index=at, rank=rank, kind=kind, found=found, done=done)

    @cached_property
    def _numbers(self) -> Mapping[str, "array[int]"]:
        """The numbers of the lines of each kind."""
        numbers: dict[str, array[int]] = {}
        for number, (_, kind) in enumerate(self._ranks_and_kinds()):
            numbers.setdefault(kind, array("L")).append(number)
        return numbers

    def _ranks_and_kinds(self) -> Iterator[tuple[str, str]]:
        """Rank and kind of each line; where nothing is quoted in front of them, at a tenth of the time of a CSV."""
        for number, line in enumerate(self._content.splitlines()[1:]):
            cells = line.split(b",", 4)
            if len(cells) == 5 and b'"' not in line[: -len(cells[4]) or None]:
                yield cells[2].decode("utf-8", "replace"), cells[3].decode("utf-8", "replace")
            else:
                row = self.row(number)
                yield row.rank, row.kind

    @property
    def counts(self) -> list[tuple[str, int]]:
        """Each kind with its number of findings, the most frequent first."""
        return Counter({kind: len(numbers) for kind, numbers in self._numbers.items()}).most_common()

    @cached_property
    def aside(self) -> list[tuple[str, int]]:
        """Each kind for which photos were set aside, with their number, the most frequent first."""
        return Counter(kind for rank, kind in self._ranks_and_kinds() if rank == "quarantined").most_common()

    def page(self, number: int, *, kind: str = "", text: str = "") -> tuple[list[Row], int]:
        """The rows of a page (from 1) of those of a kind that hold a text, and how many there are on all pages."""
        numbers: Sequence[int] = self._numbers.get(kind, array("L")) if kind else range(len(self))
        if text:
            numbers = [each for each in numbers if text.casefold() in self._line(each).casefold()]
        shown = numbers[(number - 1) * PAGE : number * PAGE]
        return [self.row(each) for each in shown], len(numbers)

    def _line(self, number: int) -> str:
        row = self.row(number)
        return f"{row.file} {row.found} {row.done}"


class FindingsTables:
    """The tables of the jobs that were looked at last."""

    _MOST_KEPT: Final = 2

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._kept: dict[str, tuple[Stamp, FindingsTable]] = {}

    def get(self, job: str) -> FindingsTable | None:
        """The table of a job; None until its data set is finished.

        Raises:
            FormatError: The file is larger than any of ours.
        """
        key = JobPaths(job).lint
        stamp = self._storage.stamp_or_none(key)
        if stamp is None:
            return None
        kept = self._kept.pop(job, None)
        if kept is None or kept[0] != stamp:
            size = self._storage.size_or_none(key) or 0
            if size > MOST_BYTES:
                raise FormatError(f"{self._storage.url(key)}: {size} bytes, at most {MOST_BYTES} are read")
            kept = stamp, FindingsTable(self._storage.read(key), self._storage.url(key))
        self._kept[job] = kept
        for oldest in list(self._kept)[: -self._MOST_KEPT]:
            self._kept.pop(oldest, None)
        return kept[1]


def _line_starts(content: bytes) -> Iterator[int]:
    """Where each line after the first one, which names the columns, begins."""
    at = content.find(b"\n") + 1
    while 0 < at < len(content):
        yield at
        at = content.find(b"\n", at) + 1
