"""What the judge matched -> how certain a mean average precision is: 95 % intervals by resampling the pictures.

A split's pictures are a sample of those that the model will meet. Each resample draws as many of them, with
replacement, and is judged as pycocotools would judge it. All forms are judged on the same (seeded) resamples, so that
the difference of two forms has its own interval: a paired bootstrap (Efron and Tibshirani, 1993). Pictures of one scene
are drawn together, since a hundred frames of one video say little more than one of them (Field and Welsh,
"Bootstrapping Clustered Data", JRSS B 69, 2007).

If a split has no mistake, neither has any resample, which says nothing about how many there may be elsewhere. The rule
of three applies then (Hanley and Lippman-Hand, "If Nothing Goes Wrong, Is Everything All Right?", JAMA 249, 1983):
after n objects without a mistake, 3/n is the 95 % bound of the share of mistakes, as 0.05 = (1 - p)^n is about e^(-np).
"""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from trainer.evaluation.coco_map import ClassMatches

# The bounds of a figure's interval, low and high, in its unit.
Interval = tuple[float, float]

RESAMPLES: Final = 1000
# With objects in only one picture, or scene, all resamples are the same, and say nothing about other pictures.
LEAST_PICTURES: Final = 2
# How many resamples are judged at once: 13 MB with 100,000 detections.
_BLOCK: Final = 32
# Bounds of the middle 95 %.
_PERCENTILES: Final = (2.5, 97.5)
_DIGITS: Final = 6
# A smaller distance from 0 or 1 than this is rounding.
_NO_DOUBT: Final = 1e-6

# As in pycocotools: the recalls at which precision is read, and a number that prevents division by zero.
RECALLS: Final = np.linspace(0, 1, 101)
_TINY: Final = np.spacing(1)


def resampled(
    matches: Sequence[ClassMatches],
    resamples: int = RESAMPLES,
    *,
    names: Sequence[str] | None = None,
    scenes: Sequence[str] = (),
) -> NDArray[np.float64]:
    """mAP50, mAP and the AP50 of each class, [2 + C, B], on resamples of the pictures; nan where no object was drawn.

    Figures whose objects lie in fewer than `LEAST_PICTURES` scenes are nan in all resamples.

    Args:
        matches: What the judge matched, by class; at least one class.
        resamples: Their number, B. The same number of pictures gives the same resamples.
        names: The pictures' names in the order of judging. Pictures are drawn in the order of their names, or of
            judging if None.
        scenes: The scene of each picture in the order of judging, "" for one of its own; by default all are.
    """
    drawn_with = _scene_numbers(scenes or [""] * len(matches[0].objects), names)
    draws = _draws(int(drawn_with.max()) + 1, resamples)
    samples = np.concatenate([precisions(matches, drawn[drawn_with]) for drawn in draws], axis=1)
    has_objects = [found.objects > 0 for found in matches]
    has_any = np.any(has_objects, axis=0)
    counts = [len(np.unique(drawn_with[having])) for having in (has_any, has_any, *has_objects)]
    samples[np.array(counts) < LEAST_PICTURES] = np.nan
    return samples


def _scene_numbers(scenes: Sequence[str], names: Sequence[str] | None) -> NDArray[np.int64]:
    """The number of each picture's scene, int64 [I], from 0 in the order in which scenes first appear by name."""
    order = range(len(scenes)) if names is None else sorted(range(len(scenes)), key=names.__getitem__)
    known: dict[str | int, int] = {}
    numbers = np.empty(len(scenes), np.int64)
    for place in order:
        numbers[place] = known.setdefault(scenes[place] or place, len(known))
    return numbers


def _draws(scenes: int, resamples: int) -> Iterator[NDArray[np.float32]]:
    """How often each of S scenes is in each resample, [S, b], in blocks of b resamples."""
    rng = np.random.default_rng(0)
    for start in range(0, resamples, _BLOCK):
        draws = rng.multinomial(scenes, np.full(scenes, 1 / scenes), min(_BLOCK, resamples - start))
        yield draws.T.astype(np.float32)  # exact for whole numbers up to 16 million


