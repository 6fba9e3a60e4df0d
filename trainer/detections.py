"""`Detections`: what a detector saw in one picture, the only form used inside; every detector converts to it.

numpy only, so that `predict` runs where nothing else is installed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Detections:
    """What a detector saw in one picture, best first.

    `boxes` float32 [N, 4], (xmin, ymin, xmax, ymax) in pixels of the picture named by the function that returned them;
    `class_ids` int64 [N], from 1; `scores` float32 [N], in [0, 1].
    """

    boxes: Floats
    class_ids: NDArray[np.int64]
    scores: Floats

    def __getitem__(self, rows: NDArray[np.bool_]) -> "Detections":
        """The detections where `rows`, bool [N], is true."""
        return Detections(boxes=self.boxes[rows], class_ids=self.class_ids[rows], scores=self.scores[rows])

    def above(self, score: float) -> "Detections":
        """The detections with at least this score."""
        return self[self.scores >= score]


# Detections in a split's pictures by image id; boxes are in pixels of the stored pictures.
DetectionsById = dict[int, Detections]

# From pictures of the model's size, uint8 [B, H, W, 3] RGB, to the detections in each, boxes in their pixels.
Detect = Callable[[NDArray[np.uint8]], Sequence[Detections]]


def to_coco(detections: Detections, image_id: int) -> list[dict[str, float | int | list[float]]]:
    """The COCO result records of one picture; `bbox` is [x, y, width, height] in the pixels of `detections`."""
    sizes = detections.boxes[:, 2:] - detections.boxes[:, :2]
    rows = np.concatenate([detections.boxes[:, :2], sizes], axis=1).astype(np.float64)
    return [
        {"image_id": image_id, "category_id": int(class_id), "bbox": row.tolist(), "score": float(score)}
        for row, class_id, score in zip(rows, detections.class_ids, detections.scores, strict=True)
    ]


def suppress(boxes: Floats, iou_above: float, most: int) -> NDArray[np.int64]:
    """Greedy non-maximum suppression.

    Args:
        boxes: float32 [K, 4], two corners, best first.
        iou_above: A box whose IoU with a kept one is above this is dropped.
        most: How many boxes are kept at most.

    Returns:
        The places of the kept boxes, int64, ascending.
    """
    kept: list[int] = []
    rest = np.arange(len(boxes))
    while rest.size and len(kept) < most:
        best, rest = rest[0], rest[1:]
        kept.append(int(best))
        rest = rest[~(iou_matrix(boxes[best][None], boxes[rest])[0] > iou_above)]
    return np.asarray(kept, np.int64)


def iou_matrix(first: Floats, second: Floats) -> Floats:
    """The IoU, [N, M], of each box of `first` [N, 4] with each of `second` [M, 4], both as two corners."""
    low = np.maximum(first[:, None, :2], second[None, :, :2])
    high = np.minimum(first[:, None, 2:], second[None, :, 2:])
    shared = np.prod(np.maximum(high - low, 0), axis=2)
    areas = [np.prod(boxes[:, 2:] - boxes[:, :2], axis=1) for boxes in (first, second)]
    ratio: Floats = shared / np.maximum(areas[0][:, None] + areas[1] - shared, np.float32(1e-9))
    return ratio
