"""Detections and truth of a split → the plots of a run by file name; chooses what is worth a picture."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from trainer import plots
from trainer.draw import Picture
from trainer.matching import Curve, TruthBoxes, confusion, curve, picture_f1, truth_by_image
from trainer.measure import DetectionsById, StoredPicture

_GRID_PICTURES: Final = 12
_RANKED_PICTURES: Final = 4

# A model that learnt little has its best F1 at a few hundredths; drawn there, a picture is only boxes.
_LEAST_SCORE: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Illustrated:
    """What is to be shown: the int8 model's detections on a split (pixels of the stored pictures) and its truth."""

    labels: Sequence[str]
    truth: Mapping[str, Any]
    train_truth: Mapping[str, Any]
    detections: DetectionsById
    pictures: Callable[[], Iterable[StoredPicture]]
    history: Sequence[Mapping[str, float | None]]
    score: float
    split: str


def best_score(detections: DetectionsById, truth: Mapping[str, Any], classes: int) -> float:
    """The score from which on detections have the best F1, as a mean over the classes; at least 0.1.

    Where several are as good, the one in their middle: the highest would be that of the weakest object here, and the
    next photo's weakest is weaker.
    """
    there = truth_by_image(truth)
    curves = [curve(detections, there, class_id) for class_id in range(1, classes + 1)]
    learnt = [found for found in curves if found.best_f1 > 0]
    if not learnt:
        return _LEAST_SCORE
    thresholds = np.arange(_LEAST_SCORE, 1, 0.01)
    means = np.mean([_f1_at(found, thresholds) for found in learnt], axis=0)
    best = np.flatnonzero(means >= means.max() - 1e-9)
    return round(float(thresholds[best[len(best) // 2]]), 2)


def _f1_at(found: Curve, thresholds: NDArray[np.float64]) -> NDArray[np.float64]:
    """F1 [n] of the detections that reach each threshold [n]; 0 where none does."""
    reaching = np.searchsorted(-found.scores, -thresholds, side="right")
    return np.concatenate([[0.0], found.f1])[reaching]


def illustrate(shown: Illustrated) -> dict[str, bytes]:
    """All plots of a run, file name → bytes; `curves.png` only where there is a history."""
    there = truth_by_image(shown.truth)
    classes = range(1, len(shown.labels) + 1)
    curves = {shown.labels[class_id - 1]: curve(shown.detections, there, class_id) for class_id in classes}
    counts = confusion(shown.detections, there, len(shown.labels), shown.score)
    files = {
        "precision_recall.png": plots.precision_recall(curves, f"int8, {shown.split} split, IoU 0.5"),
        "confusion.png": plots.confusion_matrix(counts, shown.labels, f"int8, score at least {shown.score:.2f}"),
        "labels.png": plots.label_histograms(shown.train_truth, shown.labels, "train split"),
        **_sheets(shown, there),
    }
    if shown.history:
        files["curves.png"] = plots.training_curves(shown.history)
    return files


def _sheets(shown: Illustrated, there: Mapping[int, TruthBoxes]) -> dict[str, bytes]:
    """The grid of detections, and truth beside detections for the best and the worst pictures."""
    cut = {image_id: seen.above(shown.score) for image_id, seen in shown.detections.items()}
    f1 = {image_id: picture_f1(seen, there[image_id]) for image_id, seen in cut.items()}
    # Among equals those with more objects: an empty picture rightly left empty teaches little.
    ranked = sorted(f1, key=lambda image_id: (-f1[image_id], -len(there[image_id].class_ids), image_id))
    spread = ranked if len(ranked) <= _GRID_PICTURES else [sorted(f1)[at] for at in _spread(len(f1))]
    chosen = {"best.jpg": ranked[:_RANKED_PICTURES], "worst.jpg": ranked[::-1][:_RANKED_PICTURES]}
    wanted = {*spread, *chosen["best.jpg"], *chosen["worst.jpg"]}
    stored = {picture.image_id: picture for picture in shown.pictures() if picture.image_id in wanted}

    def row(image_id: int) -> Picture:
        return plots.truth_beside_detections(
            stored[image_id], there[image_id], cut[image_id], shown.labels, f1[image_id]
        )

    sheets = {name: plots.jpeg_sheet([row(image_id) for image_id in ids]) for name, ids in chosen.items()}
    grid = plots.detection_grid([stored[at].rgb for at in spread], [cut[at] for at in spread], shown.labels)
    return {"detections.jpg": grid, **sheets}


def _spread(count: int) -> list[int]:
    """Places of the grid's pictures, evenly over the split: chosen by nobody."""
    return [int(at) for at in np.linspace(0, count - 1, _GRID_PICTURES)]
