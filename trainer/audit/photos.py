"""What an audit of labels is given and what it finds. numpy only, as the whole method is."""

from dataclasses import dataclass
from typing import Literal

from trainer.detections import Detections
from trainer.evaluation.curves import TruthBoxes

Kind = Literal["missing", "made_up", "misplaced", "wrong_class", "double"]

# (xmin, ymin, xmax, ymax) in pixels of the photo.
Corners = tuple[float, float, float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditedPhoto:
    """The labels of one photo and what a model that never learned from it sees there.

    `marked` and `seen` are in pixels of the photo, `width` x `height` upright. `seen` goes down to a low score: how
    sure a faint detection is, is found out here. Ignored objects (difficult ones, crowds) are not judged.
    """

    file_name: str
    width: int
    height: int
    marked: TruthBoxes
    seen: Detections


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelFinding:
    """One doubtful label.

    `score` in [0, 1] grows with the probability that the label is wrong, and is at most too high: as many labels are
    taken for wrong as can be (`trainer.audit.calibration.learn_doubt`). `object_index` counts
    the photo's `marked` boxes from 0; it and `box` are None where nothing is marked. The proposals are None where the
    label should go.
    """

    kind: Kind
    file_name: str
    object_index: int | None
    score: float
    box: Corners | None
    proposed_box: Corners | None
    proposed_class_id: int | None
    reason: str
