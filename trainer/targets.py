"""Boxes of a batch and what the network says now -> soft training targets for every cell (task-aligned assignment).

Stands between the model and the loss on the route. Source: Feng et al., TOOD: Task-aligned One-stage Object
Detection (ICCV 2021), section 3.2; here in one vectorised graph over [B, N, A] without loops.
"""

from dataclasses import dataclass
from typing import Any, Final

import tensorflow as tf

# Cells that learn each box.
TOP_CELLS: Final = 10

# A box claims cells whose centres lie within it, and at least within this many finest strides of its own centre: a
# box smaller than a cell would else have none.
LEAST_HALF_STRIDES: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """What each cell should say.

    `scores` float32 [B, A, C], soft, 0 where background; `boxes` float32 [B, A, 4] corners (ymin, xmin, ymax, xmax)
    as fractions; `weights` float32 [B, A], the cell's target score, 0 where background.
    """

    scores: Any
    boxes: Any
    weights: Any


def assign(scores: Any, boxes: Any, *, true_boxes: Any, true_labels: Any, anchors: Any) -> Targets:
    """Give each true box the cells that fit it best.

    Args:
        scores: float32 [B, A, C], the network's probabilities; no gradient flows through them.
        boxes: float32 [B, A, 4], its decoded corners.
        true_boxes: float32 [B, N, 4], corners, same order and unit.
        true_labels: int32 [B, N], from 0, -1 in padding.
        anchors: float32 [A, 4], `model.priors`: (ycenter, xcenter, height, width).

    Returns:
        The targets.
    """
    classes = tf.maximum(true_labels, 0)
    iou = pairwise_iou(true_boxes, boxes)
    score_roots = tf.gather(tf.transpose(tf.sqrt(scores), (0, 2, 1)), classes, batch_dims=1)
    candidate = _claims(true_boxes, true_labels >= 0, anchors)
    alignment = tf.where(candidate, _fit(score_roots, iou), -1.0)
    chosen = _best_cells(alignment)
    # A cell chosen by several boxes learns the one it overlaps most.
    overlap = tf.where(chosen, iou, -1.0)
    owner = tf.argmax(overlap, axis=1, output_type=tf.int32)
    kept = chosen & (tf.range(tf.shape(iou)[1])[None, :, None] == owner[:, None])
    weights = tf.reduce_max(_soft_scores(alignment, iou, kept), axis=1)
    one_hot = tf.one_hot(tf.gather(classes, owner, batch_dims=1), tf.shape(scores)[-1])
    return Targets(
        scores=one_hot * weights[..., None],
        boxes=tf.gather(true_boxes, owner, batch_dims=1),
        weights=weights,
    )


def pairwise_iou(a: Any, b: Any) -> Any:
    """Intersection over union of all pairs: corners [B, N, 4] and [B, A, 4] -> float32 [B, N, A] in [0, 1]."""
    a_ymin, a_xmin, a_ymax, a_xmax = tf.split(a, 4, axis=-1)
    b_ymin, b_xmin, b_ymax, b_xmax = tf.unstack(b[:, None], axis=-1)
    height = tf.maximum(tf.minimum(a_ymax, b_ymax) - tf.maximum(a_ymin, b_ymin), 0.0)
    width = tf.maximum(tf.minimum(a_xmax, b_xmax) - tf.maximum(a_xmin, b_xmin), 0.0)
    intersection = height * width
    a_area, b_area = (a_ymax - a_ymin) * (a_xmax - a_xmin), (b_ymax - b_ymin) * (b_xmax - b_xmin)
    # No division by 0 between boxes without extent, at the price of no operation on all pairs.
    return intersection / (a_area + (b_area + 1e-9) - intersection)


def _fit(score_roots: Any, iou: Any) -> Any:
    """How well a cell fits a box: score^0.5 * IoU^6 (TOOD uses 1 and 6; 0.5 leans less on scores that are still noise).

    By square root and products: a power of 270,000 numbers takes 10 ms of a step, as long as all the rest of this.
    """
    square = tf.square(iou)
    return score_roots * square * square * square


def _claims(true_boxes: Any, is_true: Any, anchors: Any) -> Any:
    """Whether a cell's centre lies in reach of a box: bool [B, N, A]; no reach in padding."""
    center = (true_boxes[..., :2] + true_boxes[..., 2:]) / 2
    least = LEAST_HALF_STRIDES * tf.sqrt(tf.reduce_min(anchors[:, 2] * anchors[:, 3])) / 4.0
    half = tf.where(is_true[..., None], tf.maximum((true_boxes[..., 2:] - true_boxes[..., :2]) / 2, least), -1.0)
    reach_y = tf.abs(anchors[:, 0] - center[..., :1]) < half[..., :1]
    return reach_y & (tf.abs(anchors[:, 1] - center[..., 1:]) < half[..., 1:])


def _best_cells(alignment: Any) -> Any:
    """Which cells reach the alignment of the `TOP_CELLS`-th best of their box: bool [B, N, A]; none that has -1."""
    threshold = tf.math.top_k(alignment, TOP_CELLS, sorted=True).values[..., -1:]
    return alignment >= tf.maximum(threshold, 0.0)


def _soft_scores(alignment: Any, iou: Any, kept: Any) -> Any:
    """Target scores float32 [B, N, A]: alignment scaled so that each box's best cell gets the box's best IoU."""
    alignment = tf.where(kept, alignment, 0.0)
    best_alignment = tf.reduce_max(alignment, axis=-1, keepdims=True)
    best_iou = tf.reduce_max(tf.where(kept, iou, 0.0), axis=-1, keepdims=True)
    return alignment * (best_iou / tf.maximum(best_alignment, 1e-9))
