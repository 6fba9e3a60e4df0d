"""From the matches of all photos: how far a score, an offset or a missing detection can be trusted. numpy only.

Nothing is known of which labels are right, so all of it is learned from labels of which most are: a score is worth
as often as detections of it are marked, relative to the surest ones (confident learning: Northcutt, Jiang & Chuang,
JAIR 2021), the detector's own offsets are what most boxes have, and its recall is what boxes of a size have.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from trainer.audit.matching import Matched

Values = NDArray[np.float64]

# Fewest members of a group that says something of its own.
_GROUP: Final = 20
# Boxes of the nearest sizes that a recall is taken from.
_NEIGHBOURS: Final = 50
_ROUNDS: Final = 30
# Boxes are no nearer than rounding to whole pixels leaves them.
_LEAST_APART: Final = 0.01
# Where fewer boxes are off, an audit is not asked for.
_LEAST_SHARE: Final = 0.02


def isotonic(values: Values, outcomes: Values) -> tuple[Values, Values]:
    """The increasing function of `values` that is nearest to `outcomes` (pool adjacent violators, Ayer et al. 1955).

    Returns:
        The steps as (values ascending [K], levels ascending [K]), for `numpy.interp`.
    """
    order = np.argsort(values, kind="stable")
    blocks: list[list[float]] = []  # level, weight, lowest and highest value
    for value, outcome in zip(values[order].tolist(), outcomes[order].tolist(), strict=True):
        blocks.append([outcome, 1.0, value, value])
        while len(blocks) > 1 and blocks[-2][0] >= blocks[-1][0]:
            level, weight, _, high = blocks.pop()
            under = blocks[-1]
            under[0] = (under[0] * under[1] + level * weight) / (under[1] + weight)
            under[1] += weight
            under[3] = high
    ends = np.array([[block[2], block[3]] for block in blocks]).reshape(-1)
    return ends, np.repeat([block[0] for block in blocks], 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """How sure a detection is of an object, by its score: `chance` of `scores`, both ascending."""

    scores: Values
    chances: Values

    def __call__(self, scores: NDArray[np.float32]) -> Values:
        """The probability that there is an object, for each score."""
        if self.scores.size == 0:
            return np.zeros(len(scores))
        return np.interp(scores.astype(np.float64), self.scores, self.chances)


def learn_class_trust(matched: Sequence[Matched]) -> Trust:
    """How often a detection that hits a marked box has its class, by its score, as a share of how often at best."""
    scores, hits = [np.zeros(0)], [np.zeros(0)]
    for one in matched:
        rows = np.flatnonzero(one.met >= 0)
        rows = rows[~one.photo.marked.is_ignored[one.met[rows]]]
        scores.append(one.seen.scores[rows].astype(np.float64))
        hits.append((one.seen.class_ids[rows] == one.photo.marked.class_ids[one.met[rows]]).astype(np.float64))
    return _relative(np.concatenate(scores), np.concatenate(hits))


def learn_trust(matched: Sequence[Matched]) -> Trust:
    """How often detections of a score are of a marked object, as a share of how often the surest ones are.

    The surest would all be marked if no label was missing, so that share is the chance that there is an object.
    Detections that are near a marked box, or on an ignored one, say nothing either way.
    """
    scores, hits = [np.zeros(0)], [np.zeros(0)]
    for one in matched:
        ignored = one.photo.marked.is_ignored
        is_hit = one.met >= 0
        is_hit[is_hit] = ~ignored[one.met[is_hit]]
        counts = is_hit | one.is_new
        scores.append(one.seen.scores[counts].astype(np.float64))
        hits.append(is_hit[counts].astype(np.float64))
    return _relative(np.concatenate(scores), np.concatenate(hits))


def _relative(scores: Values, outcomes: Values) -> Trust:
    """How often the outcome is 1 by score, divided by how often it is for the surest quarter of such."""
    if not outcomes.any():
        return Trust(scores=np.zeros(0), chances=np.zeros(0))
    ends, levels = isotonic(scores, outcomes)
    surest = np.argsort(-scores, kind="stable")[: max(_GROUP, int(outcomes.sum()) // 4)]
    return Trust(scores=ends, chances=np.minimum(1.0, levels / max(float(outcomes[surest].mean()), 1e-9)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Recalls:
    """Which share of the marked boxes of about a size is seen: `supports` by `sizes` (log of the area), ascending."""

    sizes: Values
    supports: Values

    def __call__(self, sizes: Values) -> Values:
        """The share of each size's nearest neighbours that is seen, the box itself among them."""
        if len(self.sizes) == 0:
            return np.zeros(len(sizes))
        width = min(_NEIGHBOURS, len(self.sizes))
        sums = np.concatenate([[0.0], np.cumsum(self.supports)])
        start = np.clip(np.searchsorted(self.sizes, sizes) - width // 2, 0, len(self.sizes) - width)
        return np.asarray((sums[start + width] - sums[start]) / width)


def learn_recalls(sizes: Values, supports: Values) -> Recalls:
    """The recall by size, from the boxes' sizes and how sure each is seen (in [0, 1])."""
    order = np.argsort(sizes, kind="stable")
    return Recalls(sizes=sizes[order], supports=supports[order])


def chance_misplaced(apart: Values, sizes: Values) -> Values:
    """The probability that boxes are off by more than the detector itself is.

    A mixture of two: the detector's own inaccuracy, whose logarithm is normal around the median of boxes of a size,
    and misplaced boxes, as likely at any overlap. Their share is found by expectation maximization.

    Args:
        apart: [N], 1 - IoU of box and detection.
        sizes: [N], log of the area.

    Returns:
        [N], in [0, 1].
    """
    logs = np.log(np.maximum(apart, _LEAST_APART))
    usual, median = np.zeros(len(apart)), np.zeros(len(apart))
    for rows in np.array_split(np.argsort(sizes, kind="stable"), max(1, min(4, len(apart) // _GROUP))):
        if len(rows):
            median[rows] = np.median(logs[rows])
            width = max(0.2, 1.4826 * float(np.median(np.abs(logs[rows] - median[rows]))))
            usual[rows] = np.exp(-(((logs[rows] - median[rows]) / width) ** 2) / 2) / (width * np.sqrt(2 * np.pi))
    anywhere = np.minimum(apart, 1.0)  # uniform, as a density of its logarithm
    share, chances = _LEAST_SHARE, np.zeros(len(apart))
    for _ in range(_ROUNDS):
        likely = share * anywhere
        chances = np.where(logs > median, likely / np.maximum(likely + (1 - share) * usual, 1e-12), 0.0)
        share = float(np.clip(chances.mean(), _LEAST_SHARE, 0.5)) if len(chances) else share
    return chances
