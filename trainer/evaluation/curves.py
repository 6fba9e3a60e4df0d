"""Detections and truth of a split -> which met which, PR curves and confusion counts.

Only for pictures and curves; pycocotools computes the mAP.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from trainer.detections import Detections, Floats, iou_matrix

# The least IoU of a hit, as in VOC and in mAP50.
HIT_IOU: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class TruthBoxes:
    """The annotated objects of one picture: float32 [N, 4] (xmin, ymin, xmax, ymax) in its pixels; ids from 1."""

    boxes: Floats
    class_ids: NDArray[np.int64]
    is_ignored: NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Recall, precision and F1 of one class by falling score, and the highest F1 with its score."""

    scores: Floats
    recall: NDArray[np.float64]
    precision: NDArray[np.float64]
    f1: NDArray[np.float64]
    best_f1: float
    best_score: float


def truth_by_image(truth: Mapping[str, Any]) -> dict[int, TruthBoxes]:
    """The objects of every picture of a COCO-form truth, by image id."""
    rows: dict[int, list[Mapping[str, Any]]] = {int(image["id"]): [] for image in truth["images"]}
    for annotation in truth["annotations"]:
        rows[int(annotation["image_id"])].append(annotation)
    return {image_id: _truth_boxes(annotations) for image_id, annotations in rows.items()}


def _truth_boxes(annotations: Sequence[Mapping[str, Any]]) -> TruthBoxes:
    corners = [[x, y, x + w, y + h] for x, y, w, h in (annotation["bbox"] for annotation in annotations)]
    return TruthBoxes(
        boxes=np.asarray(corners, np.float32).reshape(-1, 4),
        class_ids=np.asarray([annotation["category_id"] for annotation in annotations], np.int64),
        is_ignored=np.asarray([bool(annotation.get("ignore")) for annotation in annotations], bool),
    )


def partners(seen: Detections, truth: TruthBoxes) -> NDArray[np.int64]:
    """The index of the object of any class that each detection meets, best detection first; -1 for none.

    An object is met only once. An equal class counts more than overlap, so that two classes in one place do not swap.
    """
    met = np.full(seen.scores.size, -1, np.int64)
    if truth.class_ids.size == 0:
        return met
    overlap = iou_matrix(seen.boxes, truth.boxes)
    overlap[overlap < HIT_IOU] = 0
    worth = np.where(overlap > 0, overlap + (seen.class_ids[:, None] == truth.class_ids[None]), 0)
    for index in np.argsort(-seen.scores, kind="stable"):
        best = int(worth[index].argmax())
        if worth[index, best] > 0:
            met[index] = best
            worth[:, best] = 0
    return met


def curve(detections: Mapping[int, Detections], truth: Mapping[int, TruthBoxes], class_id: int) -> Curve:
    """The precision-recall curve of one class over a split at IoU 0.5, ignored objects counting neither way."""
    scores, hits, objects = [np.zeros(0, np.float32)], [np.zeros(0, bool)], 0
    for image_id, found in detections.items():
        seen, there = found[found.class_ids == class_id], truth[image_id]
        mine = there.class_ids == class_id
        there = TruthBoxes(boxes=there.boxes[mine], class_ids=there.class_ids[mine], is_ignored=there.is_ignored[mine])
        met = partners(seen, there)
        counts = ~np.asarray([at >= 0 and there.is_ignored[at] for at in met], bool)
        scores.append(seen.scores[counts])
        hits.append((met >= 0)[counts])
        objects += int((~there.is_ignored).sum())
    return _curve(np.concatenate(scores), np.concatenate(hits), objects)


def _curve(scores: Floats, hits: NDArray[np.bool_], objects: int) -> Curve:
    order = np.argsort(-scores, kind="stable")
    hit_counts = np.cumsum(hits[order])
    recall = hit_counts / max(objects, 1)
    precision = hit_counts / np.arange(1, hit_counts.size + 1)
    f1 = 2 * precision * recall / np.maximum(precision + recall, 1e-12)
    best = int(f1.argmax()) if f1.size else -1
    return Curve(
        scores=scores[order],
        recall=recall,
        precision=precision,
        f1=f1,
        best_f1=float(f1[best]) if f1.size else 0.0,
        best_score=float(scores[order][best]) if f1.size else 0.0,
    )


def confusion(
    detections: Mapping[int, Detections], truth: Mapping[int, TruthBoxes], classes: int, score: float
) -> NDArray[np.int64]:
    """Counts [classes + 1, classes + 1], true class by seen class; the last row and column are "nothing there"."""
    counts = np.zeros((classes + 1, classes + 1), np.int64)
    for image_id, found in detections.items():
        seen, there = found.above(score), truth[image_id]
        met = partners(seen, there)
        for class_id, at in zip(seen.class_ids, met, strict=True):
            if at < 0:
                counts[classes, class_id - 1] += 1
            elif not there.is_ignored[at]:
                counts[there.class_ids[at] - 1, class_id - 1] += 1
        for at in set(np.flatnonzero(~there.is_ignored)) - set(met.tolist()):
            counts[there.class_ids[at] - 1, classes] += 1
    return counts


def found_at(curves: Mapping[str, Curve], objects: Sequence[int], least: float) -> int:
    """How many objects are found by a detection of their class with at least the score `least`.

    Args:
        curves: By class.
        objects: How many each class has, in the order of `curves`.
        least: A score in [0, 1].
    """
    found = 0.0
    for count, curve in zip(objects, curves.values(), strict=True):
        reaching = int(np.searchsorted(-curve.scores, -least, side="right"))
        found += count * float(curve.recall[reaching - 1]) if reaching else 0.0
    return round(found)
