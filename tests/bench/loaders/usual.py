"""The usual augmentation (flips, rotation, zoom, contrast) in each loader's own words, of the same strength.

Flips both ways at one half, rotation up to 20 degrees either way, zoom up to a fifth, contrast up to a fifth, bilinear.
"""

from typing import Any, Final

import keras
import numpy as np
from numpy.typing import NDArray

from tests.bench.loaders.opencv import CONTRAST, ROTATE_DEG, ZOOM
from tests.unit.trainer.pictures import UNCHANGED

OURS: Final = UNCHANGED.model_copy(
    update={
        "flip_horizontal": 0.5,
        "flip_vertical": 0.5,
        "rotate_deg": ROTATE_DEG,
        "zoom": ZOOM,
        "contrast": CONTRAST,
    }
)


def layers() -> keras.Sequential:
    """As the guide to image classification has it: layers over a batch float32 [B, H, W, 3] in [0, 255]."""
    return keras.Sequential(
        [
            keras.layers.RandomFlip("horizontal_and_vertical"),
            keras.layers.RandomRotation(ROTATE_DEG / 360),
            keras.layers.RandomZoom(ZOOM),
            keras.layers.RandomContrast(CONTRAST),
        ]
    )


def generator_arguments() -> dict[str, Any]:
    """Of `ImageDataGenerator`, which knows no contrast: a function of ours for it."""
    rng = np.random.default_rng(0)

    def contrast(picture: NDArray[np.float32]) -> NDArray[np.float32]:
        mean = picture.mean(axis=(0, 1))
        changed: NDArray[np.float32] = (picture - mean) * np.float32(rng.uniform(1 - CONTRAST, 1 + CONTRAST)) + mean
        return changed

    return {
        "rotation_range": ROTATE_DEG,
        "zoom_range": ZOOM,
        "horizontal_flip": True,
        "vertical_flip": True,
        "preprocessing_function": contrast,
    }
