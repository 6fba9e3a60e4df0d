"""The findings of a job with their photos, as a browser gets them from a real server."""

import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import pytest

from producer.finalize.lint_csv import lint_rows
from producer.page.facts.drawn import both
from producer.page.job_pages import funnel
from producer.page.render import coded
from producer.settings import ProducerSettings
from shared.jobs.findings import Finding
from shared.jobs.job import Job
from shared.jobs.paths import JobPaths
from shared.storage import Storage
from tests.page import ServedPage, served
from tests.unit.producer.page.audited import JOB, make_audited
from tests.unit.worker.pictures import soft_picture, voc_xml, with_orientation

PAIR = "photos/<b>1"  # of 240 x 320 pixels; its object is from 100, 60 to 160, 120
LONELY = "photos/lonely.jpg"
XML = f"{PAIR}.xml"
OTHER = "photos/<b>0.jpg"
SAME, SWAPPED = f"the same bytes as {PAIR}.jpg, but other labels", "xmin and xmax swapped"
RENAME = "`--rename do=<i>`"
FOUND = (
    Finding(file=XML, object_index=1, rank="info", kind="class_typo", found="do (1)", done=RENAME, class_name="do"),
    Finding(file=LONELY, rank="info", kind="image_without_annotation", found="no XML", done="label it"),
    Finding(file=XML, object_index=2, rank="dropped", kind="box_outside", found="far away", done="dropped"),
    Finding(file=XML, object_index=1, rank="mended", kind="box_swapped", found="160 60 100 120", done=SWAPPED),
    Finding(file=OTHER, rank="info", kind="duplicate_conflicting", found=SAME, done="both kept"),
    Finding(file=".", rank="info", kind="set_small", found="1 photo", done="kept"),
)


@pytest.fixture
def page(tmp_path: Path) -> Iterator[ServedPage]:
    store = make_audited(tmp_path)
    photos = tmp_path / "data" / "voc"
    (photos / LONELY).write_bytes((photos / f"{PAIR}.jpg").read_bytes())
    beside = "<object><name>dog</name><bndbox><xmin>400</xmin><ymin>10</ymin><xmax>450</xmax><ymax>60</ymax></bndbox>"
    xml = (photos / f"{PAIR}.xml").read_text()
    (photos / f"{PAIR}.xml").write_text(xml.replace("</annotation>", f"{beside}</object></annotation>"))
    lines = "".join(f"{line}\n" for line in lint_rows(FOUND))
    Storage(str(store)).write(JobPaths(JOB).lint, lines.encode())
    with served(ProducerSettings(store=str(store), data_root=str(tmp_path / "data"))) as page:
        yield page


def shown(page: ServedPage, kind: str) -> str:
    text = page.ask(f"/jobs/{JOB}/findings?kind={kind}").text
    return text[text.index('<ul class="grid">') :]


def test_a_typo_draws_its_object_and_its_class_finds_it(page: ServedPage) -> None:
    text = shown(page, "class_typo")
    assert 'class="box read" x="100.0" y="60.0" width="60.0" height="60.0"' in text
    assert "<code>--rename do=&lt;i&gt;</code>" in text
    assert "class_typo" in page.ask(f"/jobs/{JOB}/findings?class=do").text


def test_a_box_beside_its_photo_is_in_one_view_with_the_whole_photo_and_says_where_it_lies(page: ServedPage) -> None:
    text = shown(page, "box_outside")
    view = re.search(r'viewBox="(.*?)"', text)
    assert view is not None
    left, top, width, height = map(float, view[1].split())
    # The photo has 240 x 320 px, the box reaches from 400 to 450.
    assert left < 0
    assert top < 0
    assert left + width > 450
    assert top + height > 320
    assert 'class="box read" x="400.0" y="10.0" width="50.0" height="50.0"' in text
    assert '<rect class="frame" width="240" height="320"' in text
    assert "The box lies outside the photo: xmin 400 ≥ 240 wide" in text
    assert "outside the photo" not in shown(page, "class_typo")


