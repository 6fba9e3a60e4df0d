"""Network outputs and targets -> one number to minimise, which does not depend on the number of replicas."""

from dataclasses import dataclass
from typing import Final

import tensorflow as tf

from trainer.network.box_ops import generalized_iou
from trainer.network.detector import decode_boxes
from trainer.network.target_assignment import assign
from trainer.tensors import Tensor

# The weight of the box loss relative to the score loss. PP-YOLOE's 2.5 costs a point of mAP (docs/decisions/0028).
BOX_WEIGHT: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LossSums:
    """Sums over one replica's pictures, float32 scalars: the losses, and `normalizer`, the sum of target scores."""

    score: Tensor
    box: Tensor
    normalizer: Tensor


def loss_sums(outputs: dict[str, Tensor], *, true_boxes: Tensor, true_labels: Tensor, priors: Tensor) -> LossSums:
    """The sums of the losses of a batch.

    Args:
        outputs: The model's outputs: "boxes" [B, A, 4] encoded, "scores" [B, A, C] logits.
        true_boxes: float32 [B, N, 4], corners (ymin, xmin, ymax, xmax) as fractions.
        true_labels: int32 [B, N], from 0, `PADDING` or `IGNORED`.
        priors: float32 [A, 4], from `make_priors`.

    Returns:
        The sums. The loss is (score + BOX_WEIGHT * box) / normalizer, with each summed over all replicas: a mean of
        per-replica ratios would be a different loss.
    """
    # Losses are computed in float32 even under mixed precision.
    logits, encoded = tf.cast(outputs["scores"], tf.float32), tf.cast(outputs["boxes"], tf.float32)
    targets = assign(
        tf.sigmoid(tf.stop_gradient(logits)),
        decode_boxes(tf.stop_gradient(encoded), priors),
        true_boxes=true_boxes,
        true_labels=true_labels,
        priors=priors,
    )
    # Only the cells that learn a box are decoded with gradients.
    boxes = decode_boxes(tf.gather(encoded, targets.cells, batch_dims=1), tf.gather(priors, targets.cells))
    overlap = generalized_iou(boxes, tf.unstack(true_boxes[:, :, None], axis=-1))
    score_losses = tf.reduce_sum(tf.nn.sigmoid_cross_entropy_with_logits(targets.scores, logits), axis=-1)
    return LossSums(
        score=tf.reduce_sum(tf.where(targets.is_judged, score_losses, 0.0)),
        box=tf.reduce_sum((1 - overlap) * targets.weights),
        normalizer=tf.reduce_sum(targets.weights),
    )
