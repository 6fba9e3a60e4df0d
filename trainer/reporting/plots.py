"""Figures of a run -> curves, histograms and confusion as PNG, and pictures, truth beside what is seen, as JPEG.

Uses only matplotlib's object interface: pyplot keeps global state and looks for a display.
"""

import io
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import cv2
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from shared.colours import PALETTE
from shared.drawing import Mark, caption, draw_marks, grid
from trainer.data.examples import ShardPicture
from trainer.evaluation.curves import Curve
from trainer.pixels import Picture
from trainer.reporting.gallery import JudgedPicture

_DPI: Final = 110
# The least and largest side of a picture in a sheet, and the largest side of a tile on the page, where 36 tiles must
# stay below 5 MB.
_LEAST_SIDE_PX, _MOST_SIDE_PX, _TILE_SIDE_PX = 320, 512, 416
_TILE_QUALITY: Final = 80
# A README shows a sheet of two pairs per row at two thirds of its size; its letters are 12 px then.
_SHEET_SCALE: Final = 0.65
_MOST_LETTERS: Final = 22
# With more than twice this many classes, only this many at either end of the ranking are coloured and named.
_NAMED_CURVES: Final = 4
_COLOURS: Final = [tuple(channel / 255 for channel in colour[::-1]) for colour in PALETTE]

# Panels of the training curves: the title, and a part of the names of their columns.
_PANELS: Final = (("Loss", "loss"), ("Validation mAP", "map"))


def training_curves(history: Sequence[Mapping[str, float | None]]) -> bytes:
    """Losses and, if the run validated, precision over the epochs, in a panel each."""
    names = sorted({name for row in history for name, value in row.items() if value is not None})
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
    """Precision over recall and F1 over the score at IoU 0.5, with a line for each class.

    If there are many classes, only the best and the worst by F1 are coloured and named; the others are thin gray lines.
    """
    figure = Figure(figsize=(10, 4.6), layout="constrained")
    recall_axis, score_axis = figure.subplots(1, 2)
    ranked = sorted(curves, key=lambda name: -curves[name].best_f1)
    named = ranked if len(ranked) <= 2 * _NAMED_CURVES else ranked[:_NAMED_CURVES] + ranked[-_NAMED_CURVES:]
    unnamed = [name for name in ranked if name not in named]
    places = dict(zip(curves, range(len(curves)), strict=True))
    for name in [*unnamed, *named]:
        curve, label = curves[name], None
        looks: dict[str, Any] = {"color": "0.82", "linewidth": 0.8}
        if name in named:
            label = f"{_legible([name])[0]}: F1 {curve.best_f1:.2f} at {curve.best_score:.2f}"
            round_trip, colour = divmod(places[name], len(_COLOURS))
            # When the colours start again, the lines are dashed.
            looks = {"color": _COLOURS[colour], "linewidth": 2, "linestyle": ("-", "--", ":", "-.")[round_trip % 4]}
        recall_axis.plot(curve.recall, curve.precision, label=label, **looks)
        score_axis.plot(curve.scores, curve.f1, **looks)
    recall_axis.set(title=title, xlabel="recall", ylabel="precision", xlim=(0, 1.01), ylim=(0, 1.01))
    score_axis.set(title="F1 by least score", xlabel="least score", ylabel="F1", xlim=(0, 1.01), ylim=(0, 1.01))
    for axis in (recall_axis, score_axis):
        axis.grid(alpha=0.3)
    if curves:
        heading = f"best and worst; {len(unnamed)} more in gray" if unnamed else None
        figure.legend(*recall_axis.get_legend_handles_labels(), loc="outside right center", fontsize=9, title=heading)
    return _png(figure)


