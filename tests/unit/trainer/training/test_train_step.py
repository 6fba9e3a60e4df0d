"""A step on one flat vector against the same written plainly: variable by variable, as the papers have it."""

from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from shared.specs.augmentation import Augmentation
from tests.unit.trainer.pictures import drawn_examples
from tests.unit.trainer.training.test_loop import SIDE, small_network
from trainer.data.batches import batches_from_memory
from trainer.network.detector import build_model, is_backbone, make_priors
from trainer.network.loss import BOX_WEIGHT, loss_sums
from trainer.pixels import normalize
from trainer.training.strategy import make_strategy
from trainer.training.train_step import (
    BETA_1,
    BETA_2,
    CLIP_NORM,
    EMA_DECAY,
    EMA_RAMP,
    TAUGHT_EMA_RAMP,
    WEIGHT_DECAY,
    Learner,
)

BATCH = 4
RATE = 0.02

# Far above every rounding error: Adam divides a gradient by its own size, and a tiny one is all rounding error.
EPSILON = 1.0

Arrays = list[np.ndarray]


@dataclass
class Plain:
    """One network, AdamW with its moments, and the averages of weights and statistics: an array for each variable."""

    network: keras.Model
    first: Arrays
    second: Arrays
    average: Arrays

    def variables(self) -> Arrays:
        return [value.numpy() for value in (*self.network.trainable_variables, *self.network.non_trainable_variables)]

    def step(self, batch: dict[str, Any], number: int) -> tuple[float, float]:
        """One step; the loss and the norm of the whole gradient before it was clipped."""
        weights = self.network.trainable_variables
        with tf.GradientTape() as tape:
            outputs = self.network(normalize(tf.cast(batch["pictures"], tf.float32)), training=True)
            sums = loss_sums(outputs, true_boxes=batch["boxes"], true_labels=batch["labels"], priors=make_priors(SIDE))
            loss = (sums.score + BOX_WEIGHT * sums.box) / tf.maximum(sums.normalizer, 1.0)
        gradients, norm = tf.clip_by_global_norm(tape.gradient(loss, [value.value for value in weights]), CLIP_NORM)
        count = number + 1
        for place, (weight, gradient) in enumerate(zip(weights, gradients, strict=True)):
            before, g = weight.numpy(), gradient.numpy()
            self.first[place] = BETA_1 * self.first[place] + (1 - BETA_1) * g
            self.second[place] = BETA_2 * self.second[place] + (1 - BETA_2) * g**2
            m, v = self.first[place] / (1 - BETA_1**count), self.second[place] / (1 - BETA_2**count)
            decay = WEIGHT_DECAY if before.ndim > 1 else 0.0
            weight.assign(before - RATE * decay * before - RATE * m / (np.sqrt(v) + EPSILON))
        kept = min(EMA_DECAY, (1 + count) / (EMA_RAMP + count))
        self.average = [kept * old + (1 - kept) * now for old, now in zip(self.average, self.variables(), strict=True)]
        return float(loss), float(norm)


def plain_copy(learner: Learner) -> Plain:
    network = small_network()
    network.set_weights(learner.model.get_weights())
    zeros = [np.zeros(value.shape) for value in network.trainable_variables]
    plain = Plain(network, first=[*zeros], second=[*zeros], average=[])
    plain.average = plain.variables()
    return plain


def flat(values: Arrays) -> np.ndarray:
    return np.concatenate([value.ravel() for value in values])


def quiet_network() -> keras.Model:
    """Its scores start low, as the detector's do: its gradient is small enough to pass unclipped."""
    network = small_network()
    for layer in network.layers:
        if layer.name.startswith("out_"):
            kernel, bias = layer.get_weights()
            layer.set_weights([kernel * 0.01, bias - 5.0 * layer.name.startswith("out_scores")])
    return network


