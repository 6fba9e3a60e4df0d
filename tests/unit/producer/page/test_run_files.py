"""A run, runs beside one another, and what a run hands out, from files as a trainer writes them and as it does not."""

import hashlib
import json
import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from producer.settings import ProducerSettings
from shared.jobs.identity import make_note
from shared.jobs.job import Job, SplitPlan
from shared.jobs.paths import JobPaths, RunPaths
from shared.specs.data import JobSpec
from shared.specs.run import RunSpec
from shared.storage import Storage
from tests.page import ServedPage, served
from tests.unit.producer.page.seen_run import RUN, make_seen

IDENTITY = "ef" * 16
HOSTILE = "<script>alert(1)</script>\n" + "x" * 1000
MODEL = bytes(range(256)) * 20_000  # of several pieces
HEADER = "epoch,step,seconds,loss,loss_score,loss_box,learning_rate,images_per_s,busy,val_map50,val_map"


def figures(map50: float, **more: Any) -> dict[str, Any]:
    """A form's figures as `metrics.json` has them."""
    row = {"ap50": map50, "ap50_interval": [map50 - 0.1, map50 + 0.1], "ap": map50 / 2, "objects": 31}
    return {
        "split": "test",
        "map50": map50,
        "map50_interval": [map50 - 0.1, map50 + 0.1],
        "map": map50 / 2,
        "pictures": 12,
        "objects": 31,
        "best_score": 0.37,
        "bytes": len(MODEL),
        "median_ms": 4.25,
        "per_class": {HOSTILE: row, "cat": {**row, "ap50": map50 - 0.05}},
        **more,
    }


def write_run(store: Storage, name: str, *, map50: float, epochs: int = 40) -> None:
    """A finished run of job `job`."""
    asked, paths = RunSpec(job="job", incarnation=IDENTITY, run=name, epochs=epochs), RunPaths(name)
    lines = [f"{at},{at * 10},1.0,{9 / at},1,1,0.1,20,1,{map50 * at / 3},{map50 * at / 6}" for at in (1, 2, 3)]
    files = {"model_int8.tflite": {"bytes": len(MODEL), "sha256": hashlib.sha256(MODEL).hexdigest()}}
    summary = {"int8": {"map50": map50, "map50_interval": [0.1, 0.9], "objects": 31, "best_score": 0.37}}
    note = make_note(
        IDENTITY,
        metrics=summary,
        seconds=60,
        at=1.0,
        labels=["cat"],
        image_size=320,
        files=files,
        advice=[HOSTILE, "Do this:\nvoc2tflite retry job"],
        warnings=["Few photos."],
    )
    refused = {"name": "int8: same", "is_ok": False, "found": HOSTILE, "advice": "Look at it."}
    store.write(paths.request, asked.to_json().encode())
    store.write(paths.run, note)
    store.write(paths.metrics, json.dumps({"float32": figures(map50 + 0.02), "int8": figures(map50)}).encode())
    store.write(f"{paths.root}/results.csv", "\n".join([HEADER, *lines, "4,4"]).encode())
    store.write(f"{paths.root}/gate.json", json.dumps([refused, "no check"]).encode())
    store.write(f"{paths.root}/model_int8.tflite", MODEL)
    store.write(f"{paths.root}/report.html", b"<p>the report</p>")
    store.write(f"{paths.root}/secret.txt", b"not handed out")


@pytest.fixture
def store(tmp_path: Path) -> Storage:
    made = Storage(str(tmp_path / "store"))
    made.make_root()
    job = Job(
        job="job",
        incarnation=IDENTITY,
        dataset=str(tmp_path),
        folder="voc",
        spec=JobSpec(),
        run=None,
        labels=("cat",),
        splits={"train": SplitPlan(pairs=2, digests=("0" * 64,))},
        request_digest="0" * 64,
    )
    made.write(JobPaths("job").job, job.to_json().encode())
    write_run(made, "one", map50=0.8)
    write_run(made, "two", map50=0.6, epochs=20)
    return made


@pytest.fixture
def page(store: Storage, tmp_path: Path) -> Iterator[ServedPage]:
    with served(ProducerSettings(store=str(store.root), data_root=str(tmp_path))) as page:
        yield page


