"""The input of an audit of labels, and its findings. numpy only, like the whole method."""

from dataclasses import dataclass

from shared.audit.findings import FindingKind, PhotoBox
from trainer.detections import Detections
from trainer.evaluation.curves import TruthBoxes


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditedPhoto:
    """The labels of one photo, and what a model that never learned from it sees there.

    `marked` and `seen` are in pixels of the upright photo, `width` x `height`. `seen` includes detections with a low
    score: how far they can be trusted is learned here. Ignored objects (difficult ones, crowds) are not judged.
    """

    file_name: str
    width: int
    height: int
    marked: TruthBoxes
    seen: Detections


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelFinding:
    """One doubtful label.

    `score` in [0, 1] grows with the probability that the label is wrong. It may be too high but not too low: the
    largest possible share of labels is assumed to be wrong (`trainer.audit.calibration.learn_doubt`). `object_index`
    counts the photo's `marked` boxes from 0; it and `box` are None if nothing is marked. The proposals are None if the
    label should be removed.
    """

    kind: FindingKind
    file_name: str
    object_index: int | None
    score: float
    box: PhotoBox | None
    proposed_box: PhotoBox | None
    proposed_class_id: int | None
    reason: str
