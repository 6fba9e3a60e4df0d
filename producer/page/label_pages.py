"""Requests for an audit's findings -> HTML and photos, and the forms with which a person decides."""

from dataclasses import dataclass
from typing import Any, Final

from producer.audit.decisions import ANSWERS, Answer
from producer.audit.results import quick_words
from producer.page.labels import Audit, Audits, Trail, address, crop_of_finding, photo_of
from shared.audit.findings import FindingKind
from shared.colours import MISTAKE, PALETTE, as_css
from shared.command import hint
from shared.errors import PlanError
from shared.storage import Storage

# What each kind asks of whoever has five seconds.
QUESTIONS: Final[dict[FindingKind, str]] = {
    "missing": "Is here something that nobody has marked?",
    "made_up": "Is there nothing where something is marked?",
    "misplaced": "Is the dashed place better than the marked one?",
    "wrong_class": "Is it what is proposed, and not what is marked?",
    "double": "Is one thing marked twice here?",
}
COLOURS: Final = {"marked": as_css(MISTAKE), "proposed": as_css(PALETTE[0])}
# What was done with the request before, by its word in the address.
_TOLD: Final = {
    "stays": "Somebody else has decided on that finding since: theirs stays.",
    "back": "Taken back. Decide again:",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Labels:
    """The pages of all audits of a store."""

    storage: Storage
    audits: Audits
    data_root: str

    def facts(self, run: str, at: str, trail: Trail, said: str) -> dict[str, Any]:
        """What the page of one finding shows; of the next open one where `at` names none.

        Raises:
            PipelineError: There is no such audit, or a file of it cannot be read.
        """
        audit = self.audits.get(run)
        findings = audit.found.findings
        place = audit.at.get(at)
        if place is None:
            place = audit.next_open(-1)
        counts = {answer: sum(given == answer for given in audit.answers.values()) for answer in ANSWERS}
        facts = {
            "run": run,
            "job": audit.job.job,
            "total": len(findings),
            "decided": sum(finding.id in audit.answers for finding in findings),
            "counts": counts,
            "trail": trail,
            "said": _TOLD.get(said, ""),
            "accept": self._accept(audit),
        }
        return facts | ({} if place is None else self._finding(audit, place, trail))

    def _finding(self, audit: Audit, place: int, trail: Trail) -> dict[str, Any]:
        findings = audit.found.findings
        finding = findings[place]
        try:
            crop, why_not = crop_of_finding(audit, finding, self.data_root), "the photo is gone, or cannot be read"
        except PlanError as error:
            crop, why_not = None, str(error)
        beside = {"before": place - 1, "behind": place + 1}
        return {
            "finding": finding,
            "place": place + 1,
            "question": QUESTIONS[finding.kind],
            "answer": audit.answers.get(finding.id, ""),
            "crop": crop,
            "why_not": why_not,
            "colours": COLOURS,
            "links": {
                name: address(audit.found.run, findings[at].id, trail)
                for name, at in beside.items()
                if 0 <= at < len(findings)
            },
        }

    def _accept(self, audit: Audit) -> str:
        return hint(
            *("audit", audit.job.job, *quick_words(audit.found), "--accept", "decisions", "--out", "FOLDER"),
            store=self.storage,
        )

    def decide(self, run: str, finding: str, answer: Answer, trail: Trail) -> str:
        """Write down a decision; the address of what is next.

        Raises:
            PipelineError: There is no such finding, or the store refused.
        """
        number = self.audits.decide(run, finding, answer)
        audit = self.audits.get(run)
        place = audit.next_open(audit.at[finding])
        at = audit.found.findings[place].id if place is not None else None
        return address(run, at, trail.with_decision(number))

    def undo(self, run: str, trail: Trail) -> str:
        """Take the trail's last decision back; the address of its finding.

        Raises:
            PipelineError: There is no such audit, or the store refused.
        """
        if not trail.numbers:
            return address(run, None, trail)
        finding = self.audits.undo(run, trail.numbers[-1])
        return address(run, finding, trail.back(), "stays" if finding is None else "back")

    def photo(self, run: str, finding: str) -> tuple[bytes, str]:
        """The file of a finding's photo and its media type.

        Raises:
            PipelineError: There is none that a browser shows.
        """
        audit = self.audits.get(run)
        if finding not in audit.at:
            raise PlanError(f"{run} has no finding {finding!r}")
        return photo_of(audit, audit.found.findings[audit.at[finding]], self.data_root)
