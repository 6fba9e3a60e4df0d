"""Pictures and boxes → pictures with boxes, with OpenCV alone; what `predict` writes and the report shows."""

from collections.abc import Sequence
from typing import Final

import cv2
import numpy as np
from numpy.typing import NDArray

from trainer.detections import Detections, Floats

Picture = NDArray[np.uint8]
Colour = tuple[int, int, int]

# Okabe and Ito's palette (told apart by the colour-blind), BGR, without its black and its yellow on white.
PALETTE: Final[tuple[Colour, ...]] = (
    (0, 94, 213),
    (178, 114, 0),
    (115, 158, 0),
    (167, 121, 204),
    (0, 159, 230),
    (233, 180, 86),
)
TRUTH_COLOUR: Final[Colour] = (60, 200, 60)
_WHITE: Final[Colour] = (255, 255, 255)


def colour_of(class_id: int) -> Colour:
    """The colour of a class (from 1), BGR."""
    return PALETTE[(class_id - 1) % len(PALETTE)]


def draw_detections(image: Picture, detections: Detections, labels: Sequence[str]) -> Picture:
    """A copy of `image` (uint8 [H, W, 3], BGR) with boxes, class names and scores; boxes in its pixels."""
    drawn = image.copy()
    # The best last, so that it lies on top.
    for index in reversed(range(detections.scores.size)):
        class_id = int(detections.class_ids[index])
        text = f"{labels[class_id - 1]} {detections.scores[index]:.2f}"
        _draw_box(drawn, detections.boxes[index], text, colour_of(class_id))
    return drawn


def draw_truth(image: Picture, boxes: Floats, names: Sequence[str]) -> Picture:
    """A copy of `image` with the annotated boxes, float32 [N, 4], (xmin, ymin, xmax, ymax) px, in one colour."""
    drawn = image.copy()
    for box, name in zip(boxes, names, strict=True):
        _draw_box(drawn, box, name, TRUTH_COLOUR)
    return drawn


def grid(pictures: Sequence[Picture], columns: int, gap: int = 6) -> Picture:
    """Pictures of one size side by side, row by row, on white; at least one picture."""
    height, width = pictures[0].shape[:2]
    columns = min(columns, len(pictures))
    rows = -(-len(pictures) // columns)
    sheet = np.full((rows * (height + gap) + gap, columns * (width + gap) + gap, 3), 255, np.uint8)
    for index, picture in enumerate(pictures):
        top, left = gap + (index // columns) * (height + gap), gap + (index % columns) * (width + gap)
        sheet[top : top + height, left : left + width] = picture
    return sheet


def caption(image: Picture, text: str, height_px: int = 22) -> Picture:
    """`image` under a white strip with `text`."""
    strip = np.full((height_px, image.shape[1], 3), 255, np.uint8)
    cv2.putText(strip, text, (4, height_px - 7), cv2.FONT_HERSHEY_SIMPLEX, 0.42, (40, 40, 40), 1, cv2.LINE_AA)
    return np.concatenate([strip, image])


def _draw_box(image: Picture, box: Floats, text: str, colour: Colour) -> None:
    """Box and name, sized by the picture so that they can be read on 320 px and on 4000 px alike."""
    height, width = image.shape[:2]
    unit = max(height, width) / 640
    line, scale = max(1, round(1.5 * unit)), max(0.35, 0.45 * unit)
    xmin, ymin, xmax, ymax = (round(float(value)) for value in box)
    cv2.rectangle(image, (xmin, ymin), (xmax, ymax), colour, line, cv2.LINE_AA)
    (text_width, text_height), base = cv2.getTextSize(text, cv2.FONT_HERSHEY_SIMPLEX, scale, line)
    # Above the box where there is room, else inside it; never beyond the right edge.
    top = ymin - text_height - base if ymin >= text_height + base else ymin
    left = max(0, min(xmin, width - text_width))
    cv2.rectangle(image, (left, top), (left + text_width, top + text_height + base), colour, cv2.FILLED)
    cv2.putText(image, text, (left, top + text_height), cv2.FONT_HERSHEY_SIMPLEX, scale, _WHITE, 1, cv2.LINE_AA)
