"""Image bytes -> the stored picture: an upright JPEG of the model's size.

This takes most of a worker's time. JPEGs are decoded at 1/2, 1/4 or 1/8 if that is not below the target size; pixels
are turned only after they have been made small.
"""

import math
from dataclasses import dataclass, replace
from typing import Final

import cv2
import numpy as np
from numpy.typing import NDArray

from shared.errors import ImageError
from shared.picture import cut_short, heif, tiff
from shared.picture.decoder_warnings import decoder_warnings, is_end
from shared.picture.header import ImageHeader
from shared.picture.orientation import upright_size
from shared.picture.pixels import is_deep, to_bgr, turn_pixels
from shared.placement import PADDING_GRAY, Placement, place
from shared.specs.data import JobSpec
from worker.picture.perceptual_hash import LEAST_SIDE, perceptual_hash

Pixels = NDArray[np.uint8]

# Up to this factor bilinear sampling uses every source pixel. Compared with full decode + INTER_AREA, the result is
# closer than with INTER_AREA after a scaled decode, which blurs twice (1080p -> 320: 51.5 dB against 48.5 dB), at a
# fifth of the cost.
MAX_INTERPOLATED: Final = 2.0

_REDUCED: Final = {8: cv2.IMREAD_REDUCED_COLOR_8, 4: cv2.IMREAD_REDUCED_COLOR_4, 2: cv2.IMREAD_REDUCED_COLOR_2}


