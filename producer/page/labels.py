"""An audit's findings, one after another, each with its photo -> what a person decides about them, as files.

The pages are plain forms; `labels.js` adds keys. A photo is requested by a finding's id, so no path comes from outside.
"""

import math
import time
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any, Final, get_args
from urllib.parse import urlencode

from producer.audit.accepted import read_findings
from producer.audit.decisions import Answer, Decision, Decisions
from producer.audit.kept_before import Before, OtherAudit, OtherAudits, kept_before
from producer.audit.photo_sizes import noted_heads, noted_sizes
from shared.audit.findings import AuditFindings, FindingKind
from shared.errors import OptionError, PipelineError, PlanError
from shared.jobs.identity import find_job, is_name, read_request
from shared.jobs.job import Job
from shared.jobs.paths import RunPaths
from shared.storage import Stamp, Storage

# How many decisions a person can take back one after another; their numbers are in the page's address.
_MOST_BACK: Final = 50
# How many findings, of all audits together, and audits are kept in memory: 100,000 findings take a second to read.
_MOST_FINDINGS: Final = 400_000
_MOST_AUDITS: Final = 200
# What other audits of the store say about the same labels is looked up at most this often: it lists their folders.
_LOOK_AGAIN_S: Final = 30.0
_KEPT: Final[Answer] = "wrong"

# The kinds, in the order in which they are offered.
KINDS: Final[tuple[FindingKind, ...]] = get_args(FindingKind)


