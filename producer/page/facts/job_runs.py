"""The runs in a job's status -> which runs go on or need a person besides the job's own; what an audit has found."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from producer.audit.results import likely_text
from producer.state.status import JobStatus
from shared.audit.findings import LIKELY, AuditFindings
from shared.errors import PipelineError
from shared.text import counted

View = Mapping[str, Any]

# The states that are shown, the most important first. `FINALIZED` runs are waiting.
_TOLD: Final = ("TRAINING", "INTERRUPTED", "FAILED", "FINALIZED")


def besides(status: JobStatus) -> list[tuple[str, list[View]]]:
    """The job's other runs that go on or need a person, by state: the job's own state does not show them."""
    own = None if status.run is None else status.run["run"]
    others: list[View] = [view for view in status.runs if view["run"] != own]
    by_state = [(state, [view for view in others if view["state"] == state]) for state in _TOLD]
    return [(state, views) for state, views in by_state if views]


def counts_text(status: JobStatus) -> str:
    """`2 runs, 1 audit`; the folds of an audit do not count as runs."""
    kinds = Counter("audit" if view.get("audits") else "run" for view in status.runs if not view.get("fold"))
    return ", ".join(counted(kinds[kind], kind) for kind in ("run", "audit") if kinds[kind])


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditResult:
    """How many `doubts` a finished audit has, how many have a score of at least `LIKELY`, and how many are decided."""

    doubts: int
    likely: int
    likely_text: str
    decided: int


class Audit(Protocol):
    """A finished audit: its findings, and what was answered, by a finding's id."""

    @property
    def found(self) -> AuditFindings:
        """The findings."""

    @property
    def answers(self) -> Mapping[str, str]:
        """The answers that count, for the findings that somebody has decided on."""


def result_of(read: Callable[[str], Audit], view: View | None) -> AuditResult | None:
    """What the run in `view` has found; None if it is not a finished audit, or its findings cannot be read.

    Args:
        read: Reads the audit of a run; raises a PipelineError if it cannot.
        view: The run, as in `JobStatus.runs`.
    """
    if view is None or not view.get("audits") or view["state"] != "DONE":
        return None
    try:
        audit = read(str(view["run"]))
    except PipelineError:
        return None  # the page of its findings says what is wrong with them
    findings = audit.found.findings
    return AuditResult(
        doubts=len(findings),
        likely=sum(finding.score >= LIKELY for finding in findings),
        likely_text=likely_text(audit.found),
        decided=sum(finding.id in audit.answers for finding in findings),
    )
