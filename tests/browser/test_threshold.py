"""The threshold's slider in a real Chromium: counts and boxes follow it at once, without asking the server."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.chromium import Page
from tests.browser.served import served
from tests.browser.test_report import CUT, SMALL, WIDTHS_PX
from tests.unit.producer.page.seen_run import RUN, make_seen

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

COUNTS = (
    "[...document.querySelectorAll('#counts tbody tr')]"
    ".map(row => [...row.cells].slice(1, 5).map(one => +one.innerText))"
)
SUM = "[...document.querySelectorAll('#counts tfoot td')].map(one => one.innerText)"
NAMES = "[...document.querySelectorAll('svg text')].filter(one => getComputedStyle(one).display !== 'none').length"
BOXES = "[...document.querySelectorAll('svg rect')].filter(box => getComputedStyle(box).display !== 'none').length"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    store = make_seen(tmp_path_factory.mktemp("seen"))
    with served(store, store.parent / "data") as address:
        yield address


def open_page(browser: Page, site: str, width_px: int = 1280) -> None:
    browser.visit(f"{site}/runs/{RUN}/photos", width_px)
    browser.wait("document.querySelector('#threshold').dataset.isLive")


def test_counts_and_boxes_follow_the_slider_at_once(browser: Page, site: str) -> None:
    open_page(browser, site)
    assert browser.evaluate(COUNTS) == [[1, 2, 0, 0], [0, 0, 0, 1]]
    # a: one found, one missed; b: one missed, one made up; gone: nothing that counts.
    assert browser.evaluate(BOXES) == 4
    assert browser.evaluate(SUM) == ["1", "2", "0", "1", "50.0 %", "33.3 %", "40.0 %"]
    browser.asked.clear()
    browser.evaluate("document.querySelector('[name=least]').focus()")
    for _ in range(15):
        browser.press("ArrowLeft")
    assert browser.evaluate("document.querySelector('output').textContent") == "0.25"
    assert browser.evaluate(COUNTS) == [[2, 1, 0, 0], [0, 0, 0, 1]]
    assert browser.evaluate(SUM) == ["2", "1", "0", "1", "66.7 %", "66.7 %", "66.7 %"]
    assert browser.evaluate(BOXES) == 4
    for _ in range(70):
        browser.press("ArrowRight")
    assert browser.evaluate(COUNTS) == [[0, 3, 0, 0], [0, 0, 0, 0]]
    assert browser.evaluate(SUM) == ["0", "3", "0", "0", "\u2013", "0.0 %", "0.0 %"]
    assert browser.evaluate(BOXES) == 3
    assert browser.asked == []


def test_the_photos_of_a_cell_are_counted_again_as_the_slider_moves(browser: Page, site: str) -> None:
    of_cell = "document.querySelector('#of-cell').innerText"
    # Cats that are missed: of a the one that is seen at 0.3, of b the one that is taken for a dog at 0.6.
    for least, more, less in (("0.6", "2 photos", "1 photo"), ("0.31", "1 photo", "0 photos")):
        browser.visit(f"{site}/runs/{RUN}/photos?there=0&seen=2&least={least}")
        browser.wait("document.querySelector('#threshold').dataset.isLive")
        browser.evaluate("document.querySelector('[name=least]').focus()")
        browser.press("ArrowRight")
        assert browser.evaluate(of_cell) == more
        for _ in range(3):
            browser.press("ArrowLeft")
        assert browser.evaluate(of_cell) == less
    assert browser.evaluate(BOXES) == browser.evaluate(NAMES)


def test_the_list_of_a_cell_follows_its_heading_and_says_what_the_server_has(browser: Page, site: str) -> None:
    shown = "[...document.querySelectorAll('[data-turn]')].filter(one => one.offsetWidth).length"
    more = "document.querySelector('#more').innerText"
    # As above: at 0.6 it is a's cat that is missed; at 0.61 b's as well, which the server has; at 0.3 none.
    browser.visit(f"{site}/runs/{RUN}/photos?there=0&seen=2&least=0.6")
    browser.wait("document.querySelector('#threshold').dataset.isLive")
    assert (browser.evaluate(shown), browser.evaluate(more)) == (1, "")
    browser.evaluate("document.querySelector('[name=least]').focus()")
    browser.press("ArrowRight")
    assert browser.evaluate(shown) == 1
    assert browser.evaluate(more) == "1 photo more at this score: press “Show” to see all 2."
    slide(browser, "0.3")
    assert (browser.evaluate(shown), browser.evaluate(more)) == (0, "")


def slide(browser: Page, least: str) -> None:
    browser.evaluate(
        f"(slider => {{ slider.value = '{least}'; slider.dispatchEvent(new Event('input')); }})"
        "(document.querySelector('[name=least]'))"
    )


def test_a_click_chooses_a_proposed_threshold_and_the_address_and_links_keep_it(browser: Page, site: str) -> None:
    browser.visit(f"{site}/runs/{RUN}/photos?there=0&seen=2")
    browser.wait("document.querySelector('#threshold').dataset.isLive")
    assert "least" not in browser.evaluate("location.search"), "nothing was chosen"
    browser.asked.clear()
    browser.evaluate(
        "[...document.querySelectorAll('[data-least]')].find(one => /few misses/.test(one.innerText)).click()"
    )
    assert browser.evaluate("document.querySelector('output').textContent") == "0.30"
    browser.wait("location.search.includes('least=0.30')")
    assert browser.evaluate("location.search") == "?there=0&seen=2&least=0.30"
    links = browser.evaluate("[...document.querySelectorAll('main a.large')].map(one => one.getAttribute('href'))")
    assert links
    assert all("least=0.30&" in link for link in links)
    assert browser.asked == []
    browser.visit(browser.evaluate("location.href"))
    assert browser.evaluate("document.querySelector('output').textContent") == "0.30"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width_px", WIDTHS_PX)
def test_the_page_is_whole_and_legible(browser: Page, site: str, width_px: int, scheme: str) -> None:
    browser.prefer(scheme)
    open_page(browser, site, width_px)
    if folder := os.environ.get("VOC_SCREENSHOTS"):
        browser.screenshot(Path(folder) / f"seen_{width_px}_{scheme}.png")
    assert browser.evaluate("document.scrollingElement.scrollWidth") == width_px
    assert [cut for cut in browser.evaluate(CUT) if cut != "A: To the content"] == []
    assert browser.evaluate(SMALL) == []
