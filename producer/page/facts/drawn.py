"""A finding of lint -> the photo that it is about, with its boxes as in the XML and as in the shards."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

from producer.audit.photo_sizes import photo_header, photos_folder, read_photo
from producer.page.facts.findings import Row
from producer.page.facts.photos import shown_size
from shared.annotation.reader import read_annotation
from shared.annotation.voc import EMPTY, Annotation
from shared.errors import PipelineError, PlanError
from shared.jobs.contents import planned_shards
from shared.jobs.job import Job
from shared.jobs.paths import JobPaths
from shared.picture.header import ImageHeader
from shared.picture.orientation import choose_frame, turn_box
from shared.placement import place
from shared.storage import DataFolder, Storage

# For larger jobs no boxes are drawn beside a finding: finding its XML needs the whole plan in memory.
MOST_PHOTOS: Final = 50_000
# A crop shows this many times the box's width and height, and at least this part of the photo's.
_AROUND: Final = 2.5
_LEAST_SHARE: Final = 0.3

# The room around a photo and a box outside it, as a share of both together; and how far outside, in sides of the photo,
# a box may be to be shown.
_MARGIN: Final = 0.03
_FURTHEST: Final = 4.0
# How `producer/dataset/duplicates.py`, `split.py` beside it and `producer/finalize/near_duplicates.py` name the other
# photo.
_OTHER: Final = re.compile(
    r"(?:the same bytes|nearly the same picture) as (.+?)(?:, but other labels| in (?:train|val|test))?$"
)

Rect = tuple[float, float, float, float]  # x, y, width, height in pixels of the upright photo


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """What is drawn for a finding: the photo's size, the part shown (`view`), the boxes `read` and `written`.

    `read` is the finding's box in the XML, `written` are the photo's boxes in the shards. `beside` says where the box
    is if it is outside the photo; otherwise it is empty. `other` is the photo that this one equals; then both have
    their name in `file` and the classes and boxes of their XML in `labels`.
    """

    width: int
    height: int
    view: Rect
    read: Rect | None
    written: tuple[Rect, ...]
    beside: str = ""
    file: str = ""
    labels: tuple[tuple[str, Rect], ...] = ()
    other: "Drawn | None" = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Planned:
    image: str
    annotation: str | None
    shard: str


def draw(storage: Storage, job: Job, data_root: str, row: Row) -> Drawn | None:
    """The picture for a finding; None if there is none: it names no photo, or the photo is gone or unreadable."""
    try:
        planned = _plan(storage, job).get(row.file) if _photos(job) <= MOST_PHOTOS else None
        folder = photos_folder(job, data_root)
        if planned is None:
            return _whole(shown_size(folder, row.file, job.spec.max_pixels))
        other = _other(storage, job, row)
        if other is not None:
            return _pair(job, folder, planned, other)
        header = photo_header(folder, planned.image, job.spec.max_pixels)
        return None if header is None else _drawn(storage, job, folder, planned, row, header)
    except (PipelineError, OSError, ValueError, KeyError, TypeError):
        return None  # the text of the finding says what is wrong, and is shown without a picture


def _whole(size: tuple[int, int] | None) -> Drawn | None:
    """The whole photo without boxes, if it is in no shard or its shard is not looked for."""
    if size is None:
        return None
    return Drawn(width=size[0], height=size[1], view=(0.0, 0.0, float(size[0]), float(size[1])), read=None, written=())


def _other(storage: Storage, job: Job, row: Row) -> _Planned | None:
    """The photo that a finding says this one equals; None if it names none in the plan."""
    found = _OTHER.search(row.found) if "duplicate" in row.kind else None
    return _plan(storage, job).get(found[1]) if found is not None else None


def _pair(job: Job, folder: DataFolder, one: _Planned, other: _Planned) -> Drawn | None:
    """Two photos side by side, each with the labels of its XML."""
    first, second = (_labelled(job, folder, each) for each in (one, other))
    return first if first is None or second is None else replace(first, other=second)


def _labelled(job: Job, folder: DataFolder, planned: _Planned) -> Drawn | None:
    header = photo_header(folder, planned.image, job.spec.max_pixels)
    whole = _whole(None if header is None else header.upright_size)
    if header is None or whole is None:
        return None
    said = _said(job, folder, planned)
    labels = tuple(zip((each.name for each in said.objects), _upright(said, header, job), strict=True))
    return replace(whole, file=planned.image, labels=labels)


def _said(job: Job, folder: DataFolder, planned: _Planned) -> Annotation:
    """What the XML of a photo says; empty if it has none."""
    if planned.annotation is None:
        return EMPTY
    return read_annotation(read_photo(folder, planned.annotation), file=planned.annotation, spec=job.spec)


def _upright(said: Annotation, header: ImageHeader, job: Job) -> list[Rect]:
    """The box of each object in the upright photo, as browsers show it; workers turn boxes the same way."""
    boxes, size = [each.box for each in said.objects], (header.width, header.height)
    if choose_frame(header.orientation, size, said.size, boxes, job.spec.exif).frame == "raw":
        boxes = [turn_box(box, header.orientation, size) for box in boxes]
    return [_rect(*box) for box in boxes]


def image_of(storage: Storage, job: Job, row: Row, *, is_other: bool = False) -> str:
    """The photo that a finding names itself or by its XML; with `is_other`, the photo that it says is equal.

    Raises:
        PlanError: The finding names no equal photo.
    """
    if is_other:
        other = _other(storage, job, row) if _photos(job) <= MOST_PHOTOS else None
        if other is None:
            raise PlanError(f"finding {row.number} is about one photo")
        return other.image
    planned = _plan(storage, job).get(row.file) if _photos(job) <= MOST_PHOTOS else None
    return row.file if planned is None else planned.image


def _photos(job: Job) -> int:
    return sum(plan.pairs for plan in job.splits.values())


def _drawn(storage: Storage, job: Job, folder: DataFolder, planned: _Planned, row: Row, header: ImageHeader) -> Drawn:
    size, read = header.upright_size, None
    if row.object_index is not None:
        said = _said(job, folder, planned)
        places = zip(said.objects, _upright(said, header, job), strict=True)
        read = next((box for each, box in places if each.index == row.object_index), None)
    written = _written(storage, job, planned, size)
    beside = "" if read is None else _beside(read, size)
    whole = (0.0, 0.0, float(size[0]), float(size[1]))
    view = whole if read is None else both(read, size) if beside else _around(read, size)
    return Drawn(width=size[0], height=size[1], view=view, read=read, written=written, beside=beside)


def both(box: Rect, size: tuple[int, int]) -> Rect:
    """The view that shows a photo and a box outside it."""
    spans = []
    for axis, side in enumerate(size):
        low = max(min(0.0, box[axis]), -_FURTHEST * side)
        high = min(max(float(side), box[axis] + box[axis + 2]), (1 + _FURTHEST) * side)
        margin = _MARGIN * (high - low)
        spans.append((round(low - margin, 1), round(high - low + 2 * margin, 1)))
    (left, width), (top, height) = spans
    return left, top, width, height


def _beside(box: Rect, size: tuple[int, int]) -> str:
    """On which side of the photo a box is, in words, if it does not overlap the photo; else empty."""
    (x, y, width, height), (photo_width, photo_height) = box, size
    sides = [
        (x >= photo_width, f"xmin {x:g} ≥ {photo_width} wide"),
        (x + width <= 0, f"xmax {x + width:g} ≤ 0"),
        (y >= photo_height, f"ymin {y:g} ≥ {photo_height} high"),
        (y + height <= 0, f"ymax {y + height:g} ≤ 0"),
    ]
    return " and ".join(words for is_so, words in sides if is_so)


def _rect(xmin: float, ymin: float, xmax: float, ymax: float) -> Rect:
    return xmin, ymin, xmax - xmin, ymax - ymin


def _around(box: Rect, size: tuple[int, int]) -> Rect:
    """The view around a box: without its surroundings nobody can tell what a thing is."""
    x, y, width, height = box
    shown_width = min(size[0], max(_AROUND * width, _LEAST_SHARE * size[0]))
    shown_height = min(size[1], max(_AROUND * height, _LEAST_SHARE * size[1]))
    left = min(max(0.0, x + width / 2 - shown_width / 2), size[0] - shown_width)
    top = min(max(0.0, y + height / 2 - shown_height / 2), size[1] - shown_height)
    return left, top, shown_width, shown_height


def _plan(storage: Storage, job: Job) -> Mapping[str, _Planned]:
    return _read_plan(storage, job.job, job.incarnation)


@lru_cache(maxsize=1)
def _read_plan(storage: Storage, name: str, incarnation: str) -> Mapping[str, _Planned]:
    """The pairs of a job's plan, each by its photo's name and by its XML's. They are kept, as a plan never changes."""
    from shared.jobs.identity import find_job

    job = find_job(storage, name)
    found: dict[str, _Planned] = {}
    if job is None or job.incarnation != incarnation:
        return found
    for shard, _, pairs in planned_shards(storage, job):
        for pair in pairs:
            planned = _Planned(image=pair["image"], annotation=pair["annotation"], shard=shard)
            found[planned.image] = planned
            if planned.annotation is not None:
                found[planned.annotation] = planned
    return found


