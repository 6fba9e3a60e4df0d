"""Pictures and marks -> pictures with boxes and names, by OpenCV alone, for `inspect`, `predict` and the report.

The report's page draws the same marks as HTML. This module needs OpenCV, which the producer does not have.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import cv2
import numpy as np
from numpy.typing import NDArray

from shared.colours import BLACK, Colour, ink_on

Pixels = NDArray[np.uint8]
Dash = Literal["solid", "dashed", "dotted", "double"]
# (xmin, ymin, xmax, ymax), in pixels of the picture.
Box = tuple[float, float, float, float]

CAPTION_PX: Final = 20

# Letters of 12 px and lines of 2 px on a tile of 320 px; they grow in proportion on a photo of 4000 px.
_LEAST_SCALE, _SCALE_SIDE_PX = 0.45, 1000
_LEAST_LINE_PX, _LINE_SIDE_PX = 2, 240
# Lengths of a stroke and of the gap after it, in line widths.
_STROKES: Final[dict[Dash, tuple[int, int]]] = {"dashed": (5, 4), "dotted": (1, 2)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A box with a name, `colour` BGR; its dash pattern says what it is to those who cannot tell the colours apart."""

    box: Box
    text: str
    colour: Colour
    dash: Dash = "solid"


def draw_marks(picture: Pixels, marks: Sequence[Mark], *, scale: float = _LEAST_SCALE) -> Pixels:
    """A copy of `picture` (uint8 [H, W, 3], BGR) with `marks`; the first is the most important and lies on top.

    A name that would hide another one is left out, but its box is drawn. `scale` is the smallest font scale, as OpenCV
    counts it: 0.45 is 12 px.
    """
    drawn = picture.copy()
    height, width = picture.shape[:2]
    line = max(_LEAST_LINE_PX, round(max(height, width) / _LINE_SIDE_PX))
    scale = max(scale, max(height, width) / _SCALE_SIDE_PX)
    for mark in reversed(marks):
        _draw_box(drawn, mark, line)
    measured = [cv2.getTextSize(mark.text, cv2.FONT_HERSHEY_SIMPLEX, scale, 1) for mark in marks]
    sizes = [(text_width + 4.0, text_height + base + 2.0) for (text_width, text_height), base in measured]
    places = place_names([mark.box for mark in marks], sizes, (width, height))
    for mark, place, size, (_, base) in zip(marks, places, sizes, measured, strict=True):
        if place is not None:
            _write(drawn, mark, (round(place[0]), round(place[1])), size, base, scale)
    return drawn


def place_names(
    boxes: Sequence[Box], sizes: Sequence[tuple[float, float]], frame: tuple[float, float]
) -> list[tuple[float, float] | None]:
    """Where the names of `boxes` go so that none hides another; earlier boxes choose first.

    Args:
        boxes: In pixels of the frame.
        sizes: Width and height of each name, in the same pixels.
        frame: Width and height of the picture.

    Returns:
        The upper left corner of each name, inside the frame: above its box, else inside it, else below it; None if all
        these places are taken.
    """
    taken = np.zeros((0, 4))
    places: list[tuple[float, float] | None] = []
    for (xmin, ymin, xmax, ymax), (width, height) in zip(boxes, sizes, strict=True):
        # At the upper edge of the frame a place above the box is clamped to one inside it.
        corners = [(xmin, ymin - height), (xmin, ymin), (xmax - width, ymin - height), (xmin, ymax)]
        inside = ((_clamp(x, frame[0] - width), _clamp(y, frame[1] - height)) for x, y in corners)
        free = (at for at in inside if not _is_covered(taken, (*at, at[0] + width, at[1] + height)))
        place = next(free, None)
        places.append(place)
        if place is not None:
            taken = np.vstack([taken, [*place, place[0] + width, place[1] + height]])
    return places


def grid(pictures: Sequence[Pixels], columns: int, gap: int = 6) -> Pixels:
    """Pictures of one size side by side, row by row, on white; at least one picture."""
    height, width = pictures[0].shape[:2]
    columns = min(columns, len(pictures))
    rows = -(-len(pictures) // columns)
    sheet = np.full((rows * (height + gap) + gap, columns * (width + gap) + gap, 3), 255, np.uint8)
    for index, picture in enumerate(pictures):
        top, left = gap + (index // columns) * (height + gap), gap + (index % columns) * (width + gap)
        sheet[top : top + height, left : left + width] = picture
    return sheet


def caption(picture: Pixels, text: str, *, scale: float = _LEAST_SCALE) -> Pixels:
    """`picture` over a white strip with `text`, its letters as in `draw_marks`."""
    height = round(CAPTION_PX * scale / _LEAST_SCALE)
    strip = np.full((height, picture.shape[1], 3), 255, np.uint8)
    cv2.putText(strip, text, (4, round(0.72 * height)), cv2.FONT_HERSHEY_SIMPLEX, scale, BLACK, 1, cv2.LINE_AA)
    return np.concatenate([picture, strip])


def _clamp(value: float, most: float) -> float:
    return max(0.0, min(value, most))


def _is_covered(taken: NDArray[np.float64], place: Box) -> bool:
    left, top, right, bottom = place
    covered = (taken[:, 0] < right) & (taken[:, 2] > left) & (taken[:, 1] < bottom) & (taken[:, 3] > top)
    return bool(covered.any())


def _draw_box(picture: NDArray[Any], mark: Mark, line: int) -> None:
    height, width = picture.shape[:2]
    # Corners outside the picture move to its edge, where their lines are still visible.
    limits = (width - 1, height - 1, width - 1, height - 1)
    left, top, right, bottom = (round(_clamp(value, most)) for value, most in zip(mark.box, limits, strict=True))
    if mark.dash in ("solid", "double"):
        cv2.rectangle(picture, (left, top), (right, bottom), mark.colour, line, cv2.LINE_AA)
        if mark.dash == "double":
            inset = 2 * line + 1
            corners = (left + inset, top + inset), (right - inset, bottom - inset)
            cv2.rectangle(picture, *corners, mark.colour, line, cv2.LINE_AA)
        return
    stroke, pause = (lines * line for lines in _STROKES[mark.dash])
    for x in range(left, right + 1, stroke + pause):
        for y in (top, bottom):
            cv2.line(picture, (x, y), (min(x + stroke, right), y), mark.colour, line)
    for y in range(top, bottom + 1, stroke + pause):
        for x in (left, right):
            cv2.line(picture, (x, y), (x, min(y + stroke, bottom)), mark.colour, line)


def _write(
    picture: NDArray[Any], mark: Mark, at: tuple[int, int], size: tuple[float, float], base: int, scale: float
) -> None:
    """Write the name of a mark on its colour, with the upper left corner at `at`."""
    x, y, width, height = *at, round(size[0]), round(size[1])
    cv2.rectangle(picture, (x, y), (x + width - 1, y + height - 1), mark.colour, cv2.FILLED)
    start = (x + 2, y + height - base - 1)
    cv2.putText(picture, mark.text, start, cv2.FONT_HERSHEY_SIMPLEX, scale, ink_on(mark.colour), 1, cv2.LINE_AA)
