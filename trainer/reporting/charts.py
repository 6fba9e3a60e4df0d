"""Curves and counts -> points and shares that the report draws as SVG and HTML, in the page's own colours and fonts.

Points are in a square of 100 by 100 with y downwards, like the `points` of an SVG polyline.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import ArrayLike

from trainer.evaluation.curves import Curve

# A polyline with more points looks the same at the width of a panel.
_MOST_POINTS: Final = 80
# How many panels are shown if there are many classes; the table beside them has every class.
MOST_PANELS: Final = 24
# Lower ends of the size bars, in pixels of the stored picture.
_SIZES_PX: Final = (0, 8, 16, 32, 64, 128, 256)

# Panels of the training curves: the title, and the columns of `results.csv` with the names of their lines.
_TRAINING: Final = (
    ("Loss", {"loss": "all", "loss_score": "classes", "loss_box": "boxes"}),
    ("Validation", {"val_map50": "mAP50", "val_map": "mAP"}),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassPanel:
    """Precision over recall for one class."""

    label: str
    ap50: float | None
    points: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingPanel:
    """Lines over the epochs: name, last value, points; `top` is the value at the upper edge, the lower edge is 0."""

    title: str
    top: float
    epochs: int
    lines: Sequence[tuple[str, float, str]]


def class_panels(curves: Mapping[str, Curve], ap50: Mapping[str, float | None]) -> list[ClassPanel]:
    """A panel for each class with objects, worst first; if there are many, only the worst and the best."""
    known = {label: figure for label in curves if (figure := ap50.get(label)) is not None}
    panels = [
        ClassPanel(label=label, ap50=known[label], points=_precision_recall(curves[label]))
        for label in sorted(known, key=known.__getitem__)
    ]
    half = MOST_PANELS // 2
    return panels if len(panels) <= MOST_PANELS else panels[:half] + panels[-half:]


def training_panels(history: Sequence[Mapping[str, float | None]]) -> list[TrainingPanel]:
    """Losses and, if the run validated, precision; a line starts where it was first measured."""
    panels = []
    for title, columns in _TRAINING:
        rows = {
            name: [(row["epoch"] or 0, value) for row in history if (value := row.get(column)) is not None]
            for column, name in columns.items()
        }
        values = [value for points in rows.values() for _, value in points]
        if not values:
            continue
        top = max(values) if title == "Loss" else 1.0
        epochs = int(max(epoch for points in rows.values() for epoch, _ in points))
        lines = [
            (name, points[-1][1], _points(*np.transpose(points) / [[max(epochs, 1)], [max(top, 1e-9)]]))
            for name, points in rows.items()
            if points
        ]
        panels.append(TrainingPanel(title=title, top=top, epochs=epochs, lines=lines))
    return panels


def size_bars(sides_px: Sequence[float]) -> list[tuple[str, int, float]]:
    """Bars of objects by the square root of their area: sizes, number, and length in percent of the longest bar."""
    counts = np.histogram(sides_px, [*_SIZES_PX, np.inf])[0].tolist()
    names = [f"{low} to {high}" for low, high in pairwise(_SIZES_PX)] + [f"{_SIZES_PX[-1]} up"]
    return [(name, count, 100 * count / max(1, *counts)) for name, count in zip(names, counts, strict=True)]


def _precision_recall(curve: Curve) -> str:
    """The best precision at each recall or a higher one, as in average precision; then the line drops to 0."""
    if not curve.recall.size:
        return ""
    best = np.maximum.accumulate(curve.precision[::-1])[::-1]
    recall = np.concatenate([[0.0], curve.recall, curve.recall[-1:]])
    return _points(recall, np.concatenate([best[:1], best, [0.0]]))


def _points(x: ArrayLike, y: ArrayLike) -> str:
    """Fractions as points, thinned out evenly, keeping the first and the last two."""
    xs, ys = np.asarray(x), np.asarray(y)
    kept = np.unique(np.linspace(0, len(xs) - 1, min(_MOST_POINTS, len(xs))).astype(int))
    kept = np.union1d(kept, [max(0, len(xs) - 2)])
    return " ".join(f"{100 * xs[at]:.1f},{100 - 100 * ys[at]:.1f}" for at in kept)
