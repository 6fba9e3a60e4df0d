"""`detections_<split>.json` of a run -> at every threshold: what is found, missed, badly placed and made up, by photo.

Whether a detection is right does not depend on the threshold: the surest detections are matched to objects first, so a
higher threshold only removes the least sure ones. An object is found as long as the detection matched to it is shown.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from shared.audit.seen import SeenSplit
from shared.errors import FormatError, PlanError
from shared.jobs.paths import RunPaths
from shared.jobs.versioned import read_stored
from shared.storage import Stamp, Storage

# The IoU from which on a detection has found an object, as in mAP50.
OVERLAP: Final = 0.5
# From this IoU on, a wrong detection is about an object of its class but badly placed (`trainer/reporting/gallery.py`).
BESIDE: Final = 0.1
# The largest file that is read. In memory it takes ten times that; 4,000 photos with 100 detections each are smaller.
MOST_BYTES: Final = 40 << 20
# The first of these splits that the run has is the one that figures are about.
_SPLITS: Final = ("test", "val", "train")

Box = tuple[float, float, float, float]  # xmin, ymin, xmax, ymax in pixels of the stored picture


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """One detection: the place of its class among the labels, and whether it has found an object.

    `is_beside`: it has not, but it is about one: badly placed, or a second detection of the same object.
    """

    place: int
    score: float
    box: Box
    is_right: bool
    is_beside: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Object:
    """One annotated object, and the score of the detection that has found it; 0 if none has, at any threshold.

    `near` is the highest score of the badly placed detections of this object; 0 if there are none.
    """

    place: int
    box: Box
    found_by: float
    near: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenPhoto:
    """A photo's detections, surest first, and its objects, without difficult ones."""

    image_id: int
    file_name: str
    shown: tuple[Shown, ...]
    objects: tuple[Object, ...]

    def mistakes(self, least: float) -> int:
        """The number of missed objects plus that of wrong detections, at the threshold `least`."""
        wrong = sum(one.score >= least and not one.is_right for one in self.shown)
        return wrong + sum(one.found_by < least or not one.found_by for one in self.objects)


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenRun:
    """What a run's model saw of a split."""

    split: SeenSplit
    photos: tuple[SeenPhoto, ...]

    def worst(self, least: float) -> list[SeenPhoto]:
        """The photos, those with the most mistakes at the threshold `least` first."""
        return sorted(self.photos, key=lambda photo: (-photo.mistakes(least), photo.file_name))

    def scores(self) -> list[dict[str, Any]]:
        """For each class, its `name`, the number of `objects`, and the scores of `right` and `wrong` detections.

        `beside` are the scores of those wrong ones that are badly placed. `near` has, for each object whose badly
        placed detection has a higher score than the one that found it, the score that found it and the higher one.
        """
        rows: list[dict[str, Any]]
        lists = ("right", "wrong", "beside", "near")
        rows = [{"name": name, "objects": 0} | {each: [] for each in lists} for name in self.split.labels]
        for photo in self.photos:
            for there in photo.objects:
                rows[there.place]["objects"] += 1
                if there.near > there.found_by:
                    rows[there.place]["near"].append((there.found_by, there.near))
            for one in photo.shown:
                rows[one.place]["right" if one.is_right else "wrong"].append(one.score)
                if one.is_beside:
                    rows[one.place]["beside"].append(one.score)
        return rows


def counts_at(scores: Iterable[Mapping[str, Any]], least: float) -> list[tuple[str, int, int, int, int]]:
    """For each class: its name, how many objects are found and missed, how many detections badly placed and made up."""
    rows = []
    for row in scores:
        right, wrong, beside = (sum(score >= least for score in row[name]) for name in ("right", "wrong", "beside"))
        rows.append((row["name"], right, row["objects"] - right, beside, wrong - beside))
    return rows


def near_at(scores: Iterable[Mapping[str, Any]], least: float) -> int:
    """How many of the objects missed at the threshold `least` have a badly placed detection."""
    return sum(found_by < least <= near for row in scores for found_by, near in row["near"])


def quality(found: int, missed: int, wrong: int) -> tuple[float | None, float | None, float | None]:
    """Precision, recall and F1 in [0, 1]; None if there is no detection, no object, or neither, respectively."""
    precision, recall, either = found + wrong, found + missed, 2 * found + wrong + missed
    return (
        found / precision if precision else None,
        found / recall if recall else None,
        2 * found / either if either else None,
    )


def read_seen(storage: Storage, run: str) -> SeenRun:
    """What the int8 model of a run saw.

    Raises:
        PlanError: The run has no such file; runs before 0.3.0 have none.
        FormatError: The file is damaged.
    """
    return read_file(storage, *file_of(storage, run))