def written_boxes(storage: Storage, job: Job, image: str, size: tuple[int, int]) -> tuple[Rect, ...]:
    """The boxes in the shards of a photo with `size` (width, height); none in jobs with too many photos.

    Raises:
        PipelineError: A file of the store cannot be read.
    """
    planned = _plan(storage, job).get(image) if _photos(job) <= MOST_PHOTOS else None
    return () if planned is None else _written(storage, job, planned, size)


def _written(storage: Storage, job: Job, planned: _Planned, size: tuple[int, int]) -> tuple[Rect, ...]:
    placed = place(*size, job.spec.image_size, job.spec.resize)
    content = storage.read_or_none(JobPaths(job.job).shard_annotations(planned.shard))
    stored = () if content is None else _parse_boxes(content).get(planned.image, ())
    return tuple(_rect(*placed.back((x, y, x + width, y + height))) for x, y, width, height in stored)


@lru_cache(maxsize=64)
def _parse_boxes(content: bytes) -> Mapping[str, list[Rect]]:
    """The boxes that a shard holds, by photo, in pixels of the stored pictures."""
    said: Mapping[str, Any] = json.loads(content)
    names = {image["id"]: image["file_name"] for image in said["images"]}
    boxes: dict[str, list[Rect]] = {}
    for annotation in said["annotations"]:
        x, y, width, height = map(float, annotation["bbox"])
        boxes.setdefault(names[annotation["image_id"]], []).append((x, y, width, height))
    return boxes
