"""JPEG bytes → what its markers say. Source: ITU-T T.81, annex B."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from shared.errors import ImageError
from worker.tiff import exif_orientation

_START_OF_SCAN: Final = 0xDA
_END: Final = 0xD9
_APP1: Final = 0xE1
# Start-of-frame markers: C0 to CF without DHT (C4), JPG (C8) and DAC (CC).
_FRAMES: Final = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_BASELINE: Final = 0xC0
# Markers without a length: TEM and RST0 to RST7.
_BARE: Final = frozenset({0x01, *range(0xD0, 0xD8)})


@dataclass(frozen=True, slots=True, kw_only=True)
class JpegHeader:
    """What stands before the first scan. `width` and `height` are pixels as stored, before any orientation."""

    width: int
    height: int
    components: int
    is_baseline: bool
    has_exif: bool
    orientation: int


def read_header(content: bytes) -> JpegHeader:
    """Walk the markers up to the first scan.

    Raises:
        ImageError: The walk leaves the file, or finds no frame, two frames, or a frame without a height.
    """
    frame: tuple[int, int, int, int] | None = None
    has_exif, orientation = False, 1
    for marker, start, end in _segments(content):
        if marker in _FRAMES:
            if frame is not None or end - start < 6:
                raise ImageError("JPEG with a broken or second frame header")
            height, width = (
                int.from_bytes(content[start + 1 : start + 3]),
                int.from_bytes(content[start + 3 : start + 5]),
            )
            frame = (marker, width, height, content[start + 5])
        elif marker == _APP1 and not has_exif and content.startswith(b"Exif\0", start):
            has_exif, orientation = True, exif_orientation(content[start:end])
    if frame is None or not frame[1] or not frame[2]:
        raise ImageError("JPEG without a frame header that names its size")
    marker, width, height, components = frame
    return JpegHeader(
        width=width,
        height=height,
        components=components,
        is_baseline=marker == _BASELINE,
        has_exif=has_exif,
        orientation=orientation,
    )


def _segments(content: bytes) -> Iterator[tuple[int, int, int]]:
    """(marker, start, end) of each segment's bytes after its length field, up to and without the first scan."""
    position = 2
    while True:
        # libjpeg skips stray bytes before a marker; so does this walk, or both would see other frames.
        position = content.find(b"\xff", position)
        while position != -1 and content[position : position + 1] == b"\xff":
            position += 1
        if position <= 0 or position + 3 > len(content):
            raise ImageError("JPEG that ends before its first scan")
        marker = content[position]
        if marker == 0 or marker in _BARE:
            position += 1
            continue
        if marker in (_START_OF_SCAN, _END):
            return
        end = position + 1 + int.from_bytes(content[position + 1 : position + 3])
        if end < position + 3 or end > len(content):
            raise ImageError("JPEG with a segment that leaves the file")
        yield marker, position + 3, end
        position = end
