"""A walk over the page: what a person is told to type, where links and tokens lead, what is true without scripts."""

import json
import re
import shlex
import time
from collections.abc import Iterator, Mapping
from html import unescape
from pathlib import Path

import pytest
from pydantic import SecretStr

from producer.page.facts.commands import rooted
from producer.page.render import local_address
from producer.settings import ProducerSettings
from shared.audit.findings import AuditFindings
from shared.command import program
from shared.jobs.identity import make_note
from shared.jobs.job import Job
from shared.jobs.paths import JobPaths, RunPaths
from shared.specs.run import RunSpec
from shared.storage import Storage
from tests.cluster import wait_until
from tests.page import ServedPage, served
from tests.unit.producer.page import audited
from tests.unit.producer.page.measured import IDENTITY, JOB, finish_job, make_measured

TOKEN = "a-token-of-the-tests"
HIDDEN = r'<input type="hidden" name="back" value="(.*?)">'


@pytest.fixture
def store(tmp_path: Path) -> Storage:
    """Two measured runs, in a folder that a shell has to quote."""
    folder = tmp_path / "my photos"
    folder.mkdir()
    store = Storage(str(make_measured(folder)))
    for run, map50 in (("first", 0.6), ("second", 0.9)):
        note(store, run, metrics={"int8": {"map50": map50}})
    return store


@pytest.fixture
def page(store: Storage) -> Iterator[ServedPage]:
    with served(settings(store), change_token=TOKEN) as page:
        yield page


def settings(store: Storage, broker: str | None = None) -> ProducerSettings:
    url = SecretStr(broker) if broker else None
    return ProducerSettings(store=store.root, data_root=str(Path(store.root).parent / "data"), broker_url=url)


def note(store: Storage, run: str, **said: object) -> None:
    store.write(RunPaths(run).run, json.dumps(json.loads(make_note(IDENTITY)) | said).encode())


def allowed(page: ServedPage, path: str = "/", form: Mapping[str, str] | None = None) -> str:
    return page.ask(path, form=form, Cookie=f"voc2tflite_changes={TOKEN}").text


def commands(text: str) -> list[list[str]]:
    return [shlex.split(unescape(code)) for code in re.findall(r"<code>(.*?)</code>", text)]


def test_a_command_is_made_whole_for_any_folder(store: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(store.root).parent)
    told = shlex.split(rooted("voc2tflite resume job --store store", store))
    assert told[-4:] == ["resume", "job", "--store", store.root]
    assert Path(told[0]).is_absolute() or told[0] == "voc2tflite" == program()[0]
    assert shlex.split(rooted("voc2tflite predict STORE/runs/a/b.tflite 'MY PHOTOS'", store))[-2:] == [
        f"{store.root}/runs/a/b.tflite",
        "MY PHOTOS",
    ]
    assert rooted("an open ' quote", store) == "an open ' quote"


def test_advice_names_the_store_and_asks_with_the_name_of_the_run(page: ServedPage, store: Storage) -> None:
    note(store, "first", advice=["Look:\nvoc2tflite inspect job --store STORE --png boxes.png"])
    told = commands(page.ask("/runs/first").text)
    assert [words[-5:] for words in told if "inspect" in words] == [
        ["job", "--store", store.root, "--png", "boxes.png"]
    ]
    asked = next(words for words in told if "submit" in words)
    at = asked.index("submit")
    assert asked[at : at + 5] == ["submit", "--job", JOB, "--run", "first"]
    assert asked[-2:] == ["--store", store.root]


