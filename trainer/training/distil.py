"""A data set's own pictures -> a network of ours that starts with what ImageNet taught EfficientNet-Lite0.

Before it learns boxes, its backbone learns to reproduce Lite0's features of the same pictures at strides 8, 16 and 32,
each through a 1x1 convolution that is thrown away afterwards: the hints of Romero et al., FitNets: Hints for Thin Deep
Nets, ICLR 2015. This needs no labels, and the network keeps its size and speed. Why: docs/decisions/0097.
"""

import io
import logging
import math
import time
import zipfile
from collections.abc import Callable
from typing import Any, Final

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from shared.errors import StopRequested, StorageError, TrainingError
from shared.jobs.paths import RunPaths
from shared.leasing.guard import Guard
from shared.specs.run import RunSpec
from shared.specs.training import DISTIL_SHARE
from shared.storage import Storage
from trainer.data.training_set import TrainingSet
from trainer.network.detector import backbone_outputs
from trainer.network.efficientnet_lite import TEACHER, lite_levels, load_imagenet
from trainer.pixels import normalize
from trainer.tensors import Tensor
from trainer.training.train_step import BETA_2, CLIP_NORM, WEIGHT_DECAY, load_average

logger = logging.getLogger(__name__)

STEPS: Final = 1_500
PEAK_RATE: Final = 2e-3
WARM_UP: Final = 0.1  # share of the steps
SAVE_EVERY_S: Final = 60.0

# From how many batches the mean and deviation of each of the teacher's channels are computed.
_MEASURED_BATCHES: Final = 20
# Errors are capped at this many deviations.
_MOST_DEVIATIONS: Final = 5.0


def distilled(
    build: Callable[[], keras.Model],
    dataset: TrainingSet,
    spec: RunSpec,
    *,
    storage: Storage,
    guard: Guard,
    steps: int = STEPS,
) -> Callable[[], keras.Model]:
    """A function that makes networks as `build` does, with a backbone that has learned Lite0's features.

    What has been learned is saved beside the run's checkpoints, so that a later attempt continues from there.

    Args:
        build: Makes a network of ours with fresh weights.
        dataset: Its training pictures are used, its labels are not.
        spec: The run; its `max_minutes` limit this too.
        storage: Where the learned weights are saved.
        guard: Asked before each step.
        steps: How many steps it takes, if there is time.

    Raises:
        TrainingError: Lite0's weights cannot be loaded, or the loss is not finite.
        StopRequested: The process was asked to stop; what was learned is saved.
    """
    learned = _Imitation(build, dataset, spec, storage, guard, steps).run()

    def begin() -> keras.Model:
        network = build()
        load_average(network, learned)
        return network

    return begin


