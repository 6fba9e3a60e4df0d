"""Head outputs → detections in numpy, as `TFLite_Detection_PostProcess` makes them.

Stands beside the exported model on the route: the op runs inside the `.tflite`, this on the Keras model's outputs, so
that one can be held against the other.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

# (y, x, h, w), as TFLite_Detection_PostProcess and the TF Object Detection API's faster_rcnn_box_coder divide them.
BOX_SCALES: Final = (10.0, 10.0, 5.0, 5.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class NmsOptions:
    """How candidates become detections, written into the exported op.

    100 detections is what COCO's mAP looks at. Scores below 0.01 change mAP by less than 0.0005 and cost sorting time.
    """

    max_detections: int = 100
    score_threshold: float = 0.01
    iou_threshold: float = 0.6


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


def to_coco(detections: Detections, image_id: int) -> list[dict[str, float | int | list[float]]]:
    """COCO result records of one picture: `bbox` is [x, y, width, height] in the pixels of `detections`."""
    sizes = detections.boxes[:, 2:] - detections.boxes[:, :2]
    rows = np.concatenate([detections.boxes[:, :2], sizes], axis=1).astype(np.float64)
    return [
        {"image_id": image_id, "category_id": int(class_id), "bbox": row.tolist(), "score": float(score)}
        for row, class_id, score in zip(rows, detections.class_ids, detections.scores, strict=True)
    ]


def decode_boxes(encoded: Floats, priors: Floats) -> Floats:
    """Boxes from a head's encoding.

    Args:
        encoded: float32 [A, 4], (ty, tx, th, tw).
        priors: float32 [A, 4], (y centre, x centre, height, width), fractions of the picture.

    Returns:
        float32 [A, 4], (ymin, xmin, ymax, xmax), fractions of the picture, not clipped.
    """
    scaled = encoded / np.asarray(BOX_SCALES, np.float32)
    centre = scaled[:, :2] * priors[:, 2:] + priors[:, :2]
    half = np.exp(scaled[:, 2:]) * priors[:, 2:] / 2
    return np.concatenate([centre - half, centre + half], axis=1).astype(np.float32)


def postprocess(
    encoded: Floats, logits: Floats, priors: Floats, size_px: int, options: NmsOptions | None = None
) -> Detections:
    """Detections of one picture from the Keras model's outputs, with non-maximum suppression a class.

    Args:
        encoded: float32 [A, 4], (ty, tx, th, tw) against `priors`.
        logits: float32 [A, C], class 0 is label id 1.
        priors: float32 [A, 4], (y centre, x centre, height, width), fractions of the picture.
        size_px: Side of the square input picture.
        options: As in the exported op.

    Returns:
        Detections in pixels of the input picture.
    """
    options = options or NmsOptions()
    boxes = decode_boxes(encoded, priors)
    scores = 1 / (1 + np.exp(-logits.astype(np.float64)))
    kept = [
        (float(scores[anchor, column]), column, anchor)
        for column in range(scores.shape[1])
        for anchor in _suppress(boxes, scores[:, column], options)
    ]
    kept.sort(key=lambda candidate: -candidate[0])
    kept = kept[: options.max_detections]
    anchors = np.asarray([anchor for _, _, anchor in kept], np.int64)
    return Detections(
        boxes=boxes[anchors][:, [1, 0, 3, 2]] * np.float32(size_px),
        class_ids=np.asarray([column + 1 for _, column, _ in kept], np.int64),
        scores=np.asarray([score for score, _, _ in kept], np.float32),
    )


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


def _suppress(boxes: Floats, scores: NDArray[np.float64], options: NmsOptions) -> list[int]:
    """Anchors kept for one class, best first; a box goes when its IoU with a kept one is above the threshold."""
    order = np.argsort(-scores, kind="stable")
    order = order[scores[order] >= options.score_threshold]
    kept: list[int] = []
    while order.size and len(kept) < options.max_detections:
        best, order = int(order[0]), order[1:]
        kept.append(best)
        order = order[iou_matrix(boxes[best : best + 1], boxes[order])[0] <= options.iou_threshold]
    return kept
