"""Network outputs and targets -> one number to lower, and the same number whatever the number of replicas."""

from dataclasses import dataclass
from typing import Any, Final

import tensorflow as tf

from trainer.model import decode_boxes
from trainer.targets import Targets, assign

# Weight of the box loss against the score loss. PP-YOLOE's 2.5 leaves a point of mAP behind (D-recipe).
BOX_WEIGHT: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LossSums:
    """Sums over one replica's pictures, float32 scalars: losses, and `normalizer`, the sum of the target scores."""

    score: Any
    box: Any
    normalizer: Any


def loss_sums(outputs: dict[str, Any], *, true_boxes: Any, true_labels: Any, anchors: Any) -> LossSums:
    """Sums of the losses of a batch.

    Args:
        outputs: Of the model: "boxes" [B, A, 4] encoded, "scores" [B, A, C] logits.
        true_boxes: float32 [B, N, 4], corners (ymin, xmin, ymax, xmax) as fractions.
        true_labels: int32 [B, N], from 0, -1 in padding.
        anchors: float32 [A, 4], `model.priors`.

    Returns:
        The sums. The loss is (score + BOX_WEIGHT * box) / normalizer, with the normalizer summed over all replicas:
        a mean of per-replica ratios would be another loss.
    """
    # Own losses run in float32 under mixed precision.
    logits = tf.cast(outputs["scores"], tf.float32)
    boxes = decode_boxes(tf.cast(outputs["boxes"], tf.float32), anchors)
    targets = assign(
        tf.stop_gradient(tf.sigmoid(logits)),
        tf.stop_gradient(boxes),
        true_boxes=true_boxes,
        true_labels=true_labels,
        anchors=anchors,
    )
    return LossSums(
        score=tf.reduce_sum(tf.nn.sigmoid_cross_entropy_with_logits(targets.scores, logits)),
        box=_box_loss(boxes, targets),
        normalizer=tf.reduce_sum(targets.weights),
    )


def _box_loss(boxes: Any, targets: Targets) -> Any:
    """Generalized IoU loss of the cells that own a box, each by its target score."""
    owned = tf.where(targets.weights > 0)
    losses = 1 - generalized_iou(tf.gather_nd(boxes, owned), tf.gather_nd(tf.stop_gradient(targets.boxes), owned))
    return tf.reduce_sum(losses * tf.stop_gradient(tf.gather_nd(targets.weights, owned)))


def generalized_iou(a: Any, b: Any) -> Any:
    """GIoU of paired corners float32 [n, 4], in [-1, 1].

    Source: Rezatofighi et al., Generalized Intersection over Union (CVPR 2019), algorithm 1.
    """
    a_low, a_high = a[..., :2], a[..., 2:]
    b_low, b_high = b[..., :2], b[..., 2:]
    intersection = tf.reduce_prod(tf.maximum(tf.minimum(a_high, b_high) - tf.maximum(a_low, b_low), 0.0), axis=-1)
    union = tf.reduce_prod(a_high - a_low, axis=-1) + tf.reduce_prod(b_high - b_low, axis=-1) - intersection
    hull = tf.reduce_prod(tf.maximum(a_high, b_high) - tf.minimum(a_low, b_low), axis=-1)
    return intersection / tf.maximum(union, 1e-9) - (hull - union) / tf.maximum(hull, 1e-9)
