"""What the page says of runs that go on, wait or need a person, and what it lets a person do to each of them."""

import json
import re
import shlex
import time
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import pytest
from pydantic import SecretStr

from producer.audit.decisions import Decision, Decisions
from producer.jobs.control import cancel
from producer.page import board
from producer.settings import ProducerSettings
from producer.state.local_lock import lock_for_local_run
from producer.state.status import job_status
from producer.state.stored import load_job
from shared.audit.findings import AuditFindings
from shared.jobs.identity import make_note
from shared.jobs.job import SplitPlan
from shared.jobs.paths import RunPaths
from shared.specs.run import RunSpec
from shared.storage import Storage
from tests.page import ServedPage, served
from tests.unit.producer.page.audited import finding
from tests.unit.producer.page.measured import IDENTITY, JOB, finish_job, make_measured

TOKEN = "a-token-of-the-tests"
AUDIT, QUICK = f"{JOB}.audit-3", f"{JOB}.audit-quick"
FOLDS = tuple(f"{JOB}.fold-{number}-of-3" for number in (1, 2, 3))
PHOTOS = 48


@pytest.fixture
def store(tmp_path: Path) -> Storage:
    """A finished data set of 48 photos with two finished runs, in a folder that a shell has to quote."""
    folder = tmp_path / "my photos"
    folder.mkdir()
    store = Storage(str(make_measured(folder)))
    finish_job(store, {"test": SplitPlan(pairs=PHOTOS, digests=())})
    for run in ("first", "second"):
        figures = {"metrics": {"int8": {"map50": 0.6}}}
        store.write(RunPaths(run).run, json.dumps(json.loads(make_note(IDENTITY)) | figures).encode())
    return store


@pytest.fixture
def page(store: Storage) -> Iterator[ServedPage]:
    with served(settings(store), change_token=TOKEN) as page:
        yield page


def settings(store: Storage, broker: str | None = None) -> ProducerSettings:
    url = SecretStr(broker) if broker else None
    return ProducerSettings(store=store.root, data_root=str(Path(store.root).parent / "data"), broker_url=url)


def ask_for_audit(store: Storage, **training: str) -> None:
    """The runs of an audit by folds, that nobody has begun."""
    for number, run in enumerate(FOLDS, 1):
        add(store, run, fold=number, folds=3, **training)
    add(store, AUDIT, folds=3, audits=FOLDS)


def add(store: Storage, run: str, **asked: object) -> None:
    spec = RunSpec.model_validate({"job": JOB, "incarnation": IDENTITY, "run": run, **asked})
    store.write(RunPaths(run).request, spec.to_json().encode())


def at_work(store: Storage, run: str, *, is_held: bool = True) -> None:
    """What a trainer notes while it trains."""
    held = {"at": time.time(), "held": is_held, "worker": "train-1@host", "pid": 7, "step": 30, "steps": 120}
    store.write(RunPaths(run).progress, make_note(IDENTITY, **held))


def end(store: Storage, run: str) -> None:
    """A finished audit of twelve doubts, two of which are not likely."""
    found = [finding(number) for number in range(12)]
    found[10:] = [each.model_copy(update={"score": 0.2}) for each in found[10:]]
    folds = 0 if run == QUICK else 3
    said = AuditFindings(
        run=run, job=JOB, incarnation=IDENTITY, folds=folds, photos=48, boxes=106, findings=tuple(found)
    )
    store.write(RunPaths(run).findings, said.to_json().encode())
    store.write(RunPaths(run).run, make_note(IDENTITY))


def allowed(page: ServedPage, path: str, form: dict[str, str] | None = None, **headers: str) -> str:
    return page.ask(path, form=form, Cookie=f"voc2tflite_changes={TOKEN}", **headers).text


def plain(text: str) -> str:
    return re.sub(r"\s+", " ", unescape(re.sub("<.*?>", " ", text)))


def commands(text: str) -> list[list[str]]:
    return [shlex.split(unescape(code)) for code in re.findall(r"<code>(.*?)</code>", text)]


def typed(text: str, command: str) -> list[list[str]]:
    """The commands of a page from the word `command` on."""
    return [words[words.index(command) :] for words in commands(text) if command in words]


