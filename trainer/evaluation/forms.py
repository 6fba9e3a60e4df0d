"""Every form of an exported model on the splits that judge it: its detections, its figures, its best threshold.

The test split gives the figures that a person reads, the validation split those of the gate and the proposed score.
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

# On how many training pictures the best threshold is searched for if no validation picture can tell.
_SCORED_PICTURES: Final = 200


@dataclass(frozen=True, slots=True)
class JudgingSplits:
    """Which split gives the figures that a person reads, which one the gate, and which one the proposed score.

    `silent` are those of val and test that have pictures but say nothing about any of these: none of their objects
    counts.
    """

    measured: Split
    gate: Split
    score: Split
    silent: tuple[Split, ...] = ()

    @classmethod
    def of(cls, manifest: Manifest, truth: Truth) -> Self:
        """For each purpose the best split with an object that counts, or else a picture; never test for the score."""
        seen = [split for split in SPLITS if manifest.examples(split) > 0]
        is_silent = cache(lambda split: counted_objects(truth(split)) == 0)  # train, the largest, is asked last

        def first(*wanted: Split) -> Split:
            there = [split for split in wanted if split in seen] or [SPLITS[0]]
            telling = (split for split in there if len(there) == 1 or not is_silent(split))  # one alone is not asked
            return next(telling, there[0])

        measured, gate, score = first("test", "val", "train"), first("val", "test", "train"), first("val", "train")
        silent = tuple(split for split in seen if split != SPLITS[0] and is_silent(split))
        return cls(measured=measured, gate=gate, score=score, silent=silent)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredForms:
    """The results by form: its detections and figures on the judging splits, and its best threshold."""

    splits: JudgingSplits
    seen: Mapping[Split, Mapping[str, DetectionsById]]
    figures: Mapping[Split, Mapping[str, Measured]]
    best_scores: Mapping[str, float]

    def metrics(self) -> dict[str, dict[str, Any]]:
        """The figures by form: those of the measured split and, under "gate", those of the gate's split."""
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
    """Run every form on the pictures of the judging splits, and judge its detections.

    Args:
        detectors: By form; the others are compared with "float32".
        splits: From `JudgingSplits.of`.
        pictures: Streams a split anew at each call.
        truth: Gives the COCO form of a split, with categories.
        classes: The number of classes.
        advance: Called again and again with what is being done: `phase` and, while a form is under way, `form`.
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
