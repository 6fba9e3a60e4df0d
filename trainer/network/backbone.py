"""Published backbones -> features at strides 8, 16 and 32, for transfer learning."""

import warnings
from pathlib import Path
from typing import Any, Final, Literal

import keras
import numpy as np

from shared.errors import TrainingError
from shared.specs.training import Lite
from trainer.network.batch_norm import MOMENTUM
from trainer.network.efficientnet_lite import lite_levels, load_imagenet
from trainer.tensors import Tensor

OfKeras = Literal["mobilenet_v2", "mobilenet_v3_small"]
Published = Lite | OfKeras
Size = Literal["nano", "small", "medium"]

# The width factors for which ImageNet weights are published; V3 has only two.
_WIDTHS: Final[dict[OfKeras, dict[Size, float]]] = {
    "mobilenet_v2": {"nano": 0.35, "small": 0.5, "medium": 1.0},
    "mobilenet_v3_small": {"nano": 0.75, "small": 1.0, "medium": 1.0},
}


def published_levels(
    pictures: Tensor, *, name: Published, size: Size, weights: str, strides: tuple[int, ...]
) -> list[Tensor]:
    """The features of a published backbone.

    Args:
        pictures: Keras tensor [B, H, W, 3], RGB in [-1, 1], as all these backbones expect.
        name: Which backbone.
        size: The detector's size; it chooses the width of backbones that are published in several.
        weights: `none`, `imagenet` (EfficientNet-Lite's from an installed package, others' downloaded by Keras) or
            the path of a weights file without top.
        strides: The last features at each of these strides are returned.

    Returns:
        One Keras tensor for each stride.

    Raises:
        TrainingError: The weights cannot be loaded.
    """
    if name != "mobilenet_v2" and name != "mobilenet_v3_small":
        levels = lite_levels(pictures, name)
        if weights != "none":
            load_imagenet(keras.Model(pictures, levels), name)
        return levels
    network = _network(pictures, name, _WIDTHS[name][size], weights)
    for layer in network.layers:
        if isinstance(layer, keras.layers.BatchNormalization):
            # With their own 0.999 the statistics would still be ImageNet's after a few hundred steps.
            layer.momentum = MOMENTUM
            # Compute moments over all replicas, as our own normalization does.
            layer.synchronized = True
    side = pictures.shape[1]
    last = {layer.output.shape[1]: layer.output for layer in network.layers if len(layer.output.shape) == 4}
    return [last[side // stride] for stride in strides]


def _network(pictures: Tensor, name: OfKeras, width: float, weights: str) -> keras.Model:
    with warnings.catch_warnings():
        # Keras warns that ImageNet's weights are for 224 px, but convolutions take any size.
        warnings.filterwarnings("ignore", message="`input_shape` is undefined", category=UserWarning)
        if weights == "imagenet":
            return _downloaded(pictures, name, width)
        network = _untrained(pictures, name, width)
    if weights != "none":
        _load(network, Path(weights), f"{name} of width {width:g} without top")
    return network


def _untrained(pictures: Tensor, name: OfKeras, width: float, weights: str | None = None) -> keras.Model:
    common: dict[str, Any] = {"input_tensor": pictures, "alpha": width, "include_top": False, "weights": weights}
    if name == "mobilenet_v2":
        return keras.applications.MobileNetV2(**common)
    return keras.applications.MobileNetV3Small(**common, include_preprocessing=False)


def _downloaded(pictures: Tensor, name: OfKeras, width: float) -> keras.Model:
    try:
        return _untrained(pictures, name, width, "imagenet")
    except Exception as error:  # Keras raises a bare Exception when a download fails
        raise TrainingError(
            f"--backbone {name} --weights imagenet: {error}. Where weights cannot be downloaded, fetch that file on "
            "another machine and give it: --weights FILE"
        ) from error


def _load(network: keras.Model, file: Path, wanted: str) -> None:
    """Load the weights of `file` into `network`; a file that does not have all of them is refused."""
    if not file.is_file():
        raise TrainingError(f"--weights {file}: there is no such file")
    before = [value.numpy() for value in network.trainable_variables]
    try:
        with warnings.catch_warnings():
            # Keras only warns about parts that the file lacks; the check for unchanged weights below finds them.
            warnings.simplefilter("ignore", UserWarning)
            network.load_weights(file)
    except (OSError, ValueError, KeyError) as error:
        reason = str(error).partition("\n")[0]
        raise TrainingError(f"--weights {file}: expected the weights of {wanted}; {reason}") from error
    kernels = [(old, new) for old, new in zip(before, network.trainable_variables, strict=True) if old.ndim > 1]
    same = sum(np.array_equal(old, new.numpy()) for old, new in kernels)
    if same:
        raise TrainingError(
            f"--weights {file}: expected the weights of {wanted}; it has none for {same} of {len(kernels)} kernels"
        )
