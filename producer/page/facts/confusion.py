"""A run's detections -> counts by true and seen class (confusion), with the photos behind each; precision and recall.

Here a detection may be matched to an object of another class, as in the report's confusion matrix
(`trainer/evaluation/curves.py`). It is in plain Python because the producer's image has no numpy. Which object a
detection is matched to depends only on surer detections, so that one pass serves every threshold.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, NamedTuple

from producer.page.facts.curves import Chart, chart
from producer.page.facts.seen import OVERLAP, Box, box_of, by_image, file_of, overlap, place_of, read_file
from shared.audit.seen import SeenSplit
from shared.storage import Stamp, Storage

_MOST_CURVES: Final = 5

Cell = tuple[int, int]  # the true class and the seen class, as places among the labels; len(labels) stands for nothing


class _Marked(NamedTuple):
    """An object, or a detection with its score."""

    place: int
    box: Box
    score: float = 1.0
    is_difficult: bool = False


@dataclass(frozen=True, slots=True)
class _Met:
    """A photo's detections as (score, cell, box), surest first; objects as (score of the match or -1, place, box)."""

    file_name: str
    detections: tuple[tuple[float, Cell, Box], ...]
    objects: tuple[tuple[float, int, Box], ...]

    def cells(self, least: float, nothing: int) -> list[Cell]:
        """The cells that the photo counts in at the threshold `least`, one for each detection and missed object."""
        seen = [cell for score, cell, _ in self.detections if score >= least]
        return seen + [(place, nothing) for score, place, _ in self.objects if score < least]

    def scores(self, cell: Cell, nothing: int) -> list[float]:
        """The scores at which entries of a cell change: detections count up to their score, missed objects above it."""
        missed = [score for score, place, _ in self.objects if (place, nothing) == cell]
        return missed or [score for score, each, _ in self.detections if each == cell]


@dataclass(frozen=True, slots=True)
class Confusion:
    """Which class was taken for which, in each photo of a split."""

    labels: tuple[str, ...]
    photos: tuple[_Met, ...]

    def counts(self, least: float) -> list[list[int]]:
        """The counts at the threshold `least`, by true class (rows) and seen class (columns); the last is nothing."""
        nothing = len(self.labels)
        found = Counter(cell for photo in self.photos for cell in photo.cells(least, nothing))
        return [[found[there, seen] for seen in range(nothing + 1)] for there in range(nothing + 1)]

    def files(self, cell: Cell, least: float) -> frozenset[str]:
        """The photos behind a cell."""
        return frozenset(photo.file_name for photo in self.photos if cell in photo.cells(least, len(self.labels)))

    def boxes(self, cell: Cell, least: float) -> dict[str, frozenset[Box]]:
        """The boxes behind a cell, by photo: objects if the cell counts missed ones, otherwise detections."""
        nothing, found = len(self.labels), {}
        for photo in self.photos:
            missed = [box for score, place, box in photo.objects if (place, nothing) == cell and score < least]
            seen = [box for score, each, box in photo.detections if each == cell and score >= least]
            found[photo.file_name] = frozenset(missed + seen)
        return found

    def turns(self, cell: Cell) -> dict[str, float]:
        """File -> the threshold above which the photo leaves a cell or, in a cell of missed objects, comes into it."""
        nothing = len(self.labels)
        scores = {photo.file_name: photo.scores(cell, nothing) for photo in self.photos}
        return {file: (min if cell[1] == nothing else max)(each) for file, each in scores.items() if each}

    def words(self, cell: Cell) -> str:
        """What a cell means, for a person."""
        there, seen = (self.labels[place] if place < len(self.labels) else "" for place in cell)
        if not there:
            return f"{seen} made up, or badly placed"
        if not seen:
            return f"{there} missed"
        return f"{there} found" if there == seen else f"{there} taken for {seen}"

    def cell(self, there: str, seen: str) -> Cell | None:
        """The cell that an address names; None if it names none."""
        if not all(text.isascii() and text.isdecimal() and len(text) < 6 for text in (there, seen)):
            return None
        cell, nothing = (int(there), int(seen)), len(self.labels)
        return cell if max(cell) <= nothing and cell != (nothing, nothing) else None


