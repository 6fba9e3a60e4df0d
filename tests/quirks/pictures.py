"""Pictures as odd as real folders hold them, made without any encoder but OpenCV's: for the set of planted quirks."""

import struct
import zlib
from typing import Any, Final

import cv2
import numpy as np
from numpy.typing import NDArray

from worker.synthetic.shapes import Pixels

# Small, because the tests keep a copy of the whole set.
WIDTH_PX: Final = 120
HEIGHT_PX: Final = 80


def picture(width: int = WIDTH_PX, height: int = HEIGHT_PX) -> Pixels:
    """A light ground with one dark disc at (30, 30) of radius 20: uint8 [H, W, 3], BGR."""
    slope = np.linspace(150, 220, width, dtype=np.uint8)
    ground = np.ascontiguousarray(np.broadcast_to(slope[None, :, None], (height, width, 3)))
    cv2.circle(ground, (30, 30), 20, (30, 60, 90), cv2.FILLED, cv2.LINE_AA)
    return ground


def encode(extension: str, pixels: NDArray[np.integer[Any]] | None = None, *options: int) -> bytes:
    """`pixels` (the usual picture by default) as OpenCV writes a file of this extension."""
    written, encoded = cv2.imencode(extension, picture() if pixels is None else pixels, options)
    if not written:
        raise ValueError(f"OpenCV writes no {extension}")
    return encoded.tobytes()


def gray() -> bytes:
    """A JPEG of one component."""
    return encode(".jpg", np.asarray(cv2.cvtColor(picture(), cv2.COLOR_BGR2GRAY), np.uint8))


def progressive() -> bytes:
    """A JPEG in several scans."""
    return encode(".jpg", None, cv2.IMWRITE_JPEG_PROGRESSIVE, 1)


def deep() -> bytes:
    """A PNG of 16 bits a sample."""
    return encode(".png", picture().astype(np.uint16) * 257)


def with_alpha() -> bytes:
    """A PNG whose left half is transparent."""
    alpha = np.full((HEIGHT_PX, WIDTH_PX), 255, np.uint8)
    alpha[:, : WIDTH_PX // 2] = 0
    return encode(".png", np.dstack([picture(), alpha]))


def palette() -> bytes:
    """A PNG of 16 grays by index."""
    indices = cv2.cvtColor(picture(), cv2.COLOR_BGR2GRAY) // 16
    colours = b"".join(bytes([level * 17] * 3) for level in range(16))
    rows = b"".join(b"\0" + row.tobytes() for row in indices.astype(np.uint8))
    return png(WIDTH_PX, HEIGHT_PX, colour_type=3, chunks=((b"PLTE", colours), (b"IDAT", zlib.compress(rows))))


def bomb() -> bytes:
    """A PNG that claims 60,000 x 60,000 pixels."""
    return png(60_000, 60_000, colour_type=2, chunks=((b"IDAT", zlib.compress(bytes(1000))),))


def png(width: int, height: int, *, colour_type: int, chunks: tuple[tuple[bytes, bytes], ...]) -> bytes:
    """A PNG of 8 bits a sample from its chunks."""
    header = struct.pack(">IIBBBBB", width, height, 8, colour_type, 0, 0, 0)
    parts = [b"\x89PNG\r\n\x1a\n"]
    for kind, content in ((b"IHDR", header), *chunks, (b"IEND", b"")):
        parts.append(struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content)))
    return b"".join(parts)


def turned(orientation: int, *, pixels: Pixels | None = None) -> bytes:
    """A JPEG whose EXIF block says `orientation`."""
    entry = struct.pack("<HHIHH", 0x0112, 3, 1, orientation, 0)
    block = b"Exif\0\0II*\0\x08\0\0\0\x01\0" + entry + bytes(4)
    jpeg = encode(".jpg", pixels)
    return jpeg[:2] + b"\xff\xe1" + struct.pack(">H", len(block) + 2) + block + jpeg[2:]


def truncated(extension: str) -> bytes:
    """The first 60 % of a file."""
    content = encode(extension)
    return content[: len(content) * 6 // 10]


def damaged() -> bytes:
    """A JPEG with junk in the middle of its scan: OpenCV decodes it in silence."""
    content = encode(".jpg")
    middle = len(content) * 6 // 10
    return content[:middle] + b"\x55" * 200 + content[middle + 200 :]


def closed_again() -> bytes:
    """A truncated JPEG with an end marker, as some downloaders leave it."""
    return truncated(".jpg") + b"\xff\xd9"