def table(text: str, label: str) -> list[list[str]]:
    """The cells of the body of the table in the region of that name, without their markup."""
    region = text[text.index(f'aria-label="{label}"') :]
    rows = re.findall(r"<tr>(.*?)</tr>", region[region.index("<tbody>") : region.index("</tbody>")], re.DOTALL)
    cells = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL) for row in rows]
    return [[unescape(re.sub(r"<[^>]*>", "", cell)).strip() for cell in row] for row in cells]


def test_a_run_shows_its_forms_with_intervals_its_worst_class_first_and_its_curves(page: ServedPage) -> None:
    text = page.ask("/runs/one").text
    forms = table(text, "Forms")
    assert [row[0] for row in forms] == ["float32", "int8"]
    assert "80.0" in forms[1][1]
    assert "70" in forms[1][1]
    assert "90" in forms[1][1]
    assert table(text, "By class")[0][0] == "cat"
    assert len(re.findall(r'<polyline class="curve', text)) == 4  # mAP50 and mAP, the loss, photos a second
    assert "Few photos." in text
    assert re.search(r"<code>\S*voc2tflite retry job</code>", text)
    assert "--epochs 40" in unescape(text)


def test_a_run_offers_its_model_with_the_digest_of_what_is_downloaded(page: ServedPage) -> None:
    rows = table(page.ask("/runs/one").text, "Files")
    digest = hashlib.sha256(MODEL).hexdigest()
    assert ["model_int8.tflite", f"{digest[:12]}\u2026{digest}"] in [[row[0], row[2]] for row in rows]
    answer = page.ask("/runs/one/files/model_int8.tflite")
    assert answer.body == MODEL
    assert answer.headers["content-disposition"] == 'attachment; filename="one-model_int8.tflite"'
    assert "sandbox" in page.ask("/runs/one/files/report.html").headers["content-security-policy"]


@pytest.mark.parametrize(
    "path",
    [
        "one/files/secret.txt",
        "one/files/request.json",
        "one/files/..%2frequest.json",
        "one/files/%2e%2e/two/model_int8.tflite",
        "one/files/%00",
        "..%2fruns%2fone",
        "absent",
        "job",
    ],
)
def test_nothing_else_is_handed_out(page: ServedPage, path: str) -> None:
    answer = page.ask(f"/runs/{path}")
    assert answer.status == 404
    assert b"not handed out" not in answer.body


def test_a_link_out_of_the_store_is_not_followed(store: Storage, page: ServedPage, tmp_path: Path) -> None:
    (tmp_path / "private").write_bytes(b"not handed out")
    for name in ("report.html", "model_int8.tflite"):
        file = store.local_path(f"{RunPaths('one').root}/{name}")
        file.unlink()
        file.symlink_to(tmp_path / "private")
        assert page.ask(f"/runs/one/files/{name}").status == 404
    for path in ("/runs/one/model_int8.tflite", "/runs/one/model.json", "/runs/one/try"):
        assert page.ask(path).status == 404


@pytest.mark.parametrize("path", ["/runs/one", "/compare?run=one&run=two"])
def test_what_a_run_says_is_text(page: ServedPage, path: str) -> None:
    answer = page.ask(path)
    assert answer.status == 200
    assert "<script>alert" not in answer.text
    assert "&lt;script&gt;alert(1)" in answer.text


def test_runs_beside_one_another_show_what_was_set_differently_and_their_curves_in_one_chart(page: ServedPage) -> None:
    text = page.ask("/compare?run=one&run=two").text
    assert [row[0] for row in table(text, "Figures")] == ["one", "two"]
    assert table(text, "Settings") == [["epochs", "40", "20"]]
    by_class = {row[0]: row[1:] for row in table(text, "By class")}
    assert [cell[:4] for cell in by_class["cat"]] == ["75.0", "55.0"]
    (chart,) = re.findall(r"<figcaption>mAP on val.*?</figure>", text, re.DOTALL)
    assert len(re.findall("<polyline", chart)) == 2
    assert re.findall(r'<li class="legend-\d">(.*?)</li>', chart) == ["one", "two"]


