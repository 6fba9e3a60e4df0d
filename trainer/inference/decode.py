"""The outputs of a model without suppression for one picture -> detections, as the other form's operator gives them.

Needs only numpy. `docs/runtimes.md` has the same code in three languages for other programs.
"""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from shared.model.description import Decoding
from trainer.detections import Detections, Floats, suppress


def decode(encoded: Floats, lifted: Floats, how: Decoding, side_px: int) -> Detections:
    """The detections in one picture, boxes in its pixels, clipped to its edges.

    Args:
        encoded: float32 [A, 4], the output `boxes`.
        lifted: float32 [A, C], the output `scores`.
        how: What the file says about both.
        side_px: The side of the picture in pixels.
    """
    best = lifted.max(axis=1)
    least = np.log(how.least_score / (1 - how.least_score)) + how.score_lift
    rows = np.flatnonzero(best >= least)
    # Stable like the operator's sort, because int8 has many equal scores.
    rows = rows[np.argsort(-best[rows], kind="stable")]
    corners = _corners(encoded[rows], _cells(how.strides, side_px)[rows], how)
    kept = suppress(corners, how.nms_iou, how.most_detections)
    rows = rows[kept]
    return Detections(
        # Clipped after suppression, as in the other form.
        boxes=np.clip(corners[kept], 0, side_px).astype(np.float32),
        class_ids=lifted[rows].argmax(axis=1).astype(np.int64) + 1,
        scores=(1 / (1 + np.exp(how.score_lift - best[rows]))).astype(np.float32),
    )


def _corners(encoded: Floats, cells: Floats, how: Decoding) -> Floats:
    """Encoded boxes of some cells [K, 3] -> (xmin, ymin, xmax, ymax) in pixels, float32 [K, 4]."""
    prior = cells[:, 2:] * np.float32(how.prior_strides)
    center = cells[:, :2] + encoded[:, 1::-1] / np.float32(how.center_scale) * prior
    # The bound prevents overflow; such a size is beyond any picture.
    half = np.exp(np.minimum(encoded[:, :1:-1] / np.float32(how.size_scale), 20)) * prior / 2
    return np.concatenate([center - half, center + half], axis=1).astype(np.float32)


@lru_cache(maxsize=8)
def _cells(strides: tuple[int, ...], side_px: int) -> NDArray[np.float32]:
    """The centre (x, y) and stride of every cell in pixels, float32 [A, 3]."""
    levels = []
    for stride in strides:
        y, x = np.mgrid[0 : side_px // stride, 0 : side_px // stride].reshape(2, -1)
        levels.append(np.stack([(x + 0.5) * stride, (y + 0.5) * stride, np.full(x.size, stride)], axis=1))
    return np.concatenate(levels).astype(np.float32)