def cancels(text: str) -> list[str]:
    return re.findall(r'action="([^"]*/cancel)"', text)


def test_each_run_that_goes_on_can_be_cancelled_and_the_job_only_where_that_does_something(
    page: ServedPage, store: Storage
) -> None:
    ask_for_audit(store)
    at_work(store, FOLDS[0])
    assert cancels(page.ask(f"/jobs/{JOB}").text) == []
    assert sorted(cancels(allowed(page, f"/jobs/{JOB}"))) == sorted(f"/runs/{run}/cancel" for run in (*FOLDS, AUDIT))
    assert cancels(allowed(page, f"/runs/{AUDIT}")) == [f"/runs/{AUDIT}/cancel"]
    assert cancels(allowed(page, "/runs/first")) == []
    came = {"Cookie": f"voc2tflite_changes={TOKEN}", "Referer": f"{page.url}/jobs/{JOB}?said=4"}
    assert page.ask(f"/runs/{AUDIT}/cancel", form={}).status == 403
    answer = page.ask(f"/runs/{AUDIT}/cancel", form={}, **came)
    assert (answer.status, answer.headers["location"].split("?")[0]) == (303, f"/jobs/{JOB}")
    text = allowed(page, answer.headers["location"])
    assert f"run {AUDIT} of {JOB} is cancelled" in text
    assert cancels(text) == [], "its folds are cancelled with it"
    states = {view["run"]: view["state"] for view in job_status(store, None, load_job(store, JOB), 0.1).runs}
    assert {states[run] for run in (*FOLDS, AUDIT)} == {"CANCELLED"}
    assert page.ask("/runs/absent/cancel", form={}, **came).status == 409


def test_a_cancel_of_a_job_that_is_done_names_one_command_for_an_audit(page: ServedPage, store: Storage) -> None:
    ask_for_audit(store)
    told = cancel(store, None, JOB)
    assert told.count("` cancels that run") == 1
    assert f"--run {AUDIT}" in told
    answer = page.ask(f"/jobs/{JOB}/cancel", form={}, Cookie=f"voc2tflite_changes={TOKEN}")
    said = allowed(page, answer.headers["location"])
    assert typed(said, "cancel")[0] == ["cancel", JOB, "--run", AUDIT, "--store", store.root]
    assert "`" not in said


def test_the_list_and_the_heading_say_what_goes_on_besides_a_job_that_is_done(page: ServedPage, store: Storage) -> None:
    ask_for_audit(store)
    at_work(store, FOLDS[0])
    for path in ("/", f"/jobs/{JOB}"):
        text = page.ask(path).text
        shown = plain(text[text.index("state DONE") : text.index("state DONE") + 1500])
        assert f"DONE TRAINING {FOLDS[0]} WAITING 3 runs" in shown, path
        assert '<progress max="120" value="30"' in text, path
        assert "step 30 of 120" in shown, path
    at_work(store, FOLDS[0], is_held=False)
    time.sleep(1)  # a look a second
    assert f"DONE INTERRUPTED {FOLDS[0]} WAITING 3 runs" in plain(page.ask("/").text)


def test_a_run_that_has_not_begun_waits_and_says_for_what(page: ServedPage, store: Storage) -> None:
    ask_for_audit(store)
    at_work(store, FOLDS[0])
    with lock_for_local_run(store, JOB):
        text = page.ask(f"/runs/{FOLDS[1]}").text
        assert f"waits until {FOLDS[0]} is done (--local)" in text
        assert ">WAITING<" in text
        assert ">FINALIZED<" not in text
    states = {view["run"]: view["state"] for view in job_status(store, None, load_job(store, JOB), 0.1).runs}
    assert states[FOLDS[1]] == "FINALIZED", "`status --json` stays as it is"


