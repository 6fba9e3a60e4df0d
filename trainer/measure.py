"""Exported forms on a split → detections and figures, all through LiteRT: what is shipped is what is measured."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shared.job import Split
from trainer import evaluate
from trainer.detections import Detections
from trainer.predict import Detector

# Between two signs of life: at 0.2 s a picture on a slow machine still well below the guard's limit.
_ADVANCE_EVERY = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPicture:
    """A picture as the shards hold it: `rgb` uint8 [H, W, 3] of the model's size, `image_id` as in the truth."""

    image_id: int
    file_name: str
    rgb: NDArray[np.uint8]


# A split's pictures, streamed anew at each call; and its truth in COCO form, pixels of the stored picture.
Pictures = Callable[[Split], Iterable[StoredPicture]]
Truth = Callable[[Split], Mapping[str, Any]]

DetectionsById = dict[int, Detections]


def detect_all(
    detector: Detector, pictures: Iterable[StoredPicture], advance: Callable[[int], None] = lambda _: None
) -> DetectionsById:
    """Detections of every picture by image id, boxes in pixels of the stored picture.

    Args:
        detector: The model.
        pictures: Each is seen once.
        advance: Called with the number of pictures seen so far, now and then.
    """
    found: DetectionsById = {}
    for picture in pictures:
        found[picture.image_id] = detector.detect_stored(picture.rgb)
        if len(found) % _ADVANCE_EVERY == 0:
            advance(len(found))
    return found


def figures(truth: Mapping[str, Any], detections: DetectionsById, image_size: int) -> dict[str, Any]:
    """`map50`, `map` and `per_class` of detections on a split, by pycocotools; a class without objects has no figure.

    Args:
        truth: COCO form, with categories; pixels of the stored pictures.
        detections: By image id, boxes in the same pixels.
        image_size: Side of the stored pictures.
    """
    found = [as_fractions(seen, image_size) for seen in detections.values()]
    precision = evaluate.average_precision(dict(truth), found, list(detections))
    return {
        "map50": precision.map50,
        "map": precision.map,
        "per_class": {
            name: {"ap50": ap50, "ap": precision.per_class_ap[name]} for name, ap50 in precision.per_class_ap50.items()
        },
    }


def keras_detections(model: Any, priors: NDArray[np.float32], pictures: Sequence[StoredPicture]) -> list[Detections]:
    """The Keras model's own detections, boxes in pixels of the stored picture: what the exported forms must repeat."""
    detect = evaluate.keras_detector(model, priors)
    return [
        Detections(
            boxes=(seen.boxes[:, [1, 0, 3, 2]] * picture.rgb.shape[0]).astype(np.float32),
            class_ids=seen.classes + 1,
            scores=seen.scores,
        )
        for picture in pictures
        for seen in detect(picture.rgb[None])
    ]


def as_fractions(seen: Detections, image_size: int) -> evaluate.Detections:
    """Detections in pixels of the stored picture → the judge's: fractions (ymin, xmin, ymax, xmax), ids from 0."""
    return evaluate.Detections(
        boxes=seen.boxes[:, [1, 0, 3, 2]] / np.float32(image_size), classes=seen.class_ids - 1, scores=seen.scores
    )
