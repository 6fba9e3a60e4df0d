"""A picture -> 256 bits that stay nearly the same when it is resized, recompressed or made brighter.

Each bit says whether one of the 16x16 lowest frequencies is above their median, as in Facebook's PDQ (D. Dalek, "The
TMK+PDQF video-hashing algorithm and the PDQ image-hashing algorithm", 2019); OpenCV does the transform. Why neither
PDQ's own package nor ImageHash is used: docs/decisions/0066.
"""

from typing import Final

import cv2
import numpy as np
from numpy.typing import NDArray

# Pictures are decoded no smaller than this, so that one photo decoded at two scales still has similar hashes.
LEAST_SIDE: Final = 64
# The side in pixels to which a picture is shrunk.
_SIDE: Final = 32
_SAMPLED: Final = 2 * _SIDE
_SAMPLED_FROM: Final = 256
_FREQUENCIES: Final = slice(1, 17)
# If the frequencies' mean strength (in gray levels, of the 32x32 transform) is below this, noise decides the bits.
_LEAST_CONTRAST: Final = 2.0
_BITS: Final = 256


def perceptual_hash(pixels: NDArray[np.uint8]) -> str:
    """64 hex digits of uint8 BGR [H, W, 3]; "" for a picture that shows hardly anything, such as one at night.

    Costs 30 µs, 2 to 3 % of the picture stage at 640x480.
    """
    # In a large picture only every fifth row and column or so is used: all of it would cost twice as much for no gain.
    rows, columns = (side // _SAMPLED if side >= _SAMPLED_FROM else 1 for side in pixels.shape[:2])
    sampled = pixels[rows // 2 :: rows, columns // 2 :: columns, 1]  # green is nearly the brightness
    gray = cv2.resize(sampled, (_SIDE, _SIDE), interpolation=cv2.INTER_AREA)
    low = cv2.dct(gray.astype(np.float32))[_FREQUENCIES, _FREQUENCIES].ravel()
    if cv2.norm(low, cv2.NORM_L1) < _LEAST_CONTRAST * _BITS:
        return ""
    upper_median = np.partition(low, _BITS // 2)[_BITS // 2]  # `np.median` takes 9 times as long
    return np.packbits(low >= upper_median).tobytes().hex()
