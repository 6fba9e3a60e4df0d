import shutil
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from shared.errors import StopRequested
from shared.jobs.paths import RunPaths
from shared.leasing.guard import Unguarded
from shared.specs.run import RunSpec
from shared.specs.training import TrainingOptions
from shared.storage import Storage
from tests.unit.trainer.pictures import drawn_examples
from tests.unit.trainer.training.test_loop import SIDE, StopsAfter, trained, training_set
from trainer.network.detector import build_model
from trainer.training.distil import distilled

STEPS = 12


def build() -> keras.Model:
    return build_model(2, SIDE, "nano")


def distil(store: Path, *, steps: int = STEPS, guard: Any = None, minutes: float | None = None) -> keras.Model:
    store.mkdir(exist_ok=True)
    spec = RunSpec(run="r", job="j", model="nano", distil=True, max_minutes=minutes)
    dataset = training_set(drawn_examples(12), batch=4)
    return distilled(build, dataset, spec, storage=Storage(str(store)), guard=guard or Unguarded(), steps=steps)()


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[np.ndarray]]:
    """A store in which it has been learned to the end, and the weights; a test takes a copy."""
    store = tmp_path_factory.mktemp("learned")
    return store, distil(store).get_weights()


class Watched(Unguarded):
    """Notes what it is told."""

    def __init__(self) -> None:
        self.told: list[dict[str, float | int | str]] = []

    def advance(self, **progress: float | int | str) -> None:
        self.told.append(progress)


def test_the_backbone_learns_to_give_what_lite0_sees(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    guard = Watched()
    distil(tmp_path, steps=300, guard=guard)
    (ended,) = (record for record in caplog.records if record.message == "distilled")
    # A network that gives the mean of each channel of the three levels, whatever it sees, is at 3.
    assert float(guard.told[1]["loss"]) > 3
    assert np.mean([float(told["loss"]) for told in guard.told[-50:]]) < 2.85
    assert len(ended.losses) == 3  # type: ignore[attr-defined]
    assert [told["step"] for told in guard.told] == list(range(300))


def test_an_interrupted_distillation_ends_like_an_unbroken_one(
    learned: tuple[Path, list[np.ndarray]], tmp_path: Path
) -> None:
    for steps in (5, 4):
        with pytest.raises(StopRequested):
            distil(tmp_path, guard=StopsAfter(steps))
    for ours, theirs in zip(distil(tmp_path).get_weights(), learned[1], strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_what_was_learned_is_not_learned_again(learned: tuple[Path, list[np.ndarray]], tmp_path: Path) -> None:
    shutil.copytree(learned[0], tmp_path, dirs_exist_ok=True)
    again = distil(tmp_path, guard=StopsAfter(0)).get_weights()  # no step: the guard would stop it
    for ours, theirs in zip(again, learned[1], strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("content", [b"", b"no zip", None])
def test_a_damaged_file_counts_as_absent(
    learned: tuple[Path, list[np.ndarray]], tmp_path: Path, content: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copytree(learned[0], tmp_path, dirs_exist_ok=True)
    storage, key = Storage(str(tmp_path)), RunPaths("r").distilled
    storage.write(key, storage.read(key)[:-1000] if content is None else content)
    for ours, theirs in zip(distil(tmp_path).get_weights(), learned[1], strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)
    assert [record.message for record in caplog.records].count("distilled_damaged") == 1


def test_it_ends_with_its_half_of_the_time(tmp_path: Path) -> None:
    guard = Watched()
    distil(tmp_path, steps=100_000, minutes=0.001, guard=guard)
    assert 1 <= len(guard.told) < 100_000
    assert TrainingOptions(distil=True, max_minutes=0.1).loop_minutes == pytest.approx(0.05)


def test_a_training_goes_on_from_it(tmp_path: Path) -> None:
    network = distil(tmp_path, steps=2)
    kernel = network.get_layer("stem").kernel.numpy()
    ended = trained(tmp_path, epochs=1, learning_rate=1e-9, build=lambda: network)
    np.testing.assert_allclose(ended.model.get_layer("stem").kernel.numpy(), kernel, atol=1e-5)


def test_a_distilled_backbone_moves_less_than_a_fresh_one_and_the_new_layers_do_not(tmp_path: Path) -> None:
    start = build().get_weights()

    def same() -> keras.Model:
        network = build()
        network.set_weights(start)
        return network

    def moved(name: str, *, distil: bool) -> dict[str, float]:
        ended = trained(tmp_path / name, epochs=4, distil=distil, build=same)
        before = same()
        return {
            layer: float(np.abs(ended.model.get_layer(layer).kernel - before.get_layer(layer).kernel).mean())
            for layer in ("stem", "lateral0")
        }

    taught, fresh = moved("taught", distil=True), moved("fresh", distil=False)
    assert taught["stem"] < 0.5 * fresh["stem"]
    assert taught["lateral0"] > 0.5 * fresh["lateral0"]


@pytest.mark.parametrize("more", [{"backbone": "efficientnet_lite0"}, {"start": "weights/x.keras", "backbone": "conv"}])
def test_distil_is_refused_for_a_published_backbone_and_for_from(more: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="--distil is for a --backbone conv that begins from nothing"):
        TrainingOptions(distil=True, **more)


def test_with_distil_the_backbone_auto_is_conv() -> None:
    counts = {"train": 100, "val": 10, "test": 10, "objects_kept": 150}
    assert TrainingOptions().with_backbone(counts, None).backbone == "efficientnet_lite0"
    assert TrainingOptions(distil=True).with_backbone(counts, None).backbone == "conv"