@pytest.mark.parametrize(("build", "is_clipped"), [(quiet_network, False), (small_network, True)])
def test_steps_equal_adamw_clipping_and_averages_written_plainly(build: Any, is_clipped: bool) -> None:
    keras.utils.set_random_seed(0)
    stream = batches_from_memory(drawn_examples(12), batch=BATCH, recipe=Augmentation(), seed=0)
    learner = Learner(build, make_priors(SIDE), make_strategy(1), stream.element_spec, epsilon=EPSILON)
    plain = plain_copy(learner)
    start = flat(plain.variables())
    for number, batch in zip(range(3), stream, strict=False):
        losses = learner.step(batch, rate=RATE, number=number)
        loss, norm = plain.step(batch, number)
        assert (norm > CLIP_NORM) == is_clipped
        assert losses.total == pytest.approx(loss, rel=1e-4)
        state = learner.state()
        expected = {
            "weights": flat(plain.variables())[: state["weights"].size],
            "statistics": flat(plain.variables())[state["weights"].size :],
            "first_moment": flat(plain.first),
            "second_moment": flat(plain.second),
            "average": flat(plain.average),
        }
        for name, values in expected.items():
            np.testing.assert_allclose(state[name], values, rtol=1e-4, atol=1e-5 * np.abs(values).max(), err_msg=name)
    assert np.abs(flat(plain.variables()) - start).max() > 1e-3, "the steps are large enough to differ"


def test_weights_before_the_pyramid_move_by_their_share_of_the_rate() -> None:
    """In transfer learning: not at all, half as far, and as far as all others."""
    stream = batches_from_memory(drawn_examples(8), batch=BATCH, recipe=Augmentation(), seed=0)
    batch, moves = next(iter(stream)), {}
    for share in (0.0, 0.5, 1.0):
        keras.utils.set_random_seed(0)
        learner = Learner(
            lambda: build_model(2, SIDE, "nano"), make_priors(SIDE), make_strategy(1), stream.element_spec
        )
        before = [value.numpy() for value in learner.model.trainable_variables]
        learner.step(batch, rate=1e-3, number=0, published_share=share)
        moves[share] = [
            value.numpy() - old for value, old in zip(learner.model.trainable_variables, before, strict=True)
        ]
        paths = [value.path for value in learner.model.trainable_variables]
    for path, none, half, whole in zip(paths, *moves.values(), strict=True):
        expected = 0.0 if is_backbone(path) else 1.0
        np.testing.assert_allclose(none, expected * whole, atol=1e-7, err_msg=path)
        np.testing.assert_allclose(half, (0.5 + 0.5 * expected) * whole, atol=1e-6, err_msg=path)
    assert {is_backbone(path) for path in paths} == {True, False}
    assert max(np.abs(move).max() for move in moves[1.0]) > 1e-4


@pytest.mark.parametrize(("share", "ramp"), [(0.0, TAUGHT_EMA_RAMP), (0.3, TAUGHT_EMA_RAMP), (1.0, EMA_RAMP)])
def test_the_average_follows_a_taught_backbone_twice_as_closely(share: float, ramp: float) -> None:
    stream = batches_from_memory(drawn_examples(8), batch=BATCH, recipe=Augmentation(), seed=0)
    learner = Learner(lambda: build_model(2, SIDE, "nano"), make_priors(SIDE), make_strategy(1), stream.element_spec)
    expected: np.ndarray = learner.average()
    for number, batch in zip(range(3), stream, strict=False):
        learner.step(batch, rate=1e-3, number=number, published_share=share)
        state = learner.state()
        kept = (2 + number) / (ramp + number + 1)
        expected = kept * expected + (1 - kept) * np.concatenate([state["weights"], state["statistics"]])
    np.testing.assert_allclose(learner.average(), expected, rtol=1e-4, atol=1e-6)


def test_the_optimizer_remembers_nothing_of_a_frozen_backbone() -> None:
    stream = batches_from_memory(drawn_examples(8), batch=BATCH, recipe=Augmentation(), seed=0)
    learner = Learner(lambda: build_model(2, SIDE, "nano"), make_priors(SIDE), make_strategy(1), stream.element_spec)
    weights = learner.model.trainable_variables
    is_frozen = np.repeat([is_backbone(weight.path) for weight in weights], [np.size(weight) for weight in weights])
    learner.step(next(iter(stream)), rate=1e-3, number=0, published_share=0.0)
    state = learner.state()
    for moment in ("first_moment", "second_moment"):
        assert not state[moment][is_frozen].any()
        assert state[moment][~is_frozen].any()
