"""Figures of a run → PNG bytes: curves, histograms, confusion; and the grid of detections that a person looks at first.

matplotlib's object interface only: pyplot keeps global state and looks for a display.
"""

import io
from collections.abc import Mapping, Sequence
from typing import Any, Final

import cv2
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from trainer.detections import Detections
from trainer.draw import PALETTE, Picture, caption, draw_detections, draw_truth, grid
from trainer.matching import Curve, TruthBoxes
from trainer.measure import StoredPicture

_DPI: Final = 110
# Of a picture in a pair: two of them are as wide as the report.
_PAIR_SIDE_PX: Final = 512
_COLOURS: Final = [tuple(channel / 255 for channel in colour[::-1]) for colour in PALETTE]

# Of the curves of a run: title, and what the names of its columns have in them.
_PANELS: Final = (("Loss", "loss"), ("Validation mAP", "map"))


def training_curves(history: Sequence[Mapping[str, float | None]]) -> bytes:
    """Losses and, where the run validated, precision over the epochs; a panel each."""
    names = sorted({name for row in history for name in row})
    panels = [(title, wanted) for title, wanted in _PANELS if any(wanted in name for name in names)]
    figure = Figure(figsize=(4.5 * len(panels), 3.4), layout="constrained")
    for axis, (title, wanted) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        for name in (name for name in names if wanted in name):
            points = [(row["epoch"], row[name]) for row in history if row.get(name) is not None]
            axis.plot(*zip(*points, strict=True), label=name.replace("_", " "), marker=".", markersize=3)
        axis.set(title=title, xlabel="epoch", ylim=(0, 1) if wanted == "map" else None)
        axis.grid(alpha=0.3)
        axis.legend(fontsize=8)
    return _png(figure)


def precision_recall(curves: Mapping[str, Curve], title: str) -> bytes:
    """Precision over recall and F1 over the score, one line a class at IoU 0.5; the best F1 in the legend."""
    figure = Figure(figsize=(9, 4.0), layout="constrained")
    recall_axis, score_axis = figure.subplots(1, 2)
    for index, (name, curve) in enumerate(curves.items()):
        label = f"{name}: F1 {curve.best_f1:.2f} at {curve.best_score:.2f}"
        colour = _COLOURS[index % len(_COLOURS)]
        recall_axis.plot(curve.recall, curve.precision, color=colour, label=label)
        score_axis.plot(curve.scores, curve.f1, color=colour)
    recall_axis.set(title=title, xlabel="recall", ylabel="precision", xlim=(0, 1.01), ylim=(0, 1.01))
    score_axis.set(title="F1 by least score", xlabel="least score", ylabel="F1", xlim=(0, 1.01), ylim=(0, 1.01))
    for axis in (recall_axis, score_axis):
        axis.grid(alpha=0.3)
    if curves:
        recall_axis.legend(fontsize=8, loc="lower left")
    return _png(figure)


def confusion_matrix(counts: NDArray[np.int64], labels: Sequence[str], title: str) -> bytes:
    """True class (rows) by seen class (columns); the last of each is "nothing"."""
    names = [*labels, "nothing"]
    side = 2.2 + 0.62 * len(names)
    figure = Figure(figsize=(side + 0.6, side), layout="constrained")
    axis = figure.subplots()
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    axis.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    for (row, column), count in np.ndenumerate(counts):
        colour = "white" if shares[row, column] > 0.5 else "black"
        axis.text(column, row, str(count), ha="center", va="center", color=colour, fontsize=9)
    axis.set_xticks(range(len(names)), names, rotation=45, ha="right")
    axis.set_yticks(range(len(names)), names)
    axis.set(title=title, xlabel="seen", ylabel="true")
    return _png(figure)


def label_histograms(truth: Mapping[str, Any], labels: Sequence[str], title: str) -> bytes:
    """Objects a class, and their sizes (square root of the area in the stored picture, px), of one split."""
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    counts_axis, sizes_axis = figure.subplots(1, 2)
    rows = truth["annotations"]
    counts = [sum(row["category_id"] == class_id for row in rows) for class_id in range(1, len(labels) + 1)]
    colours = [_COLOURS[index % len(_COLOURS)] for index in range(len(labels))]
    counts_axis.bar(range(len(labels)), counts, color=colours)
    counts_axis.set_xticks(range(len(labels)), labels, rotation=30 if len(labels) > 4 else 0)
    counts_axis.bar_label(counts_axis.containers[0], fontsize=8)
    counts_axis.set(title=f"Objects a class, {title}", ylabel="objects")
    sizes = [
        [float(np.sqrt(row["bbox"][2] * row["bbox"][3])) for row in rows if row["category_id"] == class_id]
        for class_id in range(1, len(labels) + 1)
    ]
    if rows:
        sizes_axis.hist(sizes, bins=24, stacked=True, color=colours, label=list(labels))
        sizes_axis.legend(fontsize=8)
    sizes_axis.set(title="Object sizes in the stored picture", xlabel="sqrt(area), px", ylabel="objects")
    return _png(figure)


def detection_grid(
    pictures: Sequence[Picture], detections: Sequence[Detections], labels: Sequence[str], columns: int = 4
) -> bytes:
    """A sheet of pictures (each uint8 [H, W, 3], RGB, of one size) with their detections, as JPEG."""
    drawn = [
        draw_detections(picture[..., ::-1].copy(), seen, labels)
        for picture, seen in zip(pictures, detections, strict=True)
    ]
    return _jpeg(grid(drawn, columns))


def truth_beside_detections(
    stored: StoredPicture, truth: TruthBoxes, seen: Detections, labels: Sequence[str], f1: float
) -> Picture:
    """One row of two, enlarged: the annotated boxes left, the detections right; uint8 BGR."""
    scale = max(1.0, _PAIR_SIDE_PX / stored.rgb.shape[0])
    picture = cv2.resize(stored.rgb[..., ::-1], None, fx=scale, fy=scale, interpolation=cv2.INTER_CUBIC)
    names = [labels[class_id - 1] for class_id in truth.class_ids]
    left = draw_truth(picture.astype(np.uint8), truth.boxes * np.float32(scale), names)
    right = draw_detections(picture.astype(np.uint8), seen.scaled(scale), labels)
    return grid(
        [
            caption(left, f"{stored.file_name}: annotated {len(names)}"),
            caption(right, f"int8: {seen.scores.size}, F1 {f1:.2f}"),
        ],
        2,
    )


def jpeg_sheet(rows: Sequence[Picture]) -> bytes:
    """Rows of one width under each other, as JPEG."""
    return _jpeg(grid(rows, 1, gap=2))


def _jpeg(image: Picture) -> bytes:
    # 4:2:0 and 88 keep a sheet of twelve pictures of 320 px below 400 KB.
    return bytes(cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, 88])[1])


def _png(figure: Figure) -> bytes:
    target = io.BytesIO()
    # Without the library's version and the date: the same figures are the same bytes.
    figure.savefig(target, format="png", dpi=_DPI, metadata={"Software": None})
    return target.getvalue()
