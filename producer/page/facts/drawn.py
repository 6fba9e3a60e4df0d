"""A finding of lint -> the photo that it is about, with its boxes as the XML says them and as the shards hold them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from producer.audit.photo_sizes import photo_size, photos_folder, read_photo
from producer.page.facts.findings import Row
from producer.page.facts.photos import shown_size
from shared.annotation import read_annotation
from shared.errors import PipelineError
from shared.jobs.contents import planned_shards
from shared.jobs.job import Job
from shared.jobs.paths import JobPaths
from shared.placement import place
from shared.storage import DataFolder, Storage

# Of larger jobs no photo is drawn beside a finding: to find its XML the whole plan is kept in memory.
MOST_PHOTOS: Final = 50_000
# A crop shows so many times the box's side, and at least this part of the photo.
_AROUND: Final = 2.5
_LEAST_SHARE: Final = 0.3

Rect = tuple[float, float, float, float]  # x, y, width, height in pixels of the upright photo


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """What is drawn of a finding: the photo's size, what is shown of it, boxes `read` and `written`.

    `beside` says where the box lies that does not meet the photo; otherwise it is empty.
    """

    width: int
    height: int
    view: Rect
    read: Rect | None
    written: tuple[Rect, ...]
    beside: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Planned:
    image: str
    annotation: str | None
    shard: str


def draw(storage: Storage, job: Job, data_root: str, row: Row) -> Drawn | None:
    """The picture of a finding; None where there is none to show: no photo is named, or it is gone or unreadable."""
    try:
        planned = _plan(storage, job).get(row.file) if _photos(job) <= MOST_PHOTOS else None
        folder = photos_folder(job, data_root)
        if planned is None:
            return _whole(shown_size(folder, row.file, job.spec.max_pixels))
        size = photo_size(folder, planned.image, job.spec.max_pixels)
        return None if size is None else _drawn(storage, job, folder, planned, row, size)
    except (PipelineError, OSError, ValueError, KeyError, TypeError):
        return None  # a picture beside a text that says what is wrong: without it the text stays


def _whole(size: tuple[int, int] | None) -> Drawn | None:
    """A photo that is in no shard, or whose place in them is not looked for: as it is."""
    if size is None:
        return None
    return Drawn(width=size[0], height=size[1], view=(0.0, 0.0, float(size[0]), float(size[1])), read=None, written=())


def image_of(storage: Storage, job: Job, row: Row) -> str:
    """The photo that a finding is about: by its own name, or that of the pair whose XML it names."""
    planned = _plan(storage, job).get(row.file) if _photos(job) <= MOST_PHOTOS else None
    return row.file if planned is None else planned.image


def _photos(job: Job) -> int:
    return sum(plan.pairs for plan in job.splits.values())


def _drawn(storage: Storage, job: Job, folder: DataFolder, planned: _Planned, row: Row, size: tuple[int, int]) -> Drawn:
    read = None
    if planned.annotation is not None and row.object_index is not None:
        said = read_annotation(read_photo(folder, planned.annotation), file=planned.annotation, spec=job.spec)
        read = next((_rect(*each.box) for each in said.objects if each.index == row.object_index), None)
    written = _written(storage, job, planned, size)
    beside = "" if read is None else _beside(read, size)
    whole = (0.0, 0.0, float(size[0]), float(size[1]))
    view = whole if read is None or beside else _around(read, size)
    return Drawn(width=size[0], height=size[1], view=view, read=read, written=written, beside=beside)


def _beside(box: Rect, size: tuple[int, int]) -> str:
    """On which side of the photo a box lies that does not meet it, in words; empty where it does."""
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
    """What is shown of a photo around a box: without what is around it nobody can tell a thing."""
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
    """The pairs of a job's plan, each by its photo's name and by its XML's. A plan never changes."""
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
    """The boxes of a photo, of `size` (width, height), that the shards hold; none in jobs of too many photos.

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
