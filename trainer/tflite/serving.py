"""The frozen detector -> `saved_model/` for TensorFlow and TensorFlow Serving, which takes pixels or a photo's bytes.

The converter reads another SavedModel (`trainer/tflite/convert.py`).
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import tensorflow as tf

from shared.model.description import ModelDescription
from shared.placement import PADDING_GRAY
from trainer.pixels import normalize
from trainer.tensors import Tensor

# TensorFlow Serving's default signature.
PIXELS_SIGNATURE: Final = "serving_default"
JPEG_SIGNATURE: Final = "jpeg"

Detect = Callable[[Tensor], dict[str, Tensor]]


def save_serving(detect: Detect, description: ModelDescription, folder: Path) -> None:
    """Save the detector with two signatures.

    `serving_default`: `image` float32 [1, H, W, 3], RGB in [-1, 1] -> `boxes` float32 [1, D, 4],
    (ymin, xmin, ymax, xmax) in [0, 1]; `classes` from 0 and `scores`, float32 [1, D]; `count` float32 [1].

    `jpeg`: `jpeg` string [1], the bytes of a JPEG or PNG of any size, stored upright (its EXIF is not read) -> the same
    outputs, with boxes as fractions of the photo, and `names` string [1, D], empty past the count.

    Args:
        detect: From the image to the four outputs, with weights as constants.
        description: Has the labels, the picture size and how a photo is fitted into it.
        folder: Where to save it.
    """
    size = description.image_size
    module = tf.Module()
    image = tf.TensorSpec((1, size, size, 3), tf.float32, name="image")
    module.detect = tf.function(detect, input_signature=[image], autograph=False)
    jpeg = tf.TensorSpec((1,), tf.string, name="jpeg")
    module.detect_jpeg = tf.function(_jpeg_function(detect, description), input_signature=[jpeg], autograph=False)
    signatures = {
        PIXELS_SIGNATURE: module.detect.get_concrete_function(),
        JPEG_SIGNATURE: module.detect_jpeg.get_concrete_function(),
    }
    tf.saved_model.save(module, str(folder), signatures=signatures)


def _jpeg_function(detect: Detect, description: ModelDescription) -> Detect:
    """A function from the bytes of a photo to named detections."""
    labels = list(description.labels)

    def detect_jpeg(jpeg: Tensor) -> dict[str, Tensor]:
        photo = tf.io.decode_jpeg(jpeg[0], channels=3, dct_method="INTEGER_ACCURATE")
        square, offset, inner = _fit(photo, description)
        seen = detect(normalize(square[None]))
        boxes = (seen["boxes"] * float(description.image_size) - tf.tile(offset, [2])) / tf.tile(inner, [2])
        is_there = tf.range(tf.shape(seen["classes"])[1], dtype=tf.float32)[None] < seen["count"]
        names = tf.gather(tf.constant(labels), tf.cast(seen["classes"], tf.int32))
        return {
            **seen,
            "boxes": tf.clip_by_value(boxes, 0.0, 1.0) * tf.cast(is_there, tf.float32)[..., None],
            "names": tf.where(is_there, names, ""),
        }

    return detect_jpeg


def _fit(photo: Tensor, description: ModelDescription) -> tuple[Tensor, Tensor, Tensor]:
    """A photo, uint8 [H, W, 3], resized for the model: `trainer.inference.detector.fit` in TensorFlow.

    Returns:
        float32 [size, size, 3] in [0, 255]; the photo's (top, left) in it and its (height, width) there, float32 [2].
    """
    size, sides = description.image_size, tf.shape(photo)[:2]
    inner = tf.constant([size, size])
    if description.resize == "letterbox":
        scale = size / tf.cast(tf.reduce_max(sides), tf.float64)
        inner = tf.maximum(1, tf.cast(tf.round(tf.cast(sides, tf.float64) * scale), tf.int32))
    shrinks = tf.reduce_any(inner < sides)
    pixels = tf.cond(
        shrinks,
        lambda: tf.image.resize(photo, inner, tf.image.ResizeMethod.AREA),
        lambda: tf.image.resize(photo, inner, tf.image.ResizeMethod.BILINEAR),
    )
    offset = (size - inner) // 2
    after = size - inner - offset
    paddings = tf.concat([tf.stack([offset, after], axis=1), [[0, 0]]], axis=0)
    square = tf.pad(tf.round(pixels), paddings, constant_values=float(PADDING_GRAY))
    return tf.reshape(square, (size, size, 3)), tf.cast(offset, tf.float32), tf.cast(inner, tf.float32)