def kind_of(text: str) -> FindingKind | None:
    """The kind of findings that a person has chosen; None for an empty text, which means all kinds.

    Raises:
        OptionError: There is no such kind.
    """
    if text and text not in KINDS:
        raise OptionError(f"expected one of {', '.join(KINDS)} as kind, found {text[:80]!r}")
    return next((kind for kind in KINDS if kind == text), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """One finished audit as of now: `at` is each finding's place in the list, and `answers` its answer, by id.

    `of_kind` has the places of each kind that occurs, in order. `sizes` are the upright sizes of the photos when they
    were audited, by file, and `heads` their `head_digest`s. `decided` names the finding of each decision, by the
    decision's number. `kept` are the findings that were answered with no in another audit and have no decision in this
    one; in `answers` they are wrong.
    """

    job: Job
    found: AuditFindings
    at: Mapping[str, int]
    of_kind: Mapping[FindingKind, Sequence[int]]
    sizes: Mapping[str, tuple[int, int]]
    heads: Mapping[str, str] = field(default_factory=dict)
    answers: Mapping[str, Answer] = field(default_factory=dict)
    decided: Mapping[int, str] = field(default_factory=dict)
    kept: Mapping[str, Before] = field(default_factory=dict)

    def places(self, kind: FindingKind | None) -> Sequence[int]:
        """The places of the findings of a kind, in order; of all findings if it is None."""
        return range(len(self.found.findings)) if kind is None else self.of_kind.get(kind, ())

    def next_open(self, after: int, kind: FindingKind | None = None) -> int | None:
        """The place of the first undecided finding of a kind after the place `after`, or else from the start."""
        places = self.places(kind)
        first = bisect_right(places, after)
        for step in range(len(places)):
            place = places[(first + step) % len(places)]
            if self.found.findings[place].id not in self.answers:
                return place
        return None

    def beside(self, place: int, kind: FindingKind | None) -> tuple[int | None, int | None]:
        """The places of the nearest findings of a kind before and after `place`; None if there is none."""
        places = self.places(kind)
        before, behind = bisect_left(places, place), bisect_right(places, place)
        return places[before - 1] if before else None, places[behind] if behind < len(places) else None

    def next_kept(self, after: int, kind: FindingKind | None) -> int | None:
        """The place of the first finding of a kind, after `after` or else from the start, that was kept before."""
        findings = self.found.findings
        kept = [at for at in sorted(map(self.at.__getitem__, self.kept)) if kind in (None, findings[at].kind)]
        return next((at for at in kept if at > after), kept[0] if kept else None)

    def last_of(self, trail: "Trail", kind: FindingKind | None) -> int | None:
        """The number of the last decision in a trail about a finding of a kind; None if there is none."""
        if kind is None:
            return trail.numbers[-1] if trail.numbers else None
        findings = self.found.findings
        places = ((number, self.at.get(self.decided.get(number, ""))) for number in reversed(trail.numbers))
        return next((number for number, at in places if at is not None and findings[at].kind == kind), None)


@dataclass(slots=True, kw_only=True)
class _Held:
    """What is kept of an audit: its findings, as in the file with this `stamp`, and its decisions.

    `before` is what the `others` say about its labels; they were last looked at at `looked_at` (s, monotonic clock).
    Any thread that reads or changes this must hold the `lock`.
    """

    decisions: Decisions
    lock: Lock = field(default_factory=Lock)
    stamp: Stamp | None = None
    audit: Audit | None = None
    others: tuple[OtherAudit, ...] = ()
    before: Mapping[str, Before] = field(default_factory=dict)
    looked_at: float = -math.inf

    @property
    def count(self) -> int:
        """How many findings are kept in memory."""
        return 0 if self.audit is None else len(self.audit.found.findings)


class Audits:
    """The finished audits of a store that were looked at recently; for several threads."""

    def __init__(self, storage: Storage, look_again_s: float = _LOOK_AGAIN_S) -> None:
        self._storage: Final = storage
        self._look_again_s: Final = look_again_s
        self._held: Final[dict[str, _Held]] = {}
        self._lock: Final = Lock()  # for `_held`; no file is read while it is held
        self._others: Final = OtherAudits(storage)
        self._others_lock: Final = Lock()

    def get(self, run: str) -> Audit:
        """The audit `run` with all decisions so far; what other audits say may be half a minute old.

        Raises:
            PlanError: There is no such audit, or it is not done.
            FormatError: A file of it is damaged, or of another version.
            StorageError: A file cannot be read.
        """
        with self._looked(run) as (held, audit):
            decisions = held.decisions
            decisions.refresh()
            last = decisions.last()
            kept = self._before(held, audit)
            before = {finding: where for finding, where in kept.items() if finding not in last}
            answers: dict[str, Answer] = {**dict.fromkeys(before, _KEPT), **decisions.answers()}
            decided = {number: decision.finding for number, decision in decisions.by_number.items()}
            return replace(audit, answers=answers, decided=decided, kept=before)

    def decide(self, run: str, finding: str, answer: Answer) -> int:
        """Write down what a person decides; return the decision's number.

        Raises:
            PlanError: There is no such audit, or it has no such finding.
            StorageError: The store refused.
        """
        with self._looked(run) as (held, audit):
            if finding not in audit.at:
                raise PlanError(f"{run} has no finding {finding!r}")
            return held.decisions.add(Decision(finding=finding, answer=answer, at=time.time()))

    def undo(self, run: str, number: int) -> str | None:
        """Take a decision back; return the finding's id, or None if there is a later decision about that finding.

        Raises:
            PlanError: There is no such audit.
            StorageError: The store refused.
        """
        with self._looked(run) as (held, audit):
            return held.decisions.undo(number, time.time(), self._before(held, audit))

    def _before(self, held: _Held, audit: Audit) -> Mapping[str, Before]:
        """The findings of an audit whose labels somebody has kept in another audit."""
        now = time.monotonic()
        if now - held.looked_at >= self._look_again_s:
            with self._others_lock:
                others = self._others.besides(audit.found.run)
            if others != held.others:
                held.before = kept_before(self._storage, audit.job, audit.found, others)
                held.others = others
            held.looked_at = now
        return held.before

    @contextmanager
    def _looked(self, run: str) -> Iterator[tuple[_Held, Audit]]:
        """An audit as its file is now, for one thread at a time; other threads may use other audits meanwhile."""
        if not is_name(run):
            raise PlanError(f"there is no audit {run!r}")
        with self._lock:
            held = self._held.pop(run, None) or _Held(decisions=Decisions(self._storage, run))
            self._held[run] = held  # at the end, as the one looked at most recently
        with held.lock:
            stamp = self._storage.stamp_or_none(RunPaths(run).findings)
            if held.audit is None or held.stamp != stamp:
                try:
                    audit = _read(self._storage, run)
                except PipelineError:
                    self._forget(run)
                    raise
                held.audit, held.stamp, held.looked_at = audit, stamp, -math.inf
                held.others, held.before, held.decisions = (), {}, Decisions(self._storage, run)
                self._make_room(run)
            yield held, held.audit

    def _forget(self, run: str) -> None:
        with self._lock:
            self._held.pop(run, None)

    def _make_room(self, run: str) -> None:
        """Forget the audits looked at longest ago, but not `run`, until what is kept is within the limits."""
        with self._lock:
            count = sum(held.count for held in self._held.values())
            for oldest in [each for each in self._held if each != run]:
                if count <= _MOST_FINDINGS and len(self._held) <= _MOST_AUDITS:
                    return
                count -= self._held.pop(oldest).count


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
    around: dict[str, Any] = {"job": job, "found": found, "at": places, "of_kind": dict(of_kind)}
    return Audit(**around, sizes=noted_sizes(job, storage), heads=noted_heads(job, storage))


@dataclass(frozen=True, slots=True, kw_only=True)
class Trail:
    """The numbers of the decisions that this person can take back, in order."""

    numbers: tuple[int, ...] = ()

    @classmethod
    def read(cls, text: str) -> "Trail":
        """The trail in a page's address; empty if `text` is not a trail."""
        parts = text.split(".")[-_MOST_BACK:]
        is_trail = all(part.isascii() and part.isdecimal() and len(part) < 10 for part in parts)
        return cls(numbers=tuple(map(int, parts)) if is_trail else ())

    def __str__(self) -> str:
        return ".".join(map(str, self.numbers[-_MOST_BACK:]))

    def with_decision(self, number: int) -> "Trail":
        """The trail after one more decision."""
        return Trail(numbers=(*self.numbers, number)[-_MOST_BACK:])

    def without(self, number: int) -> "Trail":
        """The trail without a decision that was taken back."""
        return Trail(numbers=tuple(each for each in self.numbers if each != number))


def address(run: str, at: str | None, trail: Trail, kind: FindingKind | None, said: str = "") -> str:
    """The address of the page of the finding `at`, or without it, of the next one; `kind` is the chosen kind."""
    asked = {"kind": kind, "at": at, "trail": str(trail), "said": said}
    query = urlencode({name: text for name, text in asked.items() if text})
    return f"/runs/{run}/labels" + (f"?{query}" if query else "")
