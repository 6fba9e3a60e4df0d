"""Detections and annotated boxes -> marks on their pictures, for `predict` and for watching a training."""

from collections.abc import Sequence

from shared.colours import colour_of
from shared.drawing import Mark, draw_marks
from trainer.detections import Detections, Floats
from trainer.pixels import Picture


def draw_detections(image: Picture, detections: Detections, labels: Sequence[str]) -> Picture:
    """A copy of `image` (uint8 [H, W, 3], BGR) with boxes, class names and scores; boxes in its pixels."""
    rows = zip(detections.boxes.tolist(), detections.class_ids.tolist(), detections.scores.tolist(), strict=True)
    marks = [
        Mark(box=tuple(box), text=f"{labels[class_id - 1]} {score:.2f}", colour=colour_of(class_id))
        for box, class_id, score in rows
    ]
    return draw_marks(image, marks)


def draw_truth(image: Picture, boxes: Floats, class_ids: Sequence[int], labels: Sequence[str]) -> Picture:
    """A copy of `image` with annotated boxes, float32 [N, 4], (xmin, ymin, xmax, ymax) px; class ids from 1."""
    rows = zip(boxes.tolist(), class_ids, strict=True)
    marks = [Mark(box=tuple(box), text=labels[class_id - 1], colour=colour_of(class_id)) for box, class_id in rows]
    return draw_marks(image, marks)
