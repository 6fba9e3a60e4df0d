"""Pixels 0 to 255 -> the network's input, [-1, 1]: one formula for training, validation, calibration and LiteRT."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from shared.model.description import PIXEL_MEAN, PIXEL_STD
from trainer.tensors import Tensor

# [H, W, 3]; functions that take or return one say whether it is RGB or BGR.
Picture = NDArray[np.uint8]


def normalize(pixels: Tensor) -> Tensor:
    """Scale float32 pixels, a TensorFlow tensor or a numpy array of any shape, from [0, 255] to [-1, 1]."""
    return pixels * (1 / PIXEL_STD) - PIXEL_MEAN / PIXEL_STD


def as_input(picture: Picture, dtype: type) -> NDArray[Any]:
    """One picture, uint8 [H, W, 3] RGB, as a model's input [1, H, W, 3] of type `dtype`.

    Unchanged for uint8, minus 128 for int8, otherwise in [-1, 1].
    """
    if dtype == np.int8:
        return (picture[None] ^ np.uint8(128)).view(np.int8)
    return picture[None] if dtype == np.uint8 else np.asarray(normalize(picture[None].astype(np.float32)))