def test_an_audit_is_asked_for_with_what_it_costs_and_quick_first(page: ServedPage, store: Storage) -> None:
    cost = "3 trainings of small on 32 photos, up to 30 min each, 90 min in all by one trainer"
    for text in (page.ask(f"/jobs/{JOB}").text, allowed(page, f"/jobs/{JOB}")):
        assert typed(text, "audit") == [
            ["audit", JOB, "--quick", "--run", "first", "--local", "--store", store.root],
            ["audit", JOB, "--local", "--store", store.root],
        ]
        assert cost in text
        assert "no training, seconds to minutes" in text
    with served(settings(store, "redis://127.0.0.1:1/0"), change_token=TOKEN) as other:
        assert ["audit", JOB, "--store", store.root] in typed(other.ask(f"/jobs/{JOB}").text, "audit")
        chosen = re.findall(r'<option value="(.*?)">(.*?)</option>', allowed(other, f"/jobs/{JOB}"))
    assert [value for value, _ in chosen] == ["first", "second", ""]
    assert chosen[-1][1] == cost


def test_asked_for_with_does_the_same_again(page: ServedPage, store: Storage) -> None:
    add(store, QUICK, audits=("second",))
    ask_for_audit(store, backbone="efficientnet_lite0", weights="imagenet")
    end_words = ["--local", "--store", store.root]
    asked = {run: typed(page.ask(f"/runs/{run}").text, "audit")[-1] for run in (QUICK, FOLDS[1], AUDIT)}
    assert asked[QUICK] == ["audit", JOB, "--quick", "--run", "second", *end_words]
    assert asked[FOLDS[1]] == asked[AUDIT] == ["audit", JOB, *end_words]
    add(store, "own", backbone="mobilenet_v2", epochs=7)
    told = typed(page.ask("/runs/own").text, "submit")[-1]
    assert told[:5] == ["submit", "--job", JOB, "--run", "own"]
    assert sorted(told[5:]) == sorted(["--backbone", "mobilenet_v2", "--epochs", "7", *end_words])
    with served(settings(store, "redis://127.0.0.1:1/0")) as other:
        assert "--local" not in typed(other.ask(f"/runs/{QUICK}").text, "audit")[-1]


def test_an_audits_result_is_told_where_it_is_looked_for(page: ServedPage, store: Storage) -> None:
    add(store, QUICK, audits=("first",))
    end(store, QUICK)
    Decisions(store, QUICK).add(Decision(finding=finding(3).id, answer="right", at=1.0))
    for path in (f"/jobs/{JOB}", f"/runs/{QUICK}"):
        text = page.ask(path).text
        assert "12 doubts, 10 likely, 1 decided: decide" in plain(text).replace(" : ", ": "), path
        assert f'<a href="/runs/{QUICK}/labels">decide</a>' in text, path
    assert "10 labels more likely wrong than right (5 made_up, 5 misplaced)" in page.ask(f"/runs/{QUICK}").text
    store.write(RunPaths(QUICK).findings, b"{")
    assert [page.ask(path).status for path in (f"/jobs/{JOB}", f"/runs/{QUICK}")] == [200, 200]


def test_the_list_counts_audits_apart_and_no_folds(page: ServedPage, store: Storage) -> None:
    ask_for_audit(store)
    assert "2 runs, 1 audit" in page.ask("/").text


def test_why_and_what_to_type_stand_below_a_run_in_full_width(page: ServedPage, store: Storage) -> None:
    ask_for_audit(store)
    text = page.ask(f"/jobs/{JOB}").text
    rows = re.findall(r"<tr.*?</tr>", text[text.index('aria-label="Runs"') :], re.DOTALL)
    at = next(at for at, row in enumerate(rows) if f"/runs/{FOLDS[0]}" in row)
    assert "<code>" not in rows[at]
    assert '<td colspan="3">nobody works on it<br><code>' in rows[at + 1]


def test_a_wrong_token_is_answered_with_the_command_as_code(page: ServedPage) -> None:
    text = page.ask("/allow", form={"token": "wrong"}).text
    assert "`" not in text
    assert ["page", "--allow-changes"] in typed(text, "page")


def test_what_a_job_takes_on_disk_is_told_while_a_run_of_it_works(
    page: ServedPage, store: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(board, "_SIZE_EVERY_S", 0.0)
    ask_for_audit(store)
    at_work(store, FOLDS[0])
    assert re.search(r"<dt>disk</dt><dd>\d+ kB</dd>", page.ask(f"/jobs/{JOB}").text)
