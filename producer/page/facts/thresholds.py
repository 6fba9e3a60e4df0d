"""A run's scores -> thresholds to choose from: the model's own, one with few misses, one with few false alarms."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

# Detections with a lower score are not kept by a run (`LEAST_SCORE` in `trainer/network/postprocess.py`).
LEAST_KEPT: Final = 0.01
# "Few misses" keeps at least this share of the highest recall, "few false alarms" has at least this precision.
ENOUGH: Final = 0.95
_STEPS: Final = tuple(round(step / 100, 2) for step in range(1, 101))


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A threshold, what it is good for, and the precision and recall of all classes together there."""

    name: str
    least: float
    precision: float | None
    recall: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Steps:
    """Scores of all classes, sorted, and how many objects there are."""

    right: Sequence[float]
    wrong: Sequence[float]
    objects: int

    def precision(self, least: float) -> float | None:
        right, wrong = (len(scores) - bisect_left(scores, least) for scores in (self.right, self.wrong))
        return right / (right + wrong) if right + wrong else None

    def recall(self, least: float) -> float | None:
        return (len(self.right) - bisect_left(self.right, least)) / self.objects if self.objects else None

    def proposal(self, name: str, least: float) -> Proposal:
        return Proposal(name=name, least=least, precision=self.precision(least), recall=self.recall(least))


def proposals(scores: Sequence[Mapping[str, Any]], own: float | None) -> list[Proposal]:
    """The thresholds to choose from, the lowest first; one that cannot be reached is left out.

    Few misses: the highest threshold with `ENOUGH` of the highest recall. Few false alarms: the lowest threshold with a
    precision of `ENOUGH`.

    Args:
        scores: From `SeenRun.scores`.
        own: The model's best threshold, if known.
    """
    right, wrong = (sorted(score for row in scores for score in row[name]) for name in ("right", "wrong"))
    steps = _Steps(right=right, wrong=wrong, objects=sum(row["objects"] for row in scores))
    found = [] if own is None else [steps.proposal("highest F1", round(own, 2))]
    most = steps.recall(LEAST_KEPT)
    if most:
        least = max(each for each in _STEPS if (steps.recall(each) or 0.0) >= ENOUGH * most)
        found.append(steps.proposal("few misses", least))
    exact = next((each for each in _STEPS if (steps.precision(each) or 0.0) >= ENOUGH), None)
    if exact is not None:
        found.append(steps.proposal("few false alarms", exact))
    return sorted(found, key=lambda each: each.least)
