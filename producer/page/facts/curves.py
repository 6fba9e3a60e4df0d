"""Rows of figures -> curves for SVG: points in a box of fixed size, with lines at round values."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

WIDTH: Final = 420.0
HEIGHT: Final = 220.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 44.0, 20.0, 10.0, 28.0
# A curve with more points than this is thinned: the box has hardly more pixels.
_MOST_POINTS: Final = 400
_LINES: Final = 4

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One curve: its name, and its points in the form of an SVG polyline."""

    name: str
    points: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Curves with their axes: (position, text) of the lines at round values; `marks` are points (x, y, text)."""

    title: str
    x_title: str
    curves: tuple[Curve, ...]
    x_lines: tuple[tuple[float, str], ...]
    y_lines: tuple[tuple[float, str], ...]
    marks: tuple[tuple[float, float, str], ...] = ()


def chart(
    title: str,
    x_title: str,
    curves: Sequence[tuple[str, Points]],
    *,
    top: float | None = None,
    right: float | None = None,
    marks: Sequence[tuple[float, float, str]] = (),
) -> Chart | None:
    """Curves of (name, points) in one box, x and y from 0; None if no curve has two points.

    Args:
        title: The title of the chart.
        x_title: The title of the x axis.
        curves: Points in the data's own units; points that are not finite are left out.
        top: The largest y of the box; None: that of the data.
        right: The largest x of the box; None: that of the data.
        marks: Points to mark: x, y, text.
    """
    kept = [(name, [(x, y) for x, y in points if math.isfinite(x) and math.isfinite(y)]) for name, points in curves]
    kept = [(name, points) for name, points in kept if len(points) > 1]
    if not kept:
        return None
    furthest = (max(x for _, points in kept for x, _ in points) if right is None else right) or 1.0
    highest = (max(y for _, points in kept for _, y in points) if top is None else top) or 1.0

    def at(x: float, y: float) -> tuple[float, float]:
        across, up = min(x / furthest, 1.0), min(max(y / highest, 0.0), 1.0)
        return (
            round(_LEFT + across * (WIDTH - _LEFT - _RIGHT), 1),
            round(HEIGHT - _BOTTOM - up * (HEIGHT - _TOP - _BOTTOM), 1),
        )

    return Chart(
        title=title,
        x_title=x_title,
        curves=tuple(
            Curve(name=name, points=" ".join("{},{}".format(*at(x, y)) for x, y in _thinned(points)))
            for name, points in kept
        ),
        x_lines=tuple((at(x, 0)[0], f"{x:g}") for x in _round_values(furthest)),
        y_lines=tuple((at(0, y)[1], f"{y:g}") for y in _round_values(highest)),
        marks=tuple((*at(x, y), text) for x, y, text in marks),
    )


def _thinned(points: Points) -> Points:
    step = -(-len(points) // _MOST_POINTS)
    return [*points[:-1:step], points[-1]]


def _round_values(most: float) -> list[float]:
    """About `_LINES` values from 0 up to `most`: multiples of 1, 2 or 5 times a power of ten."""
    rough = most / _LINES
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
    return [round(step * number, 10) for number in range(int(most / step + 1e-9) + 1)]
