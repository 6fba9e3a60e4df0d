"""Detections and truth of a split -> judged pictures: their marks, which to show, and where HTML places the marks.

Found is solid, missed dashed, made up and misplaced dotted, confused double; mistakes are red and also named in words.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from shared.colours import MISTAKE, as_css, colour_of, ink_on
from shared.drawing import Box, Mark, place_names
from trainer.detections import Detections, iou_matrix
from trainer.evaluation.curves import TruthBoxes, partners

GRID_PICTURES: Final = 12

# What precedes the names of missed, misplaced and made-up boxes: words, or signs if a picture has more boxes than this,
# because words would hide too much of it.
_Kind = Literal["confused", "missed", "misplaced", "made up", "found"]
_WORDS: Final[dict[_Kind, str]] = {"missed": "missed:", "misplaced": "badly placed:", "made up": "made up:"}
_SIGNS: Final[dict[_Kind, str]] = {"missed": "-", "misplaced": "~", "made up": "+"}
_MOST_SPELT: Final = 8
# A detection that hits nothing but overlaps an object of its class by this IoU is meant for that object.
_BESIDE_IOU: Final = 0.1

# The smallest side of a tile on the page, and the space that names take there, in CSS pixels; letters of wide scripts
# need more.
_TILE_PX: Final = 250
_LETTER_PX, _WIDE_LETTER_PX, _NAME_PAD_PX, _NAME_PX = 6.6, 12.0, 6.0, 16.0
_WIDE_FROM: Final = "\u1100"
# The most letters of a class's name on a picture; tables have the whole name.
_MOST_LETTERS: Final = 18


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedPicture:
    """One picture at the shown score: marks of its objects and detections, most important first, and counts.

    `missed_px` and `found_px` are sides of objects (square root of the area), `made_up_scores` scores of detections
    where nothing is; `misplaced` detections are meant for an object but too far off. Difficult objects do not count.
    """

    there: Sequence[Mark]
    seen: Sequence[Mark]
    found_px: Sequence[float]
    missed_px: Sequence[float]
    made_up_scores: Sequence[float]
    confused: int
    misplaced: int = 0

    @property
    def objects(self) -> int:
        """How many objects there were to find."""
        return len(self.found_px) + len(self.missed_px) + self.confused

    @property
    def mistakes(self) -> int:
        """How many objects were missed or confused, plus detections of nothing or too far off."""
        return len(self.missed_px) + len(self.made_up_scores) + self.confused + self.misplaced

    @property
    def f1(self) -> float:
        """F1 by class at IoU 0.5; 1 if there is nothing to see and nothing was seen."""
        total = 2 * len(self.found_px) + self.confused + self.mistakes
        return 1.0 if total == 0 else 2 * len(self.found_px) / total

    @property
    def verdict(self) -> str:
        """`3 of 4 found, 1 missed`: the counts in words."""
        if self.objects == 0 and self.mistakes == 0:
            return "nothing there, nothing seen"
        counts = {"missed": len(self.missed_px), "confused": self.confused}
        counts |= {"badly placed": self.misplaced, "made up": len(self.made_up_scores)}
        return ", ".join(
            [f"{len(self.found_px)} of {self.objects} found", *(f"{n} {name}" for name, n in counts.items() if n)]
        )


def judge_picture(seen: Detections, there: TruthBoxes, labels: Sequence[str]) -> JudgedPicture:
    """Compare the detections in one picture (from the shown score on) with its objects."""
    met = partners(seen, there)
    missed = [int(at) for at in np.flatnonzero(~there.is_ignored) if at not in met]
    words = _SIGNS if len(missed) + len(met) > _MOST_SPELT else _WORDS
    shown = [name if len(name) <= _MOST_LETTERS else f"{name[: _MOST_LETTERS - 1]}…" for name in labels]
    names, boxes = [shown[class_id - 1] for class_id in there.class_ids], _boxes(there.boxes)
    sides = np.sqrt(np.prod(there.boxes[:, 2:] - there.boxes[:, :2], axis=1)).tolist()
    marks: dict[_Kind, list[Mark]] = {kind: [] for kind in ("confused", "missed", "misplaced", "made up", "found")}
    marks["missed"] = [
        Mark(box=boxes[at], text=f"{words['missed']} {names[at]}", colour=MISTAKE, dash="dashed") for at in missed
    ]
    found_px, made_up_scores = list[float](), list[float]()
    kinds = _kinds(seen, there, met)
    rows = zip(kinds, _boxes(seen.boxes), seen.class_ids.tolist(), seen.scores.tolist(), met.tolist(), strict=True)
    for kind, box, class_id, score, at in rows:
        text = f"{shown[class_id - 1]} {score:.2f}"
        match kind:
            case "found":
                text += "?" if there.is_ignored[at] else ""
                marks[kind].append(Mark(box=box, text=text, colour=colour_of(class_id)))
                found_px += [] if there.is_ignored[at] else [sides[at]]
            case "confused":
                marks[kind].append(Mark(box=box, text=f"{text}, is {names[at]}", colour=MISTAKE, dash="double"))
            case _:
                marks[kind].append(Mark(box=box, text=f"{words[kind]} {text}", colour=MISTAKE, dash="dotted"))
                made_up_scores += [score] if kind == "made up" else []
    return JudgedPicture(
        there=[
            Mark(box=box, text=f"{name}?" if is_ignored else name, colour=colour_of(int(class_id)))
            for box, name, class_id, is_ignored in zip(boxes, names, there.class_ids, there.is_ignored, strict=True)
        ],
        seen=[mark for of_kind in marks.values() for mark in of_kind],
        found_px=found_px,
        missed_px=[sides[at] for at in missed],
        made_up_scores=made_up_scores,
        confused=len(marks["confused"]),
        misplaced=len(marks["misplaced"]),
    )


def _kinds(seen: Detections, there: TruthBoxes, met: NDArray[np.int64]) -> list[_Kind]:
    """What each detection is; a detection of a difficult object counts as found, whatever its class."""
    is_same = seen.class_ids[:, None] == there.class_ids
    is_beside = ((iou_matrix(seen.boxes, there.boxes) >= _BESIDE_IOU) & is_same).any(axis=1)
    return [
        ("misplaced" if is_beside[index] else "made up")
        if at < 0
        else ("found" if is_same[index, at] or there.is_ignored[at] else "confused")
        for index, at in enumerate(met)
    ]


def _boxes(corners: np.ndarray) -> list[Box]:
    return [(xmin, ymin, xmax, ymax) for xmin, ymin, xmax, ymax in corners.tolist()]


def choose(judged: Mapping[int, JudgedPicture]) -> dict[str, list[int]]:
    """The image ids of pictures to show: `even`ly spread over the split, the `worst` first, and the `best` first.

    The worst have a mistake, the best a found object, and no picture is both. A small split is divided in half.
    """
    ids = sorted(judged)
    even = [ids[int(at)] for at in np.linspace(0, len(ids) - 1, min(GRID_PICTURES, len(ids)))]
    most = min(GRID_PICTURES, -(-len(ids) // 2))
    wrong = [image_id for image_id in ids if judged[image_id].mistakes]
    worst = sorted(wrong, key=lambda at: (judged[at].f1, -judged[at].mistakes, at))[:most]
    right = [image_id for image_id in ids if judged[image_id].found_px and image_id not in worst]
    best = sorted(right, key=lambda at: (-judged[at].f1, -judged[at].objects, at))[:most]
    return {"even": even, "worst": worst, "best": best}


@dataclass(frozen=True, slots=True, kw_only=True)
class PageMark:
    """A mark as the page draws it: place and size in percent of the picture; `name_at` is None without room for it."""

    left: float
    top: float
    width: float
    height: float
    text: str
    name_at: tuple[float, float] | None
    colour: str
    ink: str
    dash: str


def page_marks(marks: Sequence[Mark], side_px: int) -> list[PageMark]:
    """`marks` on a stored picture of `side_px`, the least important first, because a page puts later ones on top."""
    scale = _TILE_PX / side_px
    boxes = [tuple(scale * value for value in mark.box) for mark in marks]
    places = place_names(boxes, [(_width_px(mark.text), _NAME_PX) for mark in marks], (_TILE_PX, _TILE_PX))  # type: ignore[arg-type]  # four of them
    percent = 100 / side_px
    shown = []
    for mark, place in zip(marks, places, strict=True):
        left, top, right, bottom = (min(100.0, max(0.0, percent * value)) for value in mark.box)
        shown.append(
            PageMark(
                left=left,
                top=top,
                width=right - left,
                height=bottom - top,
                text=mark.text,
                name_at=None if place is None else (100 * place[0] / _TILE_PX, 100 * place[1] / _TILE_PX),
                colour=as_css(mark.colour),
                ink=as_css(ink_on(mark.colour)),
                dash=mark.dash,
            )
        )
    return shown[::-1]


def _width_px(text: str) -> float:
    return _NAME_PAD_PX + sum(_WIDE_LETTER_PX if letter >= _WIDE_FROM else _LETTER_PX for letter in text)
