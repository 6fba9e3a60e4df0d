"""Detections and truth of a split -> the least score of a detection worth showing."""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from trainer.detections import DetectionsById
from trainer.evaluation.curves import Curve, curve, truth_by_image

# A model that learned little has its best F1 at a score of a few hundredths, where a picture would be full of boxes.
_LEAST_SCORE: Final = 0.1


def best_score(detections: DetectionsById, truth: Mapping[str, Any], classes: int) -> float:
    """The threshold with the best F1, as a mean over the classes; at least 0.1.

    If several thresholds are equally good it is the one in their middle: the highest is the score of the weakest object
    in these pictures, and the next picture may have a weaker one.
    """
    there = truth_by_image(truth)
    curves = [curve(detections, there, class_id) for class_id in range(1, classes + 1)]
    learnt = [found for found in curves if found.best_f1 > 0]
    if not learnt:
        return _LEAST_SCORE
    thresholds = np.arange(_LEAST_SCORE, 1, 0.01)
    means = np.mean([_f1_at(found, thresholds) for found in learnt], axis=0)
    if means.max() == 0:  # all detections are below every threshold, but the next picture's may be above the least
        return _LEAST_SCORE
    best = np.flatnonzero(means >= means.max() - 1e-9)
    return round(float(thresholds[best[len(best) // 2]]), 2)


def _f1_at(found: Curve, thresholds: NDArray[np.float64]) -> NDArray[np.float64]:
    """F1 [n] of the detections that reach each threshold [n]; 0 if none does."""
    reaching = np.searchsorted(-found.scores, -thresholds, side="right")
    return np.concatenate([[0.0], found.f1])[reaching]
