"""One kind of an audit's findings at a time: what is counted, where answers lead, and what is said at the end."""

import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import pytest

from producer.audit.decisions import Decision, Decisions
from shared.audit.findings import AuditFindings
from shared.jobs.paths import RunPaths
from shared.storage import Storage
from tests.browser.served import TOKEN, served
from tests.unit.producer.page.audited import COUNT, IDS, RUN, finding, make_audited
from tests.unit.producer.page.test_labels import LABELS, Person, answers, asked_of

MADE_UP, MISPLACED = IDS[::2], IDS[1::2]  # as `finding` makes them


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return make_audited(tmp_path)


@pytest.fixture
def person(store: Path) -> Iterator[Person]:
    with served(store, store.parent / "data", change_token=TOKEN) as address:
        yield Person(address).allow()


def links(page: str) -> dict[str, str]:
    """Where each kind's link leads, by what it says."""
    shown = re.search(r'<nav class="kinds".*?</nav>', page, re.DOTALL)
    found = re.findall(r'<a href="(.*?)".*?>(.*?)</a>', shown[0]) if shown else []
    return {text: unescape(place) for place, text in found}


def beside(page: str, key: str) -> str | None:
    found = re.search(rf'<a href="([^"]*)" data-key="{key}"', page)
    return unescape(found[1]) if found else None


def test_each_kind_that_occurs_is_a_link_with_what_is_open_of_it(person: Person, store: Path) -> None:
    page = person.read()
    assert list(links(page)) == ["all 12", "made_up 6", "misplaced 6"]
    page = person.answer(page, "right")
    assert list(links(page)) == ["all 11", "made_up 5", "misplaced 6"]
    chosen = person.read(links(page)["misplaced 6"])
    assert asked_of(chosen) == MISPLACED[0]
    assert re.findall(r'aria-current="page">(.*?)<', chosen) == ["misplaced 6"]
    assert "0 of 6 of kind misplaced decided" in chosen
    assert asked_of(person.read(links(chosen)["all 11"])) == IDS[1]


def test_of_an_audit_that_doubts_in_one_way_only_no_kind_is_to_be_chosen(person: Person, store: Path) -> None:
    storage, key = Storage(str(store)), RunPaths(RUN).findings
    found = AuditFindings.model_validate_json(storage.read(key))
    one_kind = found.model_copy(update={"findings": found.findings[::2]})
    storage.write(key, one_kind.to_json().encode())
    assert links(person.read()) == {}


def test_answers_and_links_stay_within_the_chosen_kind(person: Person, store: Path) -> None:
    page = person.read(f"{LABELS}?kind=misplaced")
    assert asked_of(page) == MISPLACED[0]
    assert beside(page, "arrowleft") is None
    page = person.answer(page, "right")
    assert asked_of(page) == MISPLACED[1]
    assert "1 of 6 of kind misplaced decided: 1 to be corrected" in page
    assert "2 of 6 of kind misplaced</span>" in page
    assert asked_of(person.read(beside(page, "arrowright") or "")) == MISPLACED[2]
    page = person.read(beside(page, "arrowleft") or "")
    assert asked_of(page) == MISPLACED[0]
    page = person.answer(page, "open")
    assert asked_of(page) == MISPLACED[0]
    assert asked_of(person.answer(page, "skip")) == MISPLACED[1]
    onward = person.answer(person.read(f"{LABELS}?kind=misplaced&at={MISPLACED[3]}"), "skip")
    assert asked_of(onward) == MISPLACED[4], "the next one behind it, though one before it is open"
    last = person.read(f"{LABELS}?kind=misplaced&at={MISPLACED[-1]}")
    assert beside(last, "arrowright") is None
    assert asked_of(person.answer(last, "skip")) == MISPLACED[1], "from the start of the kind"
    assert answers(store) == dict.fromkeys((MISPLACED[0], MISPLACED[3], MISPLACED[-1]), "skip")


def test_undo_takes_back_the_last_answer_of_the_chosen_kind_and_leaves_the_others(person: Person, store: Path) -> None:
    page = person.answer(person.read(f"{LABELS}?kind=made_up"), "wrong")
    page = person.read(links(page)["misplaced 6"])
    assert 'value="undo"' not in page, "nothing of this kind was decided"
    page = person.answer(person.answer(page, "right"), "undo")
    assert asked_of(page) == MISPLACED[0]
    assert "of kind misplaced decided" in page
    assert 'value="undo"' not in page
    assert answers(store) == {MADE_UP[0]: "wrong"}
    page = person.answer(person.read(links(page)["all 11"]), "undo")
    assert asked_of(page) == MADE_UP[0]
    assert answers(store) == {}


def test_a_kind_that_is_all_decided_says_so_and_leads_to_the_others(person: Person, store: Path) -> None:
    page = person.read(f"{LABELS}?kind=made_up")
    for finding_id in MADE_UP:
        assert asked_of(page) == finding_id
        page = person.answer(page, "wrong")
    assert asked_of(page) == ""
    assert "Every finding of kind made_up is decided." in page
    assert "6 of 6 of kind made_up decided: 0 to be corrected, 6 left as they are, 0 skipped" in page
    onward = re.search(r'Still open: <a href="(.*?)">misplaced 6</a>\.', page)
    assert onward is not None
    assert asked_of(person.answer(page, "undo")) == MADE_UP[-1]
    page = person.read(unescape(onward[1]))
    for _ in MISPLACED:
        page = person.answer(page, "right")
    assert "Every finding of kind misplaced is decided." in page
    assert "Still open: <a" in page, "the one that was taken back"
    person.answer(person.read(), "skip")
    assert "Nothing else is open." in person.read(f"{LABELS}?kind=misplaced")
    assert "Every finding is decided." in person.read()
    assert len(answers(store)) == COUNT


def test_a_kind_of_which_there_is_no_finding_leads_to_those_that_there_are(person: Person) -> None:
    page = person.read(f"{LABELS}?kind=double")
    assert "The audit has no finding of kind double." in page
    assert re.findall(r">(made_up 6|misplaced 6)</a>[,.]", page) == ["made_up 6", "misplaced 6"]


def test_an_unknown_kind_is_refused_in_one_line(person: Person, store: Path) -> None:
    expected = "expected one of missing, made_up, misplaced, wrong_class, double as kind, found 'Missing'"
    status, page = person.ask(f"{LABELS}?kind=Missing")
    assert (status, expected in unescape(page)) == (400, True)
    status, page = person.ask(LABELS, finding=IDS[0], answer="right", kind="Missing")
    assert (status, expected in unescape(page)) == (400, True)
    assert answers(store) == {}


def test_an_address_of_a_finding_of_another_kind_shows_one_of_the_chosen_kind(person: Person) -> None:
    assert finding(0).kind == "made_up"
    assert asked_of(person.read(f"{LABELS}?kind=misplaced&at={MADE_UP[0]}")) == MISPLACED[0]


def test_a_decision_on_a_finding_that_is_no_more_counts_for_nothing(person: Person, store: Path) -> None:
    Decisions(Storage(str(store)), RUN).add(Decision(finding="00000000ff", answer="right", at=1.0))
    assert "0 of 12 decided: 0 to be corrected" in person.read()
