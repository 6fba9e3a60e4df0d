"""An audit's findings on the page, by plain forms: what is asked, what is decided, by one person and by two at once."""

import http.client
import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from html import unescape
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import numpy as np
import pytest

from producer.audit.decisions import Decisions, decided
from producer.audit.photo_sizes import photo_head
from producer.page.facts.crops import crop_of
from producer.page.label_pages import BUTTONS, QUESTIONS
from producer.page.labels import Trail
from shared.audit.findings import FindingKind
from shared.jobs.identity import find_job, make_note
from shared.jobs.paths import JobPaths, RunPaths
from shared.specs.data import JobSpec
from shared.specs.run import RunSpec
from shared.storage import Storage
from tests.browser.served import TOKEN, served
from tests.unit.producer.page.audited import COUNT, GONE, IDENTITY, IDS, JOB, RUN, SCRIPT, finding, make_audited

LABELS = f"/runs/{RUN}/labels"


class Person:
    """Somebody with a browser without scripts."""

    def __init__(self, site: str) -> None:
        self.site = urlsplit(site).netloc
        self.cookie = ""

    def ask(self, path: str, **form: str) -> tuple[int, str]:
        """Status, and the page or where it leads; with `form` a POST."""
        headers = {"Cookie": self.cookie} | ({"Content-Type": "application/x-www-form-urlencoded"} if form else {})
        with closing(http.client.HTTPConnection(self.site, timeout=60)) as connection:
            connection.request("POST" if form else "GET", path, urlencode(form), headers)
            answer = connection.getresponse()
            text = answer.read().decode(errors="replace")
        self.cookie = (answer.getheader("Set-Cookie") or self.cookie).partition(";")[0]
        return answer.status, answer.getheader("Location") or text

    def allow(self) -> "Person":
        assert self.ask("/allow", token=TOKEN) == (303, "/")
        return self

    def read(self, path: str = LABELS) -> str:
        status, page = self.ask(path)
        assert status == 200, page
        return page

    def answer(self, page: str, answer: str) -> str:
        """Press one of a page's buttons; the next page."""
        fields = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', page))
        status, place = self.ask(LABELS, answer=answer, **fields)
        assert status == 303, place
        return self.read(place)


def asked_of(page: str) -> str:
    """The id of the finding that a page asks about."""
    found = re.search(r'name="finding" value="(\w+)"', page)
    return found[1] if found else ""


def answers(store: Path) -> dict[str, str]:
    decisions = Decisions(Storage(str(store)), RUN)
    decisions.refresh()
    return dict(decisions.answers())


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return make_audited(tmp_path)


@pytest.fixture
def site(store: Path) -> Iterator[str]:
    with served(store, store.parent / "data", change_token=TOKEN) as address:
        yield address


def test_findings_are_asked_one_after_another_and_the_answers_are_in_the_store(site: str, store: Path) -> None:
    person = Person(site).allow()
    page = person.read()
    for number, answer in enumerate(("right", "wrong", "skip")):
        assert asked_of(page) == IDS[number]
        page = person.answer(page, answer)
    assert asked_of(page) == IDS[3]
    assert "3 of 12 decided: 1 to be corrected, 1 left as they are, 1 skipped" in page
    assert answers(store) == {IDS[0]: "right", IDS[1]: "wrong", IDS[2]: "skip"}
    assert [each.id for each in decided(Storage(str(store)), RUN, map(finding, range(COUNT)))] == [IDS[0]]


def test_a_training_is_said_to_be_no_audit_instead_of_one_that_is_not_done(site: str, store: Path) -> None:
    storage, paths = Storage(str(store)), RunPaths("trained")
    storage.write(paths.request, RunSpec(job=JOB, incarnation=IDENTITY, run="trained").to_json().encode())
    storage.write(paths.run, make_note(IDENTITY))
    status, page = Person(site).ask("/runs/trained/labels")
    assert status == 404
    assert "is no audit" in page
    assert "is not done" not in page


def test_the_last_answers_are_taken_back_one_by_one(site: str, store: Path) -> None:
    person = Person(site).allow()
    page = person.answer(person.answer(person.read(), "right"), "wrong")
    page = person.answer(page, "undo")
    assert asked_of(page) == IDS[1]
    assert "Taken back." in page
    page = person.answer(page, "undo")
    assert asked_of(page) == IDS[0]
    assert 'value="undo"' not in page
    assert answers(store) == {}


def test_a_decided_finding_is_made_open_again_from_itself_whenever(site: str, store: Path) -> None:
    person = Person(site).allow()
    assert 'value="open"' not in person.answer(person.read(), "right"), "the next one is open"
    page = person.read(f"{LABELS}?at={IDS[0]}")  # with no trail, as by a link of tomorrow
    assert "<dt>decided</dt><dd>Yes, remove the box</dd>" in page
    page = person.answer(page, "open")
    assert (asked_of(page), answers(store)) == (IDS[0], {})
    assert "This finding is open again." in page
    assert 'value="open"' not in page
    assert answers(store) == {}
    person.answer(page, "undo")
    assert answers(store) == {IDS[0]: "right"}


