"""Detections on a split -> mean average precision; pycocotools is the judge, whatever made the detections.

A detector is any callable from a batch of pictures to detections, so that Keras weights and every exported form are
measured by the same code.
"""

import contextlib
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from shared.job import Split
from shared.manifest import JobPaths, Manifest
from shared.storage import Storage
from trainer.dataset import Examples
from trainer.model import CENTER_SCALE, SIZE_SCALE

# Detections kept a picture. COCO's judge looks at 100; the exported op keeps as many.
MOST_DETECTIONS: Final = 100

# Below this a detection does not change the average precision by a digit that is printed.
LEAST_SCORE: Final = 0.01

# Boxes that overlap more are one object. 0.5 gave BCCD 2 points of mAP50 more than 0.6, on training pictures (D-nms).
NMS_IOU: Final = 0.5

# Cells that are looked at by NMS, best first; a trained network has fewer above the least score.
NMS_CELLS: Final = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class Detections:
    """Of one picture, best first.

    `boxes` float32 [K, 4], (ymin, xmin, ymax, xmax) as fractions; `classes` int [K], from 0; `scores` float32 [K].
    """

    boxes: NDArray[np.float32]
    classes: NDArray[np.int64]
    scores: NDArray[np.float32]


# From uint8 pictures [B, H, W, 3] RGB to the detections of each.
Detect = Callable[[NDArray[np.uint8]], Sequence[Detections]]


@dataclass(frozen=True, slots=True, kw_only=True)
class AveragePrecision:
    """`map50` at IoU 0.5, `map` over 0.5 to 0.95; per class (by name) the same; None for a class without objects."""

    map50: float
    map: float
    per_class_ap50: dict[str, float | None]
    per_class_ap: dict[str, float | None]


def detect_all(detect: Detect, examples: Examples, *, batch: int) -> list[Detections]:
    """Detections of every picture once, in order: the last batch is padded with zeros and its padding dropped.

    Padding keeps one shape, so that a traced network is traced once.
    """
    found: list[Detections] = []
    for start in range(0, len(examples), batch):
        pictures = examples.pictures[start : start + batch]
        padding = np.zeros((batch - len(pictures), *pictures.shape[1:]), np.uint8)
        found.extend(list(detect(np.concatenate([pictures, padding])))[: len(pictures)])
    return found


def truth_from_store(storage: Storage, manifest: Manifest, split: Split) -> dict[str, Any]:
    """The COCO-form truth of `split`, with the categories filled in from the manifest."""
    truth: dict[str, Any] = json.loads(storage.read(JobPaths(manifest.job).annotations(split)))
    return {
        **truth,
        "categories": [{"id": index, "name": name} for index, name in enumerate(manifest.labels, start=1)],
    }


def average_precision(
    truth: dict[str, Any], detections: Sequence[Detections], source_ids: Sequence[int]
) -> AveragePrecision:
    """Mean average precision as COCO defines it; objects with `ignore` (difficult) count neither way.

    Args:
        truth: COCO form; boxes in pixels of the stored pictures, all of the size their image says.
        detections: Of each picture.
        source_ids: The pictures' image ids, same order.

    Returns:
        The precision; 0 where nothing is to be found.
    """
    with contextlib.redirect_stdout(io.StringIO()):
        coco = COCO()
        coco.dataset = {"info": {}, **truth}
        coco.createIndex()
        rows = _coco_rows(truth, detections, source_ids)
        if not rows or not truth["annotations"]:
            nothing = {category["name"]: _start_precision(truth, category["id"]) for category in truth["categories"]}
            return AveragePrecision(map50=0.0, map=0.0, per_class_ap50=nothing, per_class_ap=nothing)
        judge = _DifficultIgnored(coco, coco.loadRes(rows), "bbox")
        judge.params.imgIds = sorted(int(source_id) for source_id in source_ids)
        judge.evaluate()
        judge.accumulate()
    # [IoU thresholds, recall, category, area range, detections]; all areas, 100 detections; -1 where no object is.
    precision = judge.eval["precision"][:, :, :, 0, -1]
    names = [category["name"] for category in truth["categories"]]
    return AveragePrecision(
        map50=_mean(precision[0]) or 0.0,
        map=_mean(precision) or 0.0,
        per_class_ap50={name: _mean(precision[0, :, index]) for index, name in enumerate(names)},
        per_class_ap={name: _mean(precision[:, :, index]) for index, name in enumerate(names)},
    )


def _start_precision(truth: dict[str, Any], category: int) -> float | None:
    """0 for a class with objects, None for one without."""
    return 0.0 if any(row["category_id"] == category for row in truth["annotations"]) else None


