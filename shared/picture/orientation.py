"""EXIF orientation -> which frame the boxes are in, and the rotation that makes boxes upright.

There are two frames: *raw*, as the pixels are stored, and *upright*, as a viewer shows them. Labelling tools differ in
the frame that they write boxes in, so it is decided for each picture from its `<size>` and its boxes.
Source of the orientation values: Exif 2.3, section 4.6.4, tag 0x0112.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

Frame = Literal["upright", "raw"]
# (xmin, ymin, xmax, ymax) in pixels.
_Box = tuple[float, float, float, float]

# From this value on the picture lies on its side: width and height are swapped.
FIRST_SIDEWAYS: Final = 5
# Boxes of 1-based tools may reach one pixel beyond the edge of their frame.
_EDGE_PX: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameChoice:
    """The frame that the boxes are taken to be in, and what decided it; `default` is a guess and is counted."""

    frame: Frame
    by: Literal["no_turn", "no_boxes", "size", "boxes", "default"]


def choose_frame(
    orientation: int,
    raw_size: tuple[int, int],
    labelled_size: tuple[int, int] | None,
    boxes: Sequence[_Box],
    default: Frame,
) -> FrameChoice:
    """Decide which frame `boxes`, (xmin, ymin, xmax, ymax) in its pixels, are in; `default` is what `--exif` says.

    Sizes are (width, height): `raw_size` of the stored pixels, `labelled_size` from the annotation, if it has one.
    """
    if orientation == 1:
        return FrameChoice(frame="upright", by="no_turn")
    if not boxes:
        return FrameChoice(frame="upright", by="no_boxes")
    turned_size = upright_size(orientation, raw_size)
    if turned_size != raw_size:
        if labelled_size == turned_size:
            return FrameChoice(frame="upright", by="size")
        if labelled_size == raw_size:
            return FrameChoice(frame="raw", by="size")
        fits_upright, fits_raw = _fit(boxes, turned_size), _fit(boxes, raw_size)
        if fits_upright != fits_raw:
            return FrameChoice(frame="upright" if fits_upright else "raw", by="boxes")
    return FrameChoice(frame=default, by="default")


def _fit(boxes: Sequence[_Box], size: tuple[int, int]) -> bool:
    return all(xmax <= size[0] + _EDGE_PX and ymax <= size[1] + _EDGE_PX for _, _, xmax, ymax in boxes)


def upright_size(orientation: int, raw_size: tuple[int, int]) -> tuple[int, int]:
    """(width, height) of the upright picture."""
    return (raw_size[1], raw_size[0]) if orientation >= FIRST_SIDEWAYS else raw_size


def turn_box(box: _Box, orientation: int, raw_size: tuple[int, int]) -> _Box:
    """Move (xmin, ymin, xmax, ymax) in pixels from the raw frame, (width, height) `raw_size`, into the upright one."""
    xmin, ymin, xmax, ymax = box
    width, height = raw_size
    if orientation in (2, 3, 7, 8):
        xmin, xmax = width - xmax, width - xmin
    if orientation in (3, 4, 6, 7):
        ymin, ymax = height - ymax, height - ymin
    return (ymin, xmin, ymax, xmax) if orientation >= FIRST_SIDEWAYS else (xmin, ymin, xmax, ymax)