@pytest.mark.parametrize(("size", "place"), [((320, 240), (120, 100)), ((240, 320), (100, 60))])
def test_a_box_of_the_stored_pixels_of_a_photo_that_exif_turns_is_drawn_where_it_lies_in_the_upright_one(
    page: ServedPage, tmp_path: Path, size: tuple[int, int], place: tuple[int, int]
) -> None:
    photos = tmp_path / "data" / "voc"
    (photos / f"{PAIR}.jpg").write_bytes(with_orientation(soft_picture(320, 240), 6))
    (photos / XML).write_bytes(voc_xml((100, 60, 160, 120, "dog"), size=size))
    x, y = place
    assert f'class="box read" x="{x}.0" y="{y}.0" width="60.0" height="60.0"' in shown(page, "class_typo")
    labelled = shown(page, "duplicate_conflicting")
    assert re.search(rf'<rect[^>]* x="{x}.0" y="{y}.0" width="60.0" height="60.0"', labelled)


def test_a_box_far_away_leaves_the_photo_to_be_seen() -> None:
    left, top, width, height = both((90_000.0, 0.0, 10.0, 10.0), (240, 320))
    assert (left < 0, top < 0) == (True, True)
    assert width < 240 * 6
    assert height < 400


def test_a_picture_opens_as_the_page_of_its_finding_with_boxes_and_a_way_back(page: ServedPage) -> None:
    text = page.ask(f"/jobs/{JOB}/findings?kind=class_typo").text
    (address,) = re.findall(r'<a class="large" href="(.*?)">', text)
    large = page.ask(unescape(address)).text
    assert 'class="photo whole"' in large
    assert 'class="box read" x="100.0" y="60.0" width="60.0" height="60.0"' in large
    assert large.count("<figure>") == 1
    assert f'<a href="/jobs/{JOB}/findings?kind=class_typo&amp;class=&amp;text=&amp;page=1">All findings</a>' in large
    assert 'class="large"' not in large
    assert page.ask(f"/jobs/{JOB}/findings?number=999").status == 404


def test_photos_that_are_equal_stand_beside_one_another_with_their_labels(page: ServedPage) -> None:
    text = shown(page, "duplicate_conflicting")
    assert text.count("<svg") == 2
    assert f"<figcaption>{OTHER}: no object<br>{PAIR}.jpg: dog, dog<br>" in unescape(text)
    other = re.findall(r'<image href="(.*?)"', text)[1]
    assert page.ask(other).body == page.ask(re.findall(r'<image href="(.*?)"', shown(page, "class_typo"))[0]).body
    number = re.search(r"findings/([0-9]+)/photo", shown(page, "class_typo"))
    assert number is not None
    assert page.ask(f"/jobs/{JOB}/findings/{number[1]}/photo?other").status == 404


def test_what_became_of_a_fault_is_said(page: ServedPage) -> None:
    assert "<br>Repaired: xmin and xmax swapped" in shown(page, "box_swapped")
    assert "Repaired" not in shown(page, "class_typo")


def test_a_photo_without_xml_is_shown(page: ServedPage) -> None:
    text = shown(page, "image_without_annotation")
    assert 'viewBox="0.0 0.0 240.0 320.0"' in text
    (address,) = re.findall(r'<image href="(.*?)"', text)
    assert page.ask(address).headers["content-type"] == "image/jpeg"
    assert "<svg" not in shown(page, "set_small")


def test_a_filter_is_named_and_can_be_cleared(page: ServedPage) -> None:
    text = page.ask(f"/jobs/{JOB}/findings?kind=class_typo&class=cat&text=%3Cb%3E").text
    assert "Only kind class_typo, class cat, the words “&lt;b&gt;”." in text
    assert f'<a href="/jobs/{JOB}/findings">Show all findings</a>' in text
    assert "<p>Nothing here matches that.</p>" in text
    assert "The photos show" not in text
    assert "Show all" not in page.ask(f"/jobs/{JOB}/findings").text


def test_a_text_with_a_back_quote_in_a_name_stays_as_it_is() -> None:
    assert coded("type `a<b` or `c`") == "type <code>a&lt;b</code> or <code>c</code>"
    assert coded("a name with ` in it <b>") == "a name with ` in it &lt;b&gt;"


@pytest.mark.parametrize(("count", "words"), [(1, "photo without XML"), (2, "photos without XML")])
def test_one_photo_is_one_photo(page: ServedPage, tmp_path: Path, count: int, words: str) -> None:
    job = Job.model_validate_json(Storage(str(tmp_path / "store")).read(JobPaths(JOB).job))
    stages = funnel(job.model_copy(update={"counts": {"orphan_images": count}}), None, None)
    assert [loss for stage in stages for loss in stage.losses] == [(words, count, "")]