def precisions(matches: Sequence[ClassMatches], drawn: NDArray[np.float32]) -> NDArray[np.float64]:
    """mAP50, mAP and the AP50 of each class, [2 + C, B], with each picture as often as `drawn`, [I, B], says.

    They are nan if the drawn pictures have no object.

    A picture drawn twice is judged like two pictures whose equal detections follow each other.
    """
    by_class = np.stack([_class_precisions(found, drawn) for found in matches])
    is_known = ~np.isnan(by_class)
    known = is_known[:, 0].sum(axis=0)
    sums = np.stack([np.nansum(by_class[:, 0], axis=0), np.nansum(by_class, axis=0).mean(axis=0)])
    means = np.where(known > 0, sums / np.maximum(known, 1), np.nan)
    return np.concatenate([means, by_class[:, 0]])


def _class_precisions(found: ClassMatches, drawn: NDArray[np.float32]) -> NDArray[np.float64]:
    """The average precision of one class at each IoU threshold, [T, B]; nan where none of its objects was drawn."""
    objects = found.objects @ drawn.astype(np.float64)
    precision = np.zeros((len(found.is_hit), len(objects)))
    # Precision is read only where recall rises, at hits. Detections between two hits are only counted.
    hits = np.flatnonzero(found.is_hit.any(axis=0))
    if hits.size:
        starts = np.concatenate([[0], hits[:-1] + 1])
        seen = np.add.reduceat(drawn[found.pictures[: hits[-1] + 1]], starts, axis=0).cumsum(axis=0, dtype=np.float64)
        for index, (is_hit, is_ignored) in enumerate(zip(found.is_hit, found.is_ignored, strict=True)):
            rows = np.flatnonzero((is_hit & ~is_ignored)[hits])
            true = drawn[found.pictures[hits[rows]]].cumsum(axis=0, dtype=np.float64)
            counted = seen[rows] - _ignored_before(hits[rows], found.pictures, is_ignored, drawn)
            precision[index] = _average(true, counted, np.maximum(objects, 1))
    return np.where(objects > 0, precision, np.nan)


def _ignored_before(
    places: NDArray[np.int64], pictures: NDArray[np.int64], is_ignored: NDArray[np.bool_], drawn: NDArray[np.float32]
) -> NDArray[np.float64]:
    """How many detections before each of `places` [N] count neither way, [N, B]."""
    ignored = np.flatnonzero(is_ignored)
    counts = drawn[pictures[ignored]].cumsum(axis=0, dtype=np.float64)
    counts = np.concatenate([np.zeros((1, drawn.shape[1])), counts])
    return counts[np.searchsorted(ignored, places)]


def _average(
    true: NDArray[np.float64], counted: NDArray[np.float64], objects: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The mean precision at 101 recalls, [B], from the numbers of hits and of detections, [N, B], up to each hit."""
    if len(true) == 0:
        return np.zeros(len(objects))
    precision = true / (counted + _TINY)
    best_from_here = np.maximum.accumulate(precision[::-1])[::-1]
    reached = _recalls_reached(true / objects)
    rise = np.diff(reached, axis=0, prepend=0)
    average: NDArray[np.float64] = (best_from_here * rise).sum(axis=0) / len(RECALLS)
    return average


def _recalls_reached(recall: NDArray[np.float64]) -> NDArray[np.int64]:
    """How many of the 101 recalls are at most `recall`; the same as `searchsorted` but four times as fast."""
    near = (recall * 100).astype(np.int64)
    too_few = RECALLS[np.minimum(near + 1, 100)] <= recall
    too_many = RECALLS[near] > recall
    return np.minimum(near + 1 + too_few - too_many, 101)


def share_interval(figure: float, samples: NDArray[np.float64], objects: int) -> Interval:
    """`interval` of a share of `objects`; if all samples are 0 or 1, at least as wide as the rule of three says."""
    low, high = interval(figure, samples)
    unseen = round(min(1.0, 3 / max(1, objects)), _DIGITS)
    if low >= 1 - _NO_DOUBT:
        return min(low, 1 - unseen), high
    return (low, max(high, unseen)) if high <= _NO_DOUBT else (low, high)


def interval(figure: float, samples: NDArray[np.float64], bounds: Interval = (0.0, 1.0)) -> Interval:
    """The 95 % interval of a figure.

    Args:
        figure: The measured figure; it is never outside its own interval.
        samples: The figure on each resample.
        bounds: The range of possible values, which is returned if all samples are nan.
    """
    known = samples[~np.isnan(samples)]
    if known.size == 0:
        return bounds
    low, high = (round(float(bound), _DIGITS) for bound in np.percentile(known, _PERCENTILES))
    return min(low, figure), max(high, figure)
