"""What the judge matched -> how sure a mean average precision is: 95 % intervals by resampling the pictures.

A split's pictures are a sample of those that the model will meet. Each resample draws as many of them, with
replacement, and is judged as pycocotools would judge it. All forms are judged on the same resamples (they are seeded),
so that the difference of two forms has an interval of its own: a paired bootstrap (Efron and Tibshirani, 1993).

Of a split without a mistake every resample is without one, and says nothing of how many there may be. There the rule of
three holds (Hanley and Lippman-Hand, "If Nothing Goes Wrong, Is Everything All Right?", JAMA 249, 1983): after n
objects without a mistake, 3/n is the 95 % bound of their share, since 0.05 = (1 - p)^n is about e^(-np).
"""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from trainer.evaluation.coco_map import ClassMatches

# The least and the most that a figure may well be; in its unit.
Interval = tuple[float, float]

RESAMPLES: Final = 1000
# Of objects in a single picture all resamples say the same, and nothing of other pictures.
LEAST_PICTURES: Final = 2
# Resamples judged at once: with 100,000 detections 13 MB.
_BLOCK: Final = 32
# Bounds of the middle 95 %.
_PERCENTILES: Final = (2.5, 97.5)
_DIGITS: Final = 6
# Nearer to 0 or 1 than this is rounding.
_NO_DOUBT: Final = 1e-6

# Of pycocotools: the recalls at which precision is read, and what keeps it from dividing by zero.
RECALLS: Final = np.linspace(0, 1, 101)
_TINY: Final = np.spacing(1)


def resampled(
    matches: Sequence[ClassMatches], resamples: int = RESAMPLES, names: Sequence[str] | None = None
) -> NDArray[np.float64]:
    """mAP50, mAP and the AP50 of each class, [2 + C, B], of resamples of the pictures; nan for one without any object.

    Nan in all of them are figures of objects that lie in fewer than `LEAST_PICTURES`.

    Args:
        matches: What the judge matched, by class; at least one.
        resamples: B. They are the same ones for the same number of pictures.
        names: Of the pictures, as they were judged; they are drawn in the order of these, or as they were judged.
    """
    pictures = len(matches[0].objects)
    places = slice(None) if names is None else np.argsort(np.argsort(np.array(names, object), kind="stable"))
    samples = np.concatenate([precisions(matches, drawn[places]) for drawn in _draws(pictures, resamples)], axis=1)
    has_objects = np.stack([found.objects > 0 for found in matches])
    with_any = has_objects.any(axis=0).sum()
    samples[np.array([with_any, with_any, *has_objects.sum(axis=1)]) < LEAST_PICTURES] = np.nan
    return samples


def _draws(pictures: int, resamples: int) -> Iterator[NDArray[np.float32]]:
    """How often each picture is in each resample, [I, b], block by block."""
    rng = np.random.default_rng(0)
    for start in range(0, resamples, _BLOCK):
        draws = rng.multinomial(pictures, np.full(pictures, 1 / pictures), min(_BLOCK, resamples - start))
        yield draws.T.astype(np.float32)  # whole numbers: exact up to 16 million


def precisions(matches: Sequence[ClassMatches], drawn: NDArray[np.float32]) -> NDArray[np.float64]:
    """mAP50, mAP and the AP50 of each class, [2 + C, B], of the pictures as often as `drawn`, [I, B], says.

    They are nan where no object is among the pictures.

    A picture drawn twice is judged as two pictures would be, whose equal detections follow each other.
    """
    by_class = np.stack([_class_precisions(found, drawn) for found in matches])
    is_known = ~np.isnan(by_class)
    known = is_known[:, 0].sum(axis=0)
    sums = np.stack([np.nansum(by_class[:, 0], axis=0), np.nansum(by_class, axis=0).mean(axis=0)])
    means = np.where(known > 0, sums / np.maximum(known, 1), np.nan)
    return np.concatenate([means, by_class[:, 0]])


def _class_precisions(found: ClassMatches, drawn: NDArray[np.float32]) -> NDArray[np.float64]:
    """Average precision of one class at each IoU threshold, [T, B]; nan where none of its objects was drawn."""
    objects = found.objects @ drawn.astype(np.float64)
    precision = np.zeros((len(found.is_hit), len(objects)))
    # Precision is read where recall rises: at hits. What lies between two hits is only counted.
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
    """Mean of the precision at 101 recalls, [B], from the hits [N, B] and the detections [N, B] up to each hit."""
    if len(true) == 0:
        return np.zeros(len(objects))
    precision = true / (counted + _TINY)
    best_from_here = np.maximum.accumulate(precision[::-1])[::-1]
    reached = _recalls_reached(true / objects)
    rise = np.diff(reached, axis=0, prepend=0)
    average: NDArray[np.float64] = (best_from_here * rise).sum(axis=0) / len(RECALLS)
    return average


def _recalls_reached(recall: NDArray[np.float64]) -> NDArray[np.int64]:
    """How many of the 101 recalls are at most `recall`; as a search would count them, four times as fast."""
    near = (recall * 100).astype(np.int64)
    too_few = RECALLS[np.minimum(near + 1, 100)] <= recall
    too_many = RECALLS[near] > recall
    return np.minimum(near + 1 + too_few - too_many, 101)


def share_interval(figure: float, samples: NDArray[np.float64], objects: int) -> Interval:
    """`interval` of a share of `objects`, at least so wide as the rule of three says where all samples are 0 or 1."""
    low, high = interval(figure, samples)
    unseen = round(min(1.0, 3 / max(1, objects)), _DIGITS)
    if low >= 1 - _NO_DOUBT:
        return min(low, 1 - unseen), high
    return (low, max(high, unseen)) if high <= _NO_DOUBT else (low, high)


def interval(figure: float, samples: NDArray[np.float64], bounds: Interval = (0.0, 1.0)) -> Interval:
    """Where a figure lies with 95 % confidence.

    Args:
        figure: As measured; it is never outside of its own interval.
        samples: The same of each resample.
        bounds: Between which it lies anyhow: what one gets where the samples say nothing.
    """
    known = samples[~np.isnan(samples)]
    if known.size == 0:
        return bounds
    low, high = (round(float(bound), _DIGITS) for bound in np.percentile(known, _PERCENTILES))
    return min(low, figure), max(high, figure)
