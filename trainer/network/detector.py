"""Picture batch -> encoded boxes and class logits: the detector's network, and the priors for encoding its boxes.

Plain 3x3 convolutions with ReLU6 (they train faster on a CPU than depthwise ones, and lose nothing by int8), a feature
pyramid down and up again, one decoupled head per level.
"""

from dataclasses import dataclass
from typing import Final

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from shared.specs.training import Backbone
from trainer.network.backbone import Size, published_levels
from trainer.network.batch_norm import BatchNorm
from trainer.network.box_ops import Corners
from trainer.tensors import Tensor

STRIDES: Final = (8, 16, 32)

# The side of a prior in strides. With 4, centre offsets of two cells and sizes of 1/3 to 3 times the prior both stay
# within about +-6 in encoded units, so that one int8 scale suits all four numbers (step 0.05: 0.01 strides, 0.5 %).
PRIOR_STRIDES: Final = 4.0

# Scales of the centre and of the size in the encoding, the defaults of TFLite_Detection_PostProcess.
CENTER_SCALE: Final = 10.0
SIZE_SCALE: Final = 5.0

# The largest encoded size: e^4 priors is beyond any picture, and without a bound one bad training step could overflow.
MOST_LOG_SIZE: Final = 4.0

# How many cells of a level are assumed to belong to objects, of all classes, when training starts (YOLOv8 assumes as
# many); their share of all cells gives the score that classes start from. With 0.01 everywhere, as in the focal loss
# paper, the gradient of 1,600 empty cells outweighed that of a rare class's few: AdamW drove its weights below zero
# until no feature fired where it is, and its score stayed at the bias (docs/decisions/0013).
START_CELLS: Final = 5.0

# The prefixes of our own layers after the backbone; all other layers belong to the backbone.
_AFTER_BACKBONE: Final = ("lateral", "fpn", "pan", "boxes_", "scores_")


@dataclass(frozen=True, slots=True, kw_only=True)
class Widths:
    """The numbers of channels in the network.

    `stages` are the channels at strides 2, 4, 8, 16, 32; `blocks` is the number of residual blocks at strides 4, 8, 16,
    32.
    """

    stages: tuple[int, int, int, int, int]
    blocks: tuple[int, int, int, int]
    pyramid: int
    head: int


WIDTHS: Final[dict[Size, Widths]] = {
    "nano": Widths(stages=(8, 16, 32, 64, 128), blocks=(0, 1, 1, 1), pyramid=32, head=32),
    "small": Widths(stages=(16, 32, 64, 128, 192), blocks=(0, 1, 2, 1), pyramid=64, head=48),
    "medium": Widths(stages=(24, 48, 96, 192, 320), blocks=(1, 2, 2, 2), pyramid=96, head=64),
}


