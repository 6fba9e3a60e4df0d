"""The first directory of a TIFF structure: an EXIF block, or the head of a TIFF picture.

Source: TIFF 6.0, section 2 (image file header, image file directory); Exif 2.3, section 4.6.
"""

import struct
from dataclasses import dataclass
from typing import Final

from shared.errors import ImageError
from shared.picture import CONVERT

ORIENTATION: Final = 0x0112
WIDTH: Final = 256
HEIGHT: Final = 257
BITS: Final = 258
PHOTOMETRIC: Final = 262
SAMPLES: Final = 277
PLANES: Final = 284
EXTRA_SAMPLES: Final = 338
SAMPLE_FORMAT: Final = 339

# The photometric interpretation of gray in which 0 is white.
WHITE_IS_ZERO: Final = 0

# Field types that hold whole numbers: BYTE, SHORT, LONG.
_WHOLE: Final = {1: "B", 3: "H", 4: "I"}
# Real directories have a few dozen entries; the field is 16 bits wide.
_MAX_ENTRIES: Final = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Directory:
    """The whole-number tags of a directory: the first value of each, and its position and format in the block."""

    values: dict[int, int]
    offsets: dict[int, tuple[int, str]]


def read_directory(block: bytes) -> Directory | None:
    """The first directory of `block`; None if `block` is not a TIFF structure or is cut off before its directory."""
    order = {b"II*\0": "<", b"MM\0*": ">"}.get(block[:4])
    if order is None or len(block) < 8:
        return None
    start = struct.unpack_from(order + "I", block, 4)[0]
    if start + 2 > len(block):
        return None
    entries = min(struct.unpack_from(order + "H", block, start)[0], _MAX_ENTRIES)
    values: dict[int, int] = {}
    offsets: dict[int, tuple[int, str]] = {}
    for entry in range(start + 2, min(start + 2 + 12 * entries, len(block) - 11), 12):
        tag, kind, count = struct.unpack_from(order + "HHI", block, entry)
        if kind not in _WHOLE or count == 0:
            continue
        code = order + _WHOLE[kind]
        # Values of up to four bytes are in the entry itself, longer ones where it points.
        inline = count * struct.calcsize(code) <= 4
        offset = entry + 8 if inline else struct.unpack_from(order + "I", block, entry + 8)[0]
        if tag not in values and offset + struct.calcsize(code) <= len(block):
            values[tag] = struct.unpack_from(code, block, offset)[0]
            offsets[tag] = (offset, code)
    return Directory(values=values, offsets=offsets)


def orientation(directory: Directory | None) -> int:
    """The orientation (1 to 8) that a directory names; 1 if it names none."""
    value = 1 if directory is None else directory.values.get(ORIENTATION, 1)
    return value if 1 <= value <= 8 else 1


def exif_orientation(block: bytes) -> int:
    """The orientation of an EXIF block, with or without its `Exif` mark."""
    return orientation(read_directory(block.removeprefix(b"Exif\0\0")))


def upright_copy(content: bytes) -> bytes:
    """A TIFF picture whose orientation tag says 1: OpenCV turns TIFFs by their tag whatever flags it is given."""
    directory = read_directory(content)
    if directory is None or ORIENTATION not in directory.offsets:
        return content
    offset, code = directory.offsets[ORIENTATION]
    patched = bytearray(content)
    struct.pack_into(code, patched, offset, 1)
    return bytes(patched)


def check_samples(directory: Directory) -> None:
    """Refuse samples that OpenCV cannot turn into 8-bit RGB correctly.

    Raises:
        ImageError: Samples are not unsigned whole numbers of at most 16 bits; or have more than 8 bits with a plane for
            each colour (OpenCV takes them for pixels of the first plane); or are gray with alpha (OpenCV drops the
            alpha).
    """
    bits, sample_format = directory.values.get(BITS, 1), directory.values.get(SAMPLE_FORMAT, 1)
    if bits > 16 or sample_format != 1:
        found = f"TIFF with {bits}-bit samples of format {sample_format}"
        raise ImageError(f"{found}: 1 to 16-bit unsigned ones are read; {CONVERT}")
    if directory.values.get(SAMPLES, 1) == 1:
        return
    if directory.values.get(PHOTOMETRIC) in (0, 1):
        raise ImageError(f"TIFF of gray with alpha is not read; {CONVERT}")
    if bits > 8 and directory.values.get(PLANES) == 2:
        raise ImageError(f"TIFF with a plane of {bits}-bit samples for each colour: 8-bit ones are read; {CONVERT}")
