"""Overlaps of boxes in the graph, with ymin, xmin, ymax and xmax of all boxes as four tensors.

Four tensors, because all computations take one coordinate of all boxes at a time, and TensorFlow takes several times
longer to read every fourth number.
"""

from collections.abc import Sequence

import tensorflow as tf

from trainer.tensors import Tensor

# (ymin, xmin, ymax, xmax), float32 tensors of one shape.
Corners = Sequence[Tensor]


def intersection(a: Corners, b: Corners) -> Tensor:
    """The area that two boxes share, 0 or more; shapes broadcast."""
    height = tf.maximum(tf.minimum(a[2], b[2]) - tf.maximum(a[0], b[0]), 0.0)
    width = tf.maximum(tf.minimum(a[3], b[3]) - tf.maximum(a[1], b[1]), 0.0)
    return height * width


def area(box: Corners) -> Tensor:
    """The area of boxes: height times width."""
    return (box[2] - box[0]) * (box[3] - box[1])


def pairwise_iou(a: Corners, b: Corners) -> Tensor:
    """The IoU of all pairs of boxes [B, N] and [B, A]: float32 [B, N, A] in [0, 1]."""
    rows, columns = [corner[:, :, None] for corner in a], [corner[:, None] for corner in b]
    shared = intersection(rows, columns)
    # Adding 1e-9 here prevents a division by 0 for boxes without area, and costs no operation on all pairs.
    return shared / (area(rows) + (area(columns) + 1e-9) - shared)


def generalized_iou(a: Corners, b: Corners) -> Tensor:
    """GIoU of paired boxes, float32 in [-1, 1]; shapes broadcast.

    Source: Rezatofighi et al., Generalized Intersection over Union (CVPR 2019), algorithm 1.
    """
    shared = intersection(a, b)
    union = area(a) + area(b) - shared
    hull = (tf.maximum(a[2], b[2]) - tf.minimum(a[0], b[0])) * (tf.maximum(a[3], b[3]) - tf.minimum(a[1], b[1]))
    return shared / tf.maximum(union, 1e-9) - (hull - union) / tf.maximum(hull, 1e-9)
