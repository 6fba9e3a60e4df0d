"""Labels, and detections by models that never saw them -> findings, surest first. numpy only.

Based on ObjectLab (Tkachenko, Thyagarajan & Mueller, 2023), which scores overlooked, badly located and swapped boxes
by fixed thresholds and weights. Here each score is a probability estimated from the matches of the set itself
(`trainer.audit.calibration`), and made-up and double boxes are kinds of their own.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from shared.audit.findings import FindingKind, PhotoBox
from trainer.audit.calibration import Trust, Values, by_size, learn_doubt, learn_recalls, learn_trust
from trainer.audit.matching import NEAR_IOU, Matched, match
from trainer.audit.photos import AuditedPhoto, LabelFinding
from trainer.detections import Detections, Floats, iou_matrix
from trainer.evaluation.curves import HIT_IOU

# Labels with a lower score are not worth anybody's time.
_LEAST_SCORE: Final = 0.01
_LEAST_MISSING: Final = 0.05  # higher, because a model imagines any number of objects
# Two marked boxes that overlap at least this much may be of one object.
_DOUBLE_IOU: Final = 0.6
# The least 1 - IoU of two boxes that counts: rounding to whole pixels hides smaller differences.
_LEAST_APART: Final = 0.01
# Boxes are moved on purpose by these shares of their sides: less would be a matter of taste, more another place.
_MOVES: Final = (
    (0.15, 0),
    (0, -0.25),
    (-0.35, 0),
    (0, 0.15),
    (0.25, 0.25),
    (-0.2, 0.2),
    (0.4, 0),
    (0, -0.4),
    (0.15, -0.3),
)
# This quantile of how often pairs of classes are confused is taken for how often a person errs.
_USUAL_PAIR: Final = 0.25
_OF_BOXES: Final[tuple[FindingKind, ...]] = ("made_up", "misplaced", "wrong_class", "double")
# From how many other photos each photo borrows boxes, to place them where nothing is.
_SHIFTS: Final = 3
_SIDES: Final = (("left", "left", "right"), ("top", "up", "down"), ("right", "left", "right"), ("bottom", "up", "down"))


def find_label_errors(photos: Sequence[AuditedPhoto], labels: Sequence[str]) -> list[LabelFinding]:
    """All labels that may be wrong.

    Args:
        photos: The whole set; what is usual is learned from it.
        labels: Class names; `labels[0]` is that of class id 1.

    Returns:
        At most one finding for each marked box and each detection, surest first.
    """
    if not photos:
        return []
    matched = [match(photo) for photo in photos]
    trust = learn_trust(matched)
    boxes = [_judged(one, trust, len(labels)) for one in matched]
    missed = [found for one in matched for found in _missing(one, trust, labels)]
    marked = [found for found in _of_boxes(matched, boxes, trust, labels) if found.score >= _LEAST_SCORE]
    return sorted([*missed, *marked], key=lambda each: (-each.score, each.file_name, each.object_index or -1))


def found_share(photos: Sequence[AuditedPhoto]) -> float:
    """The share of the marked boxes hit by a detection that is more likely right than not; 0 without boxes."""
    boxes = sum(int((~photo.marked.is_ignored).sum()) for photo in photos)
    return sum(len(called) for called, _ in _called(photos)) / boxes if boxes else 0.0


def named_share(photos: Sequence[AuditedPhoto]) -> float:
    """The share of the boxes that `found_share` counts whose detection has the marked class; 1 if there are none."""
    right = np.concatenate([np.zeros(0, bool), *(called == marked for called, marked in _called(photos))])
    return float(right.mean()) if len(right) else 1.0


def _called(photos: Sequence[AuditedPhoto]) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """For each photo, the classes of its surer detections that hit a box, and the classes of those boxes."""
    matched = [match(photo) for photo in photos]
    trust = learn_trust(matched)
    for one in matched:
        marked, rows = one.photo.marked, np.flatnonzero(one.met >= 0)
        rows = rows[~marked.is_ignored[one.met[rows]]]
        rows = rows[trust(one.seen.scores[rows]) > 0.5]
        yield one.seen.class_ids[rows], marked.class_ids[one.met[rows]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Boxes:
    """What is seen at the N marked boxes of a photo.

    `partner` [N] is the trust in the detection that hits a box or is nearest to it, `apart` [N] the logarithm of 1 -
    IoU of the two (0 without a detection). `shared` [N] is the IoU with another marked box (`_overlap_of_others`).
    `scores` [N, C] are those of the surest detection of each class that hits the box, 0 for none. `size` [N] is the log
    of the area in square pixels.
    """

    partner: Values
    apart: Values
    shared: Values
    scores: Values
    size: Values


def _judged(one: Matched, trust: Trust, classes: int) -> _Boxes:
    marked, seen = one.photo.marked, one.photo.seen
    count = len(marked.class_ids)
    partner, apart = np.zeros(count), np.zeros(count)
    at = np.flatnonzero(one.by_box >= 0)
    rows = one.by_box[at]
    partner[at] = trust(one.seen.scores[rows])
    apart[at] = _apart(marked.boxes[at], one.seen.boxes[rows])
    scores = np.zeros((count, classes))
    for class_id in np.unique(seen.class_ids).tolist():
        scores[:, class_id - 1] = _support(marked.boxes, seen[seen.class_ids == class_id])
    size = np.log(np.maximum(np.prod(marked.boxes[:, 2:] - marked.boxes[:, :2], axis=1), 1.0)).astype(np.float64)
    shared = _overlap_of_others(marked.boxes, partner)
    return _Boxes(partner=partner, apart=apart, shared=shared, scores=scores, size=size)


def _apart(first: Floats, second: Floats) -> Values:
    """The logarithm of 1 - IoU of each box of `first` [N, 4] with the box of `second` in its row: [N], at most 0."""
    shared = iou_matrix(first, second).diagonal().astype(np.float64)
    return np.asarray(np.log(np.maximum(1 - shared, _LEAST_APART)))


def _support(boxes: Floats, seen: Detections) -> Values:
    """For each of `boxes` [N, 4], the score of the surest of the detections `seen` that hits it; 0 if none does."""
    hits = iou_matrix(boxes, seen.boxes) >= HIT_IOU
    supports: Values = np.where(hits, seen.scores[None], 0.0).max(axis=1, initial=0.0).astype(np.float64)
    return supports


def _by_chance(matched: Sequence[Matched], trust: Trust) -> Values:
    """The support of boxes from other photos, placed where nothing is marked or surely seen."""
    supports = []
    for shift in range(1, 1 + min(_SHIFTS, len(matched) - 1)):
        for one, other in zip(matched, [*matched[shift:], *matched[:shift]], strict=True):
            here, there = one.photo, other.photo
            scale = np.array([here.width / there.width, here.height / there.height] * 2, np.float32)
            boxes = there.marked.boxes * scale
            taken = np.concatenate([here.marked.boxes, one.seen.boxes[one.is_new & (trust(one.seen.scores) > 0.5)]])
            is_free = iou_matrix(boxes, taken).max(axis=1, initial=0.0) < NEAR_IOU
            supports.append(_support(boxes[is_free], here.seen))
    return _joined(supports)


def _offsets(marked: Floats, seen: Floats) -> Floats:
    """How far the sides of `marked` [N, 4] are from those of `seen` [N, 4], in widths and heights of `seen`."""
    sides = np.maximum(seen[:, 2:] - seen[:, :2], 1.0)
    offsets: Floats = (marked - seen) / np.tile(sides, 2)
    return offsets


def _missing(one: Matched, trust: Trust, labels: Sequence[str]) -> Iterator[LabelFinding]:
    # A detection that overlaps a marked box may well be of its object.
    overlap = iou_matrix(one.seen.boxes, one.photo.marked.boxes).max(axis=1, initial=0.0)
    doubts = trust(one.seen.scores) * (1 - np.minimum(1.0, overlap / HIT_IOU))
    for row in np.flatnonzero(one.is_new & (doubts >= _LEAST_MISSING)):
        class_id, score = int(one.seen.class_ids[row]), float(one.seen.scores[row])
        yield LabelFinding(
            kind="missing",
            file_name=one.photo.file_name,
            object_index=None,
            score=float(doubts[row]),
            box=None,
            proposed_box=_corners(one.seen.boxes[row]),
            proposed_class_id=class_id,
            reason=f"nothing is marked here; the model sees {labels[class_id - 1]} ({score:.2f})",
        )


def _of_boxes(
    matched: Sequence[Matched], boxes: Sequence[_Boxes], trust: Trust, labels: Sequence[str]
) -> Iterator[LabelFinding]:
    """The most likely fault of each marked box."""
    recalls = learn_recalls(_joined(each.size for each in boxes), _joined(each.partner for each in boxes))
    made_up, wrong_class = _made_up(matched, boxes, trust), _wrong_class(matched, boxes, trust)
    for one, judged, *chances in zip(matched, boxes, made_up, _misplaced(matched, boxes), wrong_class, strict=True):
        found = recalls(judged.size)
        doubts = dict(zip(_OF_BOXES, [chances[0] * found, *chances[1:], _double(judged)], strict=True))
        table = np.stack(list(doubts.values()))
        for at in np.flatnonzero(~one.photo.marked.is_ignored):
            kind = _OF_BOXES[int(table[:, at].argmax())]
            yield _finding(one, judged, int(at), kind, float(table[:, at].max()), float(found[at]), labels)


def _made_up(matched: Sequence[Matched], boxes: Sequence[_Boxes], trust: Trust) -> list[Values]:
    """The chance that nothing is at each box, calibrated on boxes that were placed where nothing is."""
    supports = [each.scores.max(axis=1, initial=0.0) for each in boxes]
    absence = learn_doubt(-_joined(supports), -_by_chance(matched, trust))
    return [absence(-support) * (1 - each.partner) for support, each in zip(supports, boxes, strict=True)]


def _misplaced(matched: Sequence[Matched], boxes: Sequence[_Boxes]) -> list[Values]:
    """The chance that each box is off, times the trust in its detection; calibrated on boxes that were moved."""
    partners, apart, sizes = (_joined(getattr(each, name) for each in boxes) for name in ("partner", "apart", "size"))
    is_met = np.concatenate([np.zeros(0, bool), *(one.by_box >= 0 for one in matched)])
    usual = np.zeros(len(apart))
    usual[is_met] = by_size(apart[is_met], sizes[is_met])
    moved = _joined(map(_moved_apart, matched)) - usual[is_met]
    doubt = learn_doubt((apart - usual)[is_met], moved)
    chances = np.where(is_met, doubt(apart - usual) * partners, 0.0)
    return list(np.split(chances, np.cumsum([len(each.size) for each in boxes])[:-1]))


def _moved_apart(one: Matched) -> Values:
    """How far boxes are from their partner after they are moved, each by the next of `_MOVES`."""
    at = np.flatnonzero(one.by_box >= 0)
    marked = one.photo.marked.boxes[at]
    moves = np.resize(np.array(_MOVES, np.float32), (len(at), 2)) if len(at) else np.zeros((0, 2), np.float32)
    sides = marked[:, 2:] - marked[:, :2]
    return _apart(marked + np.tile(sides * moves, 2), one.seen.boxes[one.by_box[at]])


def _wrong_class(matched: Sequence[Matched], boxes: Sequence[_Boxes], trust: Trust) -> list[Values]:
    """The chance that each box is of the class that is seen there, calibrated on boxes with swapped classes."""
    classes = boxes[0].scores.shape[1]
    if classes < 2:
        return [np.zeros(len(each.size)) for each in boxes]
    own = [one.photo.marked.class_ids - 1 for one in matched]
    margins = [_margin(each.scores, mine) for each, mine in zip(boxes, own, strict=True)]
    swapped = _joined(_margin(each.scores, (mine + 1) % classes) for each, mine in zip(boxes, own, strict=True))
    doubt, by_person = learn_doubt(_joined(margins), swapped), _by_person(own, boxes, margins)
    return [
        np.where(margin > 0, doubt(margin) * trust(each.scores.max(axis=1)) * person, 0.0)
        for margin, each, person in zip(margins, boxes, by_person, strict=True)
    ]


def _margin(scores: Values, own: NDArray[np.int64]) -> Values:
    """How far the best other class is ahead of the class `own` [N] (counted from 0) in `scores` [N, C]."""
    rows = np.arange(len(own))
    others = scores.copy()
    others[rows, own] = 0
    return np.asarray(others.max(axis=1, initial=0.0) - scores[rows, own])


def _by_person(
    own: Sequence[NDArray[np.int64]], boxes: Sequence[_Boxes], margins: Sequence[Values]
) -> Iterator[Values]:
    """How likely a confusion is the person's: pairs confused more often than usual are confused by the model."""
    classes = boxes[0].scores.shape[1]
    counts, totals = np.zeros((classes, classes)), np.zeros(classes)
    for mine, each, margin in zip(own, boxes, margins, strict=True):
        np.add.at(counts, (mine[margin > 0], each.scores.argmax(axis=1)[margin > 0]), 1)
        np.add.at(totals, mine, 1)
    shares = counts / np.maximum(totals, 1)[:, None]
    usual = float(np.quantile(shares[shares > 0], _USUAL_PAIR)) if shares.any() else 1.0
    person = np.minimum(1.0, usual / np.maximum(shares, 1e-9))
    return (person[mine, each.scores.argmax(axis=1)] for mine, each in zip(own, boxes, strict=True))