def read_confusion(storage: Storage, run: str) -> Confusion:
    """Which class the int8 model of a run took for which.

    Raises:
        PlanError: The run has no detections.
        FormatError: They are damaged.
    """
    return _read(storage, *file_of(storage, run))


@lru_cache(maxsize=5)
def _read(storage: Storage, key: str, stamp: Stamp) -> Confusion:
    return confusion_of(read_file(storage, key, stamp).split)


def confusion_of(split: SeenSplit) -> Confusion:
    """Which class was taken for which, in a split whose boxes have been validated."""
    seen, there = by_image(split.detections), by_image(split.annotations)
    classes = len(split.labels)
    rows = ((image.file_name, seen[image.id], there[image.id]) for image in split.images)
    return Confusion(labels=split.labels, photos=tuple(_met(*row, classes) for row in rows))


def _met(name: str, seen: Sequence[Mapping[str, Any]], there: Sequence[Mapping[str, Any]], classes: int) -> _Met:
    objects = [_Marked(place_of(row, classes), box_of(row), 1.0, bool(row.get("ignore"))) for row in there]
    found = [_Marked(place_of(row, classes), box_of(row), float(row["score"])) for row in seen]
    free, met_by = set(range(len(objects))), dict[int, float]()
    detections = []
    for one in sorted(found, key=lambda each: -each.score):
        at = _nearest(one, objects, free)
        if at is not None:
            free.discard(at)
            met_by[at] = one.score
        if at is None or not objects[at].is_difficult:
            detections.append((one.score, (classes if at is None else objects[at].place, one.place), one.box))
    missed_above = (
        (met_by.get(at, -1.0), one.place, one.box) for at, one in enumerate(objects) if not one.is_difficult
    )
    return _Met(name, tuple(detections), tuple(missed_above))


def _nearest(one: _Marked, objects: Sequence[_Marked], free: set[int]) -> int | None:
    """The free object that a detection is matched to; those of its class go first, so that two do not swap objects."""
    near = ((overlap(one.box, objects[at].box), at) for at in free)
    worth = [((objects[at].place == one.place) + share, -at) for share, at in near if share >= OVERLAP]
    return -max(worth)[1] if worth else None


def precision_recall(scores: Sequence[Mapping[str, Any]], marked: Sequence[float] = ()) -> Chart | None:
    """Precision over recall in percent by falling score, for the classes with the most objects.

    Args:
        scores: From `SeenRun.scores`.
        marked: Thresholds to mark on the curve; if there are several curves, only the first threshold, on each.
    """
    chosen = sorted(scores, key=lambda row: -row["objects"])[:_MOST_CURVES]
    chosen = [row for row in chosen if len(row["right"]) + len(row["wrong"]) > 1]
    told = defaultdict[tuple[float, float], list[str]](list)
    for row in chosen:
        for least in marked if len(chosen) == 1 else marked[:1]:
            place = _place(row, least)
            if place is not None:
                told[place].append(f"{least:.2f}")
    marks = [(*place, ", ".join(texts)) for place, texts in told.items()]
    curves = [(row["name"], _points(row)) for row in chosen]
    return chart("precision over recall, %", "recall, %", curves, top=100.0, right=100.0, marks=marks)


def _place(row: Mapping[str, Any], least: float) -> tuple[float, float] | None:
    """The point of a threshold on a class's curve: recall, precision in percent; None if nothing is seen above it."""
    right, wrong = (sum(score >= least for score in row[name]) for name in ("right", "wrong"))
    if not right + wrong:
        return None
    return 100 * right / max(row["objects"], 1), 100 * right / (right + wrong)


def _points(row: Mapping[str, Any]) -> list[tuple[float, float]]:
    hits = [(-score, is_right) for name, is_right in (("right", True), ("wrong", False)) for score in row[name]]
    right, points = 0, []
    for count, (_, is_right) in enumerate(sorted(hits), start=1):
        right += is_right
        points.append((100 * right / max(row["objects"], 1), 100 * right / count))
    return points
