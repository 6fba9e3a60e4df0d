"""The table as bars, and the measured traces of two rows as lanes: prepare and train, idle and busy."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.ticker import NullFormatter, ScalarFormatter

from tests.bench.loaders.table import Figures
from tests.bench.loaders.work import ROWS, Took

OURS: Final = "#1b7f79"
THEIRS: Final = "#8a8f98"
MAKING: Final = "#d98e2b"

# Of the time shown in the lanes, in seconds.
SHOWN_S: Final = 1.2


def bars(found: Mapping[str, Figures], title: str, epochs: int, path: Path) -> None:
    """Images/s after epoch 1 and seconds of all epochs, a bar a loader."""
    names = list(found)[::-1]
    figure, axes = plt.subplots(1, 2, figsize=(13, 0.42 * len(names) + 1.6), sharey=True, layout="constrained")
    colors = [OURS if name.startswith("ours") else THEIRS for name in names]
    for axis, values, text in (
        (axes[0], [found[name].later for name in names], "images/s after epoch 1 (log scale)"),
        (
            axes[1],
            [found[name].total_s for name in names],
            f"seconds of {epochs} epochs, preparation included (log scale)",
        ),
    ):
        shown = axis.barh([ROWS[name] for name in names], values, color=colors)
        axis.bar_label(shown, fmt=_short, padding=3, fontsize=8)
        axis.set_xscale("log")
        axis.xaxis.set_major_formatter(ScalarFormatter())
        axis.xaxis.set_minor_formatter(NullFormatter())
        axis.set_xlim(min(values) / 2, max(values) * 2.2)
        axis.set_xlabel(text)
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(labelsize=8)
    figure.suptitle(title, fontsize=10)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def lanes(naive: Took, ours: Took, steps: int, path: Path) -> None:
    """Two lanes each of the same stretch of time, from the second epoch on."""
    figure, axes = plt.subplots(2, 1, figsize=(12, 4.2), layout="constrained")
    rows: Sequence[tuple[str, Took]] = (("tf.data, naive", naive), ("ours, cached", ours))
    for axis, (name, took) in zip(axes, rows, strict=True):
        _lanes(axis, took, steps)
        axis.set_title(f"{name}: accelerator busy {_busy(took, steps):.0%}", loc="left", fontsize=10)
    axes[1].set_xlabel("seconds since the start of epoch 2 (measured)")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _lanes(axis: Any, took: Took, steps: int) -> None:
    first = took.steps[steps][0] if len(took.steps) > steps else took.steps[0][0]
    trained = [(began - first, ended - began) for _, began, ended in took.steps]
    # A loader that nothing runs beside prepares exactly while it is waited for.
    made = took.made or [(asked, began) for asked, began, _ in took.steps]
    making = [(began - first, ended - began) for began, ended in made]
    threads = _packed([span for span in making if span[0] + span[1] > 0 and span[0] < SHOWN_S])
    for place, spans in enumerate(threads):
        height = 0.7 / len(threads)
        axis.broken_barh(spans, (0.65 + place * height, height * 0.94), color=MAKING, edgecolor="white", linewidth=0.5)
    seen = [(start, length) for start, length in trained if start < SHOWN_S]
    axis.broken_barh(seen, (-0.35, 0.7), color=OURS, edgecolor="white", linewidth=0.5)
    axis.set_xlim(0, SHOWN_S)
    axis.set_yticks([0, 1], ["train", "prepare"])
    axis.set_ylim(-0.6, 1.6)
    axis.spines[["top", "right"]].set_visible(False)


def _packed(spans: Sequence[tuple[float, float]]) -> list[list[tuple[float, float]]]:
    """Spans (start, length) in as many rows as overlap: one a thread."""
    rows: list[list[tuple[float, float]]] = []
    for span in sorted(spans):
        free = [row for row in rows if sum(row[-1]) <= span[0] + 1e-6]
        if free:
            free[0].append(span)
        else:
            rows.append([span])
    return rows


def _busy(took: Took, steps: int) -> float:
    shown = took.steps[steps:] or took.steps
    return sum(ended - began for _, began, ended in shown) / (shown[-1][2] - shown[0][0])
