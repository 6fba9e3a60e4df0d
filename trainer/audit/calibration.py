"""From the matches of all photos, learn how far a score, an offset or a missing detection can be trusted. numpy only.

Nobody knows which labels are right, so everything is learned from labels of which most are. A score is trusted as far
as detections with it are marked, relative to the surest ones (confident learning: Northcutt, Jiang & Chuang, JAIR
2021). The offsets that most boxes have are the detector's own, and its recall is measured on boxes of similar size.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from trainer.audit.matching import Matched

Values = NDArray[np.float64]

# A group needs at least this many members for its own statistics.
_GROUP: Final = 20
# At most half of a set's objects are assumed to be unmarked. Without this bound, the noise of models that learned
# nothing would be trusted as much as their surest detections.
_LEAST_MARKED: Final = 0.5
# How many boxes of the nearest sizes a recall is computed from.
_NEIGHBOURS: Final = 50
_MOST_GROUPS: Final = 4
# An upper part of the values must contain at least this percentage of the wrong labels to be used for their share.
_TAIL: Final = 25


def isotonic(values: Values, outcomes: Values) -> tuple[Values, Values]:
    """The increasing function of `values` that is nearest to `outcomes` (pool adjacent violators, Ayer et al. 1955).

    Returns:
        (values [K], levels [K]), both ascending, for `numpy.interp`: each level is at the middle of its values.
    """
    distinct, places = np.unique(values, return_inverse=True)
    weights = np.bincount(places).astype(np.float64)
    means = np.bincount(places, outcomes) / weights
    blocks: list[list[float]] = []  # level, weight, lowest and highest value
    for value, mean, count in zip(distinct.tolist(), means.tolist(), weights.tolist(), strict=True):
        blocks.append([mean, count, value, value])
        while len(blocks) > 1 and blocks[-2][0] >= blocks[-1][0]:
            level, weight, _, high = blocks.pop()
            under = blocks[-1]
            under[0] = (under[0] * under[1] + level * weight) / (under[1] + weight)
            under[1] += weight
            under[3] = high
    middles = np.array([(low + high) / 2 for _, _, low, high in blocks])
    return middles, np.array([level for level, *_ in blocks])


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """A probability as a function of a score: `chances` at `scores`, both ascending; 0 if nothing was learned."""

    scores: Values
    chances: Values

    def __call__(self, scores: NDArray[np.floating[Any]]) -> Values:
        """The probability for each score."""
        if self.scores.size == 0:
            return np.zeros(len(scores))
        return np.interp(scores.astype(np.float64), self.scores, self.chances)


def learn_trust(matched: Sequence[Matched]) -> Trust:
    """How often detections with a score hit a marked object, relative to how often the surest ones do.

    If no label were missing, the surest would all hit one, so this ratio is the chance that there is an object.
    Detections near a marked box, or on an ignored one, count neither way.
    """
    scores, hits = [np.zeros(0)], [np.zeros(0)]
    for one in matched:
        ignored = one.photo.marked.is_ignored
        is_hit = one.met >= 0
        is_hit[is_hit] = ~ignored[one.met[is_hit]]
        counts = is_hit | one.is_new
        scores.append(one.seen.scores[counts].astype(np.float64))
        hits.append(is_hit[counts].astype(np.float64))
    values, outcomes = np.concatenate(scores), np.concatenate(hits)
    if not outcomes.any():
        return Trust(scores=np.zeros(0), chances=np.zeros(0))
    ends, levels = isotonic(values, outcomes)
    surest = values >= np.sort(values)[::-1][min(len(values), max(_GROUP, int(outcomes.sum()) // 4)) - 1]
    return Trust(scores=ends, chances=np.minimum(1.0, levels / max(float(outcomes[surest].mean()), _LEAST_MARKED)))


def learn_doubt(values: Values, wrong: Values) -> Trust:
    """How likely a label is wrong, as a function of a value that grows with the doubt.

    Labels are made wrong on purpose, to learn how much more often they have a value than the set's own labels. The
    probability is that ratio times the share of wrong labels in the set, which nobody knows: the largest possible share
    is assumed, so that the most doubtful label is certainly wrong (Blanchard, Lee & Scott, JMLR 2010).

    Args:
        values: [N], of the set's labels.
        wrong: [M], of labels that were made wrong on purpose.
    """
    if not len(values) or not len(wrong):
        return Trust(scores=np.zeros(0), chances=np.zeros(0))
    is_wrong = np.repeat([0.0, 1.0], [len(values), len(wrong)])
    middles, levels = isotonic(np.concatenate([values, wrong]), is_wrong)
    ratios = levels / np.maximum(1 - levels, 1 / len(is_wrong)) * len(values) / len(wrong)
    return Trust(scores=middles, chances=np.minimum(1.0, _largest_share(values, wrong) * ratios))


def _largest_share(values: Values, wrong: Values) -> float:
    """The largest share of labels that can be wrong: in no upper part may more be wrong than there are labels."""
    descending = np.sort(wrong)[::-1][_TAIL * len(wrong) // 100 :]
    if not len(descending):
        return 1.0
    ascending = np.sort(values)
    of_all = (len(values) - np.searchsorted(ascending, descending) + 1) / len(values)
    of_wrong = (np.arange(len(descending)) + 1 + _TAIL * len(wrong) // 100) / len(wrong)
    return float(min(1.0, (of_all / of_wrong).min()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Recalls:
    """The share of marked boxes of about a size that is seen: `supports` by `sizes` (log of the area), ascending."""

    sizes: Values
    supports: Values

    def __call__(self, sizes: Values) -> Values:
        """The share of the boxes nearest to each size that is seen, the box itself among them."""
        if len(self.sizes) == 0:
            return np.zeros(len(sizes))
        width = min(_NEIGHBOURS, len(self.sizes))
        sums = np.concatenate([[0.0], np.cumsum(self.supports)])
        # If several boxes have exactly this size, take their middle.
        place = (np.searchsorted(self.sizes, sizes) + np.searchsorted(self.sizes, sizes, side="right")) // 2
        start = np.clip(place - width // 2, 0, len(self.sizes) - width)
        return np.asarray((sums[start + width] - sums[start]) / width)


def learn_recalls(sizes: Values, supports: Values) -> Recalls:
    """The recall by size, from the boxes' sizes and how surely each is seen (in [0, 1])."""
    order = np.argsort(sizes, kind="stable")
    return Recalls(sizes=sizes[order], supports=supports[order])


def by_size(values: Values, sizes: Values) -> Values:
    """The usual value, [N], for boxes of about each box's size: the median of its group of similar sizes."""
    usual = np.zeros(len(values))
    for rows in np.array_split(np.argsort(sizes, kind="stable"), max(1, min(_MOST_GROUPS, len(values) // _GROUP))):
        if len(rows):
            usual[rows] = np.median(values[rows])
    return usual
