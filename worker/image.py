"""Image bytes → the stored picture: upright, of the model's size, a JPEG; and the same move for its boxes.

The dearest stage of the route. JPEGs are decoded at 1/2, 1/4 or 1/8 where that still leaves the target size; pixels
are turned after they were made small.
"""

import math
from dataclasses import dataclass
from typing import Final

import cv2
import numpy as np
from numpy.typing import NDArray

from shared.annotation import Box
from shared.errors import ImageError
from shared.job import JobSpec
from worker import tiff
from worker.exif import turn_pixels, upright_size
from worker.header import ImageHeader
from worker.notes import decoder_notes

Pixels = NDArray[np.uint8]

# The gray of letterbox bars, as the YOLO family pads: near the mean of photographs, so the edge is no object.
PADDING_GRAY: Final = 114

# Up to this factor a bilinear sample sees every source pixel. Against full decode + INTER_AREA it is nearer than
# INTER_AREA after a scaled decode, which blurs twice (1080p -> 320: 51.5 dB against 48.5), at a fifth of the cost.
MAX_INTERPOLATED: Final = 2.0

_SCALED: Final = (
    (8, cv2.IMREAD_REDUCED_COLOR_8),
    (4, cv2.IMREAD_REDUCED_COLOR_4),
    (2, cv2.IMREAD_REDUCED_COLOR_2),
    (1, cv2.IMREAD_COLOR),
)


