"""Batch normalization that is fast on one device and exact over several."""

from typing import Final

import keras
import tensorflow as tf

from trainer.tensors import Tensor

# Momentum of the moving statistics. The 0.999 of Keras's applications still holds the start after a few hundred steps.
MOMENTUM: Final = 0.97
EPSILON: Final = 1e-3


@tf.custom_gradient  # type: ignore[untyped-decorator]  # TensorFlow is untyped
def mean_over_replicas(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean of a tensor over the replicas, and the mean of its gradients on the way back.

    TensorFlow's all_reduce has a gradient of its own, but each call then walks back through the graphs of all other
    replicas while tracing (100 s for two of `nano`). It stops where nothing is differentiable: hence the stop_gradient.
    """
    replica = tf.distribute.get_replica_context()

    def gradient(upstream: Tensor) -> Tensor:
        return replica.all_reduce(tf.distribute.ReduceOp.MEAN, tf.stop_gradient(upstream))

    return replica.all_reduce(tf.distribute.ReduceOp.MEAN, tf.stop_gradient(x)), gradient


@keras.saving.register_keras_serializable("voc2tflite")
class BatchNorm(keras.layers.Layer):  # type: ignore[misc]  # Keras is untyped
    """Normalization over the global batch, whatever the number of replicas.

    Keras 3's layer computes the moments from small operations, and per replica; TensorFlow's fused kernel does one
    pass but knows one device. So: fused on one replica, moments averaged over the replicas on several.
    """

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        """Make the weights, one number for each channel."""
        # They stay float32 under mixed precision.
        weight = {"shape": (input_shape[-1],), "dtype": "float32", "autocast": False}
        statistic = weight | {"trainable": False, "aggregation": "mean"}
        self.gamma = self.add_weight(name="gamma", initializer="ones", **weight)
        self.beta = self.add_weight(name="beta", initializer="zeros", **weight)
        self.moving_mean = self.add_weight(name="moving_mean", initializer="zeros", **statistic)
        self.moving_variance = self.add_weight(name="moving_variance", initializer="ones", **statistic)

    def call(self, x: Tensor, training: bool = False) -> Tensor:  # noqa: FBT001, FBT002 - Keras's own signature
        """Normalize [B, H, W, C] by the batch's moments in training, otherwise by the moving ones."""
        if not training:
            scale = self.gamma * tf.math.rsqrt(self.moving_variance + EPSILON)
            offset = self.beta - self.moving_mean * scale
            return x * tf.cast(scale, x.dtype) + tf.cast(offset, x.dtype)
        if tf.distribute.get_strategy().num_replicas_in_sync == 1:
            y, mean, variance = tf.compat.v1.nn.fused_batch_norm(
                x, tf.convert_to_tensor(self.gamma), tf.convert_to_tensor(self.beta), epsilon=EPSILON, is_training=True
            )
        else:
            y, mean, variance = self._over_replicas(x)
        self.moving_mean.assign(self.moving_mean * MOMENTUM + mean * (1 - MOMENTUM))
        self.moving_variance.assign(self.moving_variance * MOMENTUM + variance * (1 - MOMENTUM))
        return y

    def _over_replicas(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Normalized values, mean and (unbiased, as the fused kernel gives it) variance over all replicas' pictures."""
        wide = tf.cast(x, tf.float32)
        mean = mean_over_replicas(tf.reduce_mean(wide, (0, 1, 2)))
        # Around the common mean, as the fused kernel does: mean of squares less square of mean loses half the digits.
        variance = mean_over_replicas(tf.reduce_mean(tf.square(wide - mean), (0, 1, 2)))
        y = tf.nn.batch_normalization(wide, mean, variance, self.beta, self.gamma, EPSILON)
        count = tf.cast(tf.size(x) // x.shape[-1] * tf.distribute.get_strategy().num_replicas_in_sync, tf.float32)
        return tf.cast(y, x.dtype), mean, variance * count / tf.maximum(count - 1, 1.0)

    def compute_output_shape(self, input_shape: tuple[int, ...]) -> tuple[int, ...]:
        """The input's."""
        return input_shape
