"""What people decide of an audit's findings, one after another: a file for each decision, which nobody writes twice.

The files count up from 1, and whoever comes second to a number takes the next one. So two people at once lose nothing,
in a folder as in a bucket, and an earlier decision can be had back. The last one of a finding holds.
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
        named = {name: _number(name) for name in self.storage.list_names(folder)}
        new = {f"{folder}/{name}": at for name, at in named.items() if at is not None and at not in self.by_number}
        # In a bucket side by side: of one 20 ms away a thousand take 3.5 s instead of 23.
        begun = [(key, number, self.storage.begin(partial(self.storage.read, key))) for key, number in new.items()]
        for key, number, content in begun:
            self.by_number[number] = read_stored(Decision, content(), self.storage.url(key))

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

    def undo(self, number: int, at: float, kept: Container[str] = ()) -> str | None:
        """Take a decision back, so that the one before it holds again; the finding's id.

        Before the first decision of a finding it was open, or, of one among `kept`, its label was left as it is. None
        where there is no such decision, or another one of the same finding came after it: then that one stays.
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
        """What holds, by the finding's id; findings that are open are left out."""
        return {finding: each.answer for finding, each in self.last().items() if each.answer != "open"}

    def last(self) -> Mapping[str, Decision]:
        """The last decision of each finding, by its id; also where it was made open again."""
        return {each.finding: each for _, each in sorted(self.by_number.items())}


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
