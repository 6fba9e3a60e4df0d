"""`resamples_<split>.json` of two runs that were measured on the same photos -> the interval of a figure's difference.

In plain Python, because the producer's image has no numpy.
"""

import math
from collections.abc import Sequence
from typing import Final

from shared.audit.resamples import Figures, ResampledSplit
from shared.errors import FormatError
from shared.jobs.job import SPLITS
from shared.jobs.paths import RunPaths
from shared.jobs.versioned import read_stored
from shared.storage import Storage

# Enough for 300 classes; a larger file is not read, and intervals are made from those of the single runs.
_MOST_BYTES: Final = 4 << 20
# Fewer resamples say nothing about the outermost 2.5 %.
_LEAST_RESAMPLES: Final = 100

# The figures of two runs on the same resamples of the same photos.
Pair = tuple[ResampledSplit, ResampledSplit]
_OUTERMOST: Final = 0.025
# The interval, in points, if no resample has the figure, as with objects in a single photo.
_ANY_DIFFERENCE: Final = (-100.0, 100.0)


def read_resamples(storage: Storage, run: str, split: str) -> ResampledSplit | None:
    """The figures of a run's int8 model on resamples of a split; None if there is no readable file."""
    if split not in SPLITS:  # a name from another file of the run
        return None
    key = f"{RunPaths(run).root}/resamples_{split}.json"
    size = storage.size_or_none(key)
    if size is None or size > _MOST_BYTES:
        return None
    try:
        return read_stored(ResampledSplit, storage.read(key), storage.url(key))
    except FormatError:
        return None


def pair_of(first: ResampledSplit | None, other: ResampledSplit | None) -> Pair | None:
    """Both, if they are from the same resamples of the same photos; else None."""
    if first is None or other is None or first.drawn_from != other.drawn_from:
        return None
    enough = len(first.map50) == len(other.map50) >= _LEAST_RESAMPLES
    return (first, other) if enough else None


def _figures_of(resampled: ResampledSplit, name: str, label: str | None) -> Figures:
    """The figures called `name` in metrics.json: `map50` and `map` of all classes, `ap50` of the class `label`."""
    if label is not None:
        return resampled.ap50.get(label, ())
    return {"map50": resampled.map50, "map": resampled.map}.get(name, ())


def paired_bounds(pair: Pair, name: str, label: str | None, points: float) -> tuple[float, float] | None:
    """The 95 % interval of a difference, in points; None if the resamples do not say.

    Args:
        pair: Both runs' resamples.
        name: The name of the figure: `map50`, `map`, or `ap50` of the class `label`.
        label: The class, for `ap50`.
        points: The difference as measured: the other run's figure minus the first one's, times 100.
    """
    first, other = (_figures_of(each, name, label) for each in pair)
    if not first or len(first) != len(other):
        return None
    known = sorted(100 * (b - a) for a, b in zip(first, other, strict=True) if a is not None and b is not None)
    if not known:
        return _ANY_DIFFERENCE
    if len(known) < _LEAST_RESAMPLES or not all(map(math.isfinite, (known[0], known[-1]))):
        return None
    return min(_percentile(known, _OUTERMOST), points), max(_percentile(known, 1 - _OUTERMOST), points)


def _percentile(ordered: Sequence[float], share: float) -> float:
    """The percentile as numpy gives it: with linear interpolation."""
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])
