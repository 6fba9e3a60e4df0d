"""A finding of an audit -> the part of its photo that shows what it is about, and the other labelled boxes."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from producer.audit.photo_sizes import OTHER_FILE, other_size, photo_head, photo_size, photos_folder
from producer.page.facts.drawn import written_boxes
from shared.audit.findings import AuditFinding, PhotoBox
from shared.errors import PipelineError, PlanError
from shared.jobs.job import Job
from shared.storage import Storage

# A crop is this many times as long as what it is about, and at least this part of the photo: without its surroundings
# nobody can tell what a thing is (likewise in `trainer/audit/page.py`).
_AROUND: Final = 2.5
_LEAST_SHARE: Final = 0.25
# The same box, read from a shard, may differ by rounding.
_SAME_PX: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Crop:
    """The part of a photo that is shown: `left`, `top`, `width`, `height` in pixels; `photo` is its (width, height).

    `others` are the labelled boxes that the finding is not about.
    """

    photo: tuple[int, int]
    left: int
    top: int
    width: int
    height: int
    others: tuple[PhotoBox, ...] = ()


def crop_of(boxes: Sequence[PhotoBox], photo: tuple[int, int]) -> Crop:
    """The part of a photo that shows `boxes`, at least one, and what is around them."""
    around = [pick(box[at] for box in boxes) for at, pick in enumerate((min, min, max, max))]
    longest = max(around[2] - around[0], around[3] - around[1])
    wanted = max(_AROUND * longest, _LEAST_SHARE * max(photo))
    spans = []
    for axis, length in enumerate(photo):
        side = min(wanted, length)
        start = min(max((around[axis] + around[axis + 2] - side) / 2, 0), length - side)
        spans.append((round(start), max(1, round(side))))
    (left, width), (top, height) = spans
    return Crop(photo=photo, left=left, top=top, width=width, height=height)


def crop_of_finding(
    storage: Storage,
    job: Job,
    finding: AuditFinding,
    audited: tuple[int, int] | None,
    data_root: str,
    head: str | None = None,
) -> Crop | None:
    """The crop for a finding; None if its photo is gone or unreadable.

    Args:
        storage: The store, from whose shards the other boxes are read.
        job: The job, whose photos are in the folder that it names, or below `data_root`.
        finding: The finding.
        audited: Width and height of the photo when it was audited, None if they were not noted.
        data_root: The data root of this service.
        head: The `head_digest` of the photo when it was audited, None if it was not noted.

    Raises:
        PlanError: The photos' folder is not there, or the photo is not the one that was audited.
    """
    folder = photos_folder(job, data_root)
    photo = photo_size(folder, finding.file, job.spec.max_pixels)
    if photo is None:
        return None
    if other := other_size(photo, audited):
        raise PlanError(f"{other}: its boxes would be drawn elsewhere")
    if head is not None and head != photo_head(folder, finding.file):
        raise PlanError(f"{OTHER_FILE}: its boxes would be drawn on another picture")
    boxes = [box for box in (finding.box, finding.proposed_box) if box is not None]
    return replace(crop_of(boxes, photo), others=_others(storage, job, finding, photo))


def _others(storage: Storage, job: Job, finding: AuditFinding, photo: tuple[int, int]) -> tuple[PhotoBox, ...]:
    """The photo's labelled boxes except the finding's own."""
    try:
        written = written_boxes(storage, job, finding.file, photo)
    except (PipelineError, ValueError, KeyError, TypeError):
        return ()  # the question can be answered without them
    boxes = [(x, y, x + width, y + height) for x, y, width, height in written]
    return tuple(box for box in boxes if finding.box is None or not _is_same(box, finding.box))


def _is_same(one: PhotoBox, other: PhotoBox) -> bool:
    return all(abs(a - b) < _SAME_PX for a, b in zip(one, other, strict=True))
