"""An audit's findings in a real Chromium: keys decide, the crop stands upright, no script of a name runs.

`VOC_SCREENSHOTS` names a folder for pictures.
"""

import base64
import os
from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np
import pytest

from tests.browser.chromium import Page
from tests.browser.served import TOKEN, served
from tests.browser.test_report import CUT, SMALL, WIDTHS_PX
from tests.unit.producer.page.audited import IDS, RUN, make_audited
from tests.unit.producer.page.test_labels import answers

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

LABELS = f"/runs/{RUN}/labels"
ASKED = "document.querySelector('[name=finding]')?.value ?? ''"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return make_audited(tmp_path)


@pytest.fixture
def site(store: Path) -> Iterator[str]:
    with served(store, store.parent / "data", change_token=TOKEN) as address:
        yield address


@pytest.fixture
def page(browser: Page, site: str) -> Page:
    """A browser that was shown the token, before the first finding."""
    browser.call("Network.clearBrowserCookies")
    browser.visit(f"{site}{LABELS}")
    browser.evaluate("document.querySelector('input[name=token]').focus()")
    browser.call("Input.insertText", text=TOKEN)
    browser.leave_by_key("Enter")
    browser.asked.clear()
    browser.complaints.clear()
    browser.visit(f"{site}{LABELS}")
    return browser


def test_keys_decide_go_beside_and_take_back(page: Page, store: Path) -> None:
    assert page.evaluate(ASKED) == IDS[0]
    page.leave_by_key("r")
    assert page.evaluate(ASKED) == IDS[1]
    page.leave_by_key("w")
    page.leave_by_key("s")
    assert page.evaluate(ASKED) == IDS[3]
    assert answers(store) == {IDS[0]: "right", IDS[1]: "wrong", IDS[2]: "skip"}
    page.leave_by_key("u")
    assert page.evaluate(ASKED) == IDS[2]
    page.leave_by_key("ArrowRight")
    page.leave_by_key("ArrowRight")
    assert page.evaluate(ASKED) == IDS[4]
    page.leave_by_key("ArrowLeft")
    assert page.evaluate(ASKED) == IDS[3]
    assert answers(store) == {IDS[0]: "right", IDS[1]: "wrong"}


def test_a_chosen_kind_is_kept_by_the_keys(page: Page, site: str, store: Path) -> None:
    page.visit(f"{site}{LABELS}")
    page.is_loaded = False
    page.evaluate("[...document.querySelectorAll('.kinds a')].find(one => one.text.startsWith('misplaced')).click()")
    page.wait_for_load()
    for key, asked in (("r", IDS[3]), ("ArrowRight", IDS[5]), ("ArrowLeft", IDS[3]), ("n", IDS[5]), ("u", IDS[3])):
        page.leave_by_key(key)
        assert page.evaluate(ASKED) == asked, key
    assert answers(store) == {IDS[1]: "right"}


def test_a_key_pressed_twice_decides_on_one_finding(page: Page, store: Path) -> None:
    page.is_loaded = False
    page.evaluate("for (const _ of [1, 2, 3]) document.dispatchEvent(new KeyboardEvent('keydown', {key: 'r'}))")
    page.wait_for_load()
    assert answers(store) == {IDS[0]: "right"}


def test_a_turned_photo_stands_upright_under_its_boxes(page: Page) -> None:
    """The photo is red at its upper left only where it stands as its boxes were drawn."""
    red = page.evaluate(
        """(async () => {
          const image = document.querySelector("svg image");
          const source = new Image();
          source.src = image.getAttribute("href");
          await source.decode();
          const box = image.getBoundingClientRect();
          return [source.naturalWidth, source.naturalHeight, box.width / box.height];
        })()"""
    )
    assert red[:2] == [240, 320]
    assert abs(red[2] - 240 / 320) < 0.01
    # What is drawn is seen in a picture of the page alone.
    assert upper_left_is_red(page)


def upper_left_is_red(page: Page) -> bool:
    page.evaluate(
        "document.querySelector('figure svg').setAttribute('viewBox', '0 0 240 320')"
        " || new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
    )
    place = page.evaluate(
        "(box => [box.left + scrollX, box.top + scrollY, box.width, box.height])"
        "(document.querySelector('svg image').getBoundingClientRect())"
    )
    shot = page.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
    pixels = cv2.imdecode(np.frombuffer(base64.b64decode(shot["data"]), np.uint8), cv2.IMREAD_COLOR)
    assert pixels is not None
    left, top, width, height = place
    corners = [
        pixels[round(top + y * height), round(left + x * width)] for x, y in ((0.1, 0.08), (0.9, 0.08), (0.1, 0.92))
    ]
    is_red = [bool(blue < 80 and red > 180) for blue, _, red in corners]
    return is_red == [True, False, False]


def test_a_decided_finding_is_made_open_by_its_key(page: Page, site: str, store: Path) -> None:
    page.leave_by_key("r")
    assert answers(store) == {IDS[0]: "right"}
    page.visit(f"{site}{LABELS}?at={IDS[0]}")
    page.leave_by_key("o")
    assert (page.evaluate(ASKED), answers(store)) == (IDS[0], {})


def test_on_a_phone_the_buttons_are_in_the_first_screen(page: Page, site: str) -> None:
    page.visit(f"{site}{LABELS}?at={IDS[1]}", 390)
    least_high = (
        "Math.max(...[...document.querySelectorAll('.answers button')].map(one => one.getBoundingClientRect().bottom))"
    )
    for _ in range(2):
        assert 0 < page.evaluate(least_high) <= page.evaluate("innerHeight")
        assert page.evaluate("document.querySelector('figure svg').getBoundingClientRect().top") < 400
        page.leave_by_key("r")  # the next one stands the same


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width_px", WIDTHS_PX)
def test_the_page_is_whole_legible_and_its_own(page: Page, site: str, width_px: int, scheme: str) -> None:
    page.prefer(scheme)
    page.visit(f"{site}{LABELS}?at={IDS[1]}", width_px)
    if folder := os.environ.get("VOC_SCREENSHOTS"):
        page.screenshot(Path(folder) / f"labels_{width_px}_{scheme}.png")
    assert page.complaints == []
    assert {address.split("/")[2] for address in page.asked if address.startswith("http")} == {site.split("/")[2]}
    assert page.evaluate("document.title") == "Labels of job · voc2tflite"
    assert page.evaluate("document.scrollingElement.scrollWidth") == width_px
    # But for what is shown to the keyboard only.
    assert [cut for cut in page.evaluate(CUT) if cut != "A: To the content"] == []
    assert page.evaluate(SMALL) == []