def _mean(precision: NDArray[np.float64]) -> float | None:
    known = precision[precision > -1]
    return float(known.mean()) if known.size else None


class _DifficultIgnored(COCOeval):  # type: ignore[misc]  # pycocotools is untyped
    """COCO's judge, but `ignore` is honoured: the original overwrites it with `iscrowd`."""

    def _prepare(self) -> None:
        ignored = {key for key, row in self.cocoGt.anns.items() if row.get("ignore")}
        super()._prepare()
        for rows in self._gts.values():
            for row in rows:
                row["ignore"] = int(bool(row["ignore"]) or row["id"] in ignored)


def _coco_rows(
    truth: dict[str, Any], detections: Sequence[Detections], source_ids: Sequence[int]
) -> list[dict[str, Any]]:
    sizes = {image["id"]: (image["height"], image["width"]) for image in truth["images"]}
    rows: list[dict[str, Any]] = []
    for source_id, found in zip(source_ids, detections, strict=True):
        height, width = sizes[int(source_id)]
        for (ymin, xmin, ymax, xmax), label, score in zip(found.boxes, found.classes, found.scores, strict=True):
            rows.append(
                {
                    "image_id": int(source_id),
                    "category_id": int(label) + 1,
                    "bbox": [
                        float(xmin * width),
                        float(ymin * height),
                        float((xmax - xmin) * width),
                        float((ymax - ymin) * height),
                    ],
                    "score": float(score),
                }
            )
    return rows


def keras_detector(model: Any, anchors: NDArray[np.float32]) -> Detect:
    """A detector that runs a Keras model and decodes its outputs in numpy."""
    forward = tf.function(lambda pictures: model(tf.cast(pictures, tf.float32) / 127.5 - 1.0, training=False))

    def detect(pictures: NDArray[np.uint8]) -> list[Detections]:
        outputs = forward(tf.constant(pictures))
        boxes, logits = outputs["boxes"].numpy(), outputs["scores"].numpy()
        return [decode(boxes[row], logits[row], anchors) for row in range(len(pictures))]

    return detect


def decode(encoded: NDArray[np.float32], logits: NDArray[np.float32], anchors: NDArray[np.float32]) -> Detections:
    """Outputs of one picture -> detections, with NMS.

    Args:
        encoded: float32 [A, 4], (ty, tx, th, tw) against `anchors`.
        logits: float32 [A, C].
        anchors: float32 [A, 4], (ycenter, xcenter, height, width) as fractions.

    Returns:
        At most `MOST_DETECTIONS`, clipped to the picture.
    """
    center = encoded[:, :2] / CENTER_SCALE * anchors[:, 2:] + anchors[:, :2]
    half = np.exp(np.minimum(encoded[:, 2:] / SIZE_SCALE, 4.0)) * anchors[:, 2:] / 2
    boxes = np.concatenate([center - half, center + half], axis=1)
    # Far-off logits saturate; the warning of exp says nothing new.
    scores = 1 / (1 + np.exp(-np.clip(logits, -60, 60)))
    # One suppression over all classes, each cell under its best: what the exported op does (D-nms).
    classes, best = scores.argmax(axis=1), scores.max(axis=1)
    rows = np.flatnonzero(best >= LEAST_SCORE)
    rows = rows[np.argsort(-best[rows], kind="stable")][:NMS_CELLS]
    rows = rows[suppress(boxes[rows], NMS_IOU)][:MOST_DETECTIONS]
    # Clipped after NMS, as the exported op's clients do: clipped before it, 2 % of crowded detections were others.
    return Detections(boxes=np.clip(boxes[rows], 0, 1), classes=classes[rows], scores=best[rows].astype(np.float32))


def suppress(boxes: NDArray[np.float32], iou_above: float) -> NDArray[np.int64]:
    """Greedy non-maximum suppression.

    Args:
        boxes: float32 [K, 4], (ymin, xmin, ymax, xmax), best first.
        iou_above: A box that overlaps a kept one by more is dropped.

    Returns:
        Places of the kept boxes, int64, ascending.
    """
    low = np.maximum(boxes[:, None, :2], boxes[None, :, :2])
    high = np.minimum(boxes[:, None, 2:], boxes[None, :, 2:])
    intersection = np.prod(np.maximum(high - low, 0), axis=2)
    area = np.prod(boxes[:, 2:] - boxes[:, :2], axis=1)
    overlaps = intersection > iou_above * np.maximum(area[:, None] + area[None] - intersection, 1e-9)
    alive = np.ones(len(boxes), bool)
    for place in range(len(boxes)):
        if alive[place]:
            alive[place + 1 :] &= ~overlaps[place, place + 1 :]
    return np.flatnonzero(alive)
