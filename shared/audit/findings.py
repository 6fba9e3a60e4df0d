"""`AuditFindings`, the result file of an audit: which labels are doubtful, and what it proposes instead."""

import csv
import hashlib
import io
import re
from collections.abc import Iterable
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field

from shared.specs.frozen import SCHEMA_VERSION, Frozen, Incarnation, Name, canonical_json

FindingKind = Literal["missing", "made_up", "misplaced", "wrong_class", "double"]
# (xmin, ymin, xmax, ymax) in pixels of the upright photo.
PhotoBox = tuple[float, float, float, float]

# A score estimates how likely a label is wrong; from this score on it is more likely wrong than right.
LIKELY: Final = 0.5

_ID_DIGITS: Final = 10
# Ids that a spreadsheet takes for a number (12345678e1 too) and rewrites.
_NUMBER: Final = re.compile("[0-9]+(e[0-9]+)?")
# Put in front of an id that looks like a number. It is not a hex digit, so no other id begins with it.
_MARK: Final = "x"


def whole_id(text: str) -> str:
    """An id as it is written now: earlier versions wrote no `x`, and spreadsheets strip leading zeros from digits."""
    digits = text.zfill(_ID_DIGITS) if text.isascii() and text.isdecimal() else text
    return f"{_MARK}{digits}" if _NUMBER.fullmatch(digits) else digits


def number_of(finding_id: str) -> float | None:
    """The number that a spreadsheet makes of an id of an earlier version; None if it does not look like a number."""
    digits = finding_id.removeprefix(_MARK)
    return float(digits) if _NUMBER.fullmatch(digits) else None


_COLUMNS: Final = ("id", "accept", "file", "object", "kind", "score", "class", "box", "proposed", "reason")


FindingId = Annotated[str, AfterValidator(whole_id)]


class AuditFinding(Frozen):
    """One doubt about one label. Boxes are (xmin, ymin, xmax, ymax) in pixels of the upright photo.

    `id` is made of everything but score and reason, so a list of ids means the same in any audit; ids of earlier
    versions are converted to today's form. `object` counts the photo's objects in the shards from 1; it is None for a
    missing label. `class_name` and `box` are the existing label ("" and None if there is none), `proposed_class` and
    `proposed_box` what it should be (a box of None: remove it). `score`, from 0 to 1, is how likely the label is wrong.
    """

    id: FindingId
    kind: FindingKind
    file: str
    object: int | None
    score: float = Field(ge=0, le=1)
    class_name: str
    box: PhotoBox | None
    proposed_class: str
    proposed_box: PhotoBox | None
    reason: str

    @property
    def proposal(self) -> str:
        """What should be done, in words for a person."""
        if self.proposed_box is None:
            return "remove"
        place = spelled(self.proposed_box)
        if self.box is None:
            return f"add {self.proposed_class} {place}"
        name = "" if self.proposed_class == self.class_name else f"call it {self.proposed_class}"
        moved = "" if spelled(self.box) == place else f"move to {place}"
        return ", ".join(filter(None, (name, moved)))


class AuditFindings(Frozen):
    """What `findings.json` holds: the `findings`, most certain first, and the `run` that they are about.

    `folds` is 0 if one finished run was used (`--quick`). `photos` is how many were examined, `boxes` how many boxes
    they have; `remarks` are lines about what was not examined.
    """

    schema_version: Literal[1] = SCHEMA_VERSION
    run: Name
    job: Name
    incarnation: Incarnation = ""
    folds: int
    photos: int
    boxes: int
    remarks: tuple[str, ...] = ()
    findings: tuple[AuditFinding, ...]

    def to_csv(self) -> str:
        """`audit.csv`: a row for each finding; to accept one, a person writes `yes` into the column accept."""
        text = io.StringIO()
        rows = csv.writer(text, lineterminator="\r\n")
        rows.writerow(_COLUMNS)
        rows.writerows(_row(finding) for finding in self.findings)
        return text.getvalue()


def finding_id(facts: Iterable[object]) -> str:
    """Ten hex digits that stand for what a finding says, with an `x` in front if they look like a number."""
    return whole_id(hashlib.blake2b(canonical_json(list(facts)).encode(), digest_size=5).hexdigest())


def spelled(box: PhotoBox) -> str:
    """A box in whole pixels, for a person."""
    return " ".join(str(round(corner)) for corner in box)


def _row(finding: AuditFinding) -> tuple[object, ...]:
    marked = "" if finding.box is None else spelled(finding.box)
    place = "" if finding.object is None else finding.object
    score = f"{finding.score:.4f}"
    name = finding.class_name
    return finding.id, "", finding.file, place, finding.kind, score, name, marked, finding.proposal, finding.reason
