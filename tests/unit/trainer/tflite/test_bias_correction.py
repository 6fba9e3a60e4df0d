"""Biases that make up for rounded kernels: what they win, what they leave alone."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from ai_edge_litert import schema_py_generated as schema
from numpy.typing import NDArray

from shared.errors import ExportError
from shared.model.description import ModelDescription
from tests.unit.trainer.exported import LABELS, SIZE, lively_network, stored_pictures
from trainer.network.detector import build_model
from trainer.tflite import convert
from trainer.tflite.bias_correction import correct_biases
from trainer.tflite.interpreter import InspectedModel
from trainer.tflite.layer_error import layer_errors


def bright(count: int, seed: int) -> list[NDArray[np.uint8]]:
    """Pictures whose mean is far from the middle, as photos' often is."""
    return [200 + picture.rgb // 8 for picture in stored_pictures(count, seed)]


def converted(network: Any, folder: Path, forms: Sequence[convert.Form]) -> list[bytes]:
    """As the converter leaves them."""
    description = ModelDescription(
        name="t", version="1", licence="MIT", labels=LABELS, image_size=SIZE, resize="stretch", data_digest="ab" * 32
    )
    trained = convert.TrainedModel(keras_model=network, description=description)
    convert.save_frozen(trained, folder)
    return [convert._convert(folder, form, lambda: bright(16, 0)) for form in forms]


def published() -> Any:
    """A network with depthwise convolutions, and, being new, with biases of zeros that share their memory."""
    keras.utils.set_random_seed(3)
    return build_model(len(LABELS), SIZE, "nano", backbone="mobilenet_v2")


@pytest.mark.parametrize(("make", "share"), [(lively_network, 0.75), (published, 0.95)])
@pytest.mark.parametrize("form", ["dynamic", "int8"])
def test_activations_come_nearer_to_the_float_models(
    make: Callable[[], Any], share: float, form: convert.Form, tmp_path: Path
) -> None:
    exact, rounded = converted(make(), tmp_path, ["float32", form])
    mended = correct_biases(rounded, exact, convert.representative(bright(16, 0)))
    before, after = (
        {entry.tensor: entry.error for entry in layer_errors(exact, model, bright(8, 9))} for model in (rounded, mended)
    )
    # Where nothing was rounded, or where the untrained network's own signal has faded, there is nothing to see.
    ratios = [after[layer] / error for layer, error in before.items() if 0 < error < 0.5]
    assert len(ratios) >= 40
    assert np.median(ratios) < share


def test_only_biases_change(tmp_path: Path) -> None:
    exact, rounded = converted(lively_network(), tmp_path, ["float32", "int8"])
    mended = correct_biases(rounded, exact, convert.representative(bright(4, 0)))
    trees = [schema.ModelT.InitFromPackedBuf(content, 0) for content in (rounded, mended)]
    constants = [[_content(tree, tensor) for tensor in tree.subgraphs[0].tensors] for tree in trees]
    changed = {index for index, (old, new) in enumerate(zip(*constants, strict=True)) if old != new}
    biases = {int(op.inputs[2]) for op in trees[0].subgraphs[0].operators if len(op.inputs) == 3}
    assert changed
    assert changed <= biases


def _content(tree: Any, tensor: Any) -> bytes:
    data = tree.buffers[tensor.buffer].data
    return b"" if data is None else bytes(np.asarray(data, np.uint8))


def one_convolution(kind: str) -> tuple[bytes, bytes]:
    """A network of one convolution, as float32 and with rounded weights, as the converter makes them."""
    keras.utils.set_random_seed(5)
    layer = {
        "plain": keras.layers.Conv2D(64, 5, bias_initializer="random_normal", name="conv"),
        "depthwise": keras.layers.DepthwiseConv2D(
            15, depth_multiplier=2, bias_initializer="random_normal", name="conv"
        ),
    }[kind]
    network = keras.Sequential([keras.Input((SIZE, SIZE, 3)), layer])
    converters = [tf.lite.TFLiteConverter.from_keras_model(network) for _ in range(2)]
    converters[1].optimizations = [tf.lite.Optimize.DEFAULT]
    exact, rounded = (bytes(converter.convert()) for converter in converters)
    return exact, rounded


def mean_outputs(content: bytes, mean: NDArray[np.float64]) -> NDArray[np.float64]:
    """What the convolution of `one_convolution` gives in the mean, by channel, where the mean input is `mean` [3]."""
    model = InspectedModel(content)
    (op,) = (op for op in model.operators if op["op_name"] in ("CONV_2D", "DEPTHWISE_CONV_2D"))
    _, kernel, bias = (model.values(index) for index in map(int, op["inputs"]))
    if op["op_name"] == "CONV_2D":
        return np.asarray(np.einsum("ohwi,i->o", kernel, mean) + bias)
    return np.asarray(np.einsum("ohwim,i->im", kernel.reshape(*kernel.shape[:3], 3, -1), mean).ravel() + bias)


@pytest.mark.parametrize("kind", ["plain", "depthwise"])
def test_in_the_mean_nothing_of_the_rounding_is_left(kind: str) -> None:
    exact, rounded = one_convolution(kind)
    colours = np.random.default_rng(1).uniform(-1, 1, (5, 3)) + np.array([0.5, -0.8, 0.1])
    samples = [[np.broadcast_to(colour, (1, SIZE, SIZE, 3)).astype(np.float32)] for colour in colours]
    mended = correct_biases(rounded, exact, samples)
    wanted, before, after = (mean_outputs(content, colours.mean(axis=0)) for content in (exact, rounded, mended))
    assert np.abs(before - wanted).max() > 1e-3
    np.testing.assert_allclose(after, wanted, atol=1e-5)


def test_without_a_picture_nothing_is_corrected() -> None:
    exact, rounded = one_convolution("plain")
    with pytest.raises(ExportError, match="the training split is empty"):
        correct_biases(rounded, exact, [])


def test_a_network_of_other_layers_corrects_nothing(tmp_path: Path) -> None:
    stranger = keras.Sequential([keras.Input((SIZE, SIZE, 3)), keras.layers.Conv2D(4, 3, name="stranger")])
    converter = tf.lite.TFLiteConverter.from_keras_model(stranger)
    (rounded,) = converted(lively_network(), tmp_path, ["int8"])
    mended = correct_biases(rounded, bytes(converter.convert()), convert.representative(bright(1, 0)))
    trees = [schema.ModelT.InitFromPackedBuf(content, 0) for content in (rounded, mended)]
    constants = [[_content(tree, tensor) for tensor in tree.subgraphs[0].tensors] for tree in trees]
    assert constants[0] == constants[1]


def test_the_exported_file_has_the_corrected_biases(tmp_path: Path) -> None:
    network = lively_network()
    exact, rounded = converted(network, tmp_path, ["float32", "dynamic"])
    description = ModelDescription(
        name="t", version="1", licence="MIT", labels=LABELS, image_size=SIZE, resize="stretch", data_digest="ab" * 32
    )
    trained = convert.TrainedModel(keras_model=network, description=description)
    made = convert.convert_forms(trained, tmp_path, lambda: bright(16, 0), lambda _: None, ["float32", "dynamic"])
    mended = correct_biases(rounded, exact, convert.representative(bright(16, 0)))
    trees = [schema.ModelT.InitFromPackedBuf(content, 0) for content in (rounded, mended, made["dynamic"])]
    before, wanted, found = ([_content(tree, tensor) for tensor in tree.subgraphs[0].tensors] for tree in trees)
    assert found[: len(wanted)] == wanted != before
