"""Published backbones of `keras.applications` -> features at strides 8, 16 and 32, for transfer learning."""

from pathlib import Path
from typing import Any, Final, Literal

import keras

from shared.errors import TrainingError
from trainer.norm import MOMENTUM

Published = Literal["mobilenet_v2", "mobilenet_v3_small"]
Size = Literal["nano", "small", "medium"]

# Width factors for which ImageNet weights are published; V3 has one for each size that is worth it.
_WIDTHS: Final[dict[Published, dict[Size, float]]] = {
    "mobilenet_v2": {"nano": 0.35, "small": 0.5, "medium": 1.0},
    "mobilenet_v3_small": {"nano": 0.75, "small": 1.0, "medium": 1.0},
}


def published_levels(
    pictures: Any, *, name: Published, size: Size, weights: str, strides: tuple[int, ...]
) -> list[Any]:
    """Features of a published backbone.

    Args:
        pictures: Keras tensor [B, H, W, 3], RGB in [-1, 1], which both backbones want.
        name: Which.
        size: Of the detector; chooses the width.
        weights: `none`, `imagenet` (downloaded by Keras) or the path of a weights file without top.
        strides: The last features of each are returned.

    Returns:
        One Keras tensor a stride.

    Raises:
        TrainingError: The weights cannot be had.
    """
    network = _network(pictures, name, _WIDTHS[name][size], weights)
    for layer in network.layers:
        if isinstance(layer, keras.layers.BatchNormalization):
            # Theirs is 0.999: after a few hundred steps the statistics would still be ImageNet's.
            layer.momentum = MOMENTUM
            # Moments over all replicas, as our own normalization has them.
            layer.synchronized = True
    side = pictures.shape[1]
    last = {layer.output.shape[1]: layer.output for layer in network.layers if len(layer.output.shape) == 4}
    return [last[side // stride] for stride in strides]


def _network(pictures: Any, name: Published, width: float, weights: str) -> keras.Model:
    common: dict[str, Any] = {"input_tensor": pictures, "alpha": width, "include_top": False, "weights": None}
    if weights == "imagenet":
        common["weights"] = "imagenet"
    elif weights != "none":
        if not Path(weights).is_file():
            raise TrainingError(f"--weights {weights}: there is no such file")
        common["weights"] = weights
    try:
        if name == "mobilenet_v2":
            return keras.applications.MobileNetV2(**common)
        return keras.applications.MobileNetV3Small(**common, include_preprocessing=False)
    except Exception as error:  # Keras raises a bare Exception when a download fails.
        raise TrainingError(
            f"--backbone {name} --weights {weights}: {error}. Where weights cannot be downloaded, fetch the "
            "weights file without top elsewhere (the address is above) and give its path: --weights FILE"
        ) from error
