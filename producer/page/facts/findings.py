"""`lint.csv` of a job -> its findings by kind, class and page; the file is read again only if it has changed."""

import csv
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from producer.finalize.lint_csv import COLUMNS, OF_NO_PAIR
from shared.errors import FormatError, PlanError
from shared.jobs.paths import JobPaths
from shared.storage import Stamp, Storage
from shared.text import counted

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
    class_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Index:
    """The numbers of the lines of each kind and of each class, and how many photos each kind set aside."""

    kinds: Mapping[str, "array[int]"]
    classes: Mapping[str, "array[int]"]
    aside: Counter[str]


class FindingsTable:
    """The findings of a job. It keeps the file's bytes and where each line begins."""

    def __init__(self, content: bytes, name: str) -> None:
        """Read the lines of `content`; `name` is the file's name, for errors."""
        self._content, self._name = content, name
        self._starts = array("Q", _line_starts(content))
        # Files written by 0.2.0 have no column `class`.
        has_classes = content[: self._starts[0] if self._starts else None].rstrip().endswith(b",class")
        self._columns: Final = COLUMNS if has_classes else COLUMNS[:-1]

    def __len__(self) -> int:
        return len(self._starts)

    def row(self, number: int) -> Row:
        """One line.

        Raises:
            PlanError: There is no such line.
            FormatError: The line has another number of cells than ours.
        """
        if not 0 <= number < len(self._starts):
            raise PlanError(f"{self._name} has {counted(len(self._starts), 'finding')}, and no number {number}")
        end = self._starts[number + 1] if number + 1 < len(self._starts) else len(self._content)
        text = self._content[self._starts[number] : end].decode("utf-8", "replace").rstrip("\r\n")
        cells = next(csv.reader([text]), [])
        if len(cells) != len(self._columns):
            expected = f"{len(self._columns)} were expected"
            raise FormatError(f"{self._name}: line {number + 2} has {counted(len(cells), 'cell')}, {expected}")
        said = dict(zip(self._columns, cells, strict=True))
        index, name = said.pop("object"), said.pop("class", "")
        at = int(index) if index.isascii() and index.isdigit() else None
        return Row(number=number, object_index=at, class_name=name, **said)

    @cached_property
    def _index(self) -> _Index:
        # Keyed by bytes, which are decoded at the end: for 100,000 lines that takes half the time.
        kinds, classes = (defaultdict[bytes, "array[int]"](_no_numbers) for _ in range(2))
        aside: Counter[bytes] = Counter()
        for number, (rank, kind, name) in enumerate(self._ranks_kinds_classes()):
            kinds[kind].append(number)
            if name:
                classes[name].append(number)
            if rank == b"quarantined" and self.row(number).done not in OF_NO_PAIR:
                aside[kind] += 1
        return _Index(
            kinds={_text(kind): numbers for kind, numbers in kinds.items()},
            classes={_text(name): numbers for name, numbers in classes.items()},
            aside=Counter({_text(kind): count for kind, count in aside.items()}),
        )

    def _ranks_kinds_classes(self) -> Iterator[Sequence[bytes]]:
        """Rank, kind and class of each line; if none of them is quoted, in a tenth of a CSV reader's time."""
        has_classes = self._columns is COLUMNS
        for number, line in enumerate(self._content.splitlines()[1:]):
            cells = line.split(b",", 4)
            # A comma with no quote after it is not inside a quoted cell.
            name = line[line.rfind(b",") + 1 :] if has_classes else b""
            if len(cells) == 5 and (b'"' not in line or _is_plain(line, cells[4], name)):
                yield cells[2], cells[3], name
            else:
                row = self.row(number)
                yield row.rank.encode(), row.kind.encode(), row.class_name.encode()

    @property
    def counts(self) -> list[tuple[str, int]]:
        """Each kind with its number of findings, the most frequent first."""
        return _counted(self._index.kinds)

    @property
    def class_counts(self) -> list[tuple[str, int]]:
        """Each class with the number of findings about objects of it, the most frequent first."""
        return _counted(self._index.classes)

    @property
    def aside(self) -> list[tuple[str, int]]:
        """Each kind for which photos were set aside, with their number, the most frequent first."""
        return self._index.aside.most_common()

    def page(self, number: int, *, kind: str = "", class_name: str = "", text: str = "") -> tuple[list[Row], int]:
        """The rows on page `number` (from 1) with this kind, class and text, and how many there are on all pages.

        An empty argument does not restrict the rows.
        """
        numbers = self._chosen(kind, class_name)
        if text:
            numbers = [each for each in numbers if text.casefold() in self._line(each).casefold()]
        shown = numbers[(number - 1) * PAGE : number * PAGE]
        return [self.row(each) for each in shown], len(numbers)

    def _chosen(self, kind: str, class_name: str) -> Sequence[int]:
        """The numbers of the lines with this kind and class; an empty argument means any."""
        if not (kind or class_name):
            return range(len(self))
        index, none = self._index, array("L")
        chosen = [index.kinds.get(kind, none)] if kind else []
        chosen += [index.classes.get(class_name, none)] if class_name else []
        shorter, longer = min(chosen, key=len), max(chosen, key=len)
        if shorter is longer:
            return shorter
        return sorted(set(shorter).intersection(longer))

    def _line(self, number: int) -> str:
        row = self.row(number)
        return f"{row.file} {row.class_name} {row.found} {row.done}"


class FindingsTables:
    """The tables of the jobs that were looked at most recently."""

    _MOST_KEPT: Final = 2

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._kept: dict[str, tuple[Stamp, FindingsTable]] = {}

    def get(self, job: str) -> FindingsTable | None:
        """The table of a job; None until its data set is finished.

        Raises:
            FormatError: The file is larger than `MOST_BYTES`.
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


def _is_plain(line: bytes, tail: bytes, name: bytes) -> bool:
    """Whether no cell before `tail` is quoted, and neither is the last cell, `name`."""
    return b'"' not in line[: -len(tail) or None] and b'"' not in name


def _no_numbers() -> "array[int]":
    return array("L")


def _text(cell: bytes) -> str:
    return cell.decode("utf-8", "replace")


def _counted(numbers: Mapping[str, "array[int]"]) -> list[tuple[str, int]]:
    return Counter({name: len(lines) for name, lines in numbers.items()}).most_common()


def _line_starts(content: bytes) -> Iterator[int]:
    """Where each line begins, after the first line, which names the columns."""
    at = content.find(b"\n") + 1
    while 0 < at < len(content):
        yield at
        at = content.find(b"\n", at) + 1