def build_model(
    num_classes: int, image_size: int, model: Size = "small", *, backbone: Backbone = "conv", weights: str = "none"
) -> keras.Model:
    """The network, with fresh weights.

    Args:
        num_classes: The number of classes without background; class 0 is label id 1.
        image_size: The side of the pictures in pixels, a multiple of 32.
        model: The network's size.
        backbone: Ours, or a published one.
        weights: The weights of a published backbone: `none`, `imagenet` or a file.

    Returns:
        A model from float32 pictures [B, H, W, 3], RGB in [-1, 1], to {"boxes": float32 [B, A, 4], encoded
        (ty, tx, th, tw) against the priors, "scores": float32 [B, A, C] logits}; A runs over the levels of
        `STRIDES`, each row by row.

    Raises:
        TrainingError: The weights of a published backbone cannot be loaded.
    """
    widths = WIDTHS[model]
    pictures = keras.Input((image_size, image_size, 3), name="image")
    if backbone == "conv":
        features = _backbone(pictures, widths)
    else:
        features = published_levels(pictures, name=backbone, size=model, weights=weights, strides=STRIDES)
    levels = _pyramid(features, widths)
    boxes = [_head(level, widths.head, 4, f"boxes_{stride}") for level, stride in zip(levels, STRIDES, strict=True)]
    scores = [
        _head(level, widths.head, num_classes, f"scores_{stride}", _start_logit(image_size // stride, num_classes))
        for level, stride in zip(levels, STRIDES, strict=True)
    ]
    outputs = {
        "boxes": keras.layers.Concatenate(axis=1, name="boxes", dtype="float32")(boxes),
        "scores": keras.layers.Concatenate(axis=1, name="scores", dtype="float32")(scores),
    }
    return keras.Model(pictures, outputs, name=f"detector_{model}")


def make_priors(image_size: int) -> NDArray[np.float32]:
    """The priors of all cells.

    Args:
        image_size: Side of the pictures in pixels, a multiple of 32.

    Returns:
        float32 array [A, 4], (ycenter, xcenter, height, width) as fractions of the picture, in the model's order.
    """
    levels = []
    for stride in STRIDES:
        cells = image_size // stride
        centers = (np.arange(cells, dtype=np.float32) + 0.5) / cells
        y, x = np.meshgrid(centers, centers, indexing="ij")
        side = np.full(cells * cells, PRIOR_STRIDES * stride / image_size, np.float32)
        levels.append(np.stack([y.ravel(), x.ravel(), side, side], axis=1))
    return np.concatenate(levels).astype(np.float32)


def backbone_outputs(network: keras.Model) -> list[Tensor]:
    """The Keras tensors that the pyramid is made of: the backbone's features at `STRIDES`."""
    return [network.get_layer(f"lateral{place}").input for place in range(len(STRIDES))]


def is_backbone(path: str) -> bool:
    """Whether a detector's variable with this path belongs to the backbone, the part before the pyramid."""
    return not path.startswith(_AFTER_BACKBONE)


def decode_boxes(encoded: Tensor, priors: Tensor) -> Corners:
    """Encoded boxes -> corners, as in TFLite_Detection_PostProcess.

    Args:
        encoded: float32 [..., 4], (ty, tx, th, tw).
        priors: float32 [..., 4], from `make_priors(image_size)`.

    Returns:
        ymin, xmin, ymax, xmax, float32 [...] each, as fractions of the picture, not clipped.
    """
    ty, tx, th, tw = tf.unstack(encoded, axis=-1)
    y, x, height, width = tf.unstack(priors, axis=-1)
    y, x = ty * (1 / CENTER_SCALE) * height + y, tx * (1 / CENTER_SCALE) * width + x
    half_height, half_width = _half(th, height), _half(tw, width)
    return y - half_height, x - half_width, y + half_height, x + half_width


def _half(encoded: Tensor, prior: Tensor) -> Tensor:
    """Half of a box's side."""
    return tf.exp(tf.minimum(encoded * (1 / SIZE_SCALE), MOST_LOG_SIZE)) * (prior * 0.5)


def _backbone(pictures: Tensor, widths: Widths) -> list[Tensor]:
    """Features at strides 8, 16 and 32."""
    x = _conv(pictures, widths.stages[0], name="stem", strides=2)
    levels = []
    for stage, (channels, blocks) in enumerate(zip(widths.stages[1:], widths.blocks, strict=True), start=2):
        x = _conv(x, channels, name=f"stage{stage}_down", strides=2)
        for block in range(blocks):
            x = _block(x, channels, f"stage{stage}_block{block}")
        levels.append(x)
    levels[-1] = _pool_pyramid(levels[-1], widths.stages[-1])
    return levels[1:]


def _pyramid(levels: list[Tensor], widths: Widths) -> list[Tensor]:
    """FPN, then PAN: the same levels with `widths.pyramid` channels each, each informed by all others."""
    channels = widths.pyramid
    laterals = [_conv(level, channels, name=f"lateral{i}", kernel=1) for i, level in enumerate(levels)]
    x = laterals[-1]
    down = [x]
    for i in (1, 0):
        x = _conv(_add(laterals[i], Double(name=f"up{i}")(x), f"fpn{i}_add"), channels, name=f"fpn{i}")
        down.insert(0, x)
    merged = [x]
    for i in (1, 2):
        x = _add(down[i], _conv(x, channels, name=f"pan{i}_down", strides=2), f"pan{i}_add")
        x = _conv(x, channels, name=f"pan{i}")
        merged.append(x)
    return merged


def _start_logit(side_cells: int, num_classes: int) -> float:
    """The logit that every class's score starts at on a level of `side_cells` x `side_cells`."""
    return float(np.log(min(0.1, START_CELLS / num_classes / side_cells**2)))


def _head(level: Tensor, channels: int, outputs: int, name: str, start: float = 0.0) -> Tensor:
    """One 3x3 convolution and the 1x1 predictor, with cells as rows: [B, cells, outputs]."""
    x = _conv(level, channels, name=f"{name}_conv")
    x = keras.layers.Conv2D(
        outputs,
        1,
        bias_initializer=keras.initializers.Constant(start),
        kernel_initializer=keras.initializers.RandomNormal(stddev=0.01),
        name=f"{name}_out",
    )(x)
    return keras.layers.Reshape((-1, outputs), name=f"{name}_rows")(x)


def _conv(x: Tensor, channels: int, *, name: str, kernel: int = 3, strides: int = 1) -> Tensor:
    """Convolution, batch normalization and ReLU6."""
    x = keras.layers.Conv2D(
        channels, kernel, strides=strides, padding="same", use_bias=False, kernel_initializer="he_normal", name=name
    )(x)
    x = BatchNorm(name=f"{name}_norm")(x)
    return keras.layers.ReLU(6.0, name=f"{name}_relu")(x)


def _block(x: Tensor, channels: int, name: str) -> Tensor:
    """Residual block: two 3x3 convolutions with half the channels between them."""
    inner = _conv(x, channels // 2, name=f"{name}_in")
    return _add(x, _conv(inner, channels, name=f"{name}_out"), f"{name}_add")


def _pool_pyramid(x: Tensor, channels: int) -> Tensor:
    """SPPF: max pooling over 5, 9 and 13 cells beside the features, so that one cell sees the whole picture."""
    x = _conv(x, channels // 2, name="pool_in", kernel=1)
    pooled = [x]
    for cells in (5, 9, 13):
        pool = keras.layers.MaxPooling2D(5, strides=1, padding="same", name=f"pool{cells}")
        pooled.append(pool(pooled[-1]))
    joined = keras.layers.Concatenate(name="pool_join")(pooled)
    return _conv(joined, channels, name="pool_out", kernel=1)


def _add(a: Tensor, b: Tensor, name: str) -> Tensor:
    return keras.layers.Add(name=name)([a, b])


@keras.saving.register_keras_serializable("voc2tflite")
class Double(keras.layers.Layer):  # type: ignore[misc]  # Keras is untyped
    """[B, H, W, C] -> [B, 2H, 2W, C] by repetition, as one RESIZE_NEAREST_NEIGHBOR; Keras's own layer becomes TILE."""

    def call(self, x: Tensor) -> Tensor:
        """Repeat each cell twice in both directions."""
        return tf.image.resize(x, (2 * x.shape[1], 2 * x.shape[2]), method="nearest")

    def compute_output_shape(self, input_shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of the doubled map."""
        batch, height, width, channels = input_shape
        return batch, 2 * height, 2 * width, channels
