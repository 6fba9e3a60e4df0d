"""Detections on a split -> mean average precision, always judged by pycocotools."""

import contextlib
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from trainer.detections import Detections, DetectionsById, to_coco


@dataclass(frozen=True, slots=True, kw_only=True)
class AveragePrecision:
    """`map50` at IoU 0.5, `map` over 0.5 to 0.95; `per_class` has `ap50` and `ap` by class, None without objects."""

    map50: float
    map: float
    per_class: dict[str, dict[str, float | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassMatches:
    """What the judge matched for one class in all pictures together, best score first.

    `pictures` int64 [D] is the index of each detection's picture; `is_hit` and `is_ignored` bool [T, D] say at each IoU
    threshold whether it met an object, and whether it counts neither way; `objects` int64 [I] is how many objects each
    picture has to find.
    """

    pictures: NDArray[np.int64]
    is_hit: NDArray[np.bool_]
    is_ignored: NDArray[np.bool_]
    objects: NDArray[np.int64]


def average_precision(truth: Mapping[str, Any], detections: DetectionsById) -> AveragePrecision:
    """The mean average precision as COCO defines it; objects with `ignore` (difficult) count neither way.

    Args:
        truth: COCO form, with categories; boxes in pixels of the stored pictures.
        detections: By image id, for all pictures to be judged; boxes in the same pixels.

    Returns:
        The precision; 0 if there are no objects to find.
    """
    return judge(truth, detections)[0]


def judge(truth: Mapping[str, Any], detections: DetectionsById) -> tuple[AveragePrecision, list[ClassMatches]]:
    """As `average_precision`, and the matches it was computed from, by class; pictures in the order of their ids."""
    names = [category["name"] for category in truth["categories"]]
    judged = _Judge(truth, detections)
    judged.evaluate()
    judged.accumulate()
    # [IoU thresholds, recalls, categories], for all areas and 100 detections; -1 where there is no object.
    precision: NDArray[np.float64] = judged.eval["precision"][:, :, :, 0, -1]
    found = AveragePrecision(
        map50=_mean(precision[0]) or 0.0,
        map=_mean(precision) or 0.0,
        per_class={
            name: {"ap50": _mean(precision[0, :, index]), "ap": _mean(precision[:, :, index])}
            for index, name in enumerate(names)
        },
    )
    return found, judged.matches()


def _mean(precision: NDArray[np.float64]) -> float | None:
    known = precision[precision > -1]
    return float(known.mean()) if known.size else None


def _finite(found: Detections) -> Detections:
    """The detections without NaN or infinity: a NaN box would meet every object, as no comparison with it is true."""
    return found[np.isfinite(found.boxes).all(axis=1) & np.isfinite(found.scores)]


class _Judge(COCOeval):  # type: ignore[misc]  # pycocotools is untyped
    """COCO's judge, except that `ignore` is respected (COCO overwrites it with `iscrowd`) and nothing is printed."""

    def __init__(self, truth: Mapping[str, Any], detections: DetectionsById) -> None:
        rows = [row for image_id, found in detections.items() for row in to_coco(_finite(found), image_id)]
        with contextlib.redirect_stdout(io.StringIO()):
            coco = COCO()
            coco.dataset = {"info": {}, **truth}
            coco.createIndex()
            # `loadRes` does not accept an empty list.
            super().__init__(coco, coco.loadRes(rows) if rows else COCO(), "bbox")
        self.params.imgIds = sorted(detections)

    def evaluate(self) -> None:
        with contextlib.redirect_stdout(io.StringIO()):
            super().evaluate()

    def accumulate(self, p: Any = None) -> None:
        with contextlib.redirect_stdout(io.StringIO()):
            super().accumulate(p)

    def matches(self) -> list[ClassMatches]:
        """What `evaluate` matched, by class."""
        areas, images = len(self.params.areaRng), len(self.params.imgIds)
        # Ordered by class, then by area (the first is for all sizes), then by picture.
        starts = range(0, len(self.evalImgs), areas * images)
        return [self._class_matches(self.evalImgs[start : start + images]) for start in starts]

    def _class_matches(self, rows: Sequence[Mapping[str, Any] | None]) -> ClassMatches:
        """The matches of one class; a row is None if a picture has neither an object nor a detection of it."""
        thresholds = len(self.params.iouThrs)
        there = [(index, row) for index, row in enumerate(rows) if row is not None]
        scores = np.concatenate([[], *(row["dtScores"] for _, row in there)])
        pictures = np.concatenate([[], *(np.full(len(row["dtScores"]), index) for index, row in there)])
        none = np.zeros((thresholds, 0), bool)
        hits = np.concatenate([none, *(row["dtMatches"] != 0 for _, row in there)], axis=1)
        ignored = np.concatenate([none, *(row["dtIgnore"].astype(bool) for _, row in there)], axis=1)
        objects = np.zeros(len(rows), np.int64)
        for index, row in there:
            objects[index] = np.count_nonzero(np.asarray(row["gtIgnore"]) == 0)
        order = np.argsort(-scores, kind="stable")
        return ClassMatches(
            pictures=pictures[order].astype(np.int64),
            is_hit=hits[:, order],
            is_ignored=ignored[:, order],
            objects=objects,
        )

    def _prepare(self) -> None:
        ignored = {key for key, row in self.cocoGt.anns.items() if row.get("ignore")}
        super()._prepare()
        for rows in self._gts.values():
            for row in rows:
                row["ignore"] = int(bool(row["ignore"]) or row["id"] in ignored)
