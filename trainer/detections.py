"""`Detections`: what a detector saw in one picture, in pixels; the form that exported models, gate and pictures share.

Stands at the end of the route; numpy only, so that `predict` runs where the rest is not installed.
"""

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

    def above(self, score: float) -> "Detections":
        """Those of at least this score."""
        kept = self.scores >= score
        return Detections(boxes=self.boxes[kept], class_ids=self.class_ids[kept], scores=self.scores[kept])

    def scaled(self, factor: float) -> "Detections":
        """The same in a picture enlarged by `factor`."""
        boxes = (self.boxes * np.float32(factor)).astype(np.float32)
        return Detections(boxes=boxes, class_ids=self.class_ids, scores=self.scores)


def to_coco(detections: Detections, image_id: int) -> list[dict[str, float | int | list[float]]]:
    """COCO result records of one picture: `bbox` is [x, y, width, height] in the pixels of `detections`."""
    sizes = detections.boxes[:, 2:] - detections.boxes[:, :2]
    rows = np.concatenate([detections.boxes[:, :2], sizes], axis=1).astype(np.float64)
    return [
        {"image_id": image_id, "category_id": int(class_id), "bbox": row.tolist(), "score": float(score)}
        for row, class_id, score in zip(rows, detections.class_ids, detections.scores, strict=True)
    ]


def iou_matrix(first: Floats, second: Floats) -> Floats:
    """Intersection over union of every box of `first` [N, 4] with every one of `second` [M, 4], both as two corners."""
    low = np.maximum(first[:, None, :2], second[None, :, :2])
    high = np.minimum(first[:, None, 2:], second[None, :, 2:])
    shared = np.prod(np.clip(high - low, 0, None), axis=2)
    area_first = np.prod(np.clip(first[:, 2:] - first[:, :2], 0, None), axis=1)
    area_second = np.prod(np.clip(second[:, 2:] - second[:, :2], 0, None), axis=1)
    union = area_first[:, None] + area_second[None, :] - shared
    ratio: Floats = np.where(union > 0, shared / np.maximum(union, 1e-12), 0).astype(np.float32)
    return ratio
