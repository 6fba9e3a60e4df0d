"""How large boxes are: their shorter side in the stored picture, and their area next to others of their class. Pure."""

import math
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import Final, Literal

from shared.annotation.voc import Annotation

# Upper edges of the bins in pixels of the stored picture; the last bin has none. A box in the first bin is less than
# half a cell of the finest grid (stride 8), so it can hardly be learned.
EDGES_PX: Final = (4, 8, 16, 32, 64, 128, 256)

# Boxes look like percent, as Label Studio writes them, if all of them lie in the first 100 pixels although both sides
# of each picture have at least 200, and at least 5 files have boxes.
_PERCENT: Final = 100
_PERCENT_SIDE_LEAST: Final = 200
_PERCENT_FILES_LEAST: Final = 5

# A box is far larger than its class if its area is over 10 times the median area, and the logarithm of its area is over
# 9 median absolute deviations (MAD) above its median. The second rule spares classes that come in all sizes.
_AREAS_LEAST: Final = 10.0
_DISTANCES_LEAST: Final = 9.0
# With fewer boxes than this, it is not known what size is usual.
_BOXES_LEAST: Final = 10


def are_normalized(annotation: Annotation) -> bool:
    """Whether all boxes of a file lie between 0 and 1: fractions of the picture, as YOLO has them, not pixels."""
    boxes = [voc_object.box for voc_object in annotation.objects]
    # From -1, because `--voc-coords voc1` has moved xmin and ymin by -1.
    return bool(boxes) and all(min(xmin, ymin) >= -1 and max(xmax, ymax) <= 1 for xmin, ymin, xmax, ymax in boxes)


def _may_be_percent(annotation: Annotation) -> bool:
    """Whether a file gives the picture's size and all its boxes could be percent of it."""
    if annotation.size is None or min(annotation.size) < _PERCENT_SIDE_LEAST:
        return False
    boxes = (voc_object.box for voc_object in annotation.objects)
    return all(min(xmin, ymin) >= -1 and max(xmax, ymax) <= _PERCENT for xmin, ymin, xmax, ymax in boxes)


@dataclass(slots=True)
class ClassAreas:
    """The boxes of one class: logarithm of the share of the picture that each covers, index of its pair, object number.

    The logarithm is NaN where the XML does not say the picture's size; `difficult` is 1 where the object is marked so.
    Columns instead of rows: a million boxes take 13 MB.
    """

    logs: "array[float]" = field(default_factory=lambda: array("f"))
    pairs: "array[int]" = field(default_factory=lambda: array("I"))
    objects: "array[int]" = field(default_factory=lambda: array("I"))
    difficult: "array[int]" = field(default_factory=lambda: array("B"))

    def far_larger(self) -> Iterator[tuple[int, int, float]]:
        """(pair, object, how many times the median area) of the boxes far larger than the others."""
        known = [log for log in self.logs if not math.isnan(log)]
        if len(known) < _BOXES_LEAST:
            return
        middle = median(known)
        # At least 0.1: boxes drawn by a program are all of one size, and then any other would count as far away.
        usual = max(median(abs(log - middle) for log in known), 0.1)
        least = middle + max(math.log(_AREAS_LEAST), _DISTANCES_LEAST * usual)
        for log, pair, index in zip(self.logs, self.pairs, self.objects, strict=True):
            if log > least:
                yield pair, index, math.exp(log - middle)


@dataclass(slots=True)
class BoxAreas:
    """`ClassAreas` by class name."""

    by_class: dict[str, ClassAreas] = field(default_factory=dict)

    def add(self, annotation: Annotation, pair: int) -> None:
        """Note the boxes of the pair at index `pair`."""
        for voc_object in annotation.objects:
            xmin, ymin, xmax, ymax = voc_object.box
            areas = self.by_class.setdefault(voc_object.name, ClassAreas())
            width, height = annotation.size or (math.nan, math.nan)
            areas.logs.append(_log_share(xmax - xmin, width) + _log_share(ymax - ymin, height))
            areas.pairs.append(pair)
            areas.objects.append(voc_object.index)
            areas.difficult.append(voc_object.difficult)

    def merge(self, other: "BoxAreas", pairs: int) -> None:
        """Append the boxes of `other`, whose first pair is at index `pairs` here."""
        for name, theirs in other.by_class.items():
            ours = self.by_class.setdefault(name, ClassAreas())
            ours.logs.extend(theirs.logs)
            ours.pairs.extend(array("I", (pair + pairs for pair in theirs.pairs)))
            ours.objects.extend(theirs.objects)
            ours.difficult.extend(theirs.difficult)


def _log_share(side: float, whole: float) -> float:
    """The logarithm of `side / whole`, or NaN; bounded, because a hostile box may have any length."""
    return whole if math.isnan(whole) else math.log(min(max(side / whole, 1e-6), 1.0))


@dataclass(slots=True, kw_only=True)
class BoxSizes:
    """Counts of boxes by the bin of their shorter side; `unsized` are boxes of files that do not say their size.

    `sized_files` have boxes and say their size; in `percent_files` of them the boxes may be percent of it.
    """

    bins: Counter[int] = field(default_factory=Counter)
    unsized: int = 0
    sized_files: int = 0
    percent_files: int = 0

    @property
    def tiny(self) -> int:
        """Boxes of the first bin, under 4 px."""
        return self.bins[0]

    @property
    def are_percent(self) -> bool:
        """Whether the boxes of the whole set look like percent of the pictures."""
        return self.percent_files == self.sized_files >= _PERCENT_FILES_LEAST

    def add(self, annotation: Annotation, image_size: int, resize: Literal["stretch", "letterbox"]) -> None:
        """Count the boxes of one file as they will be in a square picture of `image_size` pixels.

        Boxes that are fractions instead of pixels are not counted; they have their own finding.
        """
        if are_normalized(annotation):
            return
        if annotation.size is None:
            self.unsized += len(annotation.objects)
            return
        self.sized_files += bool(annotation.objects)
        self.percent_files += bool(annotation.objects) and _may_be_percent(annotation)
        scale_x, scale_y = (image_size / side for side in annotation.size)
        if resize == "letterbox":
            scale_x = scale_y = min(scale_x, scale_y)
        boxes = (voc_object.box for voc_object in annotation.objects)
        self.bins.update(
            bisect_right(EDGES_PX, min((xmax - xmin) * scale_x, (ymax - ymin) * scale_y))
            for xmin, ymin, xmax, ymax in boxes
        )

    def merge(self, other: "BoxSizes") -> None:
        """Add the counts of `other`."""
        self.bins.update(other.bins)
        self.unsized += other.unsized
        self.sized_files += other.sized_files
        self.percent_files += other.percent_files

    def leave_out(self, unused: "BoxSizes") -> None:
        """Take away the counts of `unused`, which are among these."""
        self.bins.subtract(unused.bins)
        self.unsized -= unused.unsized
        self.sized_files -= unused.sized_files
        self.percent_files -= unused.percent_files

    def rows(self) -> list[tuple[str, int]]:
        """Each bin's name in pixels and its count, smallest first."""
        between = [f"{low} to {high} px" for low, high in pairwise(EDGES_PX)]
        names = [f"< {EDGES_PX[0]} px", *between, f"≥ {EDGES_PX[-1]} px"]
        return [(name, self.bins[index]) for index, name in enumerate(names)]
