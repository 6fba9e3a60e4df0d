"""One device and several replicas learn the same from the same batches."""

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from shared.specs.augmentation import Augmentation
from shared.specs.training import Backbone
from tests.unit.trainer.pictures import drawn_examples
from tests.unit.trainer.training.test_loop import small_network, trained
from trainer.data.batches import batches_from_memory
from trainer.network.detector import build_model, make_priors
from trainer.training.schedule import BASE_BATCH, BASE_RATE
from trainer.training.strategy import gains_by_precision, make_strategy, usual_precision
from trainer.training.train_step import Learner

SIDE = 64
BATCH = 8
STEPS = 4

# Adam divides a gradient by its own size: where one is all rounding error, the sign of that error decides a whole step
# of the rate. With an epsilon far above every gradient a step is proportional to it, and equality can be asked for.
EPSILON = 10.0
RATE = 0.1

# Of a vector's largest value: what float32 sums in another order make of it in some layers.
ROUNDING = 2e-5

# How much more than one device does with the same pictures in another order.
REORDERED = 8

State = dict[str, np.ndarray[Any, Any]]


def learned(
    build: Callable[[], keras.Model],
    replicas: int,
    monkeypatch: pytest.MonkeyPatch,
    *,
    steps: int = STEPS,
    is_reversed: bool = False,
) -> list[State]:
    """The state before and after each of `steps` steps, and the losses of each; `is_reversed` turns batches round."""
    # Ring collectives keep the group's size under a key that counts on within a process.
    monkeypatch.setattr(tf.distribute.MirroredStrategy, "_collective_key_base", 1000 * replicas)
    keras.utils.set_random_seed(0)
    strategy = make_strategy(replicas)
    stream: Any = batches_from_memory(drawn_examples(12), batch=BATCH, recipe=Augmentation(), seed=0)
    if is_reversed:
        stream = stream.map(lambda batch: {name: tf.reverse(values, [0]) for name, values in batch.items()})
    if replicas > 1:
        stream = strategy.experimental_distribute_dataset(stream)
    learner = Learner(build, make_priors(SIDE), strategy, stream.element_spec, epsilon=EPSILON)
    states = [learner.state()]
    for number, batch in zip(range(steps), stream, strict=False):
        parts = strategy.experimental_local_results(batch["pictures"])
        assert [part.shape[0] for part in parts] == [BATCH // replicas] * replicas, (
            "12 pictures, 8 a batch: never uneven"
        )
        losses = learner.step(batch, rate=RATE, number=number)
        states.append({**learner.state(), "losses": np.array([losses.score, losses.box])})
    return states


def distance(some: State, others: State) -> dict[str, float]:
    """The largest difference of each vector, as a share of its largest value."""
    return {
        name: float(np.abs(others[name] - values).max() / max(np.abs(values).max(), 1e-30))
        for name, values in some.items()
    }


def assert_equal_learning(
    build: Callable[[], keras.Model], replicas: int, monkeypatch: pytest.MonkeyPatch, steps: int = STEPS
) -> None:
    """Replicas are as near to one device as one device is to itself with its pictures in another order."""
    one, several = (learned(build, count, monkeypatch, steps=steps) for count in (1, replicas))
    reordered = learned(build, 1, monkeypatch, steps=steps, is_reversed=True)
    assert np.abs(one[-1]["weights"] - one[0]["weights"]).max() > 1e-4, "the steps are large enough to differ"
    for number, (expected, found, other) in enumerate(zip(one, several, reordered, strict=True)):
        apart, rounding = distance(expected, found), distance(expected, other)
        for name, share in apart.items():
            print(f"step {number}, {name}: {replicas} replicas {share:.1e}, reordered {rounding[name]:.1e}")
            assert share <= ROUNDING + REORDERED * rounding[name], f"{name} after step {number}"


@pytest.mark.parametrize("replicas", [2, 4])
def test_replicas_learn_what_one_device_learns(replicas: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_equal_learning(small_network, replicas, monkeypatch)


@pytest.mark.parametrize("replicas", [1, 2, 4])
def test_batch_and_rate_follow_the_number_of_replicas(
    tmp_path: Path, replicas: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tf.distribute.MirroredStrategy, "_collective_key_base", 2000 * replicas)
    # Five validation pictures are no multiple of anything: they are padded, and each is judged once.
    done = trained(tmp_path, replicas=replicas, batch=4 * replicas, epochs=1)
    assert done.progress.schedule is not None
    assert done.progress.schedule.peak_rate == pytest.approx(BASE_RATE * math.sqrt(4 * replicas / BASE_BATCH))
    assert done.progress.schedule.steps_per_epoch == max(1, round(12 / (4 * replicas)))
    assert done.progress.rows[-1].val_map is not None


@pytest.mark.slow
@pytest.mark.timeout(1200)  # tracing two replicas takes 100 s of a core, four more
@pytest.mark.parametrize(
    ("backbone", "weights", "replicas"),
    [("conv", "none", 2), ("conv", "none", 4), ("efficientnet_lite0", "imagenet", 2)],
)
def test_replicas_of_the_whole_detector_learn_what_one_device_learns(
    backbone: Backbone, weights: str, replicas: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = partial(build_model, 2, SIDE, "nano", backbone=backbone, weights=weights)
    # A rounding error grows with every layer and step, and Lite0 has four times as many layers.
    assert_equal_learning(build, replicas, monkeypatch, steps=STEPS if backbone == "conv" else 2)


def test_mixed_precision_is_told_to_gain_only_where_it_does() -> None:
    assert gains_by_precision("float32", "conv", frozenset())
    assert not gains_by_precision("mixed_bfloat16", "conv", frozenset({"avx512f"}))
    assert gains_by_precision("mixed_bfloat16", "conv", frozenset({"avx512f", "avx512_bf16"}))
    assert not gains_by_precision("mixed_bfloat16", "efficientnet_lite0", frozenset({"avx512f", "avx512_bf16"}))
    assert not gains_by_precision("mixed_float16", "conv", frozenset({"avx512_bf16"}))


def test_a_run_that_asks_for_no_precision_gets_what_was_measured_to_be_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TF_ENABLE_ONEDNN_OPTS", raising=False)
    with_units = frozenset({"avx512f", "avx512_bf16"})
    assert usual_precision("conv", with_units) == "mixed_bfloat16"
    assert usual_precision("efficientnet_lite0", with_units) == "float32"
    assert usual_precision("conv", frozenset({"avx512f", "bf16"})) == "float32"
    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", "0")
    assert usual_precision("conv", with_units) == "float32"
