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
    "[...document.querySelectorAll('#counts tbody tr')]"
    ".map(row => [...row.cells].slice(1, 4).map(one => +one.innerText))"
)
SUM = "[...document.querySelectorAll('#counts tfoot td')].map(one => one.innerText)"
NAMES = "[...document.querySelectorAll('svg text')].filter(one => getComputedStyle(one).display !== 'none').length"
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
    assert page.evaluate(SUM) == ["1", "2", "1", "50.0 %", "33.3 %", "40.0 %"]
    page.asked.clear()
    page.evaluate("document.querySelector('[name=least]').focus()")
    for _ in range(15):
        page.press("ArrowLeft")
    assert page.evaluate("document.querySelector('output').textContent") == "0.25"
    assert page.evaluate(COUNTS) == [[2, 1, 0], [0, 0, 1]]
    assert page.evaluate(SUM) == ["2", "1", "1", "66.7 %", "66.7 %", "66.7 %"]
    assert page.evaluate(BOXES) == 4
    for _ in range(70):
        page.press("ArrowRight")
    assert page.evaluate(COUNTS) == [[0, 3, 0], [0, 0, 0]]
    assert page.evaluate(SUM) == ["0", "3", "0", "\u2013", "0.0 %", "0.0 %"]
    assert page.evaluate(BOXES) == 3
    assert page.asked == []


def test_the_photos_of_a_cell_are_counted_again_as_the_slider_moves(page: Page, site: str) -> None:
    of_cell = "document.querySelector('#of-cell').innerText"
    # Cats that are missed: of a the one that is seen at 0.3, of b the one that is taken for a dog at 0.6.
    for least, more, less in (("0.6", "2 photos", "1 photo"), ("0.31", "1 photo", "0 photos")):
        page.visit(f"{site}/runs/{RUN}/photos?there=0&seen=2&least={least}")
        page.wait("document.querySelector('#threshold').dataset.isLive")
        page.evaluate("document.querySelector('[name=least]').focus()")
        page.press("ArrowRight")
        assert page.evaluate(of_cell) == more
        for _ in range(3):
            page.press("ArrowLeft")
        assert page.evaluate(of_cell) == less
    assert page.evaluate(BOXES) == page.evaluate(NAMES)


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
