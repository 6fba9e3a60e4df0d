"""What a model saw in a split's photos, and what is annotated there <-> `detections_<split>.json` of its run.

It allows runs to be compared photo by photo, whatever has become of the models, the shards or the job.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from shared.audit.seen import SeenImage, SeenSplit
from shared.errors import ExportError
from shared.jobs.versioned import read_stored
from shared.specs.frozen import canonical_json
from trainer.detections import Detections, DetectionsById, to_coco

# Decimals of pixels and of scores: enough that rounding moves no box over an IoU threshold and makes no scores equal.
_BOX_DIGITS: Final = 4
_SCORE_DIGITS: Final = 7


def detections_file(truth: Mapping[str, Any], seen: DetectionsById, **facts: Any) -> bytes:
    """The content of a `detections_<split>.json`.

    Args:
        truth: COCO form, boxes in pixels of the stored pictures.
        seen: The detections in its pictures.
        facts: `run`, `form`, `split`, `labels`, `image_size`, `resize`.
    """
    rows = [row for image_id, found in sorted(seen.items()) for row in to_coco(found, image_id)]
    kept = SeenSplit(
        images=tuple(
            SeenImage(**{name: image[name] for name in SeenImage.model_fields if name in image})
            for image in truth["images"]
        ),
        annotations=tuple(truth["annotations"]),
        detections=tuple(_rounded(row) for row in rows),
        **facts,
    )
    return canonical_json(kept.model_dump(mode="json")).encode()


def _rounded(row: Mapping[str, Any]) -> dict[str, Any]:
    bbox = [round(value, _BOX_DIGITS) for value in row["bbox"]]
    return {**row, "bbox": bbox, "score": round(row["score"], _SCORE_DIGITS)}


def read_detections(content: bytes, shown: str) -> SeenSplit:
    """What a `detections_<split>.json` holds; `shown` is how errors name it.

    Raises:
        FormatError: It is damaged, or another version wrote it.
    """
    return read_stored(SeenSplit, content, shown)


def judged_order(split: SeenSplit) -> list[str]:
    """The photos of a split in the order in which its run judged them, which decides between equal scores."""
    photos = split.photos()
    return sorted(photos, key=photos.__getitem__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """Some photos and classes of a split: their truth in COCO form and the detections, with ids counted from 1."""

    truth: dict[str, Any]
    seen: DetectionsById


def choose(split: SeenSplit, photos: Sequence[str], labels: Sequence[str], scale: float = 1.0) -> Chosen:
    """The part of a split with these `photos` and `labels`; boxes are multiplied by `scale`.

    Raises:
        ExportError: The split's data are damaged, such as a box that is not made of numbers.
    """
    known = split.photos()
    images = {known[name]: at for at, name in enumerate(photos, start=1)}
    classes = {split.labels.index(name) + 1: at for at, name in enumerate(labels, start=1)}
    try:
        there = [_moved(row, images, classes, scale) for row in split.annotations]
        found = [_moved(row, images, classes, scale) for row in split.detections]
    except (KeyError, TypeError, ValueError) as error:
        raise ExportError(f"the detections of run {split.run} are damaged: {error!r}") from error
    kept = [row | {"id": at} for at, row in enumerate((row for row in there if row is not None), start=1)]
    truth = {
        "images": [{"id": at} for at in images.values()],
        "annotations": kept,
        "categories": [{"id": at, "name": name} for at, name in enumerate(labels, start=1)],
    }
    by_image: dict[int, list[dict[str, Any]]] = {at: [] for at in images.values()}
    for row in found:
        if row is not None:
            by_image[row["image_id"]].append(row)
    return Chosen(truth=truth, seen={at: _detections(rows) for at, rows in by_image.items()})


def _moved(
    row: Mapping[str, Any], images: Mapping[int, int], classes: Mapping[int, int], scale: float
) -> dict[str, Any] | None:
    """A COCO row with new ids and scaled; None if its photo or class is not chosen."""
    image, label = images.get(row["image_id"]), classes.get(row["category_id"])
    if image is None or label is None:
        return None
    bbox = [scale * float(value) for value in row["bbox"]]
    return {**row, "image_id": image, "category_id": label, "bbox": bbox, "area": bbox[2] * bbox[3]}


def _detections(rows: Sequence[Mapping[str, Any]]) -> Detections:
    boxes = np.array([row["bbox"] for row in rows], np.float32).reshape(-1, 4)
    boxes[:, 2:] += boxes[:, :2]
    return Detections(
        boxes=boxes,
        class_ids=np.array([row["category_id"] for row in rows], np.int64),
        scores=np.array([row["score"] for row in rows], np.float32),
    )
