"""Answers on the other audits of a store -> which of an audit's findings a person has answered with no before.

Every training proposes different boxes, so a doubt that comes up again has another id. What the doubts are about is
compared instead: docs/decisions/0108. Nothing is removed from an audit's files.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from pydantic_core import from_json

from producer.audit.corrected_xml import iou
from producer.audit.decisions import Decisions
from producer.audit.same_photos import same_photos
from shared.audit.findings import AuditFinding, AuditFindings, PhotoBox, whole_id
from shared.errors import PipelineError
from shared.jobs.identity import find_job, readable_requests
from shared.jobs.job import Job
from shared.jobs.paths import RunPaths
from shared.specs.frozen import SCHEMA_VERSION
from shared.specs.run import RunSpec
from shared.storage import Stamp, Storage

# The same box, read from the shards of two jobs, may differ by rounding.
_SAME_PX: Final = 1.0
# From this IoU on two boxes count as one object, as in mAP50.
_SAME_IOU: Final = 0.5
# In findings of these kinds the proposed class is part of the question: there may be no dog there, but a cat.
_ASKS_CLASS: Final = frozenset({"missing", "wrong_class"})
# What reading a damaged file of another audit or job may raise. The page of that audit says what is wrong with it.
_DAMAGED: Final = (PipelineError, ValueError, KeyError, TypeError, AttributeError)

_Label = tuple[str, str, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Before:
    """Where a label was kept before: the audit `run`, and the id of its `finding`."""

    run: str
    finding: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """A finding that a person called right or, if the label `is_kept`, wrong; `at` is when, in s of Unix time."""

    finding: AuditFinding
    is_kept: bool
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherAudit:
    """A finished audit `run` of a job, and what was answered on it."""

    run: str
    job: Job
    answered: tuple[Answered, ...]


@dataclass(slots=True, kw_only=True)
class _Read:
    """What is known of an audit whose findings file has this `stamp`; `audit` has its first `count` decisions."""

    stamp: Stamp
    decisions: Decisions
    count: int = 0
    audit: OtherAudit | None = None


class OtherAudits:
    """The audits of a store with decisions of a person. Each decision is read once; findings only if there is one."""

    def __init__(self, storage: Storage) -> None:
        self._storage: Final = storage
        self._read: dict[str, _Read] = {}

    def besides(self, run: str) -> tuple[OtherAudit, ...]:
        """All audits but `run`, as of now, without damaged ones; the same objects as before if nothing is new.

        Raises:
            StorageError: The store cannot be listed.
        """
        found = list[OtherAudit]()
        read = {run: self._read[run]} if run in self._read else {}  # kept for calls about another audit
        for asked in readable_requests(self._storage):
            if asked.audits and asked.run != run:
                with suppress(*_DAMAGED):
                    other = self._look(asked, read)
                    found += [other] if other is not None else []
        self._read = read
        return tuple(found)

    def _look(self, asked: RunSpec, read: dict[str, _Read]) -> OtherAudit | None:
        job = find_job(self._storage, asked.job)
        stamp = self._storage.stamp_or_none(RunPaths(asked.run).findings)
        if stamp is None or job is None or job.incarnation != asked.incarnation:
            return None  # the audit is not done, or its job was removed
        known = self._read.get(asked.run)
        if known is None or known.stamp != stamp:
            known = _Read(stamp=stamp, decisions=Decisions(self._storage, asked.run))
        read[asked.run] = known
        known.decisions.refresh()
        if len(known.decisions.by_number) != known.count:
            known.audit = self._answered(job, asked.run, known.decisions)
            known.count = len(known.decisions.by_number)
        return known.audit

    def _answered(self, job: Job, run: str, decisions: Decisions) -> OtherAudit | None:
        last = {each: decision for each, decision in decisions.last().items() if decision.answer in ("right", "wrong")}
        if not last:
            return None
        answered = tuple(
            Answered(finding=finding, is_kept=last[finding.id].answer == "wrong", at=last[finding.id].at)
            for finding in self._findings(run, last.keys())
        )
        return OtherAudit(run=run, job=job, answered=answered)

    def _findings(self, run: str, ids: Set[str]) -> Iterator[AuditFinding]:
        """The findings with these ids. Only these are made into objects: for 100,000, that takes most of the time."""
        content = from_json(self._storage.read(RunPaths(run).findings))
        if content["schema_version"] == SCHEMA_VERSION:
            yield from (AuditFinding.model_validate(row) for row in content["findings"] if whole_id(row["id"]) in ids)


def kept_before(storage: Storage, job: Job, found: AuditFindings, others: Sequence[OtherAudit]) -> Mapping[str, Before]:
    """The findings whose labels somebody has kept in another audit, by id; the newest answer about a label counts.

    Args:
        storage: Holds what is known of the photos.
        job: The job whose labels were audited.
        found: What the audit has found.
        others: The other audits; those with a damaged file are left out.
    """
    newest = dict[str, tuple[float, str, Answered]]()
    for other in others:
        with suppress(*_DAMAGED):
            for finding, answered in _met(storage, job, found, other):
                if finding not in newest or newest[finding][:2] < (answered.at, other.run):
                    newest[finding] = answered.at, other.run, answered
    return {
        finding: Before(run=run, finding=answered.finding.id)
        for finding, (_, run, answered) in newest.items()
        if answered.is_kept
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptLabels:
    """The findings of an audit whose label a person keeps, by id: answered with no `here`, or only `before`."""

    here: frozenset[str]
    before: Mapping[str, Before]


def kept_labels(storage: Storage, job: Job, found: AuditFindings) -> KeptLabels:
    """Which labels a person keeps, as of now.

    Raises:
        FormatError: A decision on this audit is damaged.
        StorageError: A decision cannot be read.
    """
    decisions = Decisions(storage, found.run)
    decisions.refresh()
    last = decisions.last()
    before = kept_before(storage, job, found, OtherAudits(storage).besides(found.run))
    return KeptLabels(
        here=frozenset(finding for finding, decision in last.items() if decision.answer == "wrong"),
        before={finding: where for finding, where in before.items() if finding not in last},
    )


def _met(storage: Storage, job: Job, found: AuditFindings, other: OtherAudit) -> list[tuple[str, Answered]]:
    """The ids of findings, each with an answer on the other audit about the same label of the same photo."""
    by_label = defaultdict[_Label, list[Answered]](list)
    for each in other.answered:
        by_label[_label(each.finding)].append(each)
    met = [
        (finding, each)
        for finding in found.findings
        for each in by_label.get(_label(finding), ())
        if _is_same_place(finding, each.finding)
    ]
    photos = same_photos(storage, job, other.job, {finding.file for finding, _ in met})
    return [(finding.id, each) for finding, each in met if finding.file in photos]


def _label(finding: AuditFinding) -> _Label:
    """What must be equal in two findings about the same label; boxes are compared with a tolerance."""
    asked = finding.proposed_class if finding.kind in _ASKS_CLASS else ""
    return finding.file, finding.kind, finding.class_name, asked


def _is_same_place(one: AuditFinding, other: AuditFinding) -> bool:
    """Whether the labelled boxes are the same or, if neither finding has one, the proposed boxes overlap enough."""
    if one.box is not None and other.box is not None:
        return _is_same(one.box, other.box)
    if one.box is not None or other.box is not None or one.proposed_box is None or other.proposed_box is None:
        return False
    return iou(one.proposed_box, other.proposed_box) >= _SAME_IOU


def _is_same(one: PhotoBox, other: PhotoBox) -> bool:
    return all(abs(a - b) <= _SAME_PX for a, b in zip(one, other, strict=True))
