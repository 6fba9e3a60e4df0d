"""What people decide of an audit's findings, one after another: a file for each decision, which nobody writes twice.

The files count up from 1, and whoever comes second to a number takes the next one. So two people at once lose nothing,
in a folder as in a bucket, and an earlier decision can be had back. The last one of a finding holds.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from shared.audit.findings import AuditFinding, FindingId
from shared.errors import PlanError
from shared.jobs.paths import RunPaths
from shared.jobs.versioned import read_stored
from shared.specs.frozen import SCHEMA_VERSION, Frozen
from shared.storage import Storage
from shared.text import counted

# `right`: the finding is, so the label is to be corrected. `wrong`: the label stays. `open`: as if nobody had decided.
Answer = Literal["right", "wrong", "skip", "open"]
ANSWERS: Final[tuple[Answer, ...]] = ("right", "wrong", "skip", "open")


class Decision(Frozen):
    """One decision of a person: what they `answer` of the `finding` with this id, at `at` seconds of Unix time."""

    schema_version: Literal[1] = SCHEMA_VERSION
    finding: FindingId
    answer: Answer
    at: float


@dataclass(slots=True)
class Decisions:
    """All decisions on one audit, each read once: the files never change."""

    storage: Storage
    run: str
    by_number: dict[int, Decision] = field(default_factory=dict)

    def refresh(self) -> None:
        """Read what has come since.

        Raises:
            FormatError: A file is damaged.
            StorageError: One cannot be read.
        """
        folder = RunPaths(self.run).decisions
        for name in self.storage.list_names(folder):
            number = _number(name)
            if number is not None and number not in self.by_number:
                key = f"{folder}/{name}"
                self.by_number[number] = read_stored(Decision, self.storage.read(key), self.storage.url(key))

    def add(self, decision: Decision) -> int:
        """Write a decision down; its number.

        Raises:
            StorageError: The store refused.
        """
        self.refresh()
        number = max(self.by_number, default=0) + 1
        text = decision.to_json().encode()
        while not self.storage.create(_key(self.run, number), text):
            number += 1
        self.by_number[number] = decision
        return number

    def undo(self, number: int, at: float) -> str | None:
        """Take a decision back, so that the one before it holds again; the finding's id.

        None where there is no such decision, or another one of the same finding came after it: then that one stays.
        """
        self.refresh()
        taken = self.by_number.get(number)
        if taken is None:
            return None
        numbers = [other for other, each in sorted(self.by_number.items()) if each.finding == taken.finding]
        if numbers[-1] != number:
            return None
        before = self.by_number[numbers[-2]].answer if len(numbers) > 1 else "open"
        self.add(Decision(finding=taken.finding, answer=before, at=at))
        return taken.finding

    def answers(self) -> Mapping[str, Answer]:
        """What holds, by the finding's id; findings that are open are left out."""
        last = {each.finding: each.answer for _, each in sorted(self.by_number.items())}
        return {finding: answer for finding, answer in last.items() if answer != "open"}


def decided(storage: Storage, run: str, findings: Iterable[AuditFinding]) -> list[AuditFinding]:
    """The findings that somebody called right.

    Raises:
        PlanError: None was.
    """
    decisions = Decisions(storage, run)
    decisions.refresh()
    answers = decisions.answers()
    chosen = [finding for finding in findings if answers.get(finding.id) == "right"]
    if not chosen:
        raise PlanError(f"{storage.url(RunPaths(run).decisions)}: no finding of {run} was called right on the page")
    return chosen


def with_decisions(storage: Storage, run: str) -> str:
    """What goes with a run that is removed, such as ` with 3 decisions made on it`; "" where nobody decided."""
    decisions = Decisions(storage, run)
    decisions.refresh()
    count = len(decisions.answers())
    return f" with {counted(count, 'decision')} made on it" if count else ""


def _key(run: str, number: int) -> str:
    return f"{RunPaths(run).decisions}/{number:06d}.json"


def _number(name: str) -> int | None:
    """The number in a decision's file name; None of a stranger's file."""
    stem, _, ending = name.partition(".")
    return int(stem) if ending == "json" and stem.isascii() and stem.isdecimal() else None
