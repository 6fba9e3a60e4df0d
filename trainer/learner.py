"""One training step over all replicas: forward, loss, gradients, AdamW and the average of the weights, in one graph.

All weights are moved as one flat vector: some ten operations a step instead of some ten for each of 150 variables,
and one all-reduce. Replicas hold equal copies and compute equal updates from the same reduced gradient.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from shared.errors import TrainingError
from trainer.loss import BOX_WEIGHT, loss_sums
from trainer.model import is_published

# AdamW (Loshchilov & Hutter, Decoupled Weight Decay Regularization). A shorter memory of squares than the usual .999:
# runs are a few thousand steps.
BETA_1: Final = 0.9
BETA_2: Final = 0.99
ADAM_EPSILON: Final = 1e-8
WEIGHT_DECAY: Final = 0.05

# Largest norm of the whole gradient.
CLIP_NORM: Final = 10.0

# The average of the weights that is evaluated and exported; early on it follows faster.
EMA_DECAY: Final = 0.998

# Under float16 small gradients vanish: scale the loss up, and the gradients down again.
FLOAT16_SCALE: Final = 1024.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLosses:
    """Of one step, over all replicas: mean losses as Python floats."""

    score: float
    box: float
    total: float


class Learner:
    """A detector in training: the network and the optimizer's memory, one copy a replica."""

    def __init__(
        self,
        build: Callable[[], keras.Model],
        anchors: NDArray[np.float32],
        strategy: tf.distribute.Strategy,
        batch_spec: dict[str, Any],
        *,
        epsilon: float = ADAM_EPSILON,
    ) -> None:
        """Build the network on every replica.

        Args:
            build: Makes it.
            anchors: float32 [A, 4], `model.priors`.
            strategy: Over which replicas.
            batch_spec: `element_spec` of the (distributed) batches: the step is traced once for it.
            epsilon: Of Adam. A large one makes a step proportional to its gradient, so that rounding errors stay small.
        """
        self.strategy = strategy
        self._epsilon = epsilon
        self._anchors = anchors
        with strategy.scope():
            self.model = build()
            self._weights = [variable.value for variable in self.model.trainable_variables]
            self._statistics = [variable.value for variable in self.model.non_trainable_variables]
            start = _flat(self._weights).numpy()
            # What the optimizer moves; the network's own variables are copies of its parts.
            self._flat_weights = tf.Variable(start, trainable=False)
            self._first = tf.Variable(np.zeros_like(start), trainable=False)
            self._second = tf.Variable(np.zeros_like(start), trainable=False)
            self._average = tf.Variable(start, trainable=False)
            self._average_statistics = tf.Variable(_flat(self._statistics).numpy(), trainable=False)
        self._decay = np.concatenate(
            [np.full(int(np.prod(v.shape)), WEIGHT_DECAY * (len(v.shape) > 1), np.float32) for v in self._weights]
        )
        self._is_float16 = self.model.dtype_policy.compute_dtype == "float16"
        self._is_published = np.concatenate(
            [
                np.full(int(np.prod(variable.shape)), is_published(variable.path))
                for variable in self.model.trainable_variables
            ]
        )
        number = tf.TensorSpec((), tf.float32)
        self._run = tf.function(self._global_step, input_signature=(batch_spec, number, number, number))

    def step(self, batch: dict[str, Any], *, rate: float, number: int, published_share: float = 1.0) -> StepLosses:
        """Learn one global batch.

        Args:
            batch: As `dataset` describes it; per replica where there are several.
            rate: Learning rate.
            number: Of the step, from 0.
            published_share: Share of the rate for the weights before the pyramid; below 1 in transfer learning.

        Returns:
            The losses before the update.
        """
        losses = self._run(batch, tf.constant(rate), tf.constant(published_share), tf.constant(float(number + 1)))
        score, box = (float(number) for number in losses.numpy())
        return StepLosses(score=score, box=box, total=score + BOX_WEIGHT * box)

    def _global_step(self, batch: dict[str, Any], rate: Any, share: Any, count: Any) -> Any:
        losses = self.strategy.run(self._replica_step, args=(batch, rate, share, count))
        # Equal on every replica already.
        return self.strategy.experimental_local_results(losses)[0]

    def _replica_step(self, batch: dict[str, Any], rate: Any, share: Any, count: Any) -> Any:
        replica = tf.distribute.get_replica_context()
        scale = FLOAT16_SCALE if self._is_float16 else 1.0
        with tf.GradientTape() as tape:
            outputs = self.model(normalize(batch["pictures"]), training=True)
            sums = loss_sums(outputs, true_boxes=batch["boxes"], true_labels=batch["labels"], anchors=self._anchors)
            own = tf.stack([sums.score, sums.box, sums.normalizer])
            score, box, normalizer = tf.unstack(replica.all_reduce(tf.distribute.ReduceOp.SUM, tf.stop_gradient(own)))
            normalizer = tf.maximum(normalizer, 1.0)
            loss = scale * (sums.score + BOX_WEIGHT * sums.box) / normalizer
        gradients = tape.gradient(loss, self._weights, unconnected_gradients="zero")
        gradient = replica.all_reduce(tf.distribute.ReduceOp.SUM, tf.stop_gradient(_flat(gradients) / scale))
        self._update(gradient, rate, share, count)
        return tf.stack([score, box]) / normalizer

    def _update(self, gradient: Any, rate: Any, share: Any, count: Any) -> None:
        """AdamW on the flat vector, then the average of weights and statistics."""
        norm = tf.norm(gradient)
        gradient *= CLIP_NORM / tf.maximum(norm, CLIP_NORM)
        if self._is_float16:
            # Overflow of the scaled loss: this step is worth nothing, the next one is.
            gradient = tf.where(tf.math.is_finite(norm), gradient, 0.0)
        before = tf.identity(self._flat_weights)
        _descend(self._flat_weights, rate, self._decay * before)
        self._adam(gradient, rate, count)
        if self._is_published.any():
            moved = tf.identity(self._flat_weights)
            self._flat_weights.assign(tf.where(self._is_published, before + share * (moved - before), moved))
        weights = tf.identity(self._flat_weights)
        _assign(self._weights, weights)
        share_of_now = 1 - tf.minimum(EMA_DECAY, (1 + count) / (10 + count))
        for average, now in ((self._average, weights), (self._average_statistics, _flat(self._statistics))):
            _descend(average, share_of_now, average - now)

    def _adam(self, gradient: Any, rate: Any, count: Any) -> None:
        """One pass over weights and both moments. The kernel adds epsilon before the correction of the second one."""
        correction = 1 - BETA_2**count
        tf.raw_ops.ResourceApplyAdam(
            var=self._flat_weights.handle,
            m=self._first.handle,
            v=self._second.handle,
            beta1_power=BETA_1**count,
            beta2_power=BETA_2**count,
            lr=rate,
            beta1=BETA_1,
            beta2=BETA_2,
            epsilon=self._epsilon * tf.sqrt(correction),
            grad=gradient,
        )

    def state(self) -> dict[str, NDArray[np.float32]]:
        """All that a checkpoint must hold of the network and the optimizer, as flat float32 vectors."""
        return {
            "weights": self._flat_weights.numpy(),
            "statistics": _flat(self._statistics).numpy(),
            "first_moment": self._first.numpy(),
            "second_moment": self._second.numpy(),
            "average": self.average(),
        }

    def restore(self, state: dict[str, NDArray[np.float32]]) -> None:
        """Go on from `state()`.

        Raises:
            TrainingError: It is of another network: another version of this program may have built another.
        """
        for name, own in self.state().items():
            found = state[name].size if name in state else 0
            if found != own.size:
                raise TrainingError(f"the checkpoint has {found} {name}, this version's network {own.size}")
        _assign(self._weights, tf.constant(state["weights"]))
        _assign(self._statistics, tf.constant(state["statistics"]))
        self._flat_weights.assign(state["weights"])
        self._first.assign(state["first_moment"])
        self._second.assign(state["second_moment"])
        weights, statistics = np.split(state["average"], [state["weights"].size])
        self._average.assign(weights)
        self._average_statistics.assign(statistics)

    def average(self) -> NDArray[np.float32]:
        """The averaged weights and statistics, one flat float32 vector."""
        return np.concatenate([self._average.numpy(), self._average_statistics.numpy()])


