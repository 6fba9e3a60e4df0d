"""`AuditFindings`, the file that an audit ends with: what is doubtful about the labels, and what is proposed."""

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

# A score estimates how likely a label is wrong: from here on it is more likely wrong than right.
LIKELY: Final = 0.5

_ID_DIGITS: Final = 10
# What a spreadsheet takes for a number, 12345678e1 too, and writes otherwise.
_NUMBER: Final = re.compile("[0-9]+(e[0-9]+)?")
# Before an id that would be one. No hex digit.
_MARK: Final = "x"


def whole_id(text: str) -> str:
    """An id as findings have it: earlier versions wrote no `x`, and of digits alone a spreadsheet takes zeros away."""
    digits = text.zfill(_ID_DIGITS) if text.isascii() and text.isdecimal() else text
    return f"{_MARK}{digits}" if _NUMBER.fullmatch(digits) else digits


def number_of(finding_id: str) -> float | None:
    """The number that a spreadsheet made of an id of earlier versions; None for one that is no number."""
    digits = finding_id.removeprefix(_MARK)
    return float(digits) if _NUMBER.fullmatch(digits) else None


_COLUMNS: Final = ("id", "accept", "file", "object", "kind", "score", "class", "box", "proposed", "reason")


FindingId = Annotated[str, AfterValidator(whole_id)]


class AuditFinding(Frozen):
    """One doubt about one label. Boxes are (xmin, ymin, xmax, ymax) in pixels of the upright photo.

    `id` is made of all but score and reason, so a list of ids says the same in any audit; those of earlier versions
    are read as they would be now. `object` counts the photo's objects in the shards from 1; None where one is missing.
    `class_name` and `box` are what is marked ("" and None: nothing), `proposed_class` and `proposed_box` what should be
    (None: nothing). `score` is how sure it is.
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
        """What is to be done, for a person."""
        if self.proposed_box is None:
            return "remove"
        place = spelled(self.proposed_box)
        if self.box is None:
            return f"add {self.proposed_class} {place}"
        name = "" if self.proposed_class == self.class_name else f"call it {self.proposed_class}"
        moved = "" if spelled(self.box) == place else f"move to {place}"
        return ", ".join(filter(None, (name, moved)))


class AuditFindings(Frozen):
    """What `findings.json` holds: the `findings`, surest first, and what `run` they are of.

    `folds` is 0 where one finished run was asked (`--quick`). `photos` were looked at, `boxes` are on them; `remarks`
    are one line each on what was not.
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
        """`audit.csv`: a row for each finding; whoever reads it writes `yes` into the column accept."""
        text = io.StringIO()
        rows = csv.writer(text, lineterminator="\r\n")
        rows.writerow(_COLUMNS)
        rows.writerows(_row(finding) for finding in self.findings)
        return text.getvalue()


def finding_id(facts: Iterable[object]) -> str:
    """Ten hex digits that stand for what a finding says, behind an `x` where they look like a number."""
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
