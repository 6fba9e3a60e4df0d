"""A job in a real Chromium, beside a real service and worker: followed from its submit to its end without a reload.

`VOC_SCREENSHOTS` names a folder for pictures.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import SecretStr

from producer.settings import ProducerSettings
from shared.jobs.paths import RunPaths
from shared.specs.run import RunSpec
from shared.storage import Storage
from tests.browser.chromium import Page
from tests.browser.test_report import CUT, SMALL, WIDTHS_PX
from tests.cluster import Cluster, wait_until
from tests.page import ServedPage, served
from tests.unit.producer.page.measured import IDENTITY, JOB, make_measured

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

TOKEN = "0123456789abcdef"
STATE = "document.querySelector('.state')?.innerText"


@pytest.fixture
def site(cluster: Cluster) -> Iterator[ServedPage]:
    cluster.store.mkdir(parents=True, exist_ok=True)
    settings = ProducerSettings(
        broker_url=SecretStr(cluster.broker.url), store=str(cluster.store), data_root=str(cluster.data_root)
    )
    with served(settings, change_token=TOKEN) as page:
        yield page


def test_a_job_is_followed_to_its_end_without_a_reload(
    browser: Page, cluster: Cluster, site: ServedPage, small_voc: Path
) -> None:
    cluster.producer("submit", str(small_voc), "--job", "job", "--no-train", "--shard-images", "4")
    browser.visit(site.url)
    browser.evaluate("window.isTheSame = true")
    assert browser.wait(STATE) in ("SUBMITTED", "INTERRUPTED")
    cluster.serve()
    cluster.worker()
    assert browser.wait(f"{STATE} === 'DONE' && document.title", 180).startswith("Jobs")
    assert browser.evaluate("window.isTheSame") is True
    assert all(address.startswith(site.url) for address in browser.asked if not address.startswith("data:"))
    assert browser.complaints == []


def test_the_page_is_shown_a_token_and_cancels_by_the_keyboard_alone(
    browser: Page, cluster: Cluster, site: ServedPage, small_voc: Path
) -> None:
    cluster.producer("submit", str(small_voc), "--job", "job", "--no-train")
    browser.call("Network.clearBrowserCookies")
    browser.visit(f"{site.url}/jobs/job")
    assert browser.evaluate("document.querySelector('form[action$=cancel]')") is None
    to_focus(browser, "document.activeElement.name === 'token'")
    browser.call("Input.insertText", text=TOKEN)
    browser.leave_by_key("Enter")
    assert browser.evaluate("location.pathname") == "/jobs/job"
    to_focus(browser, "document.activeElement.closest('form[action$=cancel]')")
    browser.leave_by_key("Enter")
    assert "cancel" in browser.evaluate("document.querySelector('[role=status]').innerText")
    wait_until(lambda: cluster.state("job") == "CANCELLED", 30, "the job is cancelled")


def to_focus(browser: Page, condition: str) -> None:
    """Press Tab until the focus is there."""
    for _ in range(60):
        browser.press("Tab")
        if browser.evaluate(f"!!({condition})"):
            return
    raise AssertionError(f"the keyboard never came to {condition}")


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedPage]:
    folder = tmp_path_factory.mktemp("measured")
    make_measured(folder)
    with served(ProducerSettings(store=str(folder / "store"), data_root=str(folder / "data"))) as page:
        yield page


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width_px", WIDTHS_PX)
@pytest.mark.parametrize("path", ["/", "/jobs/job", "/runs/first", "/compare?run=first&run=second"])
def test_pages_are_whole_and_legible(
    browser: Page, measured: ServedPage, path: str, width_px: int, scheme: str
) -> None:
    browser.prefer(scheme)
    browser.visit(f"{measured.url}{path}", width_px)
    if folder := os.environ.get("VOC_SCREENSHOTS"):
        name = path.strip("/").replace("/", "_").split("?")[0] or "jobs"
        browser.screenshot(Path(folder) / f"{name}_{width_px}_{scheme}.png")
    assert browser.evaluate("document.scrollingElement.scrollWidth") == width_px
    assert browser.evaluate("document.title") != ""
    assert [cut for cut in browser.evaluate(CUT) if cut != "A: To the content"] == []
    assert browser.evaluate(SMALL) == []


@pytest.mark.parametrize("path", ["/runs/first", "/compare?run=first&run=second"])
def test_tables_on_a_phone_keep_figures_on_one_line_and_show_that_they_scroll(
    browser: Page, measured: ServedPage, path: str
) -> None:
    browser.visit(f"{measured.url}{path}", 390)
    assert browser.evaluate("[...document.querySelectorAll('.figure')].length") > 3
    assert browser.evaluate("[...document.querySelectorAll('.figure')].every(one => one.getClientRects().length === 1)")
    scrolled = "[...document.querySelectorAll('.scroll')].filter(one => one.scrollWidth > one.clientWidth)"
    assert browser.evaluate(f"{scrolled}.length") > 0
    # The shadow stays where it is, what covers it goes with the content.
    assert browser.evaluate(f"getComputedStyle({scrolled}[0]).backgroundAttachment") == "local, local, scroll, scroll"
    # A focus ring is 2 px wide, 2 px away.
    assert browser.evaluate(f"parseFloat(getComputedStyle({scrolled}[0]).paddingLeft)") >= 4


def test_what_to_type_for_a_run_is_readable_on_a_phone(browser: Page, tmp_path: Path) -> None:
    store = Storage(str(make_measured(tmp_path)))
    asked = RunSpec(job=JOB, incarnation=IDENTITY, run="a-run-that-nobody-works-on")
    store.write(RunPaths(asked.run).request, asked.to_json().encode())
    with served(ProducerSettings(store=store.root, data_root=str(tmp_path / "data"))) as page:
        browser.visit(f"{page.url}/jobs/{JOB}", 390)
        width = browser.evaluate("document.querySelector('[aria-label=Runs] td code').parentElement.clientWidth")
        assert width > 300
        assert browser.evaluate("document.querySelector('[aria-label=Runs]').scrollWidth") <= 390


def test_a_click_on_the_confusion_leads_to_the_photos(browser: Page, measured: ServedPage) -> None:
    browser.visit(f"{measured.url}/runs/first?least=0.5")
    browser.is_loaded = False
    browser.evaluate("document.querySelector('a[title$=\"taken for cat\"]').click()")
    browser.wait_for_load()
    assert browser.evaluate("[...document.querySelectorAll('figcaption')].map(one => one.innerText)") == [
        "photos/a.jpg"
    ]
    browser.wait("document.querySelector('image') && document.querySelector('#threshold').dataset.isLive")
    assert browser.evaluate("document.title").startswith("Photos of first")