def in_precision(precision: str, build: Callable[[], keras.Model]) -> keras.Model:
    """A network whose layers compute in `precision`, the name of a Keras dtype policy."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(precision)
    try:
        return build()
    finally:
        keras.config.set_dtype_policy(before)


def normalize(pictures: Any) -> Any:
    """uint8 [B, H, W, 3] -> float32 in [-1, 1]."""
    return tf.cast(pictures, tf.float32) * (1 / 127.5) - 1.0


def load_average(model: keras.Model, average: NDArray[np.float32]) -> None:
    """Put a flat vector of `Learner.average` into another copy of the network."""
    variables = [*model.trainable_variables, *model.non_trainable_variables]
    _assign([variable.value for variable in variables], tf.constant(average))


def _descend(variable: Any, rate: Any, direction: Any) -> None:
    """Subtract `rate`, a scalar, times `direction` in one pass."""
    tf.raw_ops.ResourceApplyGradientDescent(var=variable.handle, alpha=rate, delta=direction)


def _flat(tensors: Sequence[Any]) -> Any:
    return tf.concat([tf.cast(tf.reshape(tensor, [-1]), tf.float32) for tensor in tensors], axis=0)


def _assign(variables: Sequence[Any], vector: Any) -> None:
    parts = tf.split(vector, [int(np.prod(variable.shape)) for variable in variables])
    for variable, part in zip(variables, parts, strict=True):
        variable.assign(tf.reshape(part, variable.shape))
