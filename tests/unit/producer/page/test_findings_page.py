"""The findings of a job with their photos, as a browser gets them from a real server."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from producer.finalize.lint_csv import lint_rows
from producer.page.job_pages import funnel
from producer.page.render import coded
from producer.settings import ProducerSettings
from shared.jobs.findings import Finding
from shared.jobs.job import Job
from shared.jobs.paths import JobPaths
from shared.storage import Storage
from tests.page import ServedPage, served
from tests.unit.producer.page.audited import JOB, make_audited

PAIR = "photos/<b>1"  # of 240 x 320 pixels; its object is from 100, 60 to 160, 120
LONELY = "photos/lonely.jpg"
XML = f"{PAIR}.xml"
RENAME = "`--rename do=<i>`"
FOUND = (
    Finding(file=XML, object_index=1, rank="info", kind="class_typo", found="do (1)", done=RENAME, class_name="do"),
    Finding(file=LONELY, rank="info", kind="image_without_annotation", found="no XML", done="label it"),
    Finding(file=XML, object_index=2, rank="dropped", kind="box_outside", found="far away", done="dropped"),
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


def test_a_box_beside_its_photo_shows_the_whole_photo_and_says_where_it_lies(page: ServedPage) -> None:
    text = shown(page, "box_outside")
    assert 'viewBox="0.0 0.0 240.0 320.0"' in text
    assert "The box lies beside the photo: xmin 400 ≥ 240 wide" in text
    assert "beside the photo" not in shown(page, "class_typo")


def test_a_photo_without_xml_is_shown_and_every_picture_opens_large(page: ServedPage) -> None:
    text = shown(page, "image_without_annotation")
    assert 'viewBox="0.0 0.0 240.0 320.0"' in text
    (address,) = re.findall(r'<a class="large" href="(.*?)">', text)
    assert page.ask(address).headers["content-type"] == "image/jpeg"
    assert "<svg" not in shown(page, "set_small")


def test_a_filter_is_named_and_can_be_cleared(page: ServedPage) -> None:
    text = page.ask(f"/jobs/{JOB}/findings?kind=class_typo&class=cat&text=%3Cb%3E").text
    assert "Only kind class_typo, class cat, the words “&lt;b&gt;”." in text
    assert f'<a href="/jobs/{JOB}/findings">Show all findings</a>' in text
    assert "<p>No findings of that kind here.</p>" in text
    assert "Drawn are" not in text
    assert "Show all" not in page.ask(f"/jobs/{JOB}/findings").text


def test_a_text_with_a_back_quote_in_a_name_stays_as_it_is() -> None:
    assert coded("type `a<b` or `c`") == "type <code>a&lt;b</code> or <code>c</code>"
    assert coded("a name with ` in it <b>") == "a name with ` in it &lt;b&gt;"


@pytest.mark.parametrize(("count", "words"), [(1, "photo without XML"), (2, "photos without XML")])
def test_one_photo_is_one_photo(page: ServedPage, tmp_path: Path, count: int, words: str) -> None:
    job = Job.model_validate_json(Storage(str(tmp_path / "store")).read(JobPaths(JOB).job))
    stages = funnel(job.model_copy(update={"counts": {"orphan_images": count}}), None, None)
    assert [loss for stage in stages for loss in stage.losses] == [(words, count, "")]
