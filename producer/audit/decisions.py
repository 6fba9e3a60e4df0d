"""What people decide about an audit's findings: one file for each decision, which is never written again.

The files are numbered from 1, and if a number is taken, the next one is used. So two people can decide at once without
losing anything, in a folder as in a bucket, and an earlier decision can be restored. A finding's last decision counts.
"""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Literal

from shared.audit.findings import AuditFinding, FindingId
from shared.errors import PlanError
from shared.jobs.paths import RunPaths
from shared.jobs.versioned import read_stored
from shared.specs.frozen import SCHEMA_VERSION, Frozen
from shared.storage import Storage
from shared.text import counted

# `right`: the finding is right, so the label is to be corrected. `wrong`: the label stays. `open`: undecided again.
Answer = Literal["right", "wrong", "skip", "open"]
ANSWERS: Final[tuple[Answer, ...]] = ("right", "wrong", "skip", "open")


class Decision(Frozen):
    """One decision of a person: their `answer` to the `finding` with this id; `at` is the time in s of Unix time."""

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
        """Read the decisions that are new.

        Raises:
            FormatError: A file is damaged.
            StorageError: A file cannot be read.
        """
        folder = RunPaths(self.run).decisions
        named = {name: _number(name) for name in self.storage.list_names(folder)}
        new = {f"{folder}/{name}": at for name, at in named.items() if at is not None and at not in self.by_number}
        # In parallel in a bucket: with 20 ms per request, a thousand files take 3.5 s instead of 23 s.
        begun = [(key, number, self.storage.begin(partial(self.storage.read, key))) for key, number in new.items()]
        for key, number, content in begun:
            self.by_number[number] = read_stored(Decision, content(), self.storage.url(key))

    def add(self, decision: Decision) -> int:
        """Write down a decision; return its number.

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

    def undo(self, number: int, at: float, kept: Container[str] = ()) -> str | None:
        """Take a decision back, so that the one before it counts again; return the finding's id.

        Before its first decision a finding was `open` or, if it is in `kept`, answered with `wrong`. Return None and
        change nothing if there is no such decision, or a later one about the same finding.
        """
        self.refresh()
        taken = self.by_number.get(number)
        if taken is None:
            return None
        numbers = [other for other, each in sorted(self.by_number.items()) if each.finding == taken.finding]
        if numbers[-1] != number:
            return None
        first: Answer = "wrong" if taken.finding in kept else "open"
        before = self.by_number[numbers[-2]].answer if len(numbers) > 1 else first
        self.add(Decision(finding=taken.finding, answer=before, at=at))
        return taken.finding

    def answers(self) -> Mapping[str, Answer]:
        """The answer that counts, by the finding's id; open findings are left out."""
        return {finding: each.answer for finding, each in self.last().items() if each.answer != "open"}

    def last(self) -> Mapping[str, Decision]:
        """The last decision on each finding, by the finding's id; including those made open again."""
        return {each.finding: each for _, each in sorted(self.by_number.items())}


def decided(storage: Storage, run: str, findings: Iterable[AuditFinding]) -> list[AuditFinding]:
    """The findings that somebody called right.

    Raises:
        PlanError: Nobody called one right.
    """
    decisions = Decisions(storage, run)
    decisions.refresh()
    answers = decisions.answers()
    chosen = [finding for finding in findings if answers.get(finding.id) == "right"]
    if not chosen:
        raise PlanError(f"{storage.url(RunPaths(run).decisions)}: no finding of {run} was called right on the page")
    return chosen


def with_decisions(storage: Storage, run: str) -> str:
    """What is lost if a run is removed, such as ` with 3 decisions made on it`; "" if there are no decisions."""
    decisions = Decisions(storage, run)
    decisions.refresh()
    count = len(decisions.answers())
    return f" with {counted(count, 'decision')} made on it" if count else ""


def _key(run: str, number: int) -> str:
    return f"{RunPaths(run).decisions}/{number:06d}.json"


def _number(name: str) -> int | None:
    """The number in a decision's file name; None if the file is something else."""
    stem, _, ending = name.partition(".")
    return int(stem) if ending == "json" and stem.isascii() and stem.isdecimal() else None