@pytest.mark.parametrize("kind", QUESTIONS)
def test_questions_have_no_negation_and_buttons_say_what_they_do(kind: FindingKind) -> None:
    assert not {"no", "not"} & set(re.findall(r"\w+", QUESTIONS[kind].lower()))
    assert [button.split(",")[0] for button in BUTTONS[kind]] == ["Yes", "No"]
    assert all(len(button.split()) > 2 for button in BUTTONS[kind])


def test_the_buttons_of_a_finding_say_what_becomes_of_its_label(site: str) -> None:
    page = Person(site).allow().read()
    assert f"Is this marked {SCRIPT} a mistake?" in unescape(page)
    assert re.findall(r'value="(?:right|wrong)" data-key="(.*?)">(.*?) <kbd>', page) == [
        ("r y", "Yes, remove the box"),
        ("w n", "No, keep it"),
    ]


def test_what_somebody_else_decided_since_stays(site: str, store: Path) -> None:
    mine, theirs = Person(site).allow(), Person(site).allow()
    page = mine.answer(mine.read(), "right")
    theirs.answer(theirs.read(f"{LABELS}?at={IDS[0]}"), "wrong")
    assert "Somebody else has decided on that finding since: theirs stays." in mine.answer(page, "undo")
    assert answers(store) == {IDS[0]: "wrong"}