def confusion_matrix(counts: NDArray[np.int64], labels: Sequence[str], title: str) -> bytes:
    """True class (rows) by seen class (columns); the last of each is "nothing"."""
    names = [*_legible(labels), "nothing"]
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
    """Objects per class, and their sizes (square root of the area in the stored picture, px), for one split."""
    figure = Figure(figsize=(9, max(3.2, 1 + 0.24 * len(labels))), layout="constrained")
    counts_axis, sizes_axis = figure.subplots(1, 2)
    rows = truth["annotations"]
    counts = [sum(row["category_id"] == class_id for row in rows) for class_id in range(1, len(labels) + 1)]
    names, colours = _legible(labels), [_COLOURS[index % len(_COLOURS)] for index in range(len(labels))]
    counts_axis.barh(range(len(labels)), counts, color=colours)
    counts_axis.set_yticks(range(len(labels)), names)
    counts_axis.invert_yaxis()
    counts_axis.bar_label(counts_axis.containers[0], fontsize=8)
    counts_axis.set(title=f"Objects a class, {title}", xlabel="objects")
    sizes = [
        [float(np.sqrt(row["bbox"][2] * row["bbox"][3])) for row in rows if row["category_id"] == class_id]
        for class_id in range(1, len(labels) + 1)
    ]
    if rows:
        sizes_axis.hist(sizes, bins=24, stacked=True, color=colours)
    sizes_axis.set(title="Object sizes in the stored picture", xlabel="sqrt(area), px", ylabel="objects")
    return _png(figure)


def _legible(labels: Sequence[str]) -> list[str]:
    """Class names for matplotlib: dollars escaped, which would start a formula, and long names shortened."""
    short = (label if len(label) <= _MOST_LETTERS else f"{label[: _MOST_LETTERS - 1]}…" for label in labels)
    return [name.replace("$", r"\$") for name in short]


def truth_beside_seen(stored: ShardPicture, judged: JudgedPicture) -> Picture:
    """Left the annotated boxes above the file's name, right what was seen above the verdict; uint8 [H, W, 3], BGR."""
    side = stored.rgb.shape[0]
    scale = min(max(side, _LEAST_SIDE_PX), _MOST_SIDE_PX) / side
    picture = _resized(stored.rgb[..., ::-1], scale)
    sides = zip((judged.there, judged.seen), (stored.file_name.rsplit("/", 1)[-1], judged.verdict), strict=True)
    drawn = ((draw_marks(picture, _scaled(marks, scale), scale=_SHEET_SCALE), text) for marks, text in sides)
    return grid([caption(tile, text, scale=_SHEET_SCALE) for tile, text in drawn], 2, gap=3)


def tile(stored: ShardPicture) -> bytes:
    """A picture without boxes, as JPEG."""
    picture = _resized(stored.rgb[..., ::-1], min(1.0, _TILE_SIDE_PX / stored.rgb.shape[0]))
    return _jpeg(picture, _TILE_QUALITY)


def _resized(picture: Picture, scale: float) -> Picture:
    kind = cv2.INTER_CUBIC if scale > 1 else cv2.INTER_AREA
    return np.asarray(cv2.resize(picture, None, fx=scale, fy=scale, interpolation=kind), np.uint8)


def _scaled(marks: Sequence[Mark], scale: float) -> list[Mark]:
    return [replace(mark, box=(*(scale * value for value in mark.box),)) for mark in marks]  # type: ignore[arg-type]  # four of them


def pair_sheet(pairs: Sequence[Picture]) -> bytes:
    """Pairs of the same size, two per row, as JPEG."""
    return _jpeg(grid(pairs, 2))


def jpeg_sheet(rows: Sequence[Picture]) -> bytes:
    """Rows of the same width, one below the other, as JPEG."""
    return _jpeg(grid(rows, 1, gap=2))


def _jpeg(image: Picture, quality: int = 85) -> bytes:
    return bytes(cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, quality])[1])


def _png(figure: Figure) -> bytes:
    target = io.BytesIO()
    # Without the library's version, so that the same figures give the same bytes.
    figure.savefig(target, format="png", dpi=_DPI, metadata={"Software": None})
    return target.getvalue()
