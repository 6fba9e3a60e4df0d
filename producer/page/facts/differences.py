"""Runs compared with the first of them -> by how much each is better, and the photos in which they differ most."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from producer.page.facts.resamples import Pair, paired_bounds
from producer.page.facts.seen import SeenPhoto, SeenRun


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """By how many points a figure is higher than the first run's, with its 95 % interval from `low` to `high`.

    `is_paired`: the interval is from the same photos; otherwise it is wider than necessary.
    """

    points: float
    low: float
    high: float
    is_paired: bool = False

    @property
    def is_sure(self) -> bool:
        """Whether the interval excludes 0, so that chance does not explain the difference."""
        return not self.low <= 0 <= self.high


def difference(
    first: Mapping[str, Any], other: Mapping[str, Any], name: str, pair: Pair | None = None, label: str | None = None
) -> Difference | None:
    """The difference of a figure of two runs; None if one lacks it or its interval, or measured it on no object.

    The interval is from the resamples of a `pair`. Without a pair it is made from the intervals of the two runs (MOVER;
    Zou and Donner, doi.org/10.1002/sim.3095), as if they were measured on different photos. If the photos are the same,
    that is wider than necessary, so what it calls sure is sure.

    Args:
        first: The first run's figures of a form, or of a class.
        other: The same figures of the other run.
        name: The name of the figure: `map50`, `map`, `ap50`.
        pair: Both runs' resamples, if they were measured on the same photos.
        label: The class, if the figures are of one.
    """
    before, now = _span(first, name), _span(other, name)
    if before is None or now is None:
        return None
    (low, value, high), (other_low, other_value, other_high) = before, now
    points = other_value - value
    bounds = paired_bounds(pair, name, label, 100 * points) if pair is not None else None
    if bounds:
        return Difference(points=100 * points, low=bounds[0], high=bounds[1], is_paired=True)
    below, above = math.hypot(other_value - other_low, high - value), math.hypot(other_high - other_value, value - low)
    return Difference(points=100 * points, low=100 * (points - below), high=100 * (points + above))


def _span(row: Mapping[str, Any], name: str) -> tuple[float, float, float] | None:
    value, interval = row.get(name), row.get(f"{name}_interval")
    if not isinstance(value, int | float) or not isinstance(interval, list) or len(interval) != 2:
        return None
    if not all(isinstance(bound, int | float) for bound in interval) or row.get("objects") == 0:
        return None
    return interval[0], value, interval[1]


def most_different(
    runs: Sequence[tuple[SeenRun, float]], most: int, unlike: Collection[str] = frozenset()
) -> list[list[SeenPhoto]]:
    """The photos that all runs were measured on, each as a list with one for each run; largest difference first.

    Differences are in the number of mistakes. `runs` are what each run saw, and its threshold. Photos in which all runs
    make equally many mistakes are left out, and so are the files in `unlike`, which are different pictures in the runs.
    """
    by_file = [{photo.file_name: photo for photo in run.photos} for run, _ in runs]
    rated = []
    for file in sorted(set.intersection(*map(set, by_file)) - {*unlike}):
        photos = [photos[file] for photos in by_file]
        mistakes = [photo.mistakes(least) for photo, (_, least) in zip(photos, runs, strict=True)]
        if max(mistakes) > min(mistakes):
            rated.append((min(mistakes) - max(mistakes), file, photos))
    return [photos for _, _, photos in sorted(rated, key=lambda row: row[:2])[:most]]
