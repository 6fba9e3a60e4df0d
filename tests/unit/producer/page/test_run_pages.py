"""A run with what it sees, and two runs beside one another, as a browser gets them from a real server."""

import hashlib
import json
import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import pytest

from producer.page.facts import seen as facts
from producer.page.facts.run_files import RunFiles, charts_of
from producer.settings import ProducerSettings
from shared.jobs.identity import make_note
from shared.jobs.job import SplitPlan
from shared.jobs.paths import RunPaths
from shared.storage import Storage
from tests.page import ServedPage, served
from tests.unit.producer.page.measured import (
    DETECTIONS,
    FILES,
    IDENTITY,
    LABELS,
    OBJECTS,
    add_run,
    finish_job,
    form_figures,
    make_measured,
    seen,
    seen_file,
    there,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_measured(tmp_path)
    return tmp_path


@pytest.fixture
def page(folder: Path) -> Iterator[ServedPage]:
    with served(ProducerSettings(store=str(folder / "store"), data_root=str(folder / "data"))) as page:
        yield page


def add(folder: Path, run: str, content: bytes) -> None:
    add_run(Storage(str(folder / "store")), run, form_figures(0.5, 0.5), content)


def test_a_run_says_what_it_sees_at_its_own_threshold(page: ServedPage) -> None:
    text = page.ask("/runs/first").text
    said = "1 found (IoU ≥ 0.5), 2 missed (1 with a box badly placed); 1 box badly placed, 2 made up."
    assert f"At a score of at least 0.44, in 3 photos of test: {said}" in text
    worst = text[text.index("The worst photos") :]
    assert re.findall(r"<figcaption>(.*?)</figcaption>", worst)[:2] == [FILES[0], FILES[1]]
    assert "Precision and recall" in text


def test_forms_without_suppression_stand_below_those_with_it(page: ServedPage, folder: Path) -> None:
    metrics = {"int8_raw": {**form_figures(0.58, 0.5), "decode_ms": 0.31}, "int8": form_figures(0.6, 0.5)}
    Storage(str(folder / "store")).write(RunPaths("first").metrics, json.dumps(metrics).encode())
    forms = re.search(r'aria-label="Forms">(.*?)</table>', page.ask("/runs/first").text, re.DOTALL)
    assert forms is not None
    rows = re.findall(r'<th scope="row">(.*?)</th>.*?([0-9. +]+)</td></tr>', forms[1])
    assert rows == [("int8", "2.0"), ("int8_raw", "2.0 + 0.3")]


def test_a_cell_of_the_confusion_opens_its_photos(page: ServedPage) -> None:
    run = page.ask("/runs/first?least=0.5").text
    pattern = r'href="(/runs/first/photos\?least=0.5&amp;there=[0-9]&amp;seen=[0-9])" title="(.*?)">([0-9]+)<'
    cells = re.findall(pattern, run)
    assert {unescape(words): int(count) for _, words, count in cells} == {
        "cat found": 1,
        "cat missed": 1,
        f"{LABELS[1]} taken for cat": 1,
        "cat made up, or badly placed": 2,
    }
    opened = page.ask(next(unescape(link) for link, words, _ in cells if "taken for" in words)).text
    assert 'taken for cat: <span id="of-cell" data-turns="0.8">1 photo</span>' in opened
    marked = re.findall(r'<(rect|text) class="\w+ (\w+) asked" data-score="(.*?)"', opened)
    assert marked == [("rect", "wrong", "0.8"), ("text", "wrong", "0.8")]
    missed = page.ask(next(unescape(link) for link, words, _ in cells if words == "cat missed")).text
    assert 'data-turns="0.9 -1.0" data-is-missed>1 photo<' in missed
    assert len(re.findall(r'<rect class="box missed asked" data-found-by', missed)) == 1
    assert re.findall(r"<figcaption>(.*?)</figcaption>", opened) == [FILES[0]]
    assert '<input type="hidden" name="there" value="1"><input type="hidden" name="seen" value="0">' in opened


def test_a_cell_with_more_photos_than_a_page_has_goes_on_with_it(page: ServedPage, folder: Path) -> None:
    images = [{"id": number + 7, "file_name": f"photos/{number}.jpg"} for number in range(60)]
    found = [seen(number, 1 + number // 50, 0.9, (1, 1, 20, 20)) for number in range(60)]
    add(folder, "many", seen_file([], found, images=images))
    names, address = [], "?least=0.5&there=2&seen=0"
    while address:
        text = page.ask(f"/runs/many/photos{address}").text
        names += re.findall(r"<figcaption>(.*?)</figcaption>", text)
        onward = re.search(r'<a href="([^"]*)">next', text)
        address = unescape(onward[1]) if onward else ""
    assert sorted(names) == sorted(f"photos/{number}.jpg" for number in range(50))


def test_class_names_are_text(page: ServedPage) -> None:
    for path in ("/runs/first", "/runs/first/photos?there=1&seen=0", "/compare?run=first&run=second"):
        text = page.ask(path).text
        assert LABELS[1] not in text, path
        assert "&lt;script&gt;dog" in text, path


def test_two_runs_are_held_against_one_another(page: ServedPage) -> None:
    text = page.ask("/compare?run=first&run=second").text
    assert '<th scope="row">seed</th>' in text
    assert re.search(r'>second</a></th><td><span class="figure">90\.0 % .*?\+30\.0 \(\+18\.8 to \+41\.2\), sure', text)
    assert "+20.0" in text
    beside = text[text.index("differ most") :]
    assert re.findall(r"<figcaption>(.*?)</figcaption>", beside) == [FILES[0], FILES[0]]
    drawn = re.findall(r'<rect class="box ([a-z ]+)"', beside)
    assert drawn.count("right") == 3


def test_a_digest_is_short_and_folds_out(page: ServedPage, folder: Path) -> None:
    digest = "ab12" * 16
    files = {"model_int8.tflite": {"bytes": 5, "sha256": digest}}
    storage = Storage(str(folder / "store"))
    storage.write("runs/first/run.json", json.dumps({**json.loads(make_note(IDENTITY)), "files": files}).encode())
    text = page.ask("/runs/first").text
    assert f"<summary><code>{digest[:12]}…</code></summary><code>{digest}</code></details>" in text


def test_the_best_threshold_is_named_explained_and_a_link_to_it(page: ServedPage) -> None:
    text = page.ask("/runs/first/photos?least=0.7&there=1&seen=0").text
    assert '<a href="?least=0.44&there=1&seen=0">0.44: highest F1</a>' in unescape(text).replace(
        ' data-least="0.44"', ""
    )
    assert "Highest F1: the threshold with the best F1 on train" in text, "the job has no photos of val"
    assert re.search(r"highest F1</a> <span class=.quiet.>precision [0-9.]+ %, recall [0-9.]+ %<", text)
    assert "Dots are scores: 0.44 is this page's" in page.ask("/runs/first").text
    assert "<title>score 0.44</title>" in page.ask("/runs/first").text


def test_every_file_of_a_run_has_its_size_and_digest(page: ServedPage, folder: Path) -> None:
    store, content = Storage(str(folder / "store")), b"# A card\n"
    key = f"{RunPaths('first').root}/model_card.md"
    for each in (content, content * 2):
        store.write(key, each)
        row = re.search(r'files/model_card.md">.*?</tr>', page.ask("/runs/first").text)
        assert row is not None
        assert f"{len(each)} B" in row[0]
        assert hashlib.sha256(each).hexdigest() in row[0]


def test_browsers_that_look_for_an_icon_find_it(page: ServedPage) -> None:
    assert page.ask("/favicon.ico").headers["location"] == "/static/icon.svg"


def test_curves_of_one_run_are_named_by_figure_and_of_several_by_run() -> None:
    files = RunFiles(
        epochs=[{"step": 1, "val_map50": 0.1, "val_map": 0.05}, {"step": 2, "val_map50": 0.2, "val_map": 0.1}]
    )
    assert [curve.name for curve in charts_of({"garden": files})[0].curves] == ["mAP50", "mAP"]
    assert [curve.name for curve in charts_of({"garden": files, "pond": files})[0].curves] == ["garden", "pond"]


def test_axes_say_what_they_are_of(page: ServedPage) -> None:
    assert re.search(r'<text x="400" y="219" text-anchor="end">recall, %</text>', page.ask("/runs/first").text)


def test_any_run_can_be_the_first_and_what_may_be_chance_is_said(page: ServedPage, folder: Path) -> None:
    add_run(Storage(str(folder / "store")), "third", form_figures(0.62, 0.5), seen_file(), learning_rate=0.01)
    text = page.ask("/compare?run=first&run=second&run=third").text
    (told,) = re.findall(r"<p>Differences are against first\. Compare against (.*?) instead", text)
    against = [unescape(link) for link in re.findall(r'href="(.*?)"', told)]
    assert against == ["/compare?run=second&run=first&run=third", "/compare?run=third&run=first&run=second"]
    assert "Differences are against third" in page.ask(against[1]).text
    assert re.search(r"\+2\.0 \(.*?\), may be chance", text)
    assert re.search(r"learning_rate</th><td>default</td><td>default</td><td>0\.01<", text)
    assert re.search(
        r'<a href="/jobs/job">Job job</a> <span aria-hidden="true">.</span> <span class="here">Compare', text
    )


def resamples(folder: Path, run: str, figure: float, photos: str = "a") -> None:
    """Resamples in which every figure is one of two values, so that a difference is the same in all of them."""
    figures = [round(figure + 0.05 * (place % 2), 3) for place in range(200)]
    said = {"run": run, "form": "int8", "split": "test", "drawn_from": photos, "map50": figures, "map": figures}
    content = json.dumps({**said, "ap50": dict.fromkeys(LABELS, figures)}).encode()
    Storage(str(folder / "store")).write(f"runs/{run}/resamples_test.json", content)


def test_runs_on_the_same_photos_have_the_interval_of_the_same_resamples(page: ServedPage, folder: Path) -> None:
    resamples(folder, "first", 0.6)
    resamples(folder, "second", 0.8)
    text = page.ask("/compare?run=first&run=second").text
    assert re.search(r'>second</a></th><td><span class="figure">90\.0 % .*?\+30\.0 \(\+20\.0 to \+30\.0\), sure', text)
    assert re.search(r"\+20\.0 \(\+20\.0 to \+20\.0\), sure", text), "a class"
    assert "measured on the same photos for both" in text
    assert "as if measured" not in text


def test_a_run_on_other_photos_is_named_as_such(page: ServedPage, folder: Path) -> None:
    add(folder, "third", seen_file())
    for run, photos in (("first", "a"), ("second", "a"), ("third", "b")):
        resamples(folder, run, 0.6, photos)
    text = page.ask("/compare?run=first&run=second&run=third").text
    assert "measured on the same photos for both" in text
    assert "third: compared as if measured on different photos" in text
    text = page.ask("/compare?run=first&run=third").text
    assert "measured on the same photos" not in text


def test_runs_that_were_measured_on_val_are_not_called_those_of_test_photos(page: ServedPage, folder: Path) -> None:
    store = Storage(str(folder / "store"))
    for run in ("first", "second"):
        figures = {**json.loads(store.read(RunPaths(run).metrics))["int8"], "split": "val"}
        store.write(RunPaths(run).metrics, json.dumps({"int8": figures}).encode())
    text = page.ask("/compare?run=first&run=second").text
    assert "because their photos are not all the same" in text
    assert "test photos" not in text


def test_runs_that_were_measured_on_two_splits_are_told_apart(page: ServedPage, folder: Path) -> None:
    store = Storage(str(folder / "store"))
    figures = {**json.loads(store.read(RunPaths("second").metrics))["int8"], "split": "train"}
    store.write(RunPaths("second").metrics, json.dumps({"int8": figures}).encode())
    text = page.ask("/compare?run=first&run=second").text
    assert re.findall(r">50 \((\w+)\)</td>", text) == ["test", "train"]


def test_where_there_is_val_the_models_own_threshold_is_said_to_be_of_it(page: ServedPage, folder: Path) -> None:
    plan = SplitPlan(pairs=3, digests=("0" * 64,))
    finish_job(Storage(str(folder / "store")), {"val": plan, "test": plan})
    assert "Highest F1: the threshold with the best F1 on val," in page.ask("/runs/first/photos").text


def test_the_split_that_a_run_says_chose_its_threshold_is_named(page: ServedPage, folder: Path) -> None:
    store = Storage(str(folder / "store"))
    plan = SplitPlan(pairs=3, digests=("0" * 64,))
    finish_job(store, {"val": plan, "test": plan})
    figures = {**json.loads(store.read(RunPaths("first").metrics))["int8"], "score_split": "train"}
    store.write(RunPaths("first").metrics, json.dumps({"int8": figures}).encode())
    assert "Highest F1: the threshold with the best F1 on train," in page.ask("/runs/first/photos").text, (
        "no object of val counts"
    )


@pytest.mark.parametrize("query", ["", "run=first", "&".join(f"run=r{n}" for n in range(6)), "run=first&run=first"])
def test_fewer_than_two_and_more_than_five_runs_are_refused(page: ServedPage, query: str) -> None:
    assert page.ask(f"/compare?{query}").status == 400


@pytest.mark.parametrize("name", ["../../secret.jpg", "photos/link.jpg", "/etc/passwd", "photos", "a\0b", "x" * 5000])
def test_a_hostile_list_of_photos_gives_no_file_away(page: ServedPage, folder: Path, name: str) -> None:
    secret = folder / "secret.jpg"
    secret.write_bytes((folder / "data" / "voc" / FILES[0]).read_bytes())
    (folder / "data" / "voc" / "photos" / "link.jpg").symlink_to(secret)
    add(folder, "hostile", seen_file([], [], images=[{"id": 7, "file_name": name}]))
    shown = page.ask("/runs/hostile/photos")
    assert (shown.status, 'viewBox="0 0 240 320"' in shown.text) == (200, False)
    assert page.ask("/runs/hostile/photos/7").status == 404


DAMAGED = [
    b"",
    b"[" * 50_000,
    b'{"labels": "<script>"}',
    seen_file(image_size=0),
    seen_file(image_size=-5),
    seen_file(image_size=10**400),
    seen_file(resize="melt"),
    seen_file([there(0, 3, (0, 0, 1, 1))]),
    seen_file([there(0, 1, (0, 0, 1))]),
    seen_file(detections=[seen(0, 1, 0.5, (0, 0, float("nan"), 1))]),
    seen_file(detections=[seen(0, 1, float("nan"), (0, 0, 1, 1))]),
    seen_file(detections=[{**DETECTIONS[0], "category_id": float("inf")}]),
    seen_file([{**OBJECTS[0], "image_id": "seven"}]),
]


@pytest.mark.parametrize("content", DAMAGED, ids=range(len(DAMAGED)))
def test_a_damaged_file_of_detections_is_an_error_in_its_own_place(
    page: ServedPage, folder: Path, content: bytes
) -> None:
    add(folder, "damaged", content)
    run = page.ask("/runs/damaged")
    assert (run.status, run.text.count('class="error"')) == (200, 1)
    assert "50.0 %" in run.text
    assert [page.ask(f"/runs/damaged/{name}").status for name in ("photos", "scores.json", "photos/7")] == [422] * 3
    assert page.ask("/compare?run=first&run=damaged").status == 200


def test_a_file_that_is_too_large_is_not_read(page: ServedPage, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "MOST_BYTES", 100)
    add(folder, "large", seen_file())
    assert "at most 100 are read" in page.ask("/runs/large").text


def test_a_run_without_detections_shows_the_rest(page: ServedPage, folder: Path) -> None:
    add(folder, "bare", b"{}")
    Storage(str(folder / "store")).remove("runs/bare/detections_test.json")
    text = page.ask("/runs/bare").text
    assert "What it sees" not in text
    assert "50.0 %" in text
