"""An audit's findings, one after another, each with its photo -> what a person decides of them, as files in the store.

The pages are plain forms; keys are `labels.js`'s. A photo is asked for by a finding's id: no path comes from outside.
"""

import time
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Final, get_args
from urllib.parse import urlencode

from producer.audit.accepted import read_findings
from producer.audit.decisions import Answer, Decision, Decisions
from producer.audit.photo_sizes import noted_sizes, other_size, photo_size, photos_folder
from producer.page.facts.drawn import written_boxes
from shared.audit.findings import AuditFinding, AuditFindings, FindingKind, PhotoBox
from shared.errors import OptionError, PipelineError, PlanError
from shared.jobs.identity import find_job, is_name, read_request
from shared.jobs.job import Job
from shared.jobs.paths import RunPaths
from shared.storage import Stamp, Storage

# A crop shows so many times the side of what it is about, and no less than this part of the photo: without what is
# around it nobody can tell a thing (`trainer/audit/page.py`, likewise).
_AROUND: Final = 2.5
_LEAST_SHARE: Final = 0.25
# A box that came through a shard differs by rounding from itself.
_SAME_PX: Final = 1.0
# Decisions that a person can take back one after another; they travel in the page's address.
_MOST_BACK: Final = 50
# Audits whose findings are kept in memory: one of 100,000 findings takes a second to read.
_MOST_KEPT: Final = 4

# In the order in which a person chooses among them.
KINDS: Final[tuple[FindingKind, ...]] = get_args(FindingKind)


