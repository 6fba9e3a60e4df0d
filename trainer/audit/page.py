"""Findings and the stored pictures -> `audit.html`: one file with the surest findings, what is marked and proposed."""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import cv2
import numpy as np

from shared import __version__
from shared.audit.findings import LIKELY, AuditFinding, AuditFindings, FindingKind
from shared.colours import MISTAKE, colour_of
from shared.drawing import Box, Mark
from trainer.audit.photo_frames import PhotoFrame
from trainer.data.examples import ShardPicture
from trainer.reporting.gallery import PageMark, page_marks
from trainer.reporting.templates import environment

# How many findings the page shows with a picture; `audit.csv` has all.
MOST_SHOWN: Final = 200

# A crop's side is this many times the longer side of the boxes, and at least this share of the picture's side: without
# its surroundings nobody can judge a box.
_AROUND: Final = 2.5
_LEAST_SHARE: Final = 0.25
_CROP_PX: Final = 256
_CROP_QUALITY: Final = 80

# Each kind in words for a hurried reader.
WORDS: Final[dict[FindingKind, str]] = {
    "missing": "not marked",
    "made_up": "nothing there",
    "misplaced": "badly placed",
    "wrong_class": "another class",
    "double": "marked twice",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Card:
    """A finding as the page shows it: its crop as JPEG in base64, and the marks by side, marked and proposed."""

    finding: AuditFinding
    crop: str
    sides: Mapping[str, Sequence[PageMark]]


def render_page(
    result: AuditFindings,
    shown: Sequence[AuditFinding],
    frames: Mapping[str, PhotoFrame],
    stored: Mapping[str, ShardPicture],
    labels: Sequence[str],
) -> str:
    """The page as HTML.

    Args:
        result: What was found.
        shown: The findings with a picture.
        frames: The photos, by file.
        stored: The stored pictures of those in `shown`, by file.
        labels: Class names, that of class 1 first.
    """
    cards = [_card(finding, frames[finding.file], stored[finding.file], labels) for finding in shown]
    kinds = {kind: [finding.score >= LIKELY for finding in result.findings if finding.kind == kind] for kind in WORDS}
    page = environment(is_html=True).get_template("audit.html.j2")
    return page.render(result=result, cards=cards, kinds=kinds, words=WORDS, version=__version__)


def _card(finding: AuditFinding, frame: PhotoFrame, picture: ShardPicture, labels: Sequence[str]) -> _Card:
    boxes = [_stored(frame, box) for box in (finding.box, finding.proposed_box) if box is not None]
    left, top, side = _square(boxes, picture.rgb.shape[0])
    crop = picture.rgb[top : top + side, left : left + side, ::-1]
    scaled = cv2.resize(
        np.ascontiguousarray(crop),
        (_CROP_PX, _CROP_PX),
        interpolation=cv2.INTER_CUBIC if side < _CROP_PX else cv2.INTER_AREA,
    )
    _, jpeg = cv2.imencode(".jpg", scaled, [cv2.IMWRITE_JPEG_QUALITY, _CROP_QUALITY])

    def inside(box: Box) -> Box:
        xmin, ymin, xmax, ymax = box
        return xmin - left, ymin - top, xmax - left, ymax - top

    others, marked = _marks_there(finding, frame, labels)
    sides = {"marked": [*marked, *others], "proposed": [*_proposed(finding, frame, labels), *others]}
    return _Card(
        finding=finding,
        crop=base64.b64encode(jpeg.tobytes()).decode(),
        sides={
            name: page_marks([_moved(mark, inside(mark.box)) for mark in marks if _meets(inside(mark.box), side)], side)
            for name, marks in sides.items()
        },
    )


def _moved(mark: Mark, box: Box) -> Mark:
    return Mark(box=box, text=mark.text, colour=mark.colour, dash=mark.dash)


def _meets(box: Box, side: int) -> bool:
    """Whether any part of a box is inside a square of this side."""
    xmin, ymin, xmax, ymax = box
    return xmin < side and ymin < side and xmax > 0 and ymax > 0


def _marks_there(finding: AuditFinding, frame: PhotoFrame, labels: Sequence[str]) -> tuple[list[Mark], list[Mark]]:
    """The marks of the photo's other objects, and the mark of the doubtful one."""
    others, doubtful = [], []
    rows = zip(frame.marked.boxes.tolist(), frame.marked.class_ids.tolist(), strict=True)
    for number, (corners, class_id) in enumerate(rows, start=1):
        box = _stored(frame, corners)
        if number == finding.object:
            doubtful.append(Mark(box=box, text=labels[class_id - 1], colour=MISTAKE, dash="solid"))
        else:
            others.append(Mark(box=box, text=labels[class_id - 1], colour=colour_of(class_id), dash="solid"))
    return others, doubtful


def _proposed(finding: AuditFinding, frame: PhotoFrame, labels: Sequence[str]) -> list[Mark]:
    if finding.proposed_box is None:
        return []
    colour = colour_of(labels.index(finding.proposed_class) + 1)
    box = _stored(frame, finding.proposed_box)
    return [Mark(box=box, text=finding.proposed_class, colour=colour, dash="dashed")]


def _stored(frame: PhotoFrame, box: Sequence[float]) -> Box:
    """A box in pixels of the photo -> the box in pixels of its stored picture."""
    xmin, ymin, xmax, ymax = box
    return frame.placement.into((xmin, ymin, xmax, ymax))


def _square(boxes: Sequence[Box], picture_px: int) -> tuple[int, int, int]:
    """Left, top and side, in pixels, of the part of a picture that shows `boxes` and their surroundings."""
    xmin, ymin = (min(box[at] for box in boxes) for at in (0, 1))
    xmax, ymax = (max(box[at] for box in boxes) for at in (2, 3))
    wanted = max(_AROUND * max(xmax - xmin, ymax - ymin), _LEAST_SHARE * picture_px)
    side = round(min(wanted, picture_px))
    left, top = (
        round(min(max((low + high - side) / 2, 0), picture_px - side)) for low, high in ((xmin, xmax), (ymin, ymax))
    )
    return left, top, side
