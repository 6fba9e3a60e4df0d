"""Alpha over white, in whole numbers."""

import cv2
import numpy as np

from shared.picture.header import read_header
from shared.picture.pixels import to_bgr


def test_every_colour_under_every_alpha_is_rounded_exactly() -> None:
    colour, alpha = np.meshgrid(np.arange(256, dtype=np.uint8), np.arange(256, dtype=np.uint8))
    pixels = np.dstack([colour, 255 - colour, colour // 2, alpha])
    content = cv2.imencode(".png", pixels)[1].tobytes()
    colours, clear = pixels[:, :, :3].astype(float), 255 - alpha[:, :, None].astype(float)
    found = to_bgr(content, read_header(content, max_pixels=pixels.size), pixels)
    assert np.array_equal(found, np.rint((colours * (255 - clear) + 255 * clear) / 255).astype(np.uint8))