def _double(judged: _Boxes) -> Values:
    """The chance that each box is a second one on its object: it overlaps another and has no detection of its own."""
    return np.where(judged.shared >= _DOUBLE_IOU, judged.shared * (1 - judged.partner), 0.0)


def _overlap_of_others(boxes: Floats, partner: Values) -> Values:
    """The largest IoU of each of `boxes` [N, 4] with a box that is surer or, if as sure, comes before it."""
    overlap = iou_matrix(boxes, boxes).astype(np.float64)
    surer, as_sure = (compare(partner[None], partner[:, None]) for compare in (np.greater, np.equal))
    is_first = surer | (as_sure & np.tri(len(overlap), k=-1, dtype=bool))
    best: Values = np.where(is_first, overlap, 0.0).max(axis=1, initial=0.0)
    return best


def _finding(
    one: Matched, judged: _Boxes, at: int, kind: FindingKind, score: float, recall: float, labels: Sequence[str]
) -> LabelFinding:
    marked = one.photo.marked
    name, box = labels[int(marked.class_ids[at]) - 1], _corners(marked.boxes[at])
    proposed_box, proposed_class = None, None
    if kind == "misplaced":
        seen = one.seen.boxes[one.by_box[at]]
        proposed_box, proposed_class = _corners(seen), int(marked.class_ids[at])
        reason = _how_far_off(marked.boxes[at], seen)
    elif kind == "wrong_class":
        proposed_box, proposed_class = box, int(judged.scores[at].argmax()) + 1
        reason = (
            f"marked {name}; the model sees {labels[proposed_class - 1]} ({judged.scores[at].max():.2f}), "
            f"and {name} only with {judged.scores[at, marked.class_ids[at] - 1]:.2f}"
        )
    elif kind == "double":
        reason = f"a second box ({name}) on one object: they share {judged.shared[at]:.0%}"
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
    """In words, the side that is furthest off, and any other that is at least half as far off."""
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


def _corners(box: Floats) -> PhotoBox:
    xmin, ymin, xmax, ymax = (float(corner) for corner in box)
    return xmin, ymin, xmax, ymax
