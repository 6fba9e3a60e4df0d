"""The report in a real Chromium: nothing asked of the network, no script, nothing cut or off screen, legible letters.

`VOC_REPORT` names a `report.html` to look at instead of the made-up ones, `VOC_SCREENSHOTS` a folder for pictures.
"""

import os
from pathlib import Path

import pytest

from tests.browser.chromium import Page
from tests.unit.trainer.exported import make_exported
from tests.unit.trainer.reporting.looked import look, summary_of
from tests.unit.trainer.test_release import released_folder
from trainer.reporting.report import render_report

pytestmark = [
    pytest.mark.browser,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy keyword"),
]

WIDTHS_PX = (1280, 390)
LEAST_LETTER_PX = 12

# Everything that is drawn beyond the window, except for what has a scroll bar of its own.
CUT = """[...document.querySelectorAll('body *')].filter(one => {
  const place = one.getBoundingClientRect();
  return place.width && !one.closest('.scroll, .view, svg') && (place.right > innerWidth + 0.5 || place.left < -0.5);
}).map(one => one.tagName + ': ' + one.textContent.slice(0, 40))"""

# Text whose letters are smaller than they may be.
SMALL = """[...document.querySelectorAll('body *')].filter(one =>
  [...one.childNodes].some(node => node.nodeType === 3 && node.textContent.trim()) && one.offsetWidth
  && parseFloat(getComputedStyle(one).fontSize) < LEAST
).map(one => one.tagName + ': ' + one.textContent.slice(0, 40))""".replace("LEAST", str(LEAST_LETTER_PX))

# Options that are broken at the end of a line.
BROKEN = "[...document.querySelectorAll('.option')].filter(one => one.getClientRects().length > 1).length"

# Pairs of views that are shown, and how many of them stand side by side.
SIDES = """[...document.querySelectorAll('.views')].filter(one => one.offsetWidth).map(one =>
  one.children[0].offsetTop === one.children[1].offsetTop)"""


# At some width each of them stands at the end of a line.
LONG_OPTIONS = " ".join(f"{'word ' * at}--max-minutes --max-drop" for at in range(8))


def many_classes() -> str:
    """A run of 20 classes with long names in several scripts, in which much goes wrong."""
    labels = [f"{name} {at}" for at, name in enumerate(["赤血球", "Straßenbahnhaltestelle", "ace of spades", "x"] * 5)]
    pictures = [
        (
            [(place, 1 + (at + place) % 20) for place in range(9)],
            [(place, 1 + (at + place * (place != at % 9)) % 20, 0.9 - place / 20) for place in range(1, 12)],
        )
        for at in range(30)
    ]
    names = [f"photos/{'a-rather-long-name-of-a-folder/' * 2}{at}.jpg" for at in range(30)]
    history = [
        {"epoch": at, "seconds": 1.0, "loss": 3.0 / at, "val_map50": at / 20, "val_map": at / 40} for at in range(1, 15)
    ]
    return render_report(summary_of(look(pictures, labels, names=names, history=history), warnings=[LONG_OPTIONS]))


@pytest.fixture(scope="module", params=["released", "many classes"])
def report(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("store")
    if named := os.environ.get("VOC_REPORT"):
        return Path(named)
    if request.param == "released":
        return released_folder(make_exported(), folder) / "report.html"
    path = folder / "report.html"
    path.write_text(many_classes(), encoding="utf-8")
    return path


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width_px", WIDTHS_PX)
def test_report_is_whole_without_a_network(report: Path, browser: Page, width_px: int, scheme: str) -> None:
    browser.asked.clear()
    browser.complaints.clear()
    browser.prefer(scheme)
    browser.open(report, width_px)
    if folder := os.environ.get("VOC_SCREENSHOTS"):
        browser.screenshot(Path(folder) / f"{report.parent.name}_{width_px}_{scheme}.png")
    assert {address.partition(":")[0] for address in browser.asked} <= {"file", "data"}
    assert [address for address in browser.asked if address.startswith("file")] == [report.resolve().as_uri()]
    assert browser.complaints == []
    assert browser.evaluate("document.scripts.length") == 0
    assert browser.evaluate("document.scrollingElement.scrollWidth") == width_px
    assert browser.evaluate(CUT) == []
    assert browser.evaluate(SMALL) == []
    assert browser.evaluate(BROKEN) == 0


def test_page_is_dark_where_that_is_asked(report: Path, browser: Page) -> None:
    brightness = {}
    for scheme in ("light", "dark"):
        browser.prefer(scheme)
        browser.open(report, 1280)
        colours = browser.evaluate(
            "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]"
            ".map(text => text.match(/\\d+/g).slice(0, 3).reduce((sum, part) => sum + +part, 0))"
        )
        brightness[scheme] = colours
    assert brightness["light"][0] > 600 > 200 > brightness["light"][1]
    assert brightness["dark"][0] < 200 < 600 < brightness["dark"][1]


def test_pairs_are_side_by_side_and_on_a_phone_one_under_the_other(report: Path, browser: Page) -> None:
    browser.open(report, 1280)
    wide = browser.evaluate(SIDES)
    browser.open(report, 390)
    narrow = browser.evaluate(SIDES)
    assert all(wide)
    assert not any(narrow)
    # On a phone four of each gallery, until more are asked for.
    assert 0 < len(narrow) <= min(12, len(wide))


def test_names_of_objects_stay_inside_their_picture(report: Path, browser: Page) -> None:
    for width_px in WIDTHS_PX:
        browser.open(report, width_px)
        beyond = browser.evaluate(
            """[...document.querySelectorAll('.view u')].filter(one => one.offsetWidth).filter(one => {
              const place = one.getBoundingClientRect(), view = one.parentElement.getBoundingClientRect();
              return place.right > view.right + 2 || place.left < view.left - 1 || place.bottom > view.bottom + 2;
            }).map(one => one.textContent)"""
        )
        assert beyond == []


@pytest.mark.parametrize("width_px", WIDTHS_PX)
def test_every_link_of_the_report_has_its_section(report: Path, browser: Page, width_px: int) -> None:
    browser.open(report, width_px)
    links = browser.evaluate("[...document.querySelectorAll('a')].map(link => link.getAttribute('href'))")
    assert len(links) >= 9
    assert browser.evaluate(f"{links}.every(link => document.querySelector(link).offsetHeight > 40)")


def test_every_part_that_was_promised_is_shown(report: Path, browser: Page) -> None:
    browser.open(report, 1280)
    text = browser.evaluate("document.body.innerText").lower()
    for words in ("what to do next", "float against int8", "what is taken for what"):
        assert words in text, words
    # Few pictures are shown once, all of them.
    galleries = (
        ("worst pictures", "best pictures")
        if browser.evaluate("!!document.querySelector('#worst')")
        else ("all of the",)
    )
    for words in galleries:
        assert words in text, words
    for words in ("what was asked", "lint", "seconds for each stage", "do it again", "training objects by size"):
        assert words in text, words
    shown = browser.evaluate("[...document.querySelectorAll('[aria-label]')].map(one => one.ariaLabel).join('; ')")
    for words in ("Precision over recall", "Loss over the epochs", "annotated", "seen"):
        assert words in shown, words
    # Each picture is there, with the pixels of its tile.
    views = "[...document.querySelectorAll('.view')].map(one => getComputedStyle(one).backgroundImage)"
    assert browser.evaluate(f"{views}.every(image => image.startsWith('url(\"data:image/jpeg'))")