def test_a_run_that_nobody_works_on_has_a_command_with_the_whole_path(
    page: ServedPage, store: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(Path(store.root).parent)
    asked = RunSpec(job=JOB, incarnation=IDENTITY, run="stuck")
    store.write(RunPaths("stuck").request, asked.to_json().encode())
    for path in ("/runs/stuck", f"/jobs/{JOB}"):
        told = [words for words in commands(page.ask(path).text) if "resume" in words]
        assert told, path
        assert all(words[words.index("--store") + 1] == store.root for words in told), path


def test_without_a_broker_no_form_is_offered_that_can_only_fail(page: ServedPage, store: Storage) -> None:
    jobs, job = allowed(page), allowed(page, f"/jobs/{JOB}")
    assert 'action="/submit"' not in jobs
    assert "No broker is set here" in jobs
    assert [words[-4:] for words in commands(jobs)] == [["FOLDER", "--local", "--store", store.root]]
    assert f'action="/jobs/{JOB}/audit"' not in job
    refused = allowed(page, "/submit", {"folder": "voc"})
    (told,) = (words for words in commands(refused) if "submit" in words)
    assert told[told.index("submit") :] == [
        *("submit", str(Path(store.root).parent / "data" / "voc"), "--local", "--store", store.root)
    ]


def test_with_a_broker_the_form_is_offered(store: Storage) -> None:
    with served(settings(store, "redis://127.0.0.1:1/0"), change_token=TOKEN) as page:
        assert 'action="/submit"' in allowed(page)


def test_the_token_leads_back_to_where_it_was_typed(page: ServedPage) -> None:
    shown = page.ask("/compare?run=first&run=second&said=1").text
    back = unescape(re.findall(HIDDEN, shown)[0])
    assert back == "/compare?run=first&run=second"
    answer = page.ask("/allow", form={"token": TOKEN, "back": back})
    assert (answer.status, answer.headers["location"]) == (303, back)
    wrong = page.ask("/allow", form={"token": "wrong", "back": back})
    assert wrong.status == 403
    assert f'<a href="{back.replace("&", "&amp;")}">Back</a>' in wrong.text
    assert [unescape(each) for each in re.findall(HIDDEN, wrong.text)] == [back]


@pytest.mark.parametrize(
    "hostile", ["https://other.example/", "//other.example/", "/\\other.example", "", "/a\r\nb: c"]
)
def test_a_token_leads_to_no_other_site(page: ServedPage, hostile: str) -> None:
    assert local_address(hostile) == "/"
    answer = page.ask("/allow", form={"token": TOKEN, "back": hostile})
    assert (answer.status, answer.headers["location"]) == (303, "/")


def test_a_deed_without_a_token_leads_back_to_its_form(page: ServedPage) -> None:
    refused = page.ask(f"/jobs/{JOB}/cancel", form={}, Referer=f"{page.url}/jobs/{JOB}").text
    assert re.findall(HIDDEN, refused) == [f"/jobs/{JOB}"]
    refused = page.ask(f"/jobs/{JOB}/cancel", form={}, Referer="https://other.example/jobs/x").text
    assert re.findall(HIDDEN, refused) == ["/"]


def test_labels_say_what_a_weak_model_is_worth_and_which_keys_answer(tmp_path: Path) -> None:
    store = Storage(str(audited.make_audited(tmp_path)))
    key = RunPaths(audited.RUN).findings
    found = AuditFindings.model_validate_json(store.read(key))
    remark = "the models found 36% of the marked boxes, <too> few"
    store.write(key, found.model_copy(update={"remarks": (remark,)}).to_json().encode())
    with served(ProducerSettings(store=store.root, data_root=str(tmp_path / "data")), change_token=TOKEN) as page:
        text = allowed(page, f"/runs/{audited.RUN}/labels")
    assert '<p class="warning">the models found 36% of the marked boxes, &lt;too&gt; few</p>' in text
    assert "<kbd>r</kbd> <kbd>y</kbd>" in text


def test_a_run_is_told_from_its_job_and_leads_to_its_comparison(page: ServedPage, store: Storage) -> None:
    text = page.ask("/runs/first").text
    assert "<h1>Run first</h1>" in text
    assert "<title>Run first ·" in text
    assert f'<a href="/jobs/{JOB}">Job {JOB}</a>' in text
    assert 'href="/compare?run=first&amp;run=second"' in text
    assert f"<h1>Job {JOB}</h1>" in page.ask(f"/jobs/{JOB}").text


def test_files_are_linked_by_their_form_and_listed_once(page: ServedPage, store: Storage) -> None:
    files = {name: {"bytes": 3, "sha256": "0" * 64} for name in ("model_int8.tflite", "audit.html")}
    note(store, "first", files=files)
    store.write(f"{RunPaths('first').root}/audit.html", b"<p>")
    text = page.ask("/runs/first").text
    assert text.count('href="/runs/first/files/audit.html"') == 1
    forms = text[text.index("The forms of the model") : text.index("By class")]
    assert 'href="/runs/first/files/model_int8.tflite"' in forms


def test_the_list_shows_the_best_run_of_a_job(page: ServedPage) -> None:
    text = page.ask("/").text
    assert '<a href="/runs/second">90.0' in text
    assert "second, the best of 2 runs" in text


def test_without_scripts_trying_says_only_what_is_true(page: ServedPage, store: Storage) -> None:
    store.write(RunPaths("first").int8, b"no model")
    text = page.ask("/runs/first/try").text
    assert f'<a href="/jobs/{JOB}">Job {JOB}</a>' in text
    if "LiteRT.js, which runs the model in the browser, is missing" in text:
        pytest.skip("`make page` has not been called")
    assert '<p id="privacy" hidden>' in text
    assert '<section id="try" hidden ' in text
    assert '<details class="send" open>' in text
    assert "Your photo is sent to this server" in text


def test_figures_of_a_form_without_a_file_are_no_link(page: ServedPage) -> None:
    assert "files/model_int8.tflite" not in page.ask("/runs/first").text


@pytest.mark.parametrize(
    ("progress", "told"),
    [
        ({"phase": "check"}, "check"),
        ({"phase": "export", "form": "float16"}, "export: float16"),
        ({"phase": "measure", "form": "<int8>"}, "measure: &lt;int8&gt;"),
        ({"phase": "train", "step": 7, "steps": 90}, "step 7 of 90, train"),
        ({"phase": "train", "step": 7, "steps": 90, "branch": 2, "branches": 3}, "step 7 of 90, train, branch 2 of 3"),
    ],
)
def test_a_training_says_what_it_does_with_and_without_steps(
    page: ServedPage, store: Storage, progress: Mapping[str, object], told: str
) -> None:
    finish_job(store, {})
    asked = RunSpec(job=JOB, incarnation=IDENTITY, run="busy")
    store.write(RunPaths("busy").request, asked.to_json().encode())
    held = {"at": time.time(), "held": True, "worker": "train-1@host", "pid": 7, **progress}
    store.write(RunPaths("busy").progress, make_note(IDENTITY, **held))
    run = page.ask("/runs/busy").text
    state = run[run.index('<section id="state"') : run.index("</section>")]
    assert "TRAINING" in state
    assert "<progress" in state
    assert told in re.sub(r"\s+", " ", state)
    row = re.findall(r"<tr>.*?</tr>", page.ask(f"/jobs/{JOB}").text.replace("\n", " "))
    cells = next(re.findall(r"<t[dh].*?</t[dh]>", each) for each in row if "/runs/busy" in each)
    assert told in cells[1]
    assert re.sub("<.*?>", "", cells[2]) == ""


def test_a_first_run_has_its_page_before_a_trainer_is_asked_for_it(page: ServedPage, store: Storage) -> None:
    job = Job.model_validate_json(store.read(JobPaths(JOB).job))
    first = RunSpec(job=JOB, incarnation=IDENTITY, run="later")
    store.write(JobPaths(JOB).job, job.model_copy(update={"run": first}).to_json().encode())
    assert 'href="/runs/later"' in page.ask(f"/jobs/{JOB}").text
    answer = page.ask("/runs/later")
    assert (answer.status, "<h1>Run later</h1>" in answer.text) == (200, True)
    assert page.ask("/runs/nobody").status == 404


def test_the_list_says_that_the_store_does_not_answer_any_more(page: ServedPage, store: Storage) -> None:
    assert JOB in page.ask("/").text
    jobs = Path(store.root) / "jobs"
    jobs.rename(jobs.with_name("away"))
    jobs.symlink_to("x" * 300)  # no system lists that
    said = "The store does not answer; shown is what was last read: cannot list "
    wait_until(lambda: said in page.ask("/").text, 10, "the trouble is told")
    assert JOB in page.ask("/").text
    jobs.unlink()
    jobs.with_name("away").rename(jobs)
    wait_until(lambda: said not in page.ask("/").text, 10, "the store answers")