def use_one_thread() -> None:
    """Keep OpenCV to the calling thread: a worker is one process of many, and its pool of threads dies at a fork."""
    cv2.setNumThreads(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where an upright picture of (width, height) pixels comes to lie in the square of `size` pixels."""

    size: int
    width: int
    height: int
    left: int
    top: int
    scale_x: float
    scale_y: float

    def into(self, box: Box) -> Box:
        """Move (xmin, ymin, xmax, ymax) from pixels of the upright picture into pixels of the square."""
        xmin, ymin, xmax, ymax = box
        return (
            xmin * self.scale_x + self.left,
            ymin * self.scale_y + self.top,
            xmax * self.scale_x + self.left,
            ymax * self.scale_y + self.top,
        )

    def back(self, box: Box) -> Box:
        """The inverse of `into`."""
        xmin, ymin, xmax, ymax = box
        return (
            (xmin - self.left) / self.scale_x,
            (ymin - self.top) / self.scale_y,
            (xmax - self.left) / self.scale_x,
            (ymax - self.top) / self.scale_y,
        )


def place(width: int, height: int, spec: JobSpec) -> Placement:
    """Choose where an upright picture of `width` x `height` pixels lies in the stored square.

    `stretch` fills the square; `letterbox` keeps the aspect and centres, the odd pixel of padding right or below.
    """
    size = spec.image_size
    inner_width = inner_height = size
    if spec.resize == "letterbox":
        scale = size / max(width, height)
        inner_width, inner_height = max(1, round(width * scale)), max(1, round(height * scale))
    return Placement(
        size=size,
        width=inner_width,
        height=inner_height,
        left=(size - inner_width) // 2,
        top=(size - inner_height) // 2,
        scale_x=inner_width / width,
        scale_y=inner_height / height,
    )


def store_image(content: bytes, header: ImageHeader, spec: JobSpec) -> bytes:
    """Turn an image file into the JPEG of `spec.image_size` squared that the record holds.

    A file that already is that JPEG passes byte for byte, after its scan was checked.

    Raises:
        ImageError: Truncated, damaged, or of a kind that cannot become 8-bit RGB correctly.
    """
    if header.can_pass and header.width == header.height == spec.image_size and content.endswith(b"\xff\xd9"):
        check_image(content, header)
        return content
    placement = place(*upright_size(header.orientation, (header.width, header.height)), spec)
    inner = upright_size(header.orientation, (placement.width, placement.height))
    pixels = turn_pixels(resize(decode(content, header, inner), *inner), header.orientation)
    _, encoded = cv2.imencode(".jpg", _pad(pixels, placement), [cv2.IMWRITE_JPEG_QUALITY, spec.jpeg_quality])
    return encoded.tobytes()


def _pad(pixels: Pixels, placement: Placement) -> Pixels:
    if placement.width == placement.height == placement.size:
        return pixels
    bottom, right = placement.size - placement.height - placement.top, placement.size - placement.width - placement.left
    gray = (PADDING_GRAY,) * 3
    return cv2.copyMakeBorder(  # type: ignore[return-value]
        pixels, placement.top, bottom, placement.left, right, cv2.BORDER_CONSTANT, value=gray
    )


def check_image(content: bytes, header: ImageHeader) -> None:
    """Decode as cheaply as damage can be heard.

    Raises:
        ImageError: As `store_image`.
    """
    decode(content, header, (1, 1))


def decode(content: bytes, header: ImageHeader, at_least: tuple[int, int]) -> Pixels:
    """Decode to 8-bit BGR in the raw frame, scaled down as far as JPEG allows without extra cost.

    Args:
        content: The whole file.
        header: Its header.
        at_least: (width, height) in raw pixels that scaling must leave, where the picture has them.

    Returns:
        uint8 [H, W, 3], BGR, not turned.

    Raises:
        ImageError: As `store_image`.
    """
    if header.format != "jpeg":
        pixels = _imdecode(tiff.upright_copy(content) if header.format == "tiff" else content, cv2.IMREAD_UNCHANGED)
        _check_size(pixels, header.width, header.height)
        return _to_bgr(pixels, _is_premultiplied(content, header, pixels))
    flag, size = _choose_scale(header, at_least)
    pixels = _imdecode(content, flag | cv2.IMREAD_IGNORE_ORIENTATION)
    _check_size(pixels, *size)
    return pixels


def _choose_scale(header: ImageHeader, at_least: tuple[int, int]) -> tuple[int, tuple[int, int]]:
    """OpenCV's flag for the smallest decoded size that is not below `at_least`, with that (width, height)."""
    for divisor, flag in _SCALED:
        size = (math.ceil(header.width / divisor), math.ceil(header.height / divisor))
        if size[0] >= at_least[0] and size[1] >= at_least[1]:
            return flag, size
    return cv2.IMREAD_COLOR, (header.width, header.height)


def _imdecode(content: bytes, flags: int) -> Pixels:
    try:
        with decoder_notes() as notes:
            pixels = cv2.imdecode(np.frombuffer(content, np.uint8), flags)
    except cv2.error as error:
        raise ImageError(f"the decoder refused it: {error.err or error.msg}") from error
    if pixels is None:
        raise ImageError("truncated or damaged: the decoder gave up")
    damage = notes.damage(content)
    if damage is not None:
        raise ImageError(f"damaged: {damage}")
    return pixels  # type: ignore[return-value]  # OpenCV's stubs know no dtype


def _check_size(pixels: Pixels, width: int, height: int) -> None:
    """The pixel cap was held against the header: the decoder must have seen the same one."""
    if pixels.shape[:2] != (height, width):
        found = f"{pixels.shape[1]}x{pixels.shape[0]}"
        raise ImageError(f"its header says {width}x{height} pixels, {found} were decoded")


def _is_premultiplied(content: bytes, header: ImageHeader, pixels: Pixels) -> bool:
    """Whether colours come multiplied by their alpha: libtiff does it to 8-bit samples, files may do it to others."""
    if header.format != "tiff":
        return False
    directory = tiff.read_directory(content)
    return pixels.dtype == np.uint8 or (directory is not None and directory.values.get(tiff.EXTRA_SAMPLES) == 1)


def _to_bgr(pixels: Pixels, is_premultiplied: bool) -> Pixels:  # noqa: FBT001  # a fact about the first argument
    """Gray, 16-bit and alpha → 8-bit BGR. What is transparent becomes white, as browsers and labelling tools do."""
    if pixels.dtype == np.uint16:
        # 65535 / 257 = 255: scaled and rounded, not cut to the high byte.
        pixels = cv2.convertScaleAbs(pixels, alpha=1 / 257)  # type: ignore[assignment]
    if pixels.dtype != np.uint8:
        raise ImageError(f"samples of type {pixels.dtype} are not read")
    if pixels.ndim == 2 or pixels.shape[2] == 1:
        return cv2.cvtColor(pixels, cv2.COLOR_GRAY2BGR)  # type: ignore[return-value]
    if pixels.shape[2] == 3:
        return pixels
    if pixels.shape[2] != 4:
        raise ImageError(f"pictures of {pixels.shape[2]} channels are not read")
    colours, alpha = pixels[:, :, :3].astype(np.uint16), pixels[:, :, 3:].astype(np.uint16)
    over_white = colours + (255 - alpha) if is_premultiplied else (colours * alpha + 255 * (255 - alpha) + 127) // 255
    composed: Pixels = np.minimum(over_white, 255).astype(np.uint8)
    return composed


def resize(pixels: Pixels, width: int, height: int) -> Pixels:
    """Average where it shrinks much, interpolate where it shrinks by at most two or grows; each axis may do either.

    Args:
        pixels: uint8 [H, W, 3].
        width: Of the result, in pixels.
        height: Of the result, in pixels.
    """
    rows, columns = pixels.shape[:2]
    if (columns, rows) == (width, height):
        return pixels
    if max(columns / width, rows / height) > MAX_INTERPOLATED:
        # INTER_AREA falls back to interpolation, which aliases, as soon as one axis grows: first only what shrinks.
        narrow = (min(width, columns), min(height, rows))
        pixels = cv2.resize(pixels, narrow, interpolation=cv2.INTER_AREA)  # type: ignore[assignment]
    if pixels.shape[:2] == (height, width):
        return pixels
    return cv2.resize(pixels, (width, height), interpolation=cv2.INTER_LINEAR)  # type: ignore[return-value]
