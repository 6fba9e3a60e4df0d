"""Pages that are open while what they show changes: it arrives by itself, and whoever reads keeps their place."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from producer.settings import ProducerSettings
from shared.jobs.identity import make_note
from shared.jobs.paths import RunPaths
from shared.specs.run import RunSpec
from shared.storage import Storage
from tests.browser.chromium import Page
from tests.page import ServedPage, served
from tests.unit.producer.page.measured import IDENTITY, JOB, add_run, form_figures, make_measured, seen_file

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]

# Asked for every second, of a board that looks every 0.9 s.
SOON_S = 4
HEADINGS = "[...document.querySelectorAll('h2')].map(one => one.innerText).join()"


@pytest.fixture
def store(tmp_path: Path) -> Storage:
    """A store with two finished runs and `third`, which is only asked for."""
    store = Storage(str(make_measured(tmp_path)))
    asked = RunSpec(job=JOB, incarnation=IDENTITY, run="third")
    store.write(RunPaths("third").request, asked.to_json().encode())
    return store


@pytest.fixture
def site(store: Storage, tmp_path: Path) -> Iterator[ServedPage]:
    with served(ProducerSettings(store=store.root, data_root=str(tmp_path / "data"))) as page:
        yield page


def finish(store: Storage) -> None:
    add_run(store, "third", form_figures(0.7, 0.6), seen_file())
    note = json.loads(make_note(IDENTITY))
    note["metrics"] = {"int8": {"map50": 0.7}}
    note["files"] = {"model_int8.tflite": {"bytes": 3, "sha256": "0" * 64}}
    store.write(RunPaths("third").run, json.dumps(note).encode())


def test_a_run_that_becomes_done_shows_its_model_by_itself(browser: Page, site: ServedPage, store: Storage) -> None:
    browser.visit(f"{site.url}/runs/third")
    assert "By class" not in browser.evaluate(HEADINGS)
    assert browser.evaluate("document.querySelector('a[href$=try]')") is None
    browser.evaluate("window.isTheSame = true")
    finish(store)
    browser.wait("document.querySelector('a[href=\"/runs/third/try\"]')?.innerText", SOON_S)
    browser.wait("document.querySelector('.state')?.innerText === 'DONE'", SOON_S)
    headings = browser.evaluate(HEADINGS)
    for heading in ("The forms of the model", "By class", "What it sees", "Files"):
        assert heading in headings
    assert browser.evaluate("document.querySelector('a[href$=\"/photos\"]').innerText").startswith("Its photos")
    assert browser.evaluate("window.isTheSame") is True


def test_a_job_shows_new_runs_and_the_focus_stays_on_its_link(browser: Page, site: ServedPage, store: Storage) -> None:
    browser.visit(f"{site.url}/jobs/{JOB}")
    browser.wait("document.querySelector('#runs a[href=\"/runs/third\"]')?.innerText")
    cell = "document.querySelector('#runs a[href=\"/runs/third\"]').closest('tr').cells[2].innerText"
    assert browser.evaluate(cell) == ""
    browser.evaluate("document.querySelector('#runs a[href=\"/runs/third\"]').focus()")
    browser.evaluate("window.isTheSame = true")
    finish(store)
    assert browser.wait(cell, SOON_S).startswith("70")
    assert browser.evaluate("document.activeElement.getAttribute('href')") == "/runs/third"
    assert browser.evaluate("document.activeElement.isConnected") is True
    assert browser.evaluate("window.isTheSame") is True


def test_a_run_asked_for_later_comes_to_a_job_without_any(browser: Page, site: ServedPage, store: Storage) -> None:
    for run in ("first", "second", "third"):
        store.remove_tree(RunPaths(run).root)
    browser.visit(f"{site.url}/jobs/{JOB}")
    assert browser.evaluate("document.querySelector('#runs a')") is None
    finish(store)
    assert browser.wait("document.querySelector('#runs a')?.innerText", SOON_S) == "third"


def test_a_server_that_has_stopped_is_said_to_be_silent_until_it_answers(
    browser: Page, store: Storage, tmp_path: Path
) -> None:
    settings = ProducerSettings(store=store.root, data_root=str(tmp_path / "data"))
    silence = "document.getElementById('silence')"
    with served(settings) as page:
        port = page.port
        browser.visit(page.url)
        assert browser.evaluate(f"{silence}.hidden") is True
    browser.wait(f"!{silence}.hidden", 20)
    assert "No answer for 10 s" in browser.evaluate(f"{silence}.innerText")
    with served(settings, port=port):
        assert browser.wait(f"{silence}.hidden", 20) is True


def test_a_job_that_is_gone_is_said_to_be_of_before(browser: Page, store: Storage, tmp_path: Path) -> None:
    settings = ProducerSettings(store=store.root, data_root=str(tmp_path / "data"))
    silence = "document.getElementById('silence')"
    with served(settings) as page:
        browser.visit(f"{page.url}/jobs/{JOB}")
        assert browser.evaluate(f"{silence}.hidden") is True
        jobs = Path(store.root) / "jobs"
        jobs.rename(jobs.with_name("away"))
        browser.wait(f"!{silence}.hidden", 20)
        jobs.with_name("away").rename(jobs)
        assert browser.wait(f"{silence}.hidden", 20) is True
