"""The marker segments of a JPEG. Source: ITU-T T.81, annex B."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from shared.errors import ImageError

APP1: Final = 0xE1
BASELINE: Final = 0xC0
# Start-of-frame markers: C0 to CF without DHT (C4), JPG (C8) and DAC (CC).
FRAMES: Final = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}

_SEQUENTIAL: Final = frozenset({0xC0, 0xC1, 0xC9})
_START_OF_SCAN: Final = 0xDA
_END: Final = 0xD9
# Markers without a length: TEM and RST0 to RST7.
_BARE: Final = frozenset({0x01, *range(0xD0, 0xD8)})


def segments(content: bytes) -> Iterator[tuple[int, bytes]]:
    """The marker and content of each segment before the first scan, without the segment's length field.

    Raises:
        ImageError: The segments lead out of the file, or there is no scan.
    """
    position = 2
    while True:
        # libjpeg skips stray bytes before a marker; we must too, or we could see a different frame.
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
        yield marker, content[position + 3 : end]
        position = end


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """What a frame header says: its marker, the ids of its components, and the sides of its MCU in blocks of 8x8."""

    marker: int
    components: tuple[int, ...]
    mcu_width: int
    mcu_height: int

    @property
    def is_sequential(self) -> bool:
        """Whether each block is stored in one piece, so that its average shows whether it is there."""
        return self.marker in _SEQUENTIAL


def read_frame(content: bytes) -> Frame:
    """The frame header of a JPEG.

    Raises:
        ImageError: There is none, or it is broken.
    """
    for marker, segment in segments(content):
        if marker in FRAMES and len(segment) >= 6 + 3 * segment[5] > 6:
            own = [segment[at : at + 3] for at in range(6, 6 + 3 * segment[5], 3)]
            # With one component an MCU is one block, whatever the sampling factors say (A.2.2).
            sides = [(entry[1] >> 4, entry[1] & 15) for entry in own] if len(own) > 1 else [(1, 1)]
            return Frame(
                marker=marker,
                components=tuple(entry[0] for entry in own),
                mcu_width=max(1, *(width for width, _ in sides)),
                mcu_height=max(1, *(height for _, height in sides)),
            )
    raise ImageError("JPEG without a frame header")


def scans(content: bytes) -> Iterator[tuple[int, bytes]]:
    """For each scan, the position where its data begins, and its header without the length field."""
    position = 2
    while (position := content.find(b"\xff", position)) != -1 and position + 4 <= len(content):
        marker = content[position + 1]
        if marker in (0, 0xFF) or marker in _BARE:
            position += 1
            continue
        end = position + 2 + int.from_bytes(content[position + 2 : position + 4])
        if marker == _END or end > len(content):
            return
        if marker == _START_OF_SCAN:
            yield end, content[position + 4 : end]
        position = end


def has_every_scan(frame: Frame, headers: Iterable[bytes]) -> bool:
    """Whether the scans with these headers code every coefficient of every component down to its last bit (G.1.1)."""
    missing = {(component, place) for component in frame.components for place in range(64)}
    for header in headers:
        count = header[0] if header else 0
        if len(header) < 4 + 2 * count:
            return False
        first, last, bits = header[1 + 2 * count : 4 + 2 * count]
        if bits & 15 == 0:
            missing -= {(header[1 + 2 * at], place) for at in range(count) for place in range(first, last + 1)}
    return not missing
