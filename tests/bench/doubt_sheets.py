"""Findings of an audit as sheets of pictures, to count by eye how many of the first are right; and a small gallery.

White: what is marked; red: the doubtful box; green and dashed: what is proposed. One PNG for every 25 findings of a
kind, `gallery.jpg` with five of each, `first.jpg` with one. Run after `voc2tflite audit`, with the folder submitted:
`python tests/bench/doubt_sheets.py STORE/runs/JOB.audit-3/findings.json PHOTOS --out out/sheets`; seconds.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import cv2
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from shared.annotation.parse import parse_xml
from shared.audit.findings import AuditFinding, AuditFindings, PhotoBox
from shared.colours import MISTAKE, Colour
from shared.drawing import Mark, Pixels, caption, draw_marks, grid

PROPOSED: Final[Colour] = (0, 160, 0)
OTHERS: Final[Colour] = (255, 255, 255)
TILE_PX: Final = 240
AROUND: Final = 1.8
A_SHEET: Final = 25
IN_GALLERY: Final = 5
KINDS: Final = ("missing", "misplaced", "made_up", "double", "wrong_class")


def marked(photo: Path) -> list[PhotoBox]:
    """The boxes in the XML of a photo, which lies beside it or in `Annotations`."""
    places = (photo.with_suffix(".xml"), photo.parent.parent / "Annotations" / f"{photo.stem}.xml")
    path = next(place for place in places if place.exists())
    found = parse_xml(path.read_bytes(), file=str(path)).iterfind("object/bndbox")
    sides = [[float(box.findtext(side) or 0) for side in ("xmin", "ymin", "xmax", "ymax")] for box in found]
    return [(xmin, ymin, xmax, ymax) for xmin, ymin, xmax, ymax in sides]


def tile(finding: AuditFinding, photos: Path, number: int) -> Pixels:
    """The part of the photo that a finding is about, with all marks."""
    picture = cv2.imread(str(photos / finding.file))
    if picture is None:
        sys.exit(f"{photos / finding.file}: no picture; expected the folder that was submitted")
    about = [box for box in (finding.box, finding.proposed_box) if box is not None]
    low = np.min([box[:2] for box in about], axis=0)
    high = np.max([box[2:] for box in about], axis=0)
    side = AROUND * float((high - low).max())
    scale = TILE_PX / side
    left, top = (low + high - side) / 2

    def mark(box: PhotoBox, colour: Colour, *, is_dashed: bool = False) -> Mark:
        xmin, ymin, xmax, ymax = (round((at - start) * scale) for at, start in zip(box, (left, top) * 2, strict=True))
        return Mark(box=(xmin, ymin, xmax, ymax), text="", colour=colour, dash="dashed" if is_dashed else "solid")

    place = np.array([[scale, 0, -left * scale], [0, scale, -top * scale]])
    part = cv2.warpAffine(picture, place, (TILE_PX, TILE_PX), flags=cv2.INTER_CUBIC).astype(np.uint8)
    marks = [mark(finding.proposed_box, PROPOSED, is_dashed=True)] if finding.proposed_box else []
    marks += [mark(finding.box, MISTAKE)] if finding.box else []
    marks += [mark(box, OTHERS) for box in marked(photos / finding.file) if box != finding.box]
    classes = " > ".join(dict.fromkeys(name for name in (finding.class_name, finding.proposed_class) if name))
    return caption(draw_marks(part, marks), f"{number} {finding.kind} {finding.score:.2f} {classes}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("findings", type=Path)
    parser.add_argument("photos", type=Path)
    parser.add_argument("--out", type=Path, default=Path("out/sheets"))
    parser.add_argument("--first", type=int, default=50, help="findings of each kind")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    findings = AuditFindings.model_validate_json(asked.findings.read_bytes()).findings
    gallery: list[Pixels] = []
    first: list[Pixels] = []
    for kind in KINDS:
        of_kind: Sequence[AuditFinding] = [each for each in findings if each.kind == kind][: asked.first]
        tiles = [tile(each, asked.photos, number) for number, each in enumerate(of_kind, start=1)]
        for start in range(0, len(tiles), A_SHEET):
            path = asked.out / f"{kind}-{start + 1:03d}.png"
            cv2.imwrite(str(path), grid(tiles[start : start + A_SHEET], 5))
            print(path)
        gallery += tiles[:IN_GALLERY]
        first += tiles[:1]
    for name, chosen in (("gallery", gallery), ("first", first)):
        cv2.imwrite(str(asked.out / f"{name}.jpg"), grid(chosen, IN_GALLERY), [cv2.IMWRITE_JPEG_QUALITY, 75])


if __name__ == "__main__":
    main()
