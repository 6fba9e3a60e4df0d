"""A picture that ends too early -> the same picture with its end added, and how much of it is there, by decoding it.

Downloads and memory cards lose the last bytes of files. Nearly all of such a picture can be decoded, and most trainers
take it as it is. Only what the decoder shows counts: docs/decisions/0067.
"""

import math
import zlib
from dataclasses import dataclass
from typing import Final

import cv2
import numpy as np
from numpy.typing import NDArray

from shared.picture import jpeg
from shared.picture.decoder_warnings import decoder_warnings, is_end
from shared.picture.header import ImageHeader

# A picture is kept if at least this share of its rows is there.
KEPT_FROM: Final = 0.99

_END_OF_IMAGE: Final = b"\xff\xd9"
_SIGNATURE_BYTES: Final = 8
_SAMPLES: Final = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # by PNG's colour type
_DEPTHS: Final = frozenset({1, 2, 4, 8, 16})
_UP: Final = b"\x02"  # PNG's filter Up: with all differences 0 it repeats the row above


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    """A file that ended too early, with its end added; `rows` is the share of its rows that was there, 0 to 1.

    The rest is gray (JPEG), or the last row repeated (PNG).
    """

    content: bytes
    rows: float


def told(rows: float) -> str:
    """What a person is told about a picture of whose rows a share of `rows` is there."""
    # Rounded down: 99.96 % must not become 100 %.
    return f"cut short: {math.floor(rows * 1000) / 10:g} % of its rows can be decoded"


def close(content: bytes, header: ImageHeader) -> Closed | None:
    """Add the missing end to a file that ends too early; None if it is damaged otherwise, or that cannot be known.

    Raises:
        ImageError: It is not a readable picture.
    """
    if header.format == "jpeg":
        return _close_jpeg(content)
    return _close_png(content, header) if header.format == "png" else None


def _close_jpeg(content: bytes) -> Closed | None:
    """Close a JPEG. Its last scan's data ends where the pictures decoded with and without that data last differ.

    libjpeg leaves a block without data as it was before the scan, which is gray at first. The row in which the data
    ends counts in part.
    """
    frame, scans = jpeg.read_frame(content), list(jpeg.scans(content))
    if not scans or not jpeg.has_every_scan(frame, [header for _, header in scans]):
        return None
    # With an end marker the file is damaged, not cut short: all rows may be there, but wrong.
    if _END_OF_IMAGE in content[scans[-1][0] :]:
        return None
    closed = content + _END_OF_IMAGE
    # At scale 1/8 a pixel is the average of a block, which a later scan of a progressive file may not change.
    scale, block = (cv2.IMREAD_REDUCED_COLOR_8, 1) if frame.is_sequential else (cv2.IMREAD_COLOR, 8)
    damage, pixels = _decode(closed, scale)
    if pixels is None or (damage is not None and not is_end(damage)):
        return None
    if damage is None:
        return Closed(content=closed, rows=1.0)
    _, without = _decode(closed[: scans[-1][0]] + _END_OF_IMAGE, scale)
    if without is None or without.shape != pixels.shape:
        return None
    return Closed(
        content=closed, rows=_share_before(pixels, without, (block * frame.mcu_width, block * frame.mcu_height))
    )


def _decode(content: bytes, scale: int) -> tuple[str | None, NDArray[np.uint8] | None]:
    """The damage that the decoder reports, and the raw pixels, uint8 [H, W, 3], or None if it gave up."""
    try:
        with decoder_warnings() as warnings:
            pixels = cv2.imdecode(np.frombuffer(content, np.uint8), scale | cv2.IMREAD_IGNORE_ORIENTATION)
    except cv2.error:
        return None, None
    return warnings.damage(content), pixels  # type: ignore[return-value]  # OpenCV's stubs know no dtype


def _share_before(pixels: NDArray[np.uint8], without: NDArray[np.uint8], mcu: tuple[int, int]) -> float:
    """The share of MCUs before the last one in which the two pictures differ, which is not complete."""
    width, height = mcu
    across, down = math.ceil(pixels.shape[1] / width), math.ceil(pixels.shape[0] / height)
    differing_rows = np.flatnonzero(np.any(pixels != without, axis=(1, 2)))
    if not differing_rows.size:
        return 0.0
    row = int(differing_rows[-1]) // height
    strip = slice(row * height, (row + 1) * height)
    column = int(np.flatnonzero(np.any(pixels[strip] != without[strip], axis=(0, 2)))[-1]) // width
    return float((row * across + column) / (across * down))


def _close_png(content: bytes, header: ImageHeader) -> Closed | None:
    """Unpack the rows that are there, repeat the last one, and pack them again."""
    depth, colour, interlace = content[24], content[25], content[28]
    parts = _png_parts(content)
    if parts is None or colour not in _SAMPLES or depth not in _DEPTHS or interlace:
        return None
    before, packed = parts
    row_bytes = 1 + math.ceil(header.width * _SAMPLES[colour] * depth / 8)
    try:
        rows = zlib.decompressobj().decompress(packed, row_bytes * header.height)
    except zlib.error:
        return None
    there = len(rows) // row_bytes
    if not there:
        return None
    rest = (_UP + bytes(row_bytes - 1)) * (header.height - there)
    data = zlib.compress(rows[: there * row_bytes] + rest, 1)
    return Closed(content=before + _chunk(b"IDAT", data) + _chunk(b"IEND", b""), rows=there / header.height)


def _png_parts(content: bytes) -> tuple[bytes, bytes] | None:
    """The bytes before the first IDAT chunk, and the data of all IDAT chunks, as far as the file goes.

    None if the file has its end, or a chunk has a wrong checksum: that is damage of another kind.
    """
    position, first, data = _SIGNATURE_BYTES, 0, bytearray()
    while position + 8 <= len(content):
        size, kind = _big(content, position), content[position + 4 : position + 8]
        end = position + 8 + size
        is_whole = end + 4 <= len(content)
        if is_whole and (kind == b"IEND" or zlib.crc32(content[position + 4 : end]) != _big(content, end)):
            return None
        if kind == b"IDAT":
            first = first or position
            data += content[position + 8 : end]
        position += 12 + size
    return content[: first or _SIGNATURE_BYTES], bytes(data)


def _big(content: bytes, start: int) -> int:
    return int.from_bytes(content[start : start + 4], "big")


def _chunk(kind: bytes, data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")
