"""What OpenCV decoded from a picture file -> upright 8-bit BGR: the same for shards and for detection in photos.

Source of the orientation values: Exif 2.3, section 4.6.4, tag 0x0112.
"""

from typing import Any, Final

import cv2
import numpy as np
from numpy.typing import NDArray

from shared.errors import ImageError
from shared.picture import tiff
from shared.picture.header import ImageHeader

Pixels = NDArray[np.uint8]

# OpenCV's flips that make raw pixels upright, matching `turn_box` in `orientation.py`.
_FLIPS: Final = {2: 1, 3: -1, 4: 0}
# `rotate` takes a tenth of the time of a flip and a transpose. 7 is a transpose, then a half turn.
_ROTATIONS: Final = {6: cv2.ROTATE_90_CLOCKWISE, 7: cv2.ROTATE_180, 8: cv2.ROTATE_90_COUNTERCLOCKWISE}


def turn_pixels(pixels: Pixels, orientation: int) -> Pixels:
    """Make raw pixels, uint8 [H, W, 3], upright; `orientation` is 1 to 8."""
    if orientation in (5, 7):
        pixels = cv2.transpose(pixels)  # type: ignore[assignment]  # OpenCV's stubs lose the dtype
    if orientation in _ROTATIONS:
        return cv2.rotate(pixels, _ROTATIONS[orientation])  # type: ignore[return-value]
    return cv2.flip(pixels, _FLIPS[orientation]) if orientation in _FLIPS else pixels  # type: ignore[return-value]


def to_bgr(content: bytes, header: ImageHeader, pixels: NDArray[Any]) -> Pixels:
    """Gray, 16-bit and alpha -> 8-bit BGR [H, W, 3]. Transparent parts become white, as in browsers.

    Args:
        content: The file, neither JPEG nor HEIF.
        header: The file's header.
        pixels: The file decoded with `cv2.IMREAD_UNCHANGED`: [H, W] or [H, W, channels].

    Raises:
        ImageError: The type of samples or the number of channels is not supported.
    """
    pixels = _as_declared(content, header, pixels)
    is_premultiplied = _is_premultiplied(content, header, pixels)
    if pixels.dtype == np.uint16:
        # 65535 / 257 = 255: scaled and rounded, not cut to the high byte.
        pixels = cv2.convertScaleAbs(pixels, alpha=1 / 257)
    if pixels.dtype != np.uint8:
        raise ImageError(f"samples of type {pixels.dtype} are not read")
    channels = 1 if pixels.ndim == 2 else pixels.shape[2]
    if channels == 1:
        return cv2.cvtColor(pixels, cv2.COLOR_GRAY2BGR)  # type: ignore[return-value]
    if channels == 3:
        return pixels  # type: ignore[return-value]  # OpenCV's stubs lose the dtype
    if channels != 4:
        raise ImageError(f"pictures of {channels} channels are not read")
    return _over_white(pixels, is_premultiplied=is_premultiplied)


def is_deep(content: bytes, header: ImageHeader) -> bool:
    """Whether a decoded file has samples of more than 8 bits, which programs often fill only in part."""
    if header.format == "png":
        return content[24] > 8
    return header.format == "tiff" and _tags(content, header).get(tiff.BITS, 1) > 8


def _over_white(pixels: NDArray[Any], *, is_premultiplied: bool) -> Pixels:
    """BGRA -> BGR over white."""
    colours: Any = cv2.cvtColor(pixels, cv2.COLOR_BGRA2BGR)
    alpha: Any = cv2.cvtColor(pixels[:, :, 3], cv2.COLOR_GRAY2BGR)
    if not is_premultiplied:
        cv2.multiply(colours, alpha, dst=colours, scale=1 / 255)  # rounds; no product lies halfway between two numbers
    cv2.bitwise_not(alpha, dst=alpha)
    return cv2.add(colours, alpha, dst=colours)  # type: ignore[no-any-return]  # saturates at 255


def _as_declared(content: bytes, header: ImageHeader, pixels: NDArray[Any]) -> NDArray[Any]:
    """Apply what OpenCV ignores: a transparent gray (it becomes white), 0 as white, a channel 4 that is not alpha."""
    if header.clear_gray is not None and pixels.ndim == 2:
        # The file's samples have 1 to 16 bits; OpenCV scales them to fill 8 or 16.
        most = 2 ** content[24] - 1
        white = np.iinfo(pixels.dtype).max
        return np.where(pixels == (header.clear_gray & most) * white // most, white, pixels).astype(pixels.dtype)
    if pixels.dtype == np.uint16 and _tags(content, header).get(tiff.PHOTOMETRIC) == tiff.WHITE_IS_ZERO:
        return ~pixels
    if pixels.ndim == 3 and pixels.shape[2] == 4 and not _has_alpha(content, header, pixels):
        return cv2.cvtColor(pixels, cv2.COLOR_BGRA2BGR)
    return pixels


def _tags(content: bytes, header: ImageHeader) -> dict[int, int]:
    directory = tiff.read_directory(content) if header.format == "tiff" else None
    return {} if directory is None else directory.values


def _has_alpha(content: bytes, header: ImageHeader, pixels: NDArray[Any]) -> bool:
    """Whether the fourth channel of `pixels` [H, W, 4] is alpha."""
    if header.format == "bmp":
        # Headers below 56 bytes have no alpha mask. GDI writes a mask but leaves alpha 0 everywhere: then it is unused.
        return int.from_bytes(content[14:18], "little") >= 56 and bool(pixels[:, :, 3].any())
    # 0 means unspecified, such as the infrared of aerial photos. Without the tag it is alpha: OpenCV writes RGBA so.
    return _tags(content, header).get(tiff.EXTRA_SAMPLES) != 0


def _is_premultiplied(content: bytes, header: ImageHeader, pixels: NDArray[Any]) -> bool:
    """Whether colours are already multiplied by alpha: libtiff does that to 8-bit samples; other files may say so."""
    if header.format != "tiff":
        return False
    return pixels.dtype == np.uint8 or _tags(content, header).get(tiff.EXTRA_SAMPLES) == 1
