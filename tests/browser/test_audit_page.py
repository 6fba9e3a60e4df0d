"""`audit.html` in a real Chromium: nothing asked of the network, nothing cut or off screen at 390 px, legible letters.

`VOC_AUDIT_PAGE` names an `audit.html` to look at instead of the made-up one, `VOC_SCREENSHOTS` a folder for pictures.
"""

import os
from pathlib import Path

import numpy as np
import pytest

from tests.browser.chromium import Page
from tests.browser.test_report import CUT, SMALL, WIDTHS_PX
from tests.unit.trainer.audit.test_results import LABELS, found, frame
from trainer.audit.page import render_page
from trainer.data.examples import ShardPicture

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

LONG = f"photos/{'a-rather-long-name-of-a-folder/' * 3}{'x' * 90}.jpg"


@pytest.fixture(scope="module")
def audit_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if named := os.environ.get("VOC_AUDIT_PAGE"):
        return Path(named)
    result = found(LONG)
    shown = [finding for finding in result.findings for _ in range(12)]
    stored = ShardPicture(image_id=5, file_name=LONG, rgb=np.full((96, 96, 3), 90, np.uint8))
    path = tmp_path_factory.mktemp("audit") / "audit.html"
    path.write_text(render_page(result, shown, {LONG: frame(LONG)}, {LONG: stored}, LABELS), encoding="utf-8")
    return path


@pytest.mark.parametrize("width_px", WIDTHS_PX)
def test_audit_page_is_whole_without_a_network_and_marked_stands_beside_proposed(
    audit_page: Path, browser: Page, width_px: int
) -> None:
    browser.asked.clear()
    browser.complaints.clear()
    browser.open(audit_page, width_px)
    if folder := os.environ.get("VOC_SCREENSHOTS"):
        browser.screenshot(Path(folder) / f"audit_{width_px}.png")
    assert {address.partition(":")[0] for address in browser.asked} <= {"file", "data"}
    assert browser.complaints == []
    assert browser.evaluate("document.scripts.length") == 0
    assert browser.evaluate("document.scrollingElement.scrollWidth") == width_px
    assert browser.evaluate(CUT) == []
    assert browser.evaluate(SMALL) == []
    beside = (
        "[...document.querySelectorAll('.views')].map(one => one.children[0].offsetTop === one.children[1].offsetTop)"
    )
    assert all(browser.evaluate(beside))
    assert browser.evaluate("Math.min(...[...document.querySelectorAll('.view')].map(one => one.offsetWidth))") > 150
