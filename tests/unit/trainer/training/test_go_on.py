"""A training that goes on from a trained network: its weights at the start, over replicas, after an interruption."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from shared.errors import StopRequested, TrainingError
from shared.jobs.manifest import Manifest
from shared.jobs.paths import labels_of
from shared.specs.run import RunSpec
from shared.specs.training import CONTINUED_RATE, CONTINUED_STEPS, FEWEST_STEPS, Backbone
from shared.storage import Storage
from tests.unit.trainer.data.test_examples import write_job
from tests.unit.trainer.pictures import drawn_examples
from tests.unit.trainer.training.test_loop import StopsAfter, small_network, trained, weights
from trainer.network.continued import go_on
from trainer.network.detector import build_model
from trainer.run import network_builder
from trainer.training.schedule import plan_schedule
from trainer.training.strategy import make_strategy

# Keras 3.15's save() turns TensorFlow variables into numpy arrays in a way that numpy 2 warns of.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy keyword")

START = "weights/0123456789abcdef-old.keras"


def kept_network(folder: Path, backbone: Backbone, labels: tuple[str, ...]) -> tuple[keras.Model, str, Storage]:
    """A trained network, its key in a store, and the store."""
    keras.utils.set_random_seed(5)
    network = build_model(len(labels), 64, "nano", backbone=backbone)
    network.save(folder / "model.keras")
    content = (folder / "model.keras").read_bytes()
    storage, key = Storage(str(folder / "store")), f"weights/{hashlib.sha256(content).hexdigest()[:16]}-old.keras"
    storage.make_root()
    storage.write(key, content)
    storage.write(labels_of(key), "".join(f"{label}\n" for label in labels).encode())
    return network, key, storage


def manifest_with_labels(folder: Path) -> Manifest:
    return write_job(folder, drawn_examples(2))[1]


@pytest.mark.parametrize("backbone", ["conv", "efficientnet_lite0"])
def test_a_run_begins_with_the_files_weights_not_with_imagenets(tmp_path: Path, backbone: Backbone) -> None:
    manifest = manifest_with_labels(tmp_path)
    network, key, storage = kept_network(tmp_path, backbone, (*manifest.labels, "gone"))
    spec = RunSpec(run="r", job="j", model="nano", backbone=backbone, start=key)
    assert spec.weights == "none"
    begun = network_builder(spec, manifest, storage)()
    assert begun.get_layer("scores_8_out").filters == len(manifest.labels)
    for ours, theirs in zip(begun.variables, network.variables, strict=True):
        is_by_class = ours.path.startswith("scores_") and "_out/" in ours.path
        expected = theirs.numpy()[..., :-1] if is_by_class else theirs.numpy()
        np.testing.assert_array_equal(ours.numpy(), expected, err_msg=ours.path)


def test_a_file_that_is_not_the_one_of_the_submit_is_refused(tmp_path: Path) -> None:
    manifest = manifest_with_labels(tmp_path)
    _, key, storage = kept_network(tmp_path, "conv", manifest.labels)
    storage.write(key, storage.read(key) + b"more")
    with pytest.raises(TrainingError, match=r"old\.keras: its SHA-256 begins with"):
        network_builder(RunSpec(run="r", job="j", model="nano", start=key), manifest, storage)


def test_a_file_that_is_gone_is_said(tmp_path: Path) -> None:
    manifest = manifest_with_labels(tmp_path)
    _, key, storage = kept_network(tmp_path, "conv", manifest.labels)
    storage.remove(labels_of(key))
    with pytest.raises(TrainingError, match=r"old\.labels\.txt: the run goes on from it, and it is not there any more"):
        network_builder(RunSpec(run="r", job="j", model="nano", start=key), manifest, storage)


def from_file(folder: Path) -> Callable[[], keras.Model]:
    """What builds the small network of the loop's tests with the weights of a file."""
    keras.utils.set_random_seed(9)
    small_network().save(folder / "small.keras")
    build = lambda: go_on(  # noqa: E731 - what a trainer gives to the loop
        small_network(), folder / "small.keras", small_network, before=("square", "disc"), now=("square", "disc")
    )
    return build


def test_a_run_that_was_interrupted_goes_on_as_if_it_had_not_been(tmp_path: Path) -> None:
    how: dict[str, Any] = {"epochs": 3, "start": START, "build": from_file(tmp_path)}
    unbroken = trained(tmp_path / "unbroken", **how)
    with pytest.raises(StopRequested):
        trained(tmp_path / "broken", guard=StopsAfter(4), **how)
    resumed = trained(tmp_path / "broken", **how)
    np.testing.assert_allclose(weights(resumed), weights(unbroken), atol=1e-6)
    other = trained(tmp_path / "other", epochs=3)
    assert not np.allclose(weights(other), weights(unbroken), atol=1e-3), "the file's weights are where it began"


def test_every_replica_begins_with_the_same_weights(tmp_path: Path) -> None:
    strategy, build = make_strategy(2), from_file(tmp_path)
    expected = [variable.numpy() for variable in build().variables]
    with strategy.scope():
        mirrored = build()
    for variable, value in zip(mirrored.variables, expected, strict=True):
        for copy in strategy.experimental_local_results(variable.value):
            np.testing.assert_array_equal(copy.numpy(), value)


def test_a_continued_training_has_fewer_steps_and_a_lower_rate_unless_asked_otherwise() -> None:
    size: dict[str, Any] = {"pictures": 100, "global_batch": 8}
    for is_published in (False, True):
        new, further = (
            plan_schedule(**size, epochs=None, rate=None, is_published=is_published, is_continued=is_continued)
            for is_continued in (False, True)
        )
        assert further.steps == pytest.approx(CONTINUED_STEPS * new.steps, abs=1)
        assert further.peak_rate == CONTINUED_RATE * new.peak_rate
    few = plan_schedule(pictures=30, global_batch=8, epochs=None, rate=None, is_published=True, is_continued=True)
    assert few.steps == FEWEST_STEPS
    asked = plan_schedule(**size, epochs=7, rate=0.003, is_continued=True)
    assert asked == plan_schedule(**size, epochs=7, rate=0.003)
