"""The labels of a photo and what is seen there -> which marked box has which detection. numpy only."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from trainer.audit.photos import AuditedPhoto
from trainer.detections import Detections, iou_matrix
from trainer.evaluation.curves import HIT_IOU, partners

# A detection that overlaps a marked box less than a hit, but at least this much, may be of the same object.
NEAR_IOU: Final = 0.1
# Two detections, of any classes, that overlap this much are of one object.
_SAME_OBJECT_IOU: Final = 0.6


@dataclass(frozen=True, slots=True, kw_only=True)
class Matched:
    """One photo with N marked boxes and D detections, one per object: the surest of those in one place.

    `seen` are the detections; `met` int64 [D] is the marked box of any class that each hits (-1: none); `near` int64
    [D] is the unhit marked box that each of the other detections overlaps most (-1: none). `is_new` bool [D] says that
    a detection is of nothing that is marked or ignored. `by_box` int64 [N] is the inverse of `met` and `near` together.
    """

    photo: AuditedPhoto
    seen: Detections
    met: NDArray[np.int64]
    near: NDArray[np.int64]
    is_new: NDArray[np.bool_]
    by_box: NDArray[np.int64]


def match(photo: AuditedPhoto) -> Matched:
    """Match the labels of a photo with its detections."""
    seen = _one_each(photo.seen)
    met = partners(seen, photo.marked)
    overlap = iou_matrix(seen.boxes, photo.marked.boxes)
    near = _near(overlap, met)
    is_new = (met < 0) & (near < 0) & (overlap.max(axis=1, initial=0.0) < HIT_IOU)
    by_box = np.full(len(photo.marked.class_ids), -1, np.int64)
    for found in (near, met):
        rows = np.flatnonzero(found >= 0)
        by_box[found[rows]] = rows
    return Matched(photo=photo, seen=seen, met=met, near=near, is_new=is_new, by_box=by_box)


def _one_each(seen: Detections) -> Detections:
    """The detections that no surer one, of any class, covers."""
    order = np.argsort(-seen.scores, kind="stable")
    overlap = iou_matrix(seen.boxes[order], seen.boxes[order]) >= _SAME_OBJECT_IOU
    is_kept = np.ones(len(order), bool)
    for row in range(len(order)):
        if is_kept[row]:
            is_kept[row + 1 :] &= ~overlap[row, row + 1 :]
    kept = order[is_kept]
    return Detections(boxes=seen.boxes[kept], class_ids=seen.class_ids[kept], scores=seen.scores[kept])


def _near(overlap: NDArray[np.float32], met: NDArray[np.int64]) -> NDArray[np.int64]:
    """The free marked box that each free detection overlaps most; each box only once, to the surest detection."""
    near = np.full(len(met), -1, np.int64)
    free = overlap.copy()
    free[:, met[met >= 0]] = 0
    for row in np.flatnonzero(met < 0):
        best = int(free[row].argmax()) if free.shape[1] else -1
        if best >= 0 and free[row, best] >= NEAR_IOU:
            near[row] = best
            free[:, best] = 0
    return near