def use_one_thread() -> None:
    """Keep OpenCV to the calling thread: a worker is one process of many, and thread pools do not survive a fork."""
    cv2.setNumThreads(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredImage:
    """What became of an image file: the `jpeg` that the record holds (b"" if the file was only checked).

    `hash` is its `perceptual_hash`; `rows` is the share of its rows that a file cut short had, None for a whole file;
    `shades` is how many of 256 shades lie from the darkest to the brightest pixel of a file with more than 8 bits per
    sample, None for any other.
    """

    jpeg: bytes
    hash: str
    rows: float | None = None
    shades: int | None = None


def store_image(content: bytes, header: ImageHeader, spec: JobSpec) -> StoredImage:
    """Turn an image file into the JPEG for the record, a square of `spec.image_size` pixels.

    A file that already is such a JPEG is kept byte for byte, after its scan was checked. Whether a file that is cut
    short is kept depends on `spec.damaged`.

    Raises:
        ImageError: Truncated, damaged, or of a kind that cannot become 8-bit RGB correctly.
    """
    try:
        return _store_whole(content, header, spec)
    except ImageError as error:
        closed = _closed(content, header, spec, error)
    return replace(_store(closed.content, header, spec, is_closed=True), rows=closed.rows)


def _closed(content: bytes, header: ImageHeader, spec: JobSpec, error: ImageError) -> cut_short.Closed:
    """The file with its end added, if it may be kept; otherwise `error` is raised."""
    closed = cut_short.close(content, header) if spec.damaged == "keep" else None
    if closed is None or closed.rows < cut_short.KEPT_FROM:
        raise error
    return closed


def _store_whole(content: bytes, header: ImageHeader, spec: JobSpec) -> StoredImage:
    if header.can_pass and header.width == header.height == spec.image_size and content.endswith(b"\xff\xd9"):
        return StoredImage(jpeg=content, hash=perceptual_hash(decode(content, header, (LEAST_SIDE, LEAST_SIDE))))
    return _store(content, header, spec)


def _store(content: bytes, header: ImageHeader, spec: JobSpec, *, is_closed: bool = False) -> StoredImage:
    placement = place(*upright_size(header.orientation, (header.width, header.height)), spec.image_size, spec.resize)
    inner = upright_size(header.orientation, (placement.width, placement.height))
    pixels = decode(content, header, inner, is_closed=is_closed)
    pixels = turn_pixels(resize(pixels, *inner), header.orientation)
    _, encoded = cv2.imencode(".jpg", _pad(pixels, placement), [cv2.IMWRITE_JPEG_QUALITY, spec.jpeg_quality])
    shades = _shades(content, header, pixels)
    return StoredImage(jpeg=encoded.tobytes(), hash=perceptual_hash(pixels), shades=shades)


def _shades(content: bytes, header: ImageHeader, pixels: Pixels) -> int | None:
    return int(pixels.max()) - int(pixels.min()) + 1 if is_deep(content, header) else None


def _pad(pixels: Pixels, placement: Placement) -> Pixels:
    if placement.width == placement.height == placement.size:
        return pixels
    bottom, right = placement.size - placement.height - placement.top, placement.size - placement.width - placement.left
    gray = (PADDING_GRAY,) * 3
    return cv2.copyMakeBorder(  # type: ignore[return-value]
        pixels, placement.top, bottom, placement.left, right, cv2.BORDER_CONSTANT, value=gray
    )


def check_image(content: bytes, header: ImageHeader, spec: JobSpec) -> StoredImage:
    """Decode a file as cheaply as damage can still be found, and hash the picture.

    Raises:
        ImageError: As `store_image` raises it.
    """
    rows = None
    try:
        pixels = decode(content, header, (LEAST_SIDE, LEAST_SIDE))
    except ImageError as error:
        closed = _closed(content, header, spec, error)
        pixels, rows = decode(closed.content, header, (LEAST_SIDE, LEAST_SIDE), is_closed=True), closed.rows
    seen = perceptual_hash(turn_pixels(pixels, header.orientation))
    return StoredImage(jpeg=b"", hash=seen, rows=rows, shades=_shades(content, header, pixels))


def decode(content: bytes, header: ImageHeader, at_least: tuple[int, int], *, is_closed: bool = False) -> Pixels:
    """Decode to 8-bit BGR in the raw frame, scaled down as far as JPEG allows without extra cost.

    The result, uint8 [H, W, 3], is not scaled below `at_least`, (width, height) in raw pixels, and not turned.
    `is_closed` says that `content` comes from `cut_short.close`, so that data that ends too early is no error.

    Raises:
        ImageError: As `store_image`.
    """
    if header.format == "heif":
        return heif.decode(content)
    if header.is_cut and not is_closed:
        # OpenCV fills memory up to the size that a chunk claims (33 MB took 2.8 s of CPU; found by fuzzing).
        raise ImageError("truncated: PNG that ends within a chunk")
    if header.format != "jpeg":
        pixels = _imdecode(tiff.upright_copy(content) if header.format == "tiff" else content, cv2.IMREAD_UNCHANGED)
        _check_size(pixels, header.width, header.height)
        return to_bgr(content, header, pixels)
    flag, size = _choose_scale(header, at_least)
    pixels = _imdecode(content, flag | cv2.IMREAD_IGNORE_ORIENTATION, is_closed=is_closed)
    _check_size(pixels, *size)
    return pixels


def _choose_scale(header: ImageHeader, at_least: tuple[int, int]) -> tuple[int, tuple[int, int]]:
    """OpenCV's flag for the smallest decoded size that is not below `at_least`, and that size, (width, height)."""
    for divisor, flag in _REDUCED.items():
        size = (math.ceil(header.width / divisor), math.ceil(header.height / divisor))
        if size[0] >= at_least[0] and size[1] >= at_least[1]:
            return flag, size
    return cv2.IMREAD_COLOR, (header.width, header.height)


def _imdecode(content: bytes, flags: int, *, is_closed: bool = False) -> Pixels:
    try:
        with decoder_warnings() as warnings:
            pixels = cv2.imdecode(np.frombuffer(content, np.uint8), flags)
    except cv2.error as error:
        raise ImageError(f"the decoder refused it: {error.err or error.msg}") from error
    if pixels is None:
        raise ImageError("truncated or damaged: the decoder gave up")
    damage = warnings.damage(content)
    if damage is not None and not (is_closed and is_end(damage)):
        raise ImageError(f"damaged: {damage}")
    return pixels  # type: ignore[return-value]  # OpenCV's stubs know no dtype


def _check_size(pixels: Pixels, width: int, height: int) -> None:
    """Check the decoded size: the limit on pixels was checked against the header's size."""
    if pixels.shape[:2] != (height, width):
        found = f"{pixels.shape[1]}x{pixels.shape[0]}"
        raise ImageError(f"its header says {width}x{height} pixels, {found} were decoded")


def resize(pixels: Pixels, width: int, height: int) -> Pixels:
    """Resize uint8 [H, W, 3] to `width` x `height` pixels; the two sides may shrink or grow differently.

    Averages if a side shrinks by more than a factor of two, interpolates otherwise.
    """
    rows, columns = pixels.shape[:2]
    if (columns, rows) == (width, height):
        return pixels
    if max(columns / width, rows / height) > MAX_INTERPOLATED:
        # If an axis grows, INTER_AREA falls back to interpolation, which aliases, so only shrink in this step.
        narrow = (min(width, columns), min(height, rows))
        pixels = cv2.resize(pixels, narrow, interpolation=cv2.INTER_AREA)  # type: ignore[assignment]
    if pixels.shape[:2] == (height, width):
        return pixels
    return cv2.resize(pixels, (width, height), interpolation=cv2.INTER_LINEAR)  # type: ignore[return-value]
