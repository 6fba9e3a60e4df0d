from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from shared.errors import TrainingError
from shared.storage import Storage
from trainer.network.backbone import Published
from trainer.network.detector import build_model, is_backbone
from trainer.run import local_weights

SIDE = 64

# Keras 3.15 does not know the `copy` of numpy 2's protocol.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")


def built(backbone: Published, weights: str = "none") -> Any:
    return build_model(2, SIDE, "nano", backbone=backbone, weights=weights)


@pytest.mark.parametrize("backbone", ["mobilenet_v2", "mobilenet_v3_small"])
def test_a_file_of_weights_fills_the_backbone_and_nothing_else(tmp_path: Path, backbone: Published) -> None:
    network = built(backbone)
    outputs = network(tf.zeros((1, SIDE, SIDE, 3)))
    assert outputs["boxes"].shape == (1, 8 * 8 + 4 * 4 + 2 * 2, 4)
    part = [layer for layer in network.layers if is_backbone(f"{layer.name}/")]
    published = keras.Model(network.input, part[-1].output)
    published.save_weights(tmp_path / "no_top.weights.h5")
    again = built(backbone, str(tmp_path / "no_top.weights.h5"))
    theirs = {value.path: value.numpy() for value in network.trainable_variables}
    for value in again.trainable_variables:
        if value.numpy().ndim > 1:
            assert np.array_equal(value.numpy(), theirs[value.path]) == is_backbone(value.path), value.path


def test_a_file_of_another_network_is_refused_with_what_is_wanted(tmp_path: Path) -> None:
    other = keras.Sequential([keras.Input((SIDE, SIDE, 3)), keras.layers.Conv2D(4, 3)])
    other.save_weights(tmp_path / "other.weights.h5")
    (tmp_path / "torn.weights.h5").write_bytes(b"nonsense")
    for name in ("other", "torn"):
        with pytest.raises(TrainingError, match=r"expected the weights of mobilenet_v2 of width 0\.35 without top"):
            built("mobilenet_v2", str(tmp_path / f"{name}.weights.h5"))


def test_weights_of_the_store_are_a_file_here(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    storage.write("weights/abc-no_top.weights.h5", b"weights")
    assert Path(local_weights("weights/abc-no_top.weights.h5", storage)).read_bytes() == b"weights"
    assert [local_weights(name, storage) for name in ("none", "imagenet")] == ["none", "imagenet"]
