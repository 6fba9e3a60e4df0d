"""Batch normalization that is fast on one device and exact over several devices."""

from typing import Final

import keras
import tensorflow as tf

from trainer.tensors import Tensor

# The momentum of the moving statistics. With the 0.999 of Keras's applications they are still close to their start
# after a few hundred steps.
MOMENTUM: Final = 0.97
EPSILON: Final = 1e-3


@tf.custom_gradient  # type: ignore[untyped-decorator]  # TensorFlow is untyped
def mean_over_replicas(x: Tensor) -> tuple[Tensor, Tensor]:
    """The mean of a tensor over the replicas, with the mean of its gradients on the way back.

    TensorFlow's all_reduce has its own gradient, but with it each call walks back through the graphs of all other
    replicas while tracing (100 s for two of `nano`). stop_gradient prevents this.
    """
    replica = tf.distribute.get_replica_context()

    def gradient(upstream: Tensor) -> Tensor:
        return replica.all_reduce(tf.distribute.ReduceOp.MEAN, tf.stop_gradient(upstream))

    return replica.all_reduce(tf.distribute.ReduceOp.MEAN, tf.stop_gradient(x)), gradient


@keras.saving.register_keras_serializable("voc2tflite")
class BatchNorm(keras.layers.Layer):  # type: ignore[misc]  # Keras is untyped
    """Batch normalization over the global batch, whatever the number of replicas.

    Keras 3's layer computes the moments from small operations, and per replica; TensorFlow's fused kernel needs one
    pass but works on one device. So the kernel is used on one replica; on several, moments are averaged over them.
    """

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        """Make the weights, one number per channel."""
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
        """Normalized values, mean and variance (unbiased, as from the fused kernel) over all replicas' pictures."""
        wide = tf.cast(x, tf.float32)
        mean = mean_over_replicas(tf.reduce_mean(wide, (0, 1, 2)))
        # Around the common mean, as in the fused kernel: mean of squares minus squared mean loses half the digits.
        variance = mean_over_replicas(tf.reduce_mean(tf.square(wide - mean), (0, 1, 2)))
        y = tf.nn.batch_normalization(wide, mean, variance, self.beta, self.gamma, EPSILON)
        count = tf.cast(tf.size(x) // x.shape[-1] * tf.distribute.get_strategy().num_replicas_in_sync, tf.float32)
        return tf.cast(y, x.dtype), mean, variance * count / tf.maximum(count - 1, 1.0)

    def compute_output_shape(self, input_shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of the input."""
        return input_shape
