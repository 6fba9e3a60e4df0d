"""Network outputs and targets -> one number to lower, and the same number whatever the number of replicas."""

from dataclasses import dataclass
from typing import Any, Final

import tensorflow as tf

from trainer.corners import generalized_iou
from trainer.model import decode_boxes
from trainer.targets import assign

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
    logits, encoded = tf.cast(outputs["scores"], tf.float32), tf.cast(outputs["boxes"], tf.float32)
    targets = assign(
        tf.sigmoid(tf.stop_gradient(logits)),
        decode_boxes(tf.stop_gradient(encoded), anchors),
        true_boxes=true_boxes,
        true_labels=true_labels,
        anchors=anchors,
    )
    # For the gradient only what learns a box is decoded.
    boxes = decode_boxes(tf.gather(encoded, targets.cells, batch_dims=1), tf.gather(anchors, targets.cells))
    overlap = generalized_iou(boxes, tf.unstack(true_boxes[:, :, None], axis=-1))
    return LossSums(
        score=tf.reduce_sum(tf.nn.sigmoid_cross_entropy_with_logits(targets.scores, logits)),
        box=tf.reduce_sum((1 - overlap) * targets.weights),
        normalizer=tf.reduce_sum(targets.weights),
    )
