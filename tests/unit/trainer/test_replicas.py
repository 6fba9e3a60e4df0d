"""One device and several replicas learn the same from the same batches."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from shared.job import Augmentation
from tests.unit.trainer.pictures import drawn_examples
from tests.unit.trainer.test_train import small_network, trained
from trainer.batches import batches_from_memory
from trainer.learner import Learner
from trainer.model import build_model, priors
from trainer.schedule import BASE_BATCH, BASE_RATE
from trainer.strategy import make_strategy

SIDE = 64
BATCH = 8
STEPS = 4

# Adam divides a gradient by its own size: where one is all rounding error, the sign of that error decides a whole step
# of the rate. With an epsilon far above every gradient a step is proportional to it, and equality can be asked for.
EPSILON = 10.0
RATE = 0.5

State = dict[str, np.ndarray[Any, Any]]


def learned(build: Callable[[], keras.Model], replicas: int, monkeypatch: pytest.MonkeyPatch) -> list[State]:
    """The state before and after each of `STEPS` steps, and the loss of each."""
    # Ring collectives keep the group's size under a key that counts on within a process.
    monkeypatch.setattr(tf.distribute.MirroredStrategy, "_collective_key_base", 1000 * replicas)
    keras.utils.set_random_seed(0)
    strategy = make_strategy(replicas)
    stream: Any = batches_from_memory(drawn_examples(12), batch=BATCH, recipe=Augmentation(), seed=0)
    if replicas > 1:
        stream = strategy.experimental_distribute_dataset(stream)
    learner = Learner(build, priors(SIDE), strategy, stream.element_spec, epsilon=EPSILON)
    states = [learner.state()]
    for number, batch in zip(range(STEPS), stream, strict=False):
        parts = strategy.experimental_local_results(batch["pictures"])
        assert [part.shape[0] for part in parts] == [BATCH // replicas] * replicas, (
            "12 pictures, 8 a batch: never uneven"
        )
        losses = learner.step(batch, rate=RATE, number=number)
        states.append({**learner.state(), "losses": np.array([losses.score, losses.box])})
    return states


def assert_equal_learning(build: Callable[[], keras.Model], replicas: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every vector of the learner within 2e-5 of its own scale after each step: float32 sums in another order."""
    one, several = (learned(build, count, monkeypatch) for count in (1, replicas))
    moved = np.abs(one[-1]["weights"] - one[0]["weights"]).max()
    assert moved > 1e-3, "the steps are large enough to differ"
    for number, (expected, found) in enumerate(zip(one, several, strict=True)):
        for name, values in expected.items():
            distance, scale = np.abs(found[name] - values).max(), np.abs(values).max()
            print(f"{replicas} replicas, step {number}, {name}: {distance / max(scale, 1e-30):.1e}")
            assert distance <= 2e-5 * scale, f"{name} after step {number}"


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
@pytest.mark.parametrize("replicas", [2, 4])
def test_replicas_of_the_whole_detector_learn_what_one_device_learns(
    replicas: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_equal_learning(lambda: build_model(2, SIDE, "nano"), replicas, monkeypatch)
