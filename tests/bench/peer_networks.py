"""The networks of `peer_heads.py`: our head, one like EfficientDet-Lite's and one like YOLOv8's, on our backbone.

Widths are chosen so that multiply-adds are within 3 % of ours; ReLU6 throughout.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

HEADS: Final = ("ours", "efficientdet", "yolo")
# What logits are raised by in the networks that are handed out, as `trainer/tflite/convert.py` does it.
LIFT: Final = 6.0
# Most that a peer's multiply-adds may differ from ours.
MOST_APART: Final = 0.03
# Sizes and shapes of the priors of a cell.
ANCHORS: Final = [(2 ** (octave / 3), ratio) for octave in range(3) for ratio in (0.5, 1.0, 2.0)]
BINS: Final = 16
MODEL: Final = "small"


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """A network: `trained` gives boxes encoded against `priors` and logits; `handed_out` gives `LIFT`ed, cut logits.

    `encode` turns the boxes of `handed_out`, float32 [A, 4], into encoded ones.
    """

    trained: Any
    handed_out: Any
    priors: NDArray[np.float32]
    encode: Callable[[NDArray[np.float32]], NDArray[np.float32]]


def build(name: str, side: int, classes: int, width: int | None = None) -> Head:
    """A head of `HEADS` on our backbone, with fresh weights; a peer without a width gets the one that fits."""
    if name == "ours":
        return _ours(side, classes)
    made = {"efficientdet": _efficientdet, "yolo": _yolo}[name]
    return made(side, classes, width or fitting_width(name, classes))


def fitting_width(name: str, classes: int) -> int:
    """The width of a peer, in steps of 4, whose multiply-adds are nearest to ours; independent of the pictures' side.

    Raises:
        ValueError: None is within `MOST_APART`.
    """
    side = 320
    ours = multiply_adds(_ours(side, classes).trained)
    apart = {
        width: abs(multiply_adds(build(name, side, classes, width).trained) / ours - 1) for width in range(16, 164, 4)
    }
    best = min(apart, key=lambda width: apart[width])
    if apart[best] > MOST_APART:
        raise ValueError(f"{name}: width {best} is {apart[best]:.1%} from ours")
    return best


def multiply_adds(network: Any) -> int:
    """Of the convolutions for one picture; one that several levels share counts for each of them."""
    import keras

    return sum(
        int(np.prod(node.output_tensors[0].shape[1:3]) * np.prod(layer.kernel.shape))
        for layer in network.layers
        if isinstance(layer, keras.layers.Conv2D | keras.layers.DepthwiseConv2D)
        for node in layer._inbound_nodes
    )


def _ours(side: int, classes: int) -> Head:
    from trainer.network.detector import build_model, make_priors
    from trainer.tflite.convert import _lifted

    network = build_model(classes, side, MODEL)
    return Head(trained=network, handed_out=_lifted(network), priors=make_priors(side), encode=lambda boxes: boxes)


def _efficientdet(side: int, classes: int, width: int) -> Head:
    from trainer.network import detector

    pictures, levels = _features(side)
    levels = [detector._conv(level, width, name=f"lateral{i}", kernel=1) for i, level in enumerate(levels)]
    for turn in range(3):
        levels = _bifpn(levels, width, f"bifpn{turn}")
    starts = [detector._start_logit(side // stride, len(ANCHORS) * classes) for stride in detector.STRIDES]
    boxes = _shared_net(levels, width, 4, [0.0] * 3, "boxes")
    logits = _shared_net(levels, width, classes, starts, "scores")
    return Head(**_two_networks(pictures, boxes, logits), priors=_anchors(side), encode=lambda boxes: boxes)


def _features(side: int) -> tuple[Any, list[Any]]:
    import keras

    from trainer.network import detector

    pictures = keras.Input((side, side, 3), name="image")
    return pictures, detector._backbone(pictures, detector.WIDTHS[MODEL])


def _bifpn(levels: list[Any], width: int, name: str) -> list[Any]:
    """One round down and up, each level fed from its own former map as well; sums, as EfficientDet-Lite has them."""
    import keras

    from trainer.network.detector import Double

    down = [levels[-1]]
    for i in (1, 0):
        doubled = Double(name=f"{name}_up{i}")(down[0])
        down.insert(0, _separable(keras.layers.Add(name=f"{name}_add{i}")([levels[i], doubled]), width, f"{name}_{i}"))
    out = [down[0]]
    for i in (1, 2):
        pooled = keras.layers.MaxPooling2D(3, strides=2, padding="same", name=f"{name}_pool{i}")(out[-1])
        terms = [levels[i], pooled] if i == len(levels) - 1 else [levels[i], down[i], pooled]
        out.append(_separable(keras.layers.Add(name=f"{name}_sum{i}")(terms), width, f"{name}_out{i}"))
    return out


def _separable(x: Any, width: int, name: str) -> Any:
    import keras

    from trainer.network.detector import _conv

    x = keras.layers.DepthwiseConv2D(3, padding="same", use_bias=False, name=f"{name}_depth")(x)
    return _conv(x, width, name=name, kernel=1)


def _shared_net(levels: list[Any], width: int, outputs: int, starts: list[float], name: str) -> list[Any]:
    """Three separable convolutions, shared by the levels, each level with its own normalization; then the predictor."""
    import keras

    from trainer.network.batch_norm import BatchNorm

    for depth in range(3):
        thin = keras.layers.DepthwiseConv2D(3, padding="same", use_bias=False, name=f"{name}{depth}_depth")
        wide = keras.layers.Conv2D(width, 1, use_bias=False, kernel_initializer="he_normal", name=f"{name}{depth}")
        normal = [BatchNorm(name=f"{name}{depth}_norm{i}") for i in range(len(levels))]
        levels = [
            keras.layers.ReLU(6.0, name=f"{name}{depth}_relu{i}")(normal[i](wide(thin(level))))
            for i, level in enumerate(levels)
        ]
    small = keras.initializers.RandomNormal(stddev=0.01)
    count = outputs * len(ANCHORS)
    return [
        keras.layers.Reshape((-1, outputs), name=f"{name}_rows{i}")(
            keras.layers.Conv2D(
                count,
                1,
                kernel_initializer=small,
                bias_initializer=keras.initializers.Constant(start),
                name=f"{name}_out{i}",
            )(level)
        )
        for i, (level, start) in enumerate(zip(levels, starts, strict=True))
    ]


def _anchors(side: int) -> NDArray[np.float32]:
    """Nine priors for each of ours: three sizes of three shapes, as RetinaNet and EfficientDet have them."""
    from trainer.network.detector import make_priors

    shapes = np.array([[1, 1, size * ratio**0.5, size / ratio**0.5] for size, ratio in ANCHORS], np.float32)
    return np.asarray(make_priors(side)[:, None] * shapes, np.float32).reshape(-1, 4)


def _two_networks(pictures: Any, boxes: list[Any], logits: list[Any]) -> dict[str, Any]:
    import keras

    def joined(parts: list[Any], name: str) -> Any:
        return keras.layers.Concatenate(axis=1, name=name, dtype="float32")(parts)

    lifted = [keras.layers.ReLU(name=f"lifted{i}")(rows + LIFT) for i, rows in enumerate(logits)]
    together = joined(boxes, "boxes")
    return {
        "trained": keras.Model(pictures, {"boxes": together, "scores": joined(logits, "scores")}),
        "handed_out": keras.Model(pictures, {"boxes": together, "scores": joined(lifted, "lifted")}),
    }


def _yolo(side: int, classes: int, width: int) -> Head:
    import keras

    from trainer.network import detector

    pictures, features = _features(side)
    levels = detector._pyramid(features, detector.WIDTHS[MODEL])
    sides, logits = [], []
    for i, (level, stride) in enumerate(zip(levels, detector.STRIDES, strict=True)):
        branches = [level, level]
        for name, at in (("box", 0), ("class", 1)):
            for depth in range(2):
                branches[at] = detector._conv(branches[at], width, name=f"{name}{i}_{depth}")
        # Falling by 0.4 a bin: sides start at two strides, as our boxes do, not at half of the bins.
        falling = np.tile(-0.4 * np.arange(BINS), 4)
        bins = keras.layers.Conv2D(4 * BINS, 1, bias_initializer=_given(falling), name=f"bins{i}")(branches[0])
        sides.append(keras.layers.Reshape((-1, 4, BINS), name=f"bins{i}_rows")(bins))
        start = detector._start_logit(side // stride, classes)
        scores = keras.layers.Conv2D(
            classes, 1, bias_initializer=keras.initializers.Constant(start), name=f"scores{i}_out"
        )(branches[1])
        logits.append(keras.layers.Reshape((-1, classes), name=f"scores{i}_rows")(scores))
    handed_out = _two_networks(pictures, sides, logits)["handed_out"]
    reaches = _expected(handed_out.output["boxes"])
    priors = detector.make_priors(side)
    joined = keras.layers.Concatenate(axis=1, name="scores", dtype="float32")(logits)
    boxes = keras.layers.Lambda(_encoded, name="encoded")(reaches)
    return Head(
        trained=keras.Model(pictures, {"boxes": boxes, "scores": joined}),
        handed_out=keras.Model(pictures, {"boxes": reaches, "scores": handed_out.output["scores"]}),
        priors=priors,
        encode=lambda found: np.asarray(_encoded(found), np.float32),
    )


def _given(values: NDArray[np.float64]) -> Any:
    """An initializer that gives `values`."""
    import tensorflow as tf

    return lambda shape, dtype=None: tf.constant(values.reshape(shape), dtype or "float32")


def _expected(bins: Any) -> Any:
    """Distributions [B, A, 4, 16] -> their means, sides in strides [B, A, 4]: a softmax and a convolution, as in v8."""
    import keras
    import tensorflow as tf

    def means(shares: Any) -> Any:
        kernel = tf.reshape(tf.range(BINS, dtype=tf.float32), (1, 1, BINS, 1))
        return tf.nn.conv2d(shares, kernel, 1, "VALID")[..., 0]

    shares = keras.layers.Softmax(name="shares")(bins)
    return keras.layers.Lambda(means, output_shape=bins.shape[1:3], name="means")(shares)


def _encoded(reaches: Any) -> Any:
    """Distances (top, left, bottom, right) from a cell's centre, in strides -> our encoding."""
    import tensorflow as tf

    from trainer.network.detector import CENTER_SCALE, PRIOR_STRIDES, SIZE_SCALE

    top_left, bottom_right = reaches[..., :2], reaches[..., 2:]
    centre = (bottom_right - top_left) / (2 * PRIOR_STRIDES) * CENTER_SCALE
    size = tf.math.log(tf.maximum(top_left + bottom_right, 1e-2) / PRIOR_STRIDES) * SIZE_SCALE
    return tf.concat([centre, size], axis=-1)
