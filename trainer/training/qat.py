"""Trained network -> the same network, trained further with int8's rounding in it: quantization-aware fine-tuning.

Batch normalization is folded into the convolutions, weights and activations pass through fake quantization, and a few
hundred training steps let the weights adapt to int8's steps. The converter finds the ranges in the graph, so int8 needs
no calibration. Keras 3 has no such tool (TFMOT supports only Keras 2), so there are two layers of our own around
TensorFlow's operations.

Source of the scheme: Jacob et al., Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only
Inference (CVPR 2018); weights and ranges follow TFLite's 8-bit specification
(https://ai.google.dev/edge/litert/models/quantization_spec). Ranges are learned with the weights, as in Jain et al.,
Trained Quantization Thresholds (MLSys 2020).
"""

import logging
import math
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any, Final

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from shared.errors import TrainingError
from shared.leasing.guard import Guard
from shared.specs.training import QAT_REFUSED
from trainer.data.training_set import TrainingSet
from trainer.evaluation.coco_map import average_precision
from trainer.evaluation.measure import detect_all
from trainer.network.batch_norm import EPSILON, BatchNorm
from trainer.network.detector import make_priors
from trainer.network.postprocess import keras_detector
from trainer.pixels import normalize
from trainer.tensors import Tensor
from trainer.tflite.output_graph import LIFTED, LOGIT_LIFT
from trainer.training.schedule import Schedule
from trainer.training.train_step import Learner, load_average

logger = logging.getLogger(__name__)

# The steps of fine-tuning and their peak learning rate, a hundredth of training's: with a higher one BCCD's network
# lost what it had learned (docs/decisions/0026).
STEPS: Final = 200
PEAK_RATE: Final = 2e-5

# From how many batches the initial ranges are taken.
_RANGE_BATCHES: Final = 16

# How often the weights are judged during fine-tuning, so that it never loses more than it gains.
_VALIDATIONS: Final = 4
_VALIDATION_BATCH: Final = 8

# A picture in [-1, 1] has 255 steps of 1/127.5, which are the raw bytes that clients feed.
_PICTURE_RANGE: Final = (-1.0, 1.0)
# The output layers whose rows come from three convolutions, which need one common range, or the converter would
# requantize them.
_OUTPUTS: Final = ("boxes", "scores")

# Layer name -> (least, greatest) value of its output.
Ranges = Mapping[str, tuple[float, float]]


@keras.saving.register_keras_serializable("voc2tflite")
class FakeQuant(keras.layers.Layer):  # type: ignore[misc]  # Keras is untyped
    """Rounds to the 256 steps between `low` and `high`, as int8 will; gradients pass through, and move both ends."""

    def __init__(self, low: float, high: float, **options: Any) -> None:
        """Start with the range [low, high], which must contain 0."""
        super().__init__(**options)
        self._start = {"low": low, "high": high}

    def build(self, _input_shape: tuple[int | None, ...]) -> None:
        """Make the weights, which are the two ends."""
        self.low, self.high = (
            self.add_weight(name=name, shape=(), initializer=keras.initializers.Constant(value), dtype="float32")
            for name, value in self._start.items()
        )

    def call(self, x: Tensor) -> Tensor:
        """Round `x`."""
        return tf.quantization.fake_quant_with_min_max_vars(x, tf.minimum(self.low, 0.0), tf.maximum(self.high, 0.0))

    def get_config(self) -> dict[str, Any]:
        """The configuration that is saved in `model_qat.keras`."""
        return {**super().get_config(), **self._start}


@keras.saving.register_keras_serializable("voc2tflite")
class FakeQuantConv2D(keras.layers.Conv2D):  # type: ignore[misc]  # Keras is untyped
    """A convolution whose weights are rounded to 255 symmetric steps, with a scale per output channel."""

    def convolution_op(self, inputs: Tensor, kernel: Tensor) -> Tensor:
        """Convolve with the rounded kernel [h, w, in, out]."""
        return super().convolution_op(inputs, _round_kernel(tf.convert_to_tensor(kernel)))


