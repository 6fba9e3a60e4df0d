"""The report of a release, in a real Chromium: nothing asked of the network, no script, no sideways scrolling.

`VOC_REPORT` names a `report.html` to look at instead of the made-up one, `VOC_SCREENSHOTS` a folder for pictures.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.chromium import Page, chromium, find_chromium
from tests.unit.trainer.exported import make_exported
from tests.unit.trainer.test_release import released_folder

pytestmark = [
    pytest.mark.browser,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy keyword"),
]

WIDTHS_PX = (1280, 390)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    named = os.environ.get("VOC_REPORT")
    return Path(named) if named else released_folder(make_exported(), tmp_path_factory.mktemp("store")) / "report.html"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    executable = find_chromium()
    if executable is None:
        pytest.skip("no Chromium: VOC_CHROMIUM names one")
    with chromium(executable, tmp_path_factory.mktemp("profile")) as page:
        yield page


@pytest.mark.parametrize("width_px", WIDTHS_PX)
def test_report_is_whole_without_a_network(report: Path, page: Page, width_px: int) -> None:
    page.asked.clear()
    page.complaints.clear()
    page.open(report, width_px)
    if folder := os.environ.get("VOC_SCREENSHOTS"):
        page.screenshot(Path(folder) / f"report_{width_px}.png")
    assert {address.partition(":")[0] for address in page.asked} <= {"file", "data"}
    assert [address for address in page.asked if address.startswith("file")] == [report.resolve().as_uri()]
    assert page.complaints == []
    assert page.evaluate("document.scripts.length") == 0
    assert page.evaluate("[...document.images].every(image => image.naturalWidth > 100)")
    assert page.evaluate("document.documentElement.scrollWidth") == width_px


@pytest.mark.parametrize("width_px", WIDTHS_PX)
def test_every_link_of_the_report_has_its_section(report: Path, page: Page, width_px: int) -> None:
    page.open(report, width_px)
    links = page.evaluate("[...document.querySelectorAll('a')].map(link => link.getAttribute('href'))")
    assert len(links) >= 9
    assert page.evaluate(f"{links}.every(link => document.querySelector(link).offsetHeight > 40)")


def test_every_part_that_was_promised_is_shown(report: Path, page: Page) -> None:
    page.open(report, 1280)
    text = page.evaluate("document.body.innerText").lower()
    for words in ("what was asked", "lint", "float against int8", "best and worst", "seconds a stage", "do it again"):
        assert words in text, words
    shown = page.evaluate("[...document.images].map(image => image.alt).join('; ')")
    for words in ("Precision-recall", "Confusion", "Training curves", "Objects a class", "lowest F1", "highest F1"):
        assert words in shown, words
