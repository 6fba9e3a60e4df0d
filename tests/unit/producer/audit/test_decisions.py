"""Decisions of people on an audit's findings: none is lost, whoever decides at once, and each can be taken back."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from producer.audit.decisions import Answer, Decision, Decisions, decided
from shared.errors import FormatError, PlanError
from shared.storage import Storage
from tests.unit.producer.audit.test_accepted import FOUND

T = TypeVar("T")
RUN = FOUND.run
FIRST, SECOND, THIRD = (finding.id for finding in FOUND.findings)

# A person who decides 40 times as fast as the store lets them.
PERSON = """
import sys
from producer.audit.decisions import Decision, Decisions
from shared.storage import Storage

decisions = Decisions(Storage(sys.argv[1]), sys.argv[2])
sys.stdin.readline()
for number in range(40):
    decisions.add(Decision(finding=f"{sys.argv[3]}{number:03d}", answer="right", at=number))
"""


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage(str(tmp_path))


def decide(decisions: Decisions, finding: str, answer: Answer) -> int:
    return decisions.add(Decision(finding=finding, answer=answer, at=1.0))


def seen_anew(storage: Storage) -> dict[str, str]:
    """What another process sees."""
    decisions = Decisions(storage, RUN)
    decisions.refresh()
    return dict(decisions.answers())


def test_the_last_decision_of_a_finding_holds_for_everybody(storage: Storage) -> None:
    decisions = Decisions(storage, RUN)
    decide(decisions, FIRST, "right")
    decide(decisions, SECOND, "skip")
    decide(decisions, FIRST, "wrong")
    assert seen_anew(storage) == {FIRST: "wrong", SECOND: "skip"} == dict(decisions.answers())


def test_a_decision_is_taken_back_to_the_one_before(storage: Storage) -> None:
    decisions = Decisions(storage, RUN)
    decide(decisions, FIRST, "right")
    changed = decide(decisions, FIRST, "wrong")
    only = decide(decisions, SECOND, "right")
    assert decisions.undo(changed, at=2.0) == FIRST
    assert decisions.undo(only, at=2.0) == SECOND
    assert seen_anew(storage) == {FIRST: "right"}


def test_what_another_person_decided_since_is_not_taken_back(storage: Storage) -> None:
    mine, theirs = Decisions(storage, RUN), Decisions(storage, RUN)
    number = decide(mine, FIRST, "right")
    decide(theirs, FIRST, "wrong")
    assert mine.undo(number, at=2.0) is None
    assert mine.undo(999, at=2.0) is None
    assert seen_anew(storage) == {FIRST: "wrong"}


def test_two_processes_that_decide_at_once_lose_nothing(storage: Storage) -> None:
    people = [
        subprocess.Popen([sys.executable, "-c", PERSON, storage.root, RUN, name], stdin=subprocess.PIPE)
        for name in ("a", "b")
    ]
    for person in people:
        assert person.stdin is not None
        person.stdin.write(b"go\n")
        person.stdin.flush()
    for person in people:
        person.communicate()
        assert person.returncode == 0
    assert set(seen_anew(storage)) == {f"{name}{number:03d}" for name in "ab" for number in range(40)}
    assert len(storage.list_names(f"runs/{RUN}/decisions")) == 80


def test_findings_called_right_are_those_that_are_accepted(storage: Storage) -> None:
    decisions = Decisions(storage, RUN)
    decide(decisions, FIRST, "wrong")
    with pytest.raises(PlanError, match=f"no finding of {RUN} was called right on the page"):
        decided(storage, RUN, FOUND.findings)
    decide(decisions, THIRD, "right")
    decide(decisions, "of another audit", "right")
    assert [finding.id for finding in decided(storage, RUN, FOUND.findings)] == [THIRD]


def test_a_strangers_file_is_let_be_and_a_damaged_one_is_named(storage: Storage) -> None:
    decisions = Decisions(storage, RUN)
    decide(decisions, FIRST, "right")
    storage.write(f"runs/{RUN}/decisions/notes.txt", b"mine")
    assert seen_anew(storage) == {FIRST: "right"}
    storage.write(f"runs/{RUN}/decisions/000002.json", b'{"finding": 3')
    with pytest.raises(FormatError, match=r"decisions/000002\.json: .*damaged"):
        seen_anew(storage)


class Noted(Storage):
    """A store that notes when each call that need not wait is begun, and when it is waited for."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.notes = list[str]()

    def begin(self, call: Callable[[], T]) -> Callable[[], T]:
        self.notes.append("begun")
        result = super().begin(call)

        def wait() -> T:
            self.notes.append("waited for")
            return result()

        return wait


def test_all_new_decisions_are_asked_for_before_one_is_waited_for(tmp_path: Path) -> None:
    storage = Noted(str(tmp_path))
    for finding in (FIRST, SECOND, THIRD):
        decide(Decisions(Storage(str(tmp_path)), RUN), finding, "right")
    decisions = Decisions(storage, RUN)
    decisions.refresh()
    assert storage.notes == ["begun"] * 3 + ["waited for"] * 3
    decisions.refresh()
    assert len(storage.notes) == 6, "each is read once"