@pytest.mark.parametrize("query", ["", "?run=one", "?run=one&run=one", "?" + "&".join(f"run={n}" for n in range(6))])
def test_fewer_than_two_or_more_than_five_runs_are_refused_with_what_to_ask(page: ServedPage, query: str) -> None:
    answer = page.ask(f"/compare{query}")
    assert answer.status == 400
    assert "expected 2 to 5 runs" in unescape(answer.text)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"int8": 3}',
        b'{"int8": {"per_class": 1, "map50": "x"}}',
        b"\xff\xfe",
        b"[" * 100_000,
    ],
    ids=["empty", "half", "list", "null", "number", "wrong types", "no text", "deep"],
)
@pytest.mark.parametrize("name", ["metrics.json", "gate.json", "results.csv", "run.json"])
def test_a_file_that_is_none_of_ours_leaves_its_part_out_and_the_rest_is_shown(
    store: Storage, page: ServedPage, name: str, content: bytes
) -> None:
    store.write(f"{RunPaths('one').root}/{name}", content)
    for path in ("/runs/one", "/compare?run=one&run=two", "/runs/two"):
        assert page.ask(path).status == 200, path
    assert "80.0" in page.ask("/runs/one").text or name == "metrics.json"
    assert len(table(page.ask("/runs/two").text, "Forms")) == 2


def test_a_page_of_a_run_is_sent_again_only_when_a_file_has_changed(store: Storage, page: ServedPage) -> None:
    tag = page.ask("/runs/one").headers["etag"]
    assert page.ask("/runs/one", If_None_Match=tag).status == 304
    epochs = store.read(f"{RunPaths('one').root}/results.csv").decode().rpartition("\n")[0]
    store.write(f"{RunPaths('one').root}/results.csv", f"{epochs}\n4,400,1,1,1,1,0.1,20,1,0.9,0.5\n".encode())
    changed = page.ask("/runs/one", If_None_Match=tag)
    assert (changed.status, changed.headers["etag"] != tag) == (200, True)


# JSON takes Infinity and NaN too, as Python writes and reads it.
ODD: list[Any] = ["x", None, {}, [1, 2], ["a", "b"], True, -1, 10**400, float("nan")]


def spoiled(value: Any) -> Iterator[Any]:
    """`value` with each of its parts in turn, at any depth, in every odd way."""
    yield from ODD
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in parts:
        for odd in spoiled(part):
            copy = value.copy()
            copy[key] = odd
            yield copy


@pytest.mark.parametrize("name", ["metrics.json", "gate.json", "run.json"])
def test_no_value_of_a_file_is_an_error_of_ours(store: Storage, page: ServedPage, name: str) -> None:
    key = f"{RunPaths('one').root}/{name}"
    content = json.loads(store.read(key))
    if name == "metrics.json":
        content = {"int8": {**content["int8"], "per_class": {"cat": content["int8"]["per_class"]["cat"]}}}
    for odd in spoiled(content):
        store.write(key, json.dumps(odd).encode())
        for path in ("/runs/one", "/compare?run=one&run=two"):
            assert page.ask(path).status == 200, (path, odd)


def test_no_box_of_a_file_is_an_error_of_ours(tmp_path: Path) -> None:
    store = Storage(str(make_seen(tmp_path)))
    key = f"{RunPaths(RUN).root}/detections_test.json"
    content = json.loads(store.read(key))
    content = {**content, "annotations": content["annotations"][:1], "detections": content["detections"][:1]}
    content = {**content, "images": content["images"][:1]}
    statuses = set()
    with served(ProducerSettings(store=str(store.root), data_root=str(tmp_path / "data"))) as page:
        for odd in spoiled(content):
            store.write(key, json.dumps(odd).encode())
            assert page.ask(f"/runs/{RUN}").status == 200, odd
            answers = [page.ask(f"/runs/{RUN}/{name}") for name in ("photos", "scores.json", "photos/1")]
            assert {answer.status for answer in answers} <= {200, 404, 422}, odd
            statuses |= {answer.status for answer in answers}
    assert statuses >= {200, 422}
