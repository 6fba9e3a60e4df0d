"""Boxes of a batch and the network's current outputs -> soft training targets for every cell (task-aligned assignment).

Source: Feng et al., TOOD: Task-aligned One-stage Object Detection (ICCV 2021), section 3.2. Here it is one graph
without loops: all pairs of boxes and cells until each box has its best cells, and from there on lists of those cells.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import tensorflow as tf

from trainer.network.box_ops import Corners, pairwise_iou
from trainer.tensors import IGNORED, PADDING, Tensor

# How many cells learn each box.
TOP_CELLS: Final = 10

# A box claims the cells whose centres lie inside it, and at least those within this many of the finest strides of its
# own centre: otherwise a box smaller than a cell might have none.
LEAST_HALF_STRIDES: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """What each cell should output, and which cells learn each box.

    `scores` float32 [B, A, C] are soft, 0 for background; `cells` int32 [B, N, K] are the K best cells of each box;
    `weights` float32 [B, N, K] are the target scores of those cells for the box, 0 if a cell does not learn it;
    `is_judged` bool [B, A] says whether a cell's scores count: not if it lies on an ignored object and learns no box.
    """

    scores: Tensor
    cells: Tensor
    weights: Tensor
    is_judged: Tensor


def assign(scores: Tensor, boxes: Corners, *, true_boxes: Tensor, true_labels: Tensor, priors: Tensor) -> Targets:
    """Give each true box the cells that fit it best.

    Args:
        scores: float32 [B, A, C], the network's probabilities, without gradients.
        boxes: The network's decoded corners (ymin, xmin, ymax, xmax), float32 [B, A] each.
        true_boxes: float32 [B, N, 4], corners in the same order and unit.
        true_labels: int32 [B, N], from 0, `PADDING` or `IGNORED`.
        priors: float32 [A, 4], from `make_priors`: (ycenter, xcenter, height, width).

    Returns:
        The targets; no cell learns two boxes.
    """
    classes = tf.maximum(true_labels, 0)
    iou = pairwise_iou(tf.unstack(true_boxes, axis=-1), boxes)
    score_roots = tf.gather(tf.transpose(tf.sqrt(scores), (0, 2, 1)), classes, batch_dims=1)
    reach = claims(true_boxes, true_labels != PADDING, priors)
    alignment = tf.where(reach & (true_labels >= 0)[..., None], _fit(score_roots, iou), -1.0)
    alignment, cells = tf.math.top_k(alignment, TOP_CELLS)
    overlap = tf.where(alignment >= 0, tf.gather(iou, cells, batch_dims=2), -1.0)
    kept = keeps_cell(overlap, cells, len(priors))
    weights = tf.where(kept, _soft_scores(alignment, overlap, kept), 0.0)
    targets = by_cell(weights, cells, classes, tf.shape(scores))
    is_ignored = tf.reduce_any(reach & (true_labels == IGNORED)[..., None], axis=1)
    is_judged = tf.reduce_any(targets > 0, axis=-1) | ~is_ignored
    return Targets(scores=targets, cells=cells, weights=weights, is_judged=is_judged)


def _fit(score_roots: Tensor, iou: Tensor) -> Tensor:
    """How well a cell fits a box: score^0.5 * IoU^6 (TOOD: 1 and 6; 0.5 relies less on scores that are still noise).

    Computed by a square root and products: a power of 270,000 numbers takes 10 ms per step, as long as everything else
    here.
    """
    square = tf.square(iou)
    return score_roots * square * square * square


def claims(true_boxes: Tensor, is_box: Tensor, priors: Tensor) -> Tensor:
    """Whether a cell's centre is in reach of a box: bool [B, N, A]; padding reaches no cell.

    The cells of a level form a grid, so a box reaches some of its rows and some of its columns.
    """
    center = (true_boxes[..., :2] + true_boxes[..., 2:]) / 2
    least = LEAST_HALF_STRIDES * np.sqrt(np.min(priors[:, 2] * priors[:, 3])) / 4.0
    half = tf.where(is_box[..., None], tf.maximum((true_boxes[..., 2:] - true_boxes[..., :2]) / 2, least), -1.0)
    return tf.concat([_reach(center, half, rows, columns) for rows, columns in _grids(priors)], axis=-1)


def _reach(center: Tensor, half: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Which cells of one grid are in reach: bool [B, N, rows * columns]."""
    y = tf.abs(rows - center[..., :1]) < half[..., :1]
    x = tf.abs(columns - center[..., 1:]) < half[..., 1:]
    return tf.reshape(y[..., None] & x[..., None, :], (*tf.unstack(tf.shape(y)[:2]), len(rows) * len(columns)))


def _grids(priors: Tensor) -> list[tuple[Tensor, Tensor]]:
    """The centres of the rows and of the columns of each level."""
    levels = np.split(priors, np.flatnonzero(np.diff(priors[:, 2])) + 1)
    return [(np.unique(level[:, 0]), np.unique(level[:, 1])) for level in levels]


def keeps_cell(overlap: Tensor, cells: Tensor, count: int) -> Tensor:
    """Whether a box keeps a cell that several boxes chose: the one with the largest overlap does, the first of equals.

    Args:
        overlap: float32 [B, N, K], the IoU of a box with the output of its chosen cell; negative if it chose none.
        cells: int32 [B, N, K], the chosen cells.
        count: The number of all cells, A.
    """
    shape = tf.shape(cells)
    number = tf.reshape(cells + count * tf.range(shape[0])[:, None, None], [-1])
    overlap = tf.reshape(overlap, [-1])
    most = tf.math.unsorted_segment_max(overlap, number, count * shape[0])
    turn = tf.range(tf.size(number))
    may_keep = (overlap >= 0) & (overlap == tf.gather(most, number))
    first = tf.math.unsorted_segment_min(tf.where(may_keep, turn, tf.int32.max), number, count * shape[0])
    return tf.reshape(turn == tf.gather(first, number), shape)


def _soft_scores(alignment: Tensor, overlap: Tensor, kept: Tensor) -> Tensor:
    """Target scores float32 [B, N, K]: alignment scaled so that the best kept cell of a box gets its best IoU."""
    best_alignment = tf.reduce_max(tf.where(kept, alignment, 0.0), axis=-1, keepdims=True)
    best_overlap = tf.reduce_max(tf.where(kept, overlap, 0.0), axis=-1, keepdims=True)
    return alignment * (best_overlap / tf.maximum(best_alignment, 1e-9))


def by_cell(weights: Tensor, cells: Tensor, classes: Tensor, shape: Tensor) -> Tensor:
    """Lists of cells' target scores -> float32 [B, A, C]; a cell learns at most one box, so scores never add up."""
    pictures = tf.broadcast_to(tf.range(shape[0])[:, None, None], tf.shape(cells))
    places = tf.stack([pictures, cells, tf.broadcast_to(classes[..., None], tf.shape(cells))], axis=-1)
    return tf.scatter_nd(places, weights, shape)
