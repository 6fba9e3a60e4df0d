"""One training step over all replicas: forward pass, loss, gradients, AdamW and the weights' average, in one graph.

All weights are updated as one flat vector: about ten operations per step instead of ten for each of 150 variables, and
one all-reduce. Replicas hold equal copies and compute equal updates from the same reduced gradient.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal, get_args

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from shared.errors import TrainingError
from trainer.network.detector import is_backbone
from trainer.network.loss import BOX_WEIGHT, loss_sums
from trainer.pixels import normalize
from trainer.tensors import Tensor

# AdamW (Loshchilov & Hutter, Decoupled Weight Decay Regularization). BETA_2 gives a shorter memory than the usual .999,
# because runs have only a few thousand steps.
BETA_1: Final = 0.9
BETA_2: Final = 0.99
ADAM_EPSILON: Final = 1e-8
WEIGHT_DECAY: Final = 0.05

# The largest norm of the whole gradient.
CLIP_NORM: Final = 10.0

# The average of the weights, which is evaluated and exported: its decay is at most EMA_DECAY, and in step n at most
# (1 + n) / (ramp + n), so that it lags by 1 / ramp of the steps. Runs with a taught backbone are short and still learn
# in their last tenth (docs/decisions/0109).
EMA_DECAY: Final = 0.998
EMA_RAMP: Final = 10.0
TAUGHT_EMA_RAMP: Final = 20.0

# Whether the weights before the pyramid stay as they are, learn at a share of the rate, or learn like all others.
_Phase = Literal["frozen", "slowed", "free"]

# In float16 small gradients vanish, so the loss is scaled up, and the gradients down again.
FLOAT16_SCALE: Final = 1024.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLosses:
    """The mean losses of one step over all replicas, as Python floats."""

    score: float
    box: float
    total: float


class Learner:
    """A detector in training: the network and the optimizer's memory, with one copy per replica."""

    def __init__(
        self,
        build: Callable[[], keras.Model],
        priors: NDArray[np.float32],
        strategy: tf.distribute.Strategy,
        batch_spec: dict[str, Tensor],
        *,
        epsilon: float = ADAM_EPSILON,
    ) -> None:
        """Build the network on every replica.

        Args:
            build: Makes the network.
            priors: float32 [A, 4], from `make_priors`.
            strategy: The replicas to train on.
            batch_spec: The `element_spec` of the (distributed) batches, for which the step is traced once.
            epsilon: Adam's epsilon. A large one makes a step proportional to its gradient, so that rounding errors stay
                small.
        """
        self.strategy = strategy
        self._epsilon = epsilon
        self._priors = priors
        with strategy.scope():
            self.model = build()
            self._weights = [variable.value for variable in self.model.trainable_variables]
            self._statistics = [variable.value for variable in self.model.non_trainable_variables]
            start = _flatten(self._weights).numpy()
            # The optimizer updates this vector; the network's own variables are copies of its parts.
            self._flat_weights = tf.Variable(start, trainable=False)
            self._first = tf.Variable(np.zeros_like(start), trainable=False)
            self._second = tf.Variable(np.zeros_like(start), trainable=False)
            self._average = tf.Variable(start, trainable=False)
            self._average_statistics = tf.Variable(_flatten(self._statistics).numpy(), trainable=False)
        sizes = [int(np.prod(weight.shape)) for weight in self._weights]
        decays = [WEIGHT_DECAY * (len(weight.shape) > 1) for weight in self._weights]
        self._decay = np.repeat(np.asarray(decays, np.float32), sizes)
        self._is_backbone = [is_backbone(weight.path) for weight in self.model.trainable_variables]
        self._flat_is_backbone = np.repeat(self._is_backbone, sizes)
        self._is_float16 = self.model.dtype_policy.compute_dtype == "float16"
        number = tf.TensorSpec((), tf.float32)
        # A step has no Python control flow on tensors, and AutoGraph's search for it takes a quarter of the tracing.
        trace = partial(tf.function, input_signature=(batch_spec, number, number, number), autograph=False)
        self._run = {phase: trace(partial(self._global_step, phase=phase)) for phase in get_args(_Phase)}

    def step(self, batch: dict[str, Tensor], *, rate: float, number: int, published_share: float = 1.0) -> StepLosses:
        """Learn one global batch.

        Args:
            batch: As `trainer.data.examples` describes it; distributed if there are several replicas.
            rate: The learning rate.
            number: The number of the step, from 0.
            published_share: The share of the rate for the weights before the pyramid; below 1 in transfer learning. At
                0 their gradients are not computed at all.

        Returns:
            The losses before the update.
        """
        run = self._run["frozen" if published_share == 0 else "free" if published_share == 1 else "slowed"]
        losses = run(batch, tf.constant(rate), tf.constant(published_share), tf.constant(float(number + 1)))
        score, box = (float(number) for number in losses.numpy())
        return StepLosses(score=score, box=box, total=score + BOX_WEIGHT * box)

    def _global_step(
        self, batch: dict[str, Tensor], rate: Tensor, share: Tensor, count: Tensor, *, phase: _Phase
    ) -> Tensor:
        losses = self.strategy.run(partial(self._replica_step, phase=phase), args=(batch, rate, share, count))
        # The losses are already equal on every replica.
        return self.strategy.experimental_local_results(losses)[0]

    def _replica_step(
        self, batch: dict[str, Tensor], rate: Tensor, share: Tensor, count: Tensor, *, phase: _Phase
    ) -> Tensor:
        replica = tf.distribute.get_replica_context()
        scale = FLOAT16_SCALE if self._is_float16 else 1.0
        with tf.GradientTape() as tape:
            outputs = self.model(normalize(tf.cast(batch["pictures"], tf.float32)), training=True)
            sums = loss_sums(outputs, true_boxes=batch["boxes"], true_labels=batch["labels"], priors=self._priors)
            own = tf.stack([sums.score, sums.box, sums.normalizer])
            score, box, normalizer = tf.unstack(replica.all_reduce(tf.distribute.ReduceOp.SUM, tf.stop_gradient(own)))
            normalizer = tf.maximum(normalizer, 1.0)
            loss = scale * (sums.score + BOX_WEIGHT * sums.box) / normalizer
        gradients = self._gradients(tape, loss, phase)
        gradient = replica.all_reduce(tf.distribute.ReduceOp.SUM, tf.stop_gradient(_flatten(gradients) / scale))
        self._update(gradient, rate, share, count, phase)
        return tf.stack([score, box]) / normalizer

    def _gradients(self, tape: tf.GradientTape, loss: Tensor, phase: _Phase) -> list[Tensor]:
        """The gradients of all weights; those of a frozen backbone are zeros and not computed."""
        weights = dict(enumerate(self._weights))
        learnt = {at: weight for at, weight in weights.items() if not (phase == "frozen" and self._is_backbone[at])}
        found = tape.gradient(loss, learnt, unconnected_gradients="zero")
        return [found[at] if at in found else tf.zeros_like(weight) for at, weight in weights.items()]

    def _update(self, gradient: Tensor, rate: Tensor, share: Tensor, count: Tensor, phase: _Phase) -> None:
        """AdamW on the flat vector, then the average of weights and statistics."""
        norm = tf.norm(gradient)
        gradient *= CLIP_NORM / tf.maximum(norm, CLIP_NORM)
        if self._is_float16:
            # If the scaled loss overflowed, skip this step's gradient.
            gradient = tf.where(tf.math.is_finite(norm), gradient, 0.0)
        before = tf.identity(self._flat_weights)
        _descend(self._flat_weights, rate, self._decay * before)
        self._adam(gradient, rate, count)
        if phase != "free":
            moved = tf.identity(self._flat_weights)
            self._flat_weights.assign(tf.where(self._flat_is_backbone, before + share * (moved - before), moved))
        weights = tf.identity(self._flat_weights)
        _assign(self._weights, weights)
        ramp = EMA_RAMP if phase == "free" else TAUGHT_EMA_RAMP
        share_of_now = 1 - tf.minimum(EMA_DECAY, (1 + count) / (ramp + count))
        for average, now in ((self._average, weights), (self._average_statistics, _flatten(self._statistics))):
            _descend(average, share_of_now, average - now)

    def _adam(self, gradient: Tensor, rate: Tensor, count: Tensor) -> None:
        """One pass over weights and both moments; the kernel adds epsilon before it corrects the second moment."""
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
        """Everything that a checkpoint needs from the network and the optimizer, as flat float32 vectors."""
        return {
            "weights": self._flat_weights.numpy(),
            "statistics": _flatten(self._statistics).numpy(),
            "first_moment": self._first.numpy(),
            "second_moment": self._second.numpy(),
            "average": self.average(),
        }

    def begin(self, average: NDArray[np.float32]) -> None:
        """Continue from a vector of `average` with an empty optimizer memory."""
        weights, statistics = np.split(average, [self._flat_weights.shape[0]])
        nothing = np.zeros_like(weights)
        moments = {"first_moment": nothing, "second_moment": nothing}
        self.restore({"weights": weights, "statistics": statistics, "average": average, **moments})

    def restore(self, state: dict[str, NDArray[np.float32]]) -> None:
        """Continue from `state()`.

        Raises:
            TrainingError: It is of another network, which another version of this program may have built.
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
        """The averaged weights and statistics as one flat float32 vector."""
        return np.concatenate([self._average.numpy(), self._average_statistics.numpy()])


def in_precision(precision: str, build: Callable[[], keras.Model]) -> keras.Model:
    """A network whose layers compute in `precision`, the name of a Keras dtype policy."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(precision)
    try:
        return build()
    finally:
        keras.config.set_dtype_policy(before)


def load_average(model: keras.Model, average: NDArray[np.float32]) -> None:
    """Load a flat vector from `Learner.average` into another copy of the network; `layout_of` names its parts."""
    variables = [*model.trainable_variables, *model.non_trainable_variables]
    _assign([variable.value for variable in variables], tf.constant(average))


def _descend(variable: Tensor, rate: Tensor, direction: Tensor) -> None:
    """Subtract `rate`, a scalar, times `direction` from `variable` in one pass."""
    tf.raw_ops.ResourceApplyGradientDescent(var=variable.handle, alpha=rate, delta=direction)


def _flatten(tensors: Sequence[Tensor]) -> Tensor:
    return tf.concat([tf.cast(tf.reshape(tensor, [-1]), tf.float32) for tensor in tensors], axis=0)


def _assign(variables: Sequence[Tensor], vector: Tensor) -> None:
    parts = tf.split(vector, [int(np.prod(variable.shape)) for variable in variables])
    for variable, part in zip(variables, parts, strict=True):
        variable.assign(tf.reshape(part, variable.shape))
