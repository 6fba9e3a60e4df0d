"""Labels that were kept in another audit, on the page and by the command: decided before anybody is asked again."""

import re
import subprocess
import sys
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import pytest

from producer.audit.decisions import Answer, Decision, Decisions
from producer.page.labels import Audits
from shared.audit.findings import AuditFinding, AuditFindings
from shared.jobs.identity import make_note
from shared.jobs.paths import RunPaths
from shared.specs.run import RunSpec
from shared.storage import Storage
from tests.browser.served import TOKEN, served
from tests.unit.producer.page.audited import COUNT, IDENTITY, JOB, RUN, finding, make_audited
from tests.unit.producer.page.test_label_kinds import MADE_UP, links
from tests.unit.producer.page.test_labels import LABELS, Person, answers, asked_of

BEFORE, STRANGER = "job.audit-2", "job.audit-5"


def each_its_own(number: int, prefix: str = "") -> AuditFinding:
    """A finding about a label of its own; with a prefix as another training says it."""
    box = (10.0 * number, 60.0, 10.0 * number + 60, 120.0)
    one = finding(number)
    moved = None if one.proposed_box is None else (box[0] + (3 if prefix else 10), *box[1:])
    return one.model_copy(update={"id": f"{prefix}{one.id[len(prefix) :]}", "box": box, "proposed_box": moved})


def add_audit(store: Storage, run: str, prefix: str = "") -> None:
    asked = RunSpec(job=JOB, incarnation=IDENTITY, run=run, folds=3, audits=("job.fold-1-of-3",))
    store.write(RunPaths(run).request, asked.to_json().encode())
    store.write(RunPaths(run).run, make_note(IDENTITY))
    rows = tuple(each_its_own(number, prefix) for number in range(COUNT))
    found = AuditFindings(run=run, job=JOB, incarnation=IDENTITY, folds=3, photos=2, boxes=COUNT, findings=rows)
    store.write(RunPaths(run).findings, found.to_json().encode())


def decide_before(store: Path, answer: Answer, *numbers: int) -> None:
    for number in numbers:
        said = Decision(finding=each_its_own(number, "bb").id, answer=answer, at=1.0)
        Decisions(Storage(str(store)), BEFORE).add(said)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """The audit that is looked at, and one before it with other ids."""
    path = make_audited(tmp_path)
    add_audit(Storage(str(path)), RUN)
    add_audit(Storage(str(path)), BEFORE, "bb")
    return path


@pytest.fixture
def person(store: Path) -> Iterator[Person]:
    decide_before(store, "wrong", 0, 2, 3)
    decide_before(store, "right", 1)
    with served(store, store.parent / "data", change_token=TOKEN) as address:
        yield Person(address).allow()


IDS = [each_its_own(number).id for number in range(COUNT)]


def kept_link(page: str) -> str:
    found = re.search(r'\(<a href="([^"]*)">\d+ kept before</a>\)', page)
    assert found is not None
    return unescape(found[1])


def test_what_was_kept_before_is_decided_and_not_asked_again(person: Person, store: Path) -> None:
    page = person.read()
    assert asked_of(page) == IDS[1], "called right elsewhere is not decided here"
    assert "3 of 12 decided: 0 to be corrected, 3 left as they are (<a" in page
    assert list(links(page)) == ["all 9", "made_up 4", "misplaced 5"]
    page = person.answer(page, "skip")
    assert asked_of(page) == IDS[4]
    assert answers(store) == {IDS[1]: "skip"}, "nothing is written down of what was kept before"
    assert "2 of 6 of kind made_up decided: 0 to be corrected, 2 left" in person.read(f"{LABELS}?kind=made_up")


def test_a_job_says_that_they_are_decided(person: Person) -> None:
    assert "3 decided" in person.read(f"/jobs/{JOB}")


