"""A trained network's outputs as targets for a smaller one: it can say what is on any crop, however strongly changed.

Both have the same cells, so that no matching is needed: each cell learns the teacher's scores, and the teacher's box as
much as the teacher is sure of it. Source: Hinton et al., Distilling the Knowledge in a Neural Network (2015), here with
sigmoids; boxes weighed by the teacher's confidence are from Zheng et al., Localization Distillation (CVPR 2022).
"""

from typing import Final

import tensorflow as tf

from trainer.network.box_ops import generalized_iou
from trainer.network.detector import decode_boxes
from trainer.network.loss import LossSums
from trainer.tensors import Tensor

# Of each picture so many cells learn the teacher's boxes: those that it is surest of. It has few others above 0.05.
BOX_CELLS: Final = 60


def distilled_sums(outputs: dict[str, Tensor], taught: dict[str, Tensor], priors: Tensor) -> LossSums:
    """Sums of the losses of a batch against a teacher, in the form of `loss_sums`.

    Args:
        outputs: Of the network that learns: "boxes" [B, A, 4] encoded, "scores" [B, A, C] logits.
        taught: The teacher's, of the same pictures; no gradient flows through them.
        priors: float32 [A, 4], `make_priors`.
    """
    logits, encoded = tf.cast(outputs["scores"], tf.float32), tf.cast(outputs["boxes"], tf.float32)
    scores = tf.sigmoid(tf.stop_gradient(tf.cast(taught["scores"], tf.float32)))
    weights, cells = tf.math.top_k(tf.reduce_max(scores, axis=-1), BOX_CELLS)
    near = tf.gather(priors, cells)
    wanted = decode_boxes(tf.gather(tf.stop_gradient(tf.cast(taught["boxes"], tf.float32)), cells, batch_dims=1), near)
    overlap = generalized_iou(decode_boxes(tf.gather(encoded, cells, batch_dims=1), near), wanted)
    # Cross-entropy less the teacher's own: 0 where both agree, so that a loss shown means something.
    cross = tf.nn.sigmoid_cross_entropy_with_logits(scores, logits)
    own = tf.nn.sigmoid_cross_entropy_with_logits(scores, tf.stop_gradient(tf.cast(taught["scores"], tf.float32)))
    return LossSums(
        score=tf.reduce_sum(cross - own),
        box=tf.reduce_sum((1 - overlap) * weights),
        normalizer=tf.reduce_sum(weights),
    )
