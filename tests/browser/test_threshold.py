"""The threshold's slider in a real Chromium: counts and boxes follow it at once, without asking the server."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.chromium import Page, chromium, find_chromium
from tests.browser.served import served
from tests.browser.test_report import CUT, SMALL, WIDTHS_PX
from tests.unit.producer.page.seen_run import RUN, make_seen

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

COUNTS = (
    "[...document.querySelectorAll('#counts tbody tr')].map(row => [...row.cells].slice(1).map(one => +one.innerText))"
)
BOXES = "[...document.querySelectorAll('svg rect')].filter(box => getComputedStyle(box).display !== 'none').length"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    store = make_seen(tmp_path_factory.mktemp("seen"))
    with served(store, store.parent / "data") as address:
        yield address


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    executable = find_chromium()
    if executable is None:
        pytest.skip("no Chromium: VOC_CHROMIUM names one")
    with chromium(executable, tmp_path_factory.mktemp("profile")) as page:
        yield page


def open_page(page: Page, site: str, width_px: int = 1280) -> None:
    page.visit(f"{site}/runs/{RUN}/photos", width_px)
    page.wait("document.querySelector('#threshold').dataset.isLive")


def test_counts_and_boxes_follow_the_slider_at_once(page: Page, site: str) -> None:
    open_page(page, site)
    assert page.evaluate(COUNTS) == [[1, 2, 0], [0, 0, 1]]
    # a: one found, one missed; b: one missed, one made up; gone: nothing that counts.
    assert page.evaluate(BOXES) == 4
    page.asked.clear()
    page.evaluate("document.querySelector('[name=least]').focus()")
    for _ in range(15):
        page.press("ArrowLeft")
    assert page.evaluate("document.querySelector('output').textContent") == "0.25"
    assert page.evaluate(COUNTS) == [[2, 1, 0], [0, 0, 1]]
    assert page.evaluate(BOXES) == 4
    for _ in range(70):
        page.press("ArrowRight")
    assert page.evaluate(COUNTS) == [[0, 3, 0], [0, 0, 0]]
    assert page.evaluate(BOXES) == 3
    assert page.asked == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width_px", WIDTHS_PX)
def test_the_page_is_whole_and_legible(page: Page, site: str, width_px: int, scheme: str) -> None:
    page.prefer(scheme)
    open_page(page, site, width_px)
    if folder := os.environ.get("VOC_SCREENSHOTS"):
        page.screenshot(Path(folder) / f"seen_{width_px}_{scheme}.png")
    assert page.evaluate("document.scrollingElement.scrollWidth") == width_px
    assert [cut for cut in page.evaluate(CUT) if cut != "A: To the content"] == []
    assert page.evaluate(SMALL) == []
