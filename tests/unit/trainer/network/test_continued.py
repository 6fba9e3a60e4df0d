"""A network that goes on from a trained one has all of its weights, and its heads by class name."""

import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from shared.errors import TrainingError
from shared.specs.training import Backbone
from tests.unit.trainer.exported import LABELS, lively_network
from trainer.network.continued import go_on
from trainer.network.detector import build_model

# Keras 3.15's save() turns TensorFlow variables into numpy arrays in a way that numpy 2 warns of.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy keyword")

NOW = ("cross", "new", "Ähre")
HEADS = [f"scores_{stride}_out" for stride in (8, 16, 32)]


def builder(backbone: Backbone, model: Any = "nano") -> Callable[[int], keras.Model]:
    return lambda classes: build_model(classes, 96, model, backbone=backbone)


@pytest.mark.parametrize("backbone", ["conv", "efficientnet_lite0", "efficientnet_lite0_short", "efficientnet_lite2"])
def test_all_weights_are_the_files_and_heads_follow_the_names(tmp_path: Path, backbone: Backbone) -> None:
    trained = lively_network(backbone)  # of 64 px: another size of the pictures changes no weight
    trained.save(tmp_path / "old.keras")
    fresh = builder(backbone)(len(NOW))
    starts = {name: [part.copy() for part in fresh.get_layer(name).get_weights()] for name in HEADS}
    before = [unicodedata.normalize("NFD", label) for label in LABELS]  # as an older version may have written it
    network = go_on(fresh, tmp_path / "old.keras", builder(backbone), before=before, now=NOW)
    for ours, theirs in zip(network.variables, trained.variables, strict=True):
        if ours.path.split("/")[0] not in HEADS:
            np.testing.assert_array_equal(ours.numpy(), theirs.numpy(), err_msg=ours.path)
    for name in HEADS:
        for now, old, start in zip(
            network.get_layer(name).get_weights(), trained.get_layer(name).get_weights(), starts[name], strict=True
        ):
            np.testing.assert_array_equal(now[..., 0], old[..., LABELS.index("cross")])
            np.testing.assert_array_equal(now[..., 1], start[..., 1], err_msg="a new class starts as new ones do")
            np.testing.assert_array_equal(now[..., 2], old[..., LABELS.index("Ähre")])


def test_classes_that_all_changed_places_keep_their_own_heads(tmp_path: Path) -> None:
    """Not by swaps of two: what comes from a place goes to another one than what goes there came from."""
    trained = lively_network()
    trained.save(tmp_path / "old.keras")
    now = ("new", "box", "cross", "newer", "Ähre")
    network = go_on(builder("conv")(len(now)), tmp_path / "old.keras", builder("conv"), before=LABELS, now=now)
    for name in HEADS:
        for ours, theirs in zip(
            network.get_layer(name).get_weights(), trained.get_layer(name).get_weights(), strict=True
        ):
            for label in LABELS:
                np.testing.assert_array_equal(ours[..., now.index(label)], theirs[..., LABELS.index(label)])


def test_the_weights_of_another_network_are_refused(tmp_path: Path) -> None:
    lively_network().save(tmp_path / "old.keras")
    with pytest.raises(TrainingError, match=r"--from old\.keras: expected the weights of detector_small; "):
        go_on(builder("conv", "small")(3), tmp_path / "old.keras", builder("conv", "small"), before=LABELS, now=NOW)