@tf.custom_gradient  # type: ignore[untyped-decorator]  # TensorFlow is untyped
def _round_kernel(kernel: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """A kernel [h, w, in, out] rounded to 255 steps, up to the peak of each output channel.

    Nothing lies outside the peaks, so the gradient is the identity; TensorFlow's own gradient for this operation
    handles each channel separately and took as long as the convolution's.
    """
    peak = tf.maximum(tf.reduce_max(tf.abs(kernel), axis=(0, 1, 2)), 1e-6)
    rounded = tf.quantization.fake_quant_with_min_max_vars_per_channel(kernel, -peak, peak, narrow_range=True)
    return rounded, lambda upstream: upstream


def fine_tune(
    network: keras.Model,
    dataset: TrainingSet,
    *,
    strategy: tf.distribute.Strategy,
    guard: Guard,
    steps: int = STEPS,
    peak_rate: float = PEAK_RATE,
) -> keras.Model:
    """Let a trained network adapt to int8's steps.

    Args:
        network: As `build_model` makes it with our own backbone, with the weights to start from; it is not changed.
        dataset: What it was trained on.
        strategy: The replicas to train on.
        guard: Asked before every step.
        steps: How many steps.
        peak_rate: The peak rate of the schedule, which falls right after its warm-up.

    Returns:
        A network with the same input and outputs, fake quantization inside, and the averaged weights that did best on
        the validation split.

    Raises:
        TrainingError: The loss is not finite, or the network has another backbone.
        StopRequested: The process was asked to stop; the next attempt starts fine-tuning again.
    """
    batches = dataset.batches(0)
    ranges = observed_ranges(network, (batch["pictures"] for batch in batches.take(_RANGE_BATCHES)))
    if strategy.num_replicas_in_sync > 1:
        batches = strategy.experimental_distribute_dataset(batches)
    build: Callable[[], keras.Model] = lambda: with_rounding(network, ranges)  # noqa: E731
    learner = Learner(build, make_priors(dataset.image_size), strategy, batches.element_spec)
    schedule = Schedule(steps=steps, steps_per_epoch=steps, peak_rate=peak_rate)
    choice = _BestWeights(build(), dataset, learner.average())
    for step, batch in enumerate(islice(batches, steps), start=1):
        guard.advance(phase="qat", step=step, steps=steps)
        losses = learner.step(batch, rate=schedule.rate(step - 1), number=step - 1)
        if not math.isfinite(losses.total):
            raise TrainingError(f"the loss of fine-tuning step {step} is {losses.total}")
        if step % max(1, steps // _VALIDATIONS) == 0 or step == steps:
            choice.offer(learner.average(), step)
    return choice.restored()


class _BestWeights:
    """The weights with the best validation mAP, including those before fine-tuning; the last if there is none."""

    def __init__(self, network: keras.Model, dataset: TrainingSet, start: NDArray[np.float32]) -> None:
        self._network, self._dataset = network, dataset
        self._detect = keras_detector(network, make_priors(dataset.image_size))
        self._best, self._best_map = start, -1.0
        self.offer(start, 0)

    def offer(self, weights: NDArray[np.float32], step: int) -> None:
        """Keep `weights` if they are better than the best so far, or if there is nothing to judge them by."""
        validation = self._dataset.validation
        precision = 1.0
        if validation is not None and len(validation):
            load_average(self._network, weights)
            found = detect_all(self._detect, validation.shard_pictures(), batch=_VALIDATION_BATCH)
            precision = average_precision(self._dataset.truth, found).map
        logger.info("fine_tuning_judged", extra={"step": step, "val_map": round(precision, 4)})
        if precision > self._best_map or validation is None:
            self._best, self._best_map = weights, precision

    def restored(self) -> keras.Model:
        """The network with the best weights."""
        load_average(self._network, self._best)
        return self._network


def observed_ranges(network: keras.Model, batches: Iterable[Tensor]) -> dict[str, tuple[float, float]]:
    """The least and greatest output of every layer that int8 will round, over some batches.

    Args:
        network: The trained network.
        batches: uint8 pictures [B, H, W, 3].
    """
    watched = {layer.name: _rounded_output(layer) for layer in network.layers if _is_rounded(layer)}
    observer = keras.Model(network.input, watched)
    observe = tf.function(
        lambda pictures: {
            name: tf.stack([tf.reduce_min(values), tf.reduce_max(values)])
            for name, values in observer(normalize(tf.cast(pictures, tf.float32)), training=False).items()
        }
    )
    seen = [{name: ends.numpy() for name, ends in observe(pictures).items()} for pictures in batches]
    return {
        name: (min(0.0, *(float(ends[name][0]) for ends in seen)), max(float(ends[name][1]) for ends in seen))
        for name in watched
    }


def with_rounding(network: keras.Model, ranges: Ranges) -> keras.Model:
    """A copy of `network` with batch normalization folded that rounds wherever int8 does.

    Args:
        network: The trained network.
        ranges: From `observed_ranges`.

    Returns:
        A network with the same input and outputs ("scores" are logits); its layer "lifted" gives what is exported:
        logits raised by `LOGIT_LIFT`, cut at zero and rounded.

    Raises:
        TrainingError: It has the normalization or depthwise convolutions of a published backbone.
    """
    foreign = (keras.layers.BatchNormalization, keras.layers.DepthwiseConv2D)
    if any(isinstance(layer, foreign) for layer in network.layers):
        raise TrainingError(QAT_REFUSED)
    followers = {
        layer.name: [node.operation for node in layer._outbound_nodes if node.operation in network.operations]
        for layer in network.layers
    }
    weights: dict[str, list[NDArray[np.float32]]] = {}

    def clone(layer: keras.Layer) -> keras.Layer:
        if not isinstance(layer, keras.layers.Conv2D):
            return layer.__class__.from_config(layer.get_config())
        weights[layer.name] = _folded(layer, followers[layer.name][0])
        return FakeQuantConv2D.from_config(layer.get_config() | {"use_bias": True})

    image = keras.Input(network.input.shape[1:], name="image")

    def call(layer: keras.Layer, *inputs: Tensor, **options: Any) -> Tensor:
        if isinstance(layer, BatchNorm):
            return inputs[0]
        if inputs[0] is image:
            low, high = _PICTURE_RANGE
            inputs = (FakeQuant(low, high, trainable=False, name="image_rounded")(image),)
        return _round_output(layer.name, layer(*inputs, **options), ranges)

    copy = keras.models.clone_model(network, input_tensors=image, clone_function=clone, call_function=call)
    for name, values in weights.items():
        copy.get_layer(name).set_weights(values)
    return copy


def _is_rounded(layer: keras.Layer) -> bool:
    """Whether the layer's output gets its own range; layers that only move numbers keep their input's."""
    return isinstance(layer, keras.layers.ReLU | keras.layers.Add) or layer.name in _OUTPUTS


def _rounded_output(layer: keras.Layer) -> Tensor:
    return keras.ops.relu(layer.output + LOGIT_LIFT) if layer.name == "scores" else layer.output


def _round_output(name: str, output: Tensor, ranges: Ranges) -> Tensor:
    """What follows the copy of the layer `name`."""
    if _is_score(name):
        # The lift is already in the bias, and this ReLU is fused into the convolution. It is named as in the exporter.
        return keras.layers.ReLU(name=f"{LIFTED}_{name.split('_')[1]}")(output)
    if name not in ranges:
        return output
    low, high = ranges[name]
    if name == "scores":
        return FakeQuant(low, high, name=LIFTED)(output) - LOGIT_LIFT
    return FakeQuant(low, high, name=f"{name}_rounded")(output)


def _is_score(name: str) -> bool:
    return name.startswith("scores_") and name.endswith("_out")


def _folded(conv: keras.Layer, follower: keras.Layer) -> list[NDArray[np.float32]]:
    """The kernel and bias of a convolution with the normalization after it, if there is one, folded in."""
    kernel = np.asarray(conv.kernel)
    if not isinstance(follower, BatchNorm):
        bias = np.asarray(conv.bias)
        return [kernel, bias + np.float32(LOGIT_LIFT) if _is_score(conv.name) else bias]
    scale = np.asarray(follower.gamma, np.float32) / np.sqrt(np.asarray(follower.moving_variance) + np.float32(EPSILON))
    offset = np.asarray(follower.beta) - np.asarray(follower.moving_mean) * scale
    return [(kernel * scale).astype(np.float32), offset.astype(np.float32)]