def kind_of(text: str) -> FindingKind | None:
    """The kind of findings that a person has chosen; None of nothing: all kinds.

    Raises:
        OptionError: There is no such kind.
    """
    if text and text not in KINDS:
        raise OptionError(f"expected one of {', '.join(KINDS)} as kind, found {text[:80]!r}")
    return next((kind for kind in KINDS if kind == text), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """One finished audit at this moment: `at` is each finding's place among them, `answers` are by its id.

    `of_kind` has the places of each kind that occurs, in order. `sizes` are those of the photos, by file, as they were
    audited. `decided` names the finding of each decision, by the decision's number.
    """

    job: Job
    found: AuditFindings
    at: Mapping[str, int]
    of_kind: Mapping[FindingKind, Sequence[int]]
    sizes: Mapping[str, tuple[int, int]]
    answers: Mapping[str, Answer] = field(default_factory=dict)
    decided: Mapping[int, str] = field(default_factory=dict)

    def places(self, kind: FindingKind | None) -> Sequence[int]:
        """The places of the findings of a kind, in order; of all where it is None."""
        return range(len(self.found.findings)) if kind is None else self.of_kind.get(kind, ())

    def next_open(self, after: int, kind: FindingKind | None = None) -> int | None:
        """The place of the first finding of a kind behind `after`, and then from the start, that is not decided on."""
        places = self.places(kind)
        first = bisect_right(places, after)
        for step in range(len(places)):
            place = places[(first + step) % len(places)]
            if self.found.findings[place].id not in self.answers:
                return place
        return None

    def beside(self, place: int, kind: FindingKind | None) -> tuple[int | None, int | None]:
        """The places of the nearest findings of a kind before and behind `place`, None where there is none."""
        places = self.places(kind)
        before, behind = bisect_left(places, place), bisect_right(places, place)
        return places[before - 1] if before else None, places[behind] if behind < len(places) else None

    def last_of(self, trail: "Trail", kind: FindingKind | None) -> int | None:
        """The last decision of a trail that is about a finding of a kind, None where none is."""
        if kind is None:
            return trail.numbers[-1] if trail.numbers else None
        findings = self.found.findings
        places = ((number, self.at.get(self.decided.get(number, ""))) for number in reversed(trail.numbers))
        return next((number for number, at in places if at is not None and findings[at].kind == kind), None)


class Audits:
    """The finished audits of a store that were looked at last; for several threads."""

    def __init__(self, storage: Storage) -> None:
        self._storage: Final = storage
        self._kept: Final[dict[str, tuple[Stamp | None, Audit, Decisions]]] = {}
        self._lock: Final = Lock()

    def get(self, run: str) -> Audit:
        """The audit `run` with the decisions of this moment.

        Raises:
            PlanError: There is no such audit, or it is not done.
            FormatError: A file of it is damaged, or of another version.
            StorageError: One cannot be read.
        """
        with self._lock:
            audit, decisions = self._look(run)
            decisions.refresh()
            decided = {number: decision.finding for number, decision in decisions.by_number.items()}
            return replace(audit, answers=decisions.answers(), decided=decided)

    def decide(self, run: str, finding: str, answer: Answer) -> int:
        """Write down what a person decides; the decision's number.

        Raises:
            PlanError: The audit has no such finding, or there is none.
            StorageError: The store refused.
        """
        with self._lock:
            audit, decisions = self._look(run)
            if finding not in audit.at:
                raise PlanError(f"{run} has no finding {finding!r}")
            return decisions.add(Decision(finding=finding, answer=answer, at=time.time()))

    def undo(self, run: str, number: int) -> str | None:
        """Take a decision back; the finding's id, None where another one came after it.

        Raises:
            PlanError: There is no such audit.
            StorageError: The store refused.
        """
        with self._lock:
            return self._look(run)[1].undo(number, time.time())

    def _look(self, run: str) -> tuple[Audit, Decisions]:
        if not is_name(run):
            raise PlanError(f"there is no audit {run!r}")
        stamp = self._storage.stamp_or_none(RunPaths(run).findings)
        kept = self._kept.pop(run, None)
        if kept is None or kept[0] != stamp:
            kept = stamp, _read(self._storage, run), Decisions(self._storage, run)
        self._kept[run] = kept
        for oldest in list(self._kept)[:-_MOST_KEPT]:
            del self._kept[oldest]
        return kept[1:]


def _read(storage: Storage, run: str) -> Audit:
    asked = read_request(storage, run)
    job = find_job(storage, asked.job) if asked is not None else None
    if job is None:
        raise PlanError(f"there is no audit {run!r}")
    found = read_findings(storage, job, run)
    places, of_kind = dict[str, int](), defaultdict[FindingKind, list[int]](list)
    for place, finding in enumerate(found.findings):
        places[finding.id] = place
        of_kind[finding.kind].append(place)
    return Audit(job=job, found=found, at=places, of_kind=dict(of_kind), sizes=noted_sizes(job, storage))


@dataclass(frozen=True, slots=True, kw_only=True)
class Crop:
    """What is shown of a photo of `photo` (width, height) pixels: `left`, `top`, `width`, `height` in its pixels.

    `others` are the marked boxes that the finding is not about.
    """

    photo: tuple[int, int]
    left: int
    top: int
    width: int
    height: int
    others: tuple[PhotoBox, ...] = ()


def crop_of(boxes: Sequence[PhotoBox], photo: tuple[int, int]) -> Crop:
    """The part of a photo that shows `boxes`, at least one, and what is around them."""
    around = [pick(box[at] for box in boxes) for at, pick in enumerate((min, min, max, max))]
    longest = max(around[2] - around[0], around[3] - around[1])
    wanted = max(_AROUND * longest, _LEAST_SHARE * max(photo))
    spans = []
    for axis, length in enumerate(photo):
        side = min(wanted, length)
        start = min(max((around[axis] + around[axis + 2] - side) / 2, 0), length - side)
        spans.append((round(start), max(1, round(side))))
    (left, width), (top, height) = spans
    return Crop(photo=photo, left=left, top=top, width=width, height=height)


def crop_of_finding(storage: Storage, audit: Audit, finding: AuditFinding, data_root: str) -> Crop | None:
    """What is to be seen of a finding; None where its photo is gone or unreadable.

    Raises:
        PlanError: The photos' folder is not there, or the photo has another size than the one that was audited.
    """
    folder = photos_folder(audit.job, data_root)
    photo = photo_size(folder, finding.file, audit.job.spec.max_pixels)
    if photo is None:
        return None
    if other := other_size(photo, audit.sizes.get(finding.file)):
        raise PlanError(f"{other}: its boxes would be drawn elsewhere")
    boxes = [box for box in (finding.box, finding.proposed_box) if box is not None]
    return replace(crop_of(boxes, photo), others=_others(storage, audit.job, finding, photo))


def _others(storage: Storage, job: Job, finding: AuditFinding, photo: tuple[int, int]) -> tuple[PhotoBox, ...]:
    """The photo's marked boxes but the finding's own."""
    try:
        written = written_boxes(storage, job, finding.file, photo)
    except (PipelineError, ValueError, KeyError, TypeError):
        return ()  # the question can be answered without them
    boxes = [(x, y, x + width, y + height) for x, y, width, height in written]
    return tuple(box for box in boxes if finding.box is None or not _is_same(box, finding.box))


def _is_same(one: PhotoBox, other: PhotoBox) -> bool:
    return all(abs(a - b) < _SAME_PX for a, b in zip(one, other, strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Trail:
    """The numbers of the decisions that this person can take back, the last one last."""

    numbers: tuple[int, ...] = ()

    @classmethod
    def read(cls, text: str) -> "Trail":
        """The trail of a page's address; an empty one of anything else."""
        parts = text.split(".")[-_MOST_BACK:]
        is_trail = all(part.isascii() and part.isdecimal() and len(part) < 10 for part in parts)
        return cls(numbers=tuple(map(int, parts)) if is_trail else ())

    def __str__(self) -> str:
        return ".".join(map(str, self.numbers[-_MOST_BACK:]))

    def with_decision(self, number: int) -> "Trail":
        """The trail after one more decision."""
        return Trail(numbers=(*self.numbers, number)[-_MOST_BACK:])

    def without(self, number: int) -> "Trail":
        """The trail after that decision was taken back."""
        return Trail(numbers=tuple(each for each in self.numbers if each != number))


def address(run: str, at: str | None, trail: Trail, kind: FindingKind | None, said: str = "") -> str:
    """Where the page of one finding is; of what is next, without `at`. `kind` is the one that a person has chosen."""
    asked = {"kind": kind, "at": at, "trail": str(trail), "said": said}
    query = urlencode({name: text for name, text in asked.items() if text})
    return f"/runs/{run}/labels" + (f"?{query}" if query else "")