def test_what_was_kept_before_can_be_looked_through_with_where_it_was(person: Person) -> None:
    seen, page = list[str](), person.read()
    for _ in range(4):
        page = person.read(kept_link(page))
        seen.append(asked_of(page))
    assert seen == [IDS[2], IDS[3], IDS[0], IDS[2]]
    found = re.search(r'kept before, in audit <a href="(.*?)">job.audit-2</a></dd>', page)
    assert found is not None
    there = person.read(unescape(found[1]))
    assert asked_of(there) == each_its_own(2, "bb").id
    assert "<dt>decided</dt><dd>No, keep it</dd>" in there
    of_kind = person.read(f"{LABELS}?kind=misplaced")
    assert ">1 kept before</a>" in of_kind
    assert ">3 kept before</a>" in page
    assert asked_of(person.read(kept_link(of_kind))) == IDS[3]
    assert asked_of(person.read(kept_link(person.read(kept_link(of_kind))))) == IDS[3]


def test_what_was_kept_before_is_made_open_again_here_and_undone(person: Person, store: Path) -> None:
    page = person.answer(person.read(f"{LABELS}?at={IDS[0]}"), "open")
    assert asked_of(page) == IDS[0]
    assert "kept before, in" not in page
    assert "2 of 12 decided" in page
    assert asked_of(person.read()) == IDS[0]
    page = person.answer(page, "undo")
    assert "3 of 12 decided: 0 to be corrected, 3 left as they are (" in page
    assert asked_of(person.read()) == IDS[1]
    page = person.answer(person.read(f"{LABELS}?at={IDS[0]}"), "right")
    assert "3 of 12 decided: 1 to be corrected, 2 left as they are (" in page
    assert answers(store) == {IDS[0]: "right"}


def test_a_damaged_audit_beside_it_does_not_break_the_page(store: Path) -> None:
    storage = Storage(str(store))
    add_audit(storage, STRANGER, "cc")
    Decisions(storage, STRANGER).add(Decision(finding=each_its_own(5, "cc").id, answer="wrong", at=1.0))
    storage.write(RunPaths(STRANGER).findings, b"\xff{")
    decide_before(store, "wrong", 0)
    with served(store, store.parent / "data", change_token=TOKEN) as address:
        assert "1 of 12 decided" in Person(address).read()


def test_what_is_kept_elsewhere_meanwhile_is_seen_after_a_while(store: Path) -> None:
    storage = Storage(str(store))
    at_once, later = Audits(storage, look_again_s=0), Audits(storage, look_again_s=3600)
    assert (at_once.get(RUN).answers, later.get(RUN).answers) == ({}, {})
    decide_before(store, "wrong", 4)
    assert at_once.get(RUN).answers == {IDS[4]: "wrong"}
    assert set(at_once.get(RUN).kept) == {IDS[4]}
    assert later.get(RUN).answers == {}
    decide_before(store, "open", 4)
    assert at_once.get(RUN).answers == {}


def command(store: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "producer", "audit", JOB, *words, "--store", str(store)],
        cwd=Path(__file__).parents[4],
        env={"PATH": "", "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_least_score_leaves_out_the_labels_that_a_person_has_kept(store: Path) -> None:
    decide_before(store, "wrong", 1)
    storage, copy = Storage(str(store)), store.parent / "copy"
    for number, answer in ((3, "wrong"), (5, "right")):
        Decisions(storage, RUN).add(Decision(finding=IDS[number], answer=answer, at=1.0))
    done = command(store, "--accept", "0.84", "--out", str(copy))
    assert done.returncode == 0, done.stderr
    assert "2 findings of such a score were answered with no on the page: left out" in done.stderr
    assert [number for number in range(COUNT) if IDS[number] in done.stdout] == [0, 2, 4, 5, 6]
    for number in (0, 2, 4, 6):
        Decisions(storage, RUN).add(Decision(finding=IDS[number], answer="wrong", at=1.0))
    none = command(store, "--accept", "0.86", "--out", str(store.parent / "second"))
    assert none.returncode == 2
    refused = "--accept 0.86: 5 findings of such a score were answered with no on the page, so the labels stay"
    assert refused in " ".join(none.stderr.split())


def test_of_a_kind_all_of_which_was_kept_before_nothing_is_asked(store: Path) -> None:
    decide_before(store, "wrong", *range(0, COUNT, 2))
    with served(store, store.parent / "data", change_token=TOKEN) as address:
        page = Person(address).read(f"{LABELS}?kind=made_up")
    assert "Every finding of kind made_up is decided." in page
    assert kept_link(page).endswith(f"at={MADE_UP[0]}")
