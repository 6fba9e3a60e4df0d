"""Labels against what models that never saw them see -> findings, surest first. numpy only.

After ObjectLab (Tkachenko, Thyagarajan & Mueller, 2023), which scores overlooked, badly located and swapped boxes by
fixed thresholds and weights; here each score is a probability estimated from the matches of the set itself
(`trainer.audit.calibration`), and made-up and double boxes are kinds of their own.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from trainer.audit.calibration import Trust, Values, chance_misplaced, learn_class_trust, learn_recalls, learn_trust
from trainer.audit.matching import Matched, match
from trainer.audit.photos import AuditedPhoto, Corners, Kind, LabelFinding
from trainer.detections import Floats, iou_matrix
from trainer.evaluation.curves import HIT_IOU

# What is more likely right than this is nobody's time worth.
_LEAST_SCORE: Final = 0.05
# So far overlap two marked boxes that may be of one object.
_DOUBLE_IOU: Final = 0.6
_SIDES: Final = (("left", "left", "right"), ("top", "up", "down"), ("right", "left", "right"), ("bottom", "up", "down"))


def find_label_errors(photos: Sequence[AuditedPhoto], labels: Sequence[str]) -> list[LabelFinding]:
    """All labels that are more or less likely wrong.

    Args:
        photos: The set; what is usual in it is learned from all of it.
        labels: Class names; `labels[0]` is of class id 1.

    Returns:
        At most one finding for each marked box and each detection, surest first.
    """
    matched = [match(photo) for photo in photos]
    trust = learn_trust(matched)
    class_trust = learn_class_trust(matched)
    boxes = [_judged(one, trust, class_trust) for one in matched]
    missed = [found for one in matched for found in _missing(one, trust, labels)]
    marked = [found for found in _of_boxes(matched, boxes, labels) if found.score >= _LEAST_SCORE]
    return sorted([*missed, *marked], key=lambda each: (-each.score, each.file_name, each.object_index or -1))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Boxes:
    """What is seen of the N marked boxes of a photo; all chances in [0, 1].

    `partner` [N] is the trust in the detection that hits a box or is nearest to it, `apart` [N] 1 - IoU of the two (1
    where there is none). `own` and `other` [N] are the trust in the box's class and in the best other one, whose id
    is `other_class`. `size` [N] is the log of the area.
    """

    partner: Values
    apart: Values
    own: Values
    other: Values
    other_class: NDArray[np.int64]
    size: Values


def _judged(one: Matched, trust: Trust, class_trust: Trust) -> _Boxes:
    marked, seen = one.photo.marked, one.photo.seen
    chances = np.where(
        iou_matrix(marked.boxes, seen.boxes) >= HIT_IOU, (trust(seen.scores) * class_trust(seen.scores))[None], 0.0
    )
    is_own = marked.class_ids[:, None] == seen.class_ids[None]
    own, other = np.where(is_own, chances, 0.0), np.where(is_own, 0.0, chances)
    count = len(marked.class_ids)
    best = other.argmax(axis=1) if seen.scores.size else np.zeros(count, np.int64)
    partner, apart = np.zeros(count), np.ones(count)
    at = np.flatnonzero(one.by_box >= 0)
    rows = one.by_box[at]
    partner[at] = trust(one.seen.scores[rows])
    apart[at] = 1 - iou_matrix(marked.boxes[at], one.seen.boxes[rows]).diagonal()
    return _Boxes(
        partner=partner,
        apart=apart,
        own=own.max(axis=1, initial=0.0),
        other=other.max(axis=1, initial=0.0),
        other_class=seen.class_ids[best] if seen.scores.size else best,
        size=np.log(np.maximum(np.prod(marked.boxes[:, 2:] - marked.boxes[:, :2], axis=1), 1.0)).astype(np.float64),
    )


def _offsets(marked: Floats, seen: Floats) -> Floats:
    """Where the sides of `marked` [N, 4] lie from those of `seen` [N, 4], in sides of `seen`."""
    sides = np.maximum(seen[:, 2:] - seen[:, :2], 1.0)
    offsets: Floats = (marked - seen) / np.tile(sides, 2)
    return offsets


def _missing(one: Matched, trust: Trust, labels: Sequence[str]) -> Iterator[LabelFinding]:
    chances = trust(one.seen.scores)
    for row in np.flatnonzero(one.is_new & (chances >= _LEAST_SCORE)):
        class_id, score = int(one.seen.class_ids[row]), float(one.seen.scores[row])
        yield LabelFinding(
            kind="missing",
            file_name=one.photo.file_name,
            object_index=None,
            score=float(chances[row]),
            box=None,
            proposed_box=_corners(one.seen.boxes[row]),
            proposed_class_id=class_id,
            reason=f"nothing is marked here; the model sees {labels[class_id - 1]} ({score:.2f})",
        )


def _of_boxes(matched: Sequence[Matched], boxes: Sequence[_Boxes], labels: Sequence[str]) -> Iterator[LabelFinding]:
    """The likeliest doubt about each marked box."""
    recalls = learn_recalls(_joined(each.size for each in boxes), _joined(each.partner for each in boxes))
    confused = _confusions(matched, boxes, len(labels))
    for one, judged, off in zip(matched, boxes, _misplaced(boxes), strict=True):
        found = recalls(judged.size)
        doubts: dict[Kind, Values] = {
            "made_up": (1 - judged.partner) * found,
            "misplaced": off,
            "wrong_class": _wrong_class(one, judged, confused),
            "double": _double(one, judged),
        }
        table = np.stack(list(doubts.values()))
        for at in np.flatnonzero(~one.photo.marked.is_ignored):
            kind = list(doubts)[int(table[:, at].argmax())]
            yield _finding(one, judged, int(at), kind, float(table[:, at].max()), float(found[at]), labels)


def _misplaced(boxes: Sequence[_Boxes]) -> list[Values]:
    """The chance that each box is off, as far as its detection is trusted."""
    partners, apart, sizes = (_joined(getattr(each, name) for each in boxes) for name in ("partner", "apart", "size"))
    is_met = apart < 1
    chances = np.zeros(len(apart))
    chances[is_met] = chance_misplaced(apart[is_met], sizes[is_met]) * partners[is_met]
    return list(np.split(chances, np.cumsum([len(each.size) for each in boxes])[:-1]))


def _confusions(matched: Sequence[Matched], boxes: Sequence[_Boxes], classes: int) -> Values:
    """Shares [classes, classes] of the boxes of a class (row) at which the model prefers another one (column).

    Where it often does so, it is the model that cannot tell the two, not the person.
    """
    counts = np.zeros((classes, classes))
    totals = np.zeros(classes)
    for one, judged in zip(matched, boxes, strict=True):
        own = one.photo.marked.class_ids - 1
        prefers = judged.other > judged.own
        np.add.at(counts, (own[prefers], judged.other_class[prefers] - 1), 1)
        np.add.at(totals, own, 1)
    shares: Values = counts / np.maximum(totals, 1)[:, None]
    return shares


def _wrong_class(one: Matched, judged: _Boxes, confused: Values) -> Values:
    preferred = judged.other / np.maximum(judged.own + judged.other, 1e-9)
    rows, columns = one.photo.marked.class_ids - 1, np.maximum(judged.other_class - 1, 0)
    return np.asarray(judged.other * preferred * (1 - confused[rows, columns]))


def _double(one: Matched, judged: _Boxes) -> Values:
    """Boxes that overlap another one and have no detection of their own."""
    overlap = _overlap_of_others(one)
    return np.where(overlap >= _DOUBLE_IOU, overlap * (1 - judged.partner), 0.0)


def _overlap_of_others(one: Matched) -> Values:
    """The IoU of each marked box with the one that it overlaps most, of those that are met or come before it."""
    overlap = iou_matrix(one.photo.marked.boxes, one.photo.marked.boxes).astype(np.float64)
    count = len(overlap)
    is_first = (one.by_box >= 0)[None] | np.tri(count, k=-1, dtype=bool)
    np.fill_diagonal(overlap, 0.0)
    best: Values = np.where(is_first, overlap, 0.0).max(axis=1, initial=0.0)
    return best


def _finding(
    one: Matched, judged: _Boxes, at: int, kind: Kind, score: float, recall: float, labels: Sequence[str]
) -> LabelFinding:
    marked = one.photo.marked
    name, box = labels[int(marked.class_ids[at]) - 1], _corners(marked.boxes[at])
    proposed_box, proposed_class = None, None
    if kind == "misplaced":
        seen = one.seen.boxes[one.by_box[at]]
        proposed_box, proposed_class = _corners(seen), int(marked.class_ids[at])
        reason = _how_far_off(marked.boxes[at], seen)
    elif kind == "wrong_class":
        proposed_box, proposed_class = box, int(judged.other_class[at])
        reason = (
            f"marked {name}; the model sees {labels[proposed_class - 1]}, {judged.other[at]:.0%} sure, "
            f"and {name} {judged.own[at]:.0%}"
        )
    elif kind == "double":
        reason = f"a second box ({name}) on one object: they share {_overlap_of_others(one)[at]:.0%}"
    else:
        reason = f"marked {name}; the model sees nothing here, as it does with {1 - recall:.0%} of boxes of this size"
    return LabelFinding(
        kind=kind,
        file_name=one.photo.file_name,
        object_index=at,
        score=min(1.0, score),
        box=box,
        proposed_box=proposed_box,
        proposed_class_id=proposed_class,
        reason=reason,
    )


def _how_far_off(marked: Floats, seen: Floats) -> str:
    """The side that is furthest off, and any other at least half as far."""
    pixels = marked - seen
    shares = np.abs(_offsets(marked[None], seen[None])[0])
    named = [
        f"{name} side {abs(pixels[at]):.0f} px too far {low if pixels[at] < 0 else high}"
        for at, (name, low, high) in enumerate(_SIDES)
        if shares[at] >= shares.max() / 2
    ]
    return ", ".join(named)


def _joined(values: Iterable[Values]) -> Values:
    return np.concatenate([np.zeros(0), *values])


def _corners(box: Floats) -> Corners:
    xmin, ymin, xmax, ymax = (float(corner) for corner in box)
    return xmin, ymin, xmax, ymax