def file_of(storage: Storage, run: str) -> tuple[str, Stamp]:
    """Key and stamp of the file with what a run's model saw.

    Raises:
        PlanError: The run has none; runs before 0.3.0 have none.
    """
    for split in _SPLITS:
        key = f"{RunPaths(run).root}/detections_{split}.json"
        stamp = storage.stamp_or_none(key)
        if stamp is not None:
            return key, stamp
    raise PlanError(f"run {run!r} has no detections (yet); `export` makes those of a run before 0.3.0")


@lru_cache(maxsize=5)
def read_file(storage: Storage, key: str, stamp: Stamp) -> SeenRun:
    """What such a file says; it is read again only if it has changed.

    Raises:
        FormatError: It is damaged, or larger than `MOST_BYTES`.
    """
    if stamp.size_bytes > MOST_BYTES:
        raise FormatError(f"{storage.url(key)}: {stamp.size_bytes} bytes, at most {MOST_BYTES} are read")
    split = read_stored(SeenSplit, storage.read(key), storage.url(key))
    try:
        seen, there = by_image(split.detections), by_image(split.annotations)
        photos = tuple(
            _photo(image.id, image.file_name, seen[image.id], there[image.id], len(split.labels))
            for image in split.images
        )
    except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
        raise FormatError(
            f"{storage.url(key)}: a box that cannot be read ({error!r}): damaged; `export` makes the file again"
        ) from error
    return SeenRun(split=split, photos=photos)


def by_image(rows: Iterable[Mapping[str, Any]]) -> defaultdict[int, list[Mapping[str, Any]]]:
    """COCO rows by the id of their photo."""
    found = defaultdict[int, list[Mapping[str, Any]]](list)
    for row in rows:
        found[int(row["image_id"])].append(row)
    return found


def _photo(
    image_id: int, name: str, seen: Sequence[Mapping[str, Any]], there: Sequence[Mapping[str, Any]], classes: int
) -> SeenPhoto:
    marked = [
        _Marked(place=place_of(row, classes), box=box_of(row), is_difficult=bool(row.get("ignore"))) for row in there
    ]
    shown = []
    for row in sorted(seen, key=lambda each: -float(each["score"])):
        place, score, box = place_of(row, classes), float(row["score"]), box_of(row)
        taken = _taken_by(place, box, marked)
        # A difficult object is neither found nor missed, so a detection of it does not count.
        if taken is not None and taken.is_difficult:
            continue
        about = _about(place, box, marked) if taken is None else None
        if taken is not None:
            taken.found_by = score
        elif about is not None:
            about.near = max(about.near, score)
        beside = about is not None
        shown.append(Shown(place=place, score=score, box=box, is_right=taken is not None, is_beside=beside))
    objects = (
        Object(place=one.place, box=one.box, found_by=one.found_by, near=one.near)
        for one in marked
        if not one.is_difficult
    )
    return SeenPhoto(image_id=image_id, file_name=name, shown=tuple(shown), objects=tuple(objects))


@dataclass(slots=True, kw_only=True)
class _Marked:
    """An annotated object while detections are matched; becomes an `Object`."""

    place: int
    box: Box
    is_difficult: bool
    found_by: float = 0.0
    near: float = 0.0


def _taken_by(place: int, box: Box, marked: Sequence[_Marked]) -> _Marked | None:
    """The free object of its class that a detection overlaps most; difficult objects only if there is no other."""
    free = [one for one in marked if one.place == place and (one.is_difficult or not one.found_by)]
    near = [(not one.is_difficult, overlap(box, one.box), at) for at, one in enumerate(free)]
    best = max((each for each in near if each[1] >= OVERLAP), default=None)
    return None if best is None else free[best[2]]


def _about(place: int, box: Box, marked: Sequence[_Marked]) -> _Marked | None:
    """The object that a wrong detection is about: that of its class with the largest IoU, or None if below `BESIDE`."""
    near = [(overlap(box, one.box), at) for at, one in enumerate(marked) if one.place == place]
    best = max((each for each in near if each[0] >= BESIDE), default=None)
    return None if best is None else marked[best[1]]


def place_of(row: Mapping[str, Any], classes: int) -> int:
    """The class of a COCO row as a place among the labels; a ValueError if there is no such class."""
    place = int(row["category_id"]) - 1
    if not 0 <= place < classes:
        raise ValueError(f"class {place + 1} of {classes}")
    return place


def box_of(row: Mapping[str, Any]) -> Box:
    """The box of a COCO row; a ValueError if one of its numbers, or its score, is not finite."""
    x, y, width, height = map(float, row["bbox"])
    if not all(map(math.isfinite, (x, y, width, height, float(row.get("score", 1.0))))):
        raise ValueError(f"{row['bbox']}, score {row.get('score')}")
    return x, y, x + width, y + height


def overlap(one: Box, other: Box) -> float:
    """Intersection over union."""
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    if width <= 0 or height <= 0:
        return 0.0
    inner = width * height
    return inner / ((one[2] - one[0]) * (one[3] - one[1]) + (other[2] - other[0]) * (other[3] - other[1]) - inner)
