"""Where a picture lies in the square that shards store and models take; the same for the worker and `predict`.

Standard library only: each service resizes its pixels itself.
"""

from dataclasses import dataclass
from typing import Final, Literal

Resize = Literal["stretch", "letterbox"]

# The gray of letterbox bars, as in the YOLO family: near the mean of photographs, so the edge does not look like an
# object.
PADDING_GRAY: Final = 114

# The share of a box's area that must remain inside the picture; with less the box is dropped.
MIN_REMAINING: Final = 0.25

_Box = tuple[float, float, float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where an upright picture lies in the square of `size` x `size` pixels.

    It is `width` x `height` pixels there, `left` and `top` pixels from the edges; a pixel of the picture becomes
    `scale_x` x `scale_y` pixels of the square.
    """

    size: int
    width: int
    height: int
    left: int
    top: int
    scale_x: float
    scale_y: float

    def into(self, box: _Box) -> _Box:
        """Move (xmin, ymin, xmax, ymax) from pixels of the upright picture into pixels of the square."""
        xmin, ymin, xmax, ymax = box
        return (
            xmin * self.scale_x + self.left,
            ymin * self.scale_y + self.top,
            xmax * self.scale_x + self.left,
            ymax * self.scale_y + self.top,
        )

    def back(self, box: _Box) -> _Box:
        """The inverse of `into`."""
        xmin, ymin, xmax, ymax = box
        return (
            (xmin - self.left) / self.scale_x,
            (ymin - self.top) / self.scale_y,
            (xmax - self.left) / self.scale_x,
            (ymax - self.top) / self.scale_y,
        )


def place(width: int, height: int, size: int, resize: Resize) -> Placement:
    """Choose where an upright picture of `width` x `height` pixels lies in the square of `size` pixels.

    `stretch` fills the square; `letterbox` keeps the aspect ratio and centres the picture, with an odd pixel of padding
    on the right or below.
    """
    inner_width = inner_height = size
    if resize == "letterbox":
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


def clip_box(box: _Box, size: tuple[int, int]) -> tuple[_Box, float]:
    """Clip (xmin, ymin, xmax, ymax) to a picture of (width, height) pixels.

    Returns:
        The clipped box and the share of its area that remains, 0 to 1; if that is 0 the box is meaningless.
    """
    xmin, ymin, xmax, ymax = box
    width, height = size
    clipped = (max(xmin, 0.0), max(ymin, 0.0), min(xmax, float(width)), min(ymax, float(height)))
    if clipped == box:
        return box, 1.0
    inner_width, inner_height = clipped[2] - clipped[0], clipped[3] - clipped[1]
    if inner_width <= 0 or inner_height <= 0:
        return clipped, 0.0
    # Computed side by side, because the product of two huge sides is infinite.
    return clipped, (inner_width / (xmax - xmin)) * (inner_height / (ymax - ymin))
