"""Every form of an exported model on the splits that judge it: what it sees, what that is worth, from which score on.

The test split judges what a person reads, the validation split what the gate decides and which score is proposed.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from itertools import islice
from typing import Any, Final, Self

from shared.jobs.job import SPLITS, Split
from shared.jobs.manifest import Manifest
from trainer.data.examples import ShardPicture
from trainer.data.shard_pictures import Pictures, Truth, counted_objects
from trainer.detections import DetectionsById
from trainer.evaluation.measure import Measured, detect_all, drop_interval, measure
from trainer.evaluation.threshold import best_score
from trainer.inference.detector import Detector

# Training pictures on which the best threshold is looked for where no validation picture can tell.
_SCORED_PICTURES: Final = 200


@dataclass(frozen=True, slots=True)
class JudgingSplits:
    """Which split gives the figures that a person reads, which one the gate, and which one the proposed score.

    `silent` are val and test, where they have pictures that say nothing of any of these: none of their objects counts.
    """

    measured: Split
    gate: Split
    score: Split
    silent: tuple[Split, ...] = ()

    @classmethod
    def of(cls, manifest: Manifest, truth: Truth) -> Self:
        """The best of those that have an object that counts, or else a picture. The test split chooses no score."""
        seen = [split for split in SPLITS if manifest.examples(split) > 0]
        is_silent = cache(lambda split: counted_objects(truth(split)) == 0)  # of train, the largest, asked last

        def first(*wanted: Split) -> Split:
            there = [split for split in wanted if split in seen] or [SPLITS[0]]
            return next((split for split in there if not is_silent(split)), there[0])

        measured, gate, score = first("test", "val", "train"), first("val", "test", "train"), first("val", "train")
        silent = tuple(split for split in seen if split != SPLITS[0] and is_silent(split))
        return cls(measured=measured, gate=gate, score=score, silent=silent)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredForms:
    """By form: what it sees of the judging splits, what that is worth, and from which score on it is shown."""

    splits: JudgingSplits
    seen: Mapping[Split, Mapping[str, DetectionsById]]
    figures: Mapping[Split, Mapping[str, Measured]]
    best_scores: Mapping[str, float]

    def metrics(self) -> dict[str, dict[str, Any]]:
        """By form: the figures of the measured split, and those of the gate's split below "gate"."""
        figures, judged = self.figures[self.splits.measured], self.figures[self.splits.gate]
        metrics: dict[str, dict[str, Any]] = {
            form: {
                "split": self.splits.measured,
                **figures[form].figures,
                "best_score": self.best_scores[form],
                "score_split": self.splits.score,
                "gate": {"split": self.splits.gate, **judged[form].figures},
            }
            for form in figures
        }
        for form in metrics.keys() - {"float32"}:
            metrics[form]["gate"]["drop_interval"] = list(drop_interval(judged["float32"], judged[form]))
        return metrics


def measure_forms(
    detectors: Mapping[str, Detector],
    splits: JudgingSplits,
    pictures: Pictures,
    truth: Truth,
    classes: int,
    advance: Callable[..., None],
) -> MeasuredForms:
    """Let every form look at the pictures of the judging splits, and judge what it saw.

    Args:
        detectors: By form; "float32" is what the others are held against.
        splits: Of `JudgingSplits.of`.
        pictures: Streams a split anew at each call.
        truth: The COCO form of a split, with categories.
        classes: How many there are.
        advance: Called again and again with what is being done: `phase`, and `form` where one is under way.
    """
    judged = dict.fromkeys((splits.measured, splits.gate))
    seen = {split: _detect(detectors, partial(pictures, split), advance) for split in judged}
    figures: dict[Split, dict[str, Measured]] = {}
    for split in judged:
        advance(phase="measure")
        figures[split] = {form: measure(truth(split), found) for form, found in seen[split].items()}
    scored = seen.get(splits.score)
    if scored is None:
        scored = _detect(detectors, lambda: islice(pictures(splits.score), _SCORED_PICTURES), advance)
    best = partial(best_score, truth=truth(splits.score), classes=classes)
    best_scores = {form: best(found) for form, found in scored.items()}
    return MeasuredForms(splits=splits, seen=seen, figures=figures, best_scores=best_scores)


def _detect(
    detectors: Mapping[str, Detector], pictures: Callable[[], Iterable[ShardPicture]], advance: Callable[..., None]
) -> dict[str, DetectionsById]:
    found = {}
    for form, detector in detectors.items():
        begun = partial(advance, phase="measure", form=form)
        begun()
        found[form] = detect_all(detector.detect_batch, pictures(), advance=begun)
    return found