class _Imitation:
    """A network that learns Lite0's features, and how far it is."""

    def __init__(
        self,
        build: Callable[[], keras.Model],
        dataset: TrainingSet,
        spec: RunSpec,
        storage: Storage,
        guard: Guard,
        steps: int,
    ) -> None:
        keras.utils.set_random_seed(spec.seed)
        self._dataset, self._storage, self._guard, self._steps = dataset, storage, guard, steps
        self._key: Final = RunPaths(spec.run).distilled
        self._limit_s = math.inf if spec.max_minutes is None else 60 * DISTIL_SHARE * spec.max_minutes
        self._network = build()
        self._teacher = _lite0(dataset.image_size)
        hints = [
            keras.layers.Conv2D(level.shape[-1], 1, name=f"hint{place}")(own)
            for place, (own, level) in enumerate(
                zip(backbone_outputs(self._network), self._teacher.outputs, strict=True)
            )
        ]
        self._pupil = keras.Model(self._network.input, hints)
        self._optimizer = keras.optimizers.AdamW(weight_decay=WEIGHT_DECAY, beta_2=BETA_2, clipnorm=CLIP_NORM)
        self._optimizer.build(self._pupil.trainable_variables)
        self._step, self._spent_s, self._losses = 0, 0.0, np.zeros(len(hints), np.float32)
        self._run_step = tf.function(self._learn, autograph=False)

    def run(self) -> NDArray[np.float32]:
        """Train; returns all weights and statistics of the network as one flat vector for `load_average`."""
        self._resume()
        if self._is_over:
            return self._weights()
        batches = self._dataset.opening or self._dataset.batches
        self._moments = self._measured(batches(0))
        began_s = saved_s = time.monotonic()
        before_s = self._spent_s
        for batch in batches(self._step):
            self._tell()
            self._losses = self._run_step(batch["pictures"], tf.constant(self._rate)).numpy()
            if not np.isfinite(self._losses).all():
                raise TrainingError(f"--distil: the loss of step {self._step} is {self._losses.tolist()}")
            self._step += 1
            self._spent_s = before_s + time.monotonic() - began_s
            if self._is_over:
                break
            if time.monotonic() - saved_s > SAVE_EVERY_S:
                self._save()
                saved_s = time.monotonic()
        self._save()
        logger.info("distilled", extra={"steps": self._step, "losses": np.round(self._losses, 3).tolist()})
        return self._weights()

    @property
    def _share(self) -> float:
        """The share that is done, by steps or by time, whichever is larger."""
        return max(self._step / self._steps, self._spent_s / self._limit_s)

    @property
    def _is_over(self) -> bool:
        return self._share >= 1

    @property
    def _rate(self) -> float:
        """The learning rate: a linear warm-up, then half a cosine down to 0."""
        if self._share < WARM_UP:
            return PEAK_RATE * max(self._share, 1 / self._steps) / WARM_UP
        return PEAK_RATE * (1 + math.cos(math.pi * (self._share - WARM_UP) / (1 - WARM_UP))) / 2

    def _tell(self) -> None:
        """Tell the guard how far we are; if it asks us to stop, save first."""
        shown: dict[str, float | str] = {"phase": "distil", "step": self._step, "steps": self._steps}
        if self._share:
            shown["eta_s"] = round(self._spent_s * (1 - self._share) / self._share)
        if self._losses.any():
            shown["loss"] = round(float(self._losses.sum()), 4)
        try:
            self._guard.advance(**shown)
        except StopRequested:
            self._save()
            raise

    def _measured(self, batches: tf.data.Dataset) -> list[tuple[Tensor, Tensor]]:
        """For each of the teacher's levels, the mean and standard deviation of its channels, float32 [C] each."""
        seen = [self._teacher(_pixels(batch["pictures"])) for batch in batches.take(_MEASURED_BATCHES)]
        moments = [tf.nn.moments(tf.concat(level, 0), (0, 1, 2)) for level in zip(*seen, strict=True)]
        return [(mean, tf.sqrt(variance + 1e-6)) for mean, variance in moments]

    def _learn(self, pictures: Tensor, rate: Tensor) -> Tensor:
        """One step on uint8 [B, H, W, 3]; returns the levels' mean squared errors before it, in squared deviations."""
        pixels = _pixels(pictures)
        wanted = [
            (level - mean) / deviation
            for level, (mean, deviation) in zip(self._teacher(pixels), self._moments, strict=True)
        ]
        weights = self._pupil.trainable_variables
        with tf.GradientTape() as tape:
            errors = [
                tf.reduce_mean(tf.minimum(tf.square(given - level), _MOST_DEVIATIONS**2))
                for given, level in zip(self._pupil(pixels, training=True), wanted, strict=True)
            ]
            gradients = tape.gradient(tf.add_n(errors), weights)
        self._optimizer.learning_rate = rate
        self._optimizer.apply(gradients, weights)
        return tf.stack(errors)

    def _weights(self) -> NDArray[np.float32]:
        variables = [*self._network.trainable_variables, *self._network.non_trainable_variables]
        return np.concatenate([np.asarray(variable, np.float32).ravel() for variable in variables])

    def _state(self) -> list[Any]:
        """Every variable that a step changes; those after the backbone stay as the seed made them."""
        return [*self._pupil.variables, *self._optimizer.variables]

    def _save(self) -> None:
        self._guard.require_wanted()
        content = io.BytesIO()
        state = self._state()
        facts = {"at": np.array([self._step, self._spent_s]), "manifest": np.array(self._dataset.fingerprint)}
        arrays = facts | {_name(place): np.asarray(values) for place, values in enumerate(state)}
        # numpy's stub takes keyword arrays for its own flag.
        np.savez(content, **arrays)  # type: ignore[arg-type]
        self._storage.write(self._key, content.getvalue())

    def _resume(self) -> None:
        """Continue from the saved state; if it is damaged, or from other shards, it counts as absent."""
        if not self._storage.exists(self._key):
            return
        state = self._state()
        try:
            with np.load(io.BytesIO(self._storage.read(self._key))) as stored:
                found = [stored[_name(place)] for place in range(len(state))]
                at, manifest = stored["at"], str(stored["manifest"])
        except (zipfile.BadZipFile, EOFError, ValueError, KeyError, StorageError) as error:
            logger.warning("distilled_damaged", extra={"key": self._storage.url(self._key), "reason": str(error)})
            return
        shapes = [tuple(variable.shape) for variable in state]
        if manifest != self._dataset.fingerprint or [values.shape for values in found] != shapes:
            logger.warning("distilled_of_other_shards", extra={"key": self._storage.url(self._key)})
            return
        for variable, values in zip(state, found, strict=True):
            variable.assign(values)
        self._step, self._spent_s = int(at[0]), float(at[1])
        logger.info("distilling_resumed", extra={"step": self._step})


def _lite0(image_size: int) -> keras.Model:
    """The teacher: from pictures, RGB in [-1, 1], to its features at strides 8, 16 and 32."""
    pictures = keras.Input((image_size, image_size, 3))
    network = keras.Model(pictures, lite_levels(pictures, TEACHER))
    load_imagenet(network, TEACHER)
    return network


def _pixels(pictures: Tensor) -> Tensor:
    return normalize(tf.cast(pictures, tf.float32))


def _name(place: int) -> str:
    """The name of a variable in the file."""
    return f"state_{place:04d}"
