"""Detections and truth of a split -> what the report, card, advice and plots of a run show."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from trainer.data.examples import ShardPicture
from trainer.detections import DetectionsById
from trainer.evaluation.curves import Curve, confusion, curve, truth_by_image
from trainer.reporting import plots
from trainer.reporting.gallery import JudgedPicture, choose, judge_picture

# The number of pairs in `plots/detections.jpg`, so that it is small enough for a README.
_SHEET_PAIRS: Final = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureInputs:
    """What to show: the int8 model's detections on a split (in pixels of the stored pictures) and its truth.

    `history` are the rows of `results.csv`; pictures are judged and drawn at `score`; `side_px` is their side.
    """

    labels: Sequence[str]
    truth: Mapping[str, Any]
    train_truth: Mapping[str, Any]
    detections: DetectionsById
    pictures: Callable[[], Iterable[ShardPicture]]
    history: Sequence[Mapping[str, float | None]]
    score: float
    split: str
    side_px: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What was computed from the inputs.

    `curves` are by class name; `counts` is int64 [C + 1, C + 1], true class by seen class, "nothing" last; `judged` has
    all pictures of the split by image id, `names` their files; `chosen` are those to show (`even`, `worst`, `best`),
    which are in `stored`; `train_px` are the sides of the training objects in pixels (square root of the area).
    """

    inputs: FigureInputs
    curves: Mapping[str, Curve]
    counts: NDArray[np.int64]
    judged: Mapping[int, JudgedPicture]
    names: Mapping[int, str]
    chosen: Mapping[str, Sequence[int]]
    stored: Mapping[int, ShardPicture]
    train_px: Sequence[float]

    def confusions(self) -> list[tuple[str, str, int, int]]:
        """True class, the class it is taken for, how often, out of how many objects; the largest share first."""
        labels = self.inputs.labels
        pairs = [
            (labels[true], labels[seen], int(count), int(self.counts[true].sum()))
            for (true, seen), count in np.ndenumerate(self.counts[:-1, :-1])
            if count and true != seen
        ]
        return sorted(pairs, key=lambda pair: (-pair[2] / pair[3], -pair[2], pair[:2]))


def make_figures(shown: FigureInputs) -> Figures:
    """Judge every picture, and choose those to show."""
    there = truth_by_image(shown.truth)
    labels = shown.labels
    judged = {at: judge_picture(seen.above(shown.score), there[at], labels) for at, seen in shown.detections.items()}
    chosen = choose(judged)
    wanted = {image_id for ids in chosen.values() for image_id in ids}
    names: dict[int, str] = {}
    stored: dict[int, ShardPicture] = {}
    for picture in shown.pictures():
        names[picture.image_id] = picture.file_name
        if picture.image_id in wanted:
            stored[picture.image_id] = picture
    return Figures(
        inputs=shown,
        curves={label: curve(shown.detections, there, class_id) for class_id, label in enumerate(labels, start=1)},
        counts=confusion(shown.detections, there, len(labels), shown.score),
        judged=judged,
        names=names,
        chosen=chosen,
        stored=stored,
        train_px=[float(np.sqrt(row["bbox"][2] * row["bbox"][3])) for row in shown.train_truth["annotations"]],
    )


def draw_plots(figures: Figures) -> dict[str, bytes]:
    """The files of `plots/` by name; `curves.png` only if there is a history, a sheet only if it has a pair."""
    shown, even = figures.inputs, figures.chosen["even"]
    pairs = {at: plots.truth_beside_seen(picture, figures.judged[at]) for at, picture in figures.stored.items()}
    sheets = {"detections": even[:: max(1, -(-len(even) // _SHEET_PAIRS))]}
    sheets |= {name: figures.chosen[name] for name in ("worst", "best")}
    files = {
        "precision_recall.png": plots.precision_recall(figures.curves, f"int8, {shown.split} split, IoU 0.5"),
        "confusion.png": plots.confusion_matrix(
            figures.counts, shown.labels, f"int8, score at least {shown.score:.2f}"
        ),
        "labels.png": plots.label_histograms(shown.train_truth, shown.labels, "train split"),
        **{f"{name}.jpg": plots.pair_sheet([pairs[at] for at in ids]) for name, ids in sheets.items() if ids},
    }
    return files | ({"curves.png": plots.training_curves(shown.history)} if shown.history else {})
