"""The Keras network's outputs -> detections, decoded and suppressed in numpy as in the exported operator."""

from typing import Final

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from trainer.detections import Detect, Detections, Floats, suppress
from trainer.network.detector import CENTER_SCALE, MOST_LOG_SIZE, SIZE_SCALE
from trainer.pixels import normalize

# The most detections kept per picture: COCO evaluates 100, and the exported operator keeps as many.
MOST_DETECTIONS: Final = 100

# Detections below this score do not change any printed digit of the average precision.
LEAST_SCORE: Final = 0.01

# Boxes with a larger IoU are one object. 0.5 gave BCCD 2 points of mAP50 more than 0.6, on training pictures
# (docs/decisions/0019).
NMS_IOU: Final = 0.5

# How many cells NMS looks at, best first; a trained network has fewer above the least score.
_NMS_CELLS: Final = 600


def keras_detector(model: keras.Model, priors: Floats) -> Detect:
    """A detector that runs a Keras model from `build_model` with the priors of its picture size."""
    forward = tf.function(
        lambda pictures: model(normalize(tf.cast(pictures, tf.float32)), training=False), autograph=False
    )

    def detect(pictures: NDArray[np.uint8]) -> list[Detections]:
        outputs = forward(tf.constant(pictures))
        boxes, logits = outputs["boxes"].numpy(), outputs["scores"].numpy()
        return [decode(*picture, priors, pictures.shape[1]) for picture in zip(boxes, logits, strict=True)]

    return detect


def decode(encoded: Floats, logits: Floats, priors: Floats, side: int) -> Detections:
    """The outputs for one picture -> detections, after non-maximum suppression.

    Args:
        encoded: float32 [A, 4], (ty, tx, th, tw) against `priors`.
        logits: float32 [A, C].
        priors: float32 [A, 4], (ycenter, xcenter, height, width) as fractions.
        side: The side of the picture in pixels.

    Returns:
        At most `MOST_DETECTIONS` detections, with boxes in the picture's pixels, clipped to it.
    """
    center = encoded[:, :2] / CENTER_SCALE * priors[:, 2:] + priors[:, :2]
    half = np.exp(np.minimum(encoded[:, 2:] / SIZE_SCALE, MOST_LOG_SIZE)) * priors[:, 2:] / 2
    boxes = np.concatenate([center - half, center + half], axis=1)
    # Clipped, because exp warns about overflow; the sigmoid is 0 or 1 there anyway.
    scores = 1 / (1 + np.exp(-np.clip(logits, -60, 60)))
    # One suppression over all classes, each cell with its best class, as the exported operator does (decision 0019).
    best = scores.max(axis=1)
    rows = np.flatnonzero(best >= LEAST_SCORE)
    rows = rows[np.argsort(-best[rows], kind="stable")][:_NMS_CELLS]
    rows = rows[suppress(boxes[rows], NMS_IOU, MOST_DETECTIONS)]
    # Clipped after NMS, as clients of the exported operator do: clipping before changed 2 % of crowded detections.
    corners = np.clip(boxes[rows][:, [1, 0, 3, 2]], 0, 1) * np.float32(side)
    return Detections(
        boxes=corners.astype(np.float32),
        class_ids=scores[rows].argmax(axis=1) + 1,
        scores=best[rows].astype(np.float32),
    )