def test_two_people_at_once_lose_nothing(site: str, store: Path) -> None:
    people = [Person(site).allow(), Person(site).allow()]
    together, refusals = threading.Barrier(2), list[str]()

    def work(person: Person, ids: list[str]) -> None:
        for finding_id in ids:
            together.wait(60)
            status, place = person.ask(LABELS, finding=finding_id, answer="right")
            if status != 303:
                refusals.append(place)

    half = COUNT // 2
    threads = [threading.Thread(target=work, args=each) for each in zip(people, (IDS[:half], IDS[half:]), strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert refusals == []
    assert answers(store) == dict.fromkeys(IDS, "right")
    assert len(Storage(str(store)).list_names(RunPaths(RUN).decisions)) == COUNT
    page = people[0].read()
    assert "Every finding is decided." in page
    assert "--accept decisions" in page


def test_without_the_token_nothing_can_be_decided(site: str, store: Path) -> None:
    person = Person(site)
    page = person.read()
    assert "To decide, type the token below" in page
    assert "<button name=" not in page
    assert person.ask(LABELS, finding=IDS[0], answer="right")[0] == 403
    assert answers(store) == {}
    with served(store) as looking:
        assert "To decide, start the page with <code>--allow-changes</code>" in Person(looking).read()
        assert Person(looking).ask(LABELS, finding=IDS[0], answer="right")[0] == 403
    assert answers(store) == {}


@pytest.mark.parametrize(
    ("form", "status", "said"),
    [
        ({"finding": "nobody's", "answer": "right"}, 404, "has no finding"),
        ({"finding": IDS[0], "answer": "perhaps"}, 400, "expected right, wrong, skip, open or undo"),
        ({"answer": "undo", "trail": "9.x"}, 303, LABELS),
        ({"answer": "undo", "trail": "999999"}, 303, LABELS),
    ],
)
def test_forms_of_others_change_nothing(site: str, store: Path, form: dict[str, str], status: int, said: str) -> None:
    answered, text = Person(site).allow().ask(LABELS, **form)
    assert (answered, said in text) == (status, True), text
    assert answers(store) == {}


def test_what_comes_from_files_is_text_and_a_photo_that_is_gone_is_said(site: str) -> None:
    person = Person(site)
    page = person.read()
    assert SCRIPT not in page
    assert "&lt;script&gt;document.title" in page
    assert "photos/&lt;b&gt;0.jpg" in page
    page = person.read(f"{LABELS}?at={IDS[-1]}")
    assert f"{GONE}: the photo is gone" in page
    assert "<svg viewBox" not in page


def test_a_photo_of_another_size_than_was_audited_is_said_and_not_drawn_on(site: str, store: Path) -> None:
    sizes = {"photos/<b>0.jpg": [480, 640], "photos/<b>1.jpg": [240, 320]}
    Storage(str(store)).write(JobPaths(JOB).photo_sizes(IDENTITY), json.dumps(sizes).encode())
    page = Person(site).read()
    assert "photos/&lt;b&gt;0.jpg: the photo is 240x320 by now, and 480x640 was audited" in page
    assert "<svg viewBox" not in page
    assert "<svg viewBox" in Person(site).read(f"{LABELS}?at={IDS[1]}")


def test_a_photo_that_was_replaced_by_one_of_its_size_is_said_and_not_drawn_on(site: str, store: Path) -> None:
    storage, paths = Storage(str(store)), JobPaths(JOB)
    job = find_job(storage, JOB)
    assert job is not None
    heads = {"photos/<b>0.jpg": "0" * 16, "photos/<b>1.jpg": photo_head(Path(job.dataset), "photos/<b>1.jpg")}
    storage.write(paths.photo_heads(IDENTITY), json.dumps(heads).encode())
    page = Person(site).read()
    assert "photos/&lt;b&gt;0.jpg: the photo is another file by now than the one that was audited" in page
    assert "<svg viewBox" not in page
    assert "<svg viewBox" in Person(site).read(f"{LABELS}?at={IDS[1]}")


def test_a_photo_is_asked_for_by_its_finding_alone(site: str) -> None:
    person = Person(site)
    assert person.ask(f"{LABELS}/photos/{IDS[0]}")[0] == 200
    assert person.ask(f"{LABELS}/photos/{IDS[-1]}")[0] == 404
    for name in ("nobody's", "..%2f..%2frequest.json", "%00"):
        assert person.ask(f"{LABELS}/photos/{name}")[0] == 404, name


@pytest.mark.parametrize("run", ["job", "nobody", "..%2fjobs", "%00", "JOB.AUDIT-3"])
def test_there_are_no_findings_of_what_is_no_audit(site: str, run: str) -> None:
    assert Person(site).ask(f"/runs/{run}/labels")[0] == 404


def test_findings_made_anew_are_read_anew(site: str, store: Path) -> None:
    person = Person(site)
    assert "0 of 12 decided" in person.read()
    storage = Storage(str(store))
    key = RunPaths(RUN).findings
    storage.write(key, storage.read(key).replace(b'"score":0.9}', b'"score":0.91}'))
    assert "<dd>0.91</dd>" in person.read()
    storage.write(key, b"{}")
    assert person.ask(LABELS)[0] == 422


def test_what_else_is_marked_in_the_photo_is_drawn_besides(site: str, store: Path) -> None:
    storage, marked = Storage(str(store)), ((100, 60, 160, 120), (10, 200, 60, 300))
    scale = np.array([JobSpec().image_size / 240, JobSpec().image_size / 320] * 2)  # stretched: width 240, height 320
    stored = [[*corners[:2], *(corners[2:] - corners[:2])] for corners in (np.array(box) * scale for box in marked)]
    content = {
        "images": [{"id": 1, "file_name": "photos/<b>1.jpg"}],
        "annotations": [{"image_id": 1, "bbox": box} for box in stored],
    }
    storage.write(JobPaths(JOB).shard_annotations("train-00000-of-00001"), json.dumps(content).encode())
    others = re.findall(r'<rect class="other" (.*?) fill', Person(site).read(f"{LABELS}?at={IDS[1]}"))
    numbers = [tuple(round(float(each)) for each in re.findall(r'"(.*?)"', other)) for other in others]
    assert numbers == [(10, 200, 50, 100)], "the finding's own box is drawn as what is marked"
    storage.write(JobPaths(JOB).shard_annotations("train-00000-of-00001"), b"{")
    assert 'class="other"' not in Person(site).read(f"{LABELS}?at={IDS[1]}")


def test_a_crop_shows_the_boxes_and_what_is_around_them_inside_the_photo() -> None:
    crop = crop_of([(100, 100, 140, 120), (110, 100, 150, 120)], (400, 300))
    assert (crop.left, crop.top, crop.width, crop.height) == (62, 48, 125, 125)
    corner = crop_of([(0, 0, 10, 10)], (400, 300))
    assert (corner.left, corner.top, corner.width, corner.height) == (0, 0, 100, 100)
    assert crop_of([(0, 0, 400, 300)], (400, 300)).width == 400


def test_a_trail_is_read_as_it_is_written_and_anything_else_is_none() -> None:
    trail = Trail(numbers=tuple(range(1, 80)))
    assert Trail.read(str(trail)).numbers == tuple(range(30, 80))
    for text in ("", "1.", "1.-2", "9" * 12, "1.\u0663"):
        assert Trail.read(text).numbers == (), text


def accepted_by_command(store: Path) -> "subprocess.CompletedProcess[str]":
    words = ["audit", JOB, "--accept", "decisions", "--out", str(store.parent / "copy"), "--store", str(store)]
    command = [sys.executable, "-m", "producer", *words]
    return subprocess.run(
        command, cwd=Path(__file__).parents[4], capture_output=True, text=True, timeout=120, check=False
    )


def test_the_command_takes_what_was_called_right_on_the_page(site: str, store: Path) -> None:
    person = Person(site).allow()
    page = person.answer(person.read(), "wrong")
    before = accepted_by_command(store)
    assert before.returncode == 1
    assert f"no finding of {RUN} was called right on the page" in before.stderr
    person.answer(page, "right")
    after = accepted_by_command(store)
    assert after.returncode == 0, after.stderr
    assert len(after.stdout.splitlines()) == 1, after.stdout
    assert "photos/<b>1.jpg" in after.stdout
    assert " --job NEW-NAME --background orphans " in " ".join(after.stderr.split())
    xml = (store.parent / "copy" / "photos" / "<b>1.xml").read_text()
    assert "<name>cat</name>" in xml
    assert "<xmin>110" in xml
