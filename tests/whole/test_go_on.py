"""Months later: a model goes on from the one before, is held against it, and measured on photos of somebody else."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from producer.page.facts.resamples import pair_of, paired_bounds, read_resamples
from shared.storage import Storage
from tests.cluster import REPOSITORY

pytestmark = pytest.mark.whole
TINY = ("--image-size", "96", "--model", "nano", "--backbone", "conv", "--max-drop", "100")
LEARNS = ("--epochs", "100")  # 400 steps: it finds something
SHORT = ("--epochs", "1", "--max-drop", "100")
Run = Callable[..., "subprocess.CompletedProcess[str]"]


def voc2tflite(*words: object, code: int = 0) -> "subprocess.CompletedProcess[str]":
    """The command as a person gives it, with no broker anywhere."""
    settings = {name: value for name, value in os.environ.items() if not name.startswith("VOC_")}
    settings |= {"PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, "-m", "shared.command", *map(str, words)]
    ended = subprocess.run(command, env=settings, capture_output=True, text=True, check=False)
    assert ended.returncode == code, ended.stdout + ended.stderr
    return ended


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory: pytest.TempPathFactory, small_voc: Path) -> Path:
    """A store with the run `old`, and `new` that went on from it, with a class of another name."""
    folder = tmp_path_factory.mktemp("months")
    store = folder / "out"
    voc2tflite("submit", small_voc, "--job", "old", "--local", "--store", store, *TINY, *LEARNS)
    more = Path(shutil.copytree(small_voc, folder / "more"))
    renamed = ("--rename", "triangle=wedge", "--epochs", "10", "--max-drop", "100")
    told = voc2tflite("submit", more, "--job", "new", "--from", "old", "--local", "--store", store, *renamed).stderr
    assert "goes on from old (nano, conv) with 75% of the learning rate of a new training" in told
    assert "; keeps circle, cross; new: wedge; left out: triangle\n" in told
    return store


def test_a_run_that_goes_on_outlives_the_one_before(two_runs: Path) -> None:
    run = two_runs / "runs/new"
    start = json.loads((run / "request.json").read_text())["start"]
    assert f"continued from old (`{start}`)" in (run / "model_card.md").read_text()
    assert f"--from STORE/{start}" in (run / "model_card.md").read_text()
    old = json.loads((two_runs / "runs/old/run.json").read_text())["files"]["model.keras"]["sha256"]
    assert start == f"weights/{old[:16]}-old.keras"
    logs = "".join(path.read_text() for path in (two_runs / "logs").iterdir() if "trainer" in path.name)
    assert '"kept": ["circle", "cross"]' in logs
    assert (two_runs / start).exists()


def test_runs_are_compared_on_the_same_photos(two_runs: Path, tmp_path: Path) -> None:
    told = voc2tflite("compare", "old", "new", "--store", two_runs, "--html", tmp_path / "compared.html").stdout
    assert max(map(len, told.splitlines())) <= 80
    assert "new against old, int8, on the " in told
    assert "only old knows triangle" in told
    assert "rename triangle → wedge, start weights/" in " ".join(told.split())
    rows = json.loads(voc2tflite("compare", "old", "new", "--store", two_runs, "--json").stdout)
    assert rows[0]["against_first"] is None
    pair = rows[1]["against_first"]
    assert [row["label"] for row in pair["rows"]] == ["mAP50", "mAP", "circle", "cross"]
    assert pair["photos"] == rows[1]["data"]["test photos"]
    page = (tmp_path / "compared.html").read_text()
    assert "<h2>new against old</h2>" in page
    assert "<td>start</td>" in page


def test_the_page_tells_the_intervals_that_compare_tells(two_runs: Path) -> None:
    storage = Storage(str(two_runs))
    pair = pair_of(*(read_resamples(storage, run, "test") for run in ("old", "new")))
    assert pair is not None, "they were measured on the same photos"
    rows = json.loads(voc2tflite("compare", "old", "new", "--store", two_runs, "--json").stdout)
    told = {row["label"]: row for row in rows[1]["against_first"]["rows"] if row["label"] in ("circle", "cross")}
    assert any(row["points"] for row in told.values()), "there is a difference"
    for label, row in told.items():
        assert paired_bounds(pair, "ap50", label, row["points"]) == pytest.approx(row["interval"], abs=0.002), label


def test_a_model_on_a_folder_is_what_the_jobs_own_evaluation_says(
    two_runs: Path, small_voc: Path, tmp_path: Path
) -> None:
    metrics = json.loads((two_runs / "runs/old/metrics.json").read_text())["int8"]
    assert metrics["map50"] > 0, "there is something to compare"
    photos = tmp_path / "tested"
    for name in (two_runs / "jobs/old/splits/test.txt").read_text().splitlines():
        for file in (Path(name), Path("Annotations", f"{Path(name).stem}.xml")):
            (photos / file.parent).mkdir(parents=True, exist_ok=True)
            shutil.copy(small_voc / file, photos / file)
    model, page = two_runs / "runs/old/model_int8.tflite", tmp_path / "seen.html"
    found = json.loads(voc2tflite("evaluate", model, photos, "--json", "--html", page).stdout)
    figures = ("map50", "map", "map50_interval", "map_interval", "pictures", "objects", "per_class", "bytes")
    # The stored pictures are the same bytes: nothing is left to be rounded.
    assert {name: found[name] for name in figures} == {name: metrics[name] for name in figures}
    assert (found["form"], found["unknown_classes"], found["quarantined"]) == ("int8", {}, 0)
    assert "Across the folder" in page.read_text() or "<h2>Pictures</h2>" in page.read_text()
    renamed = voc2tflite("evaluate", model, photos, "--rename", "cross=dog")
    assert "left out, as the model does not know their class: dog " in renamed.stderr
    assert "the folder has no object of cross" in renamed.stderr
    assert "circle " in renamed.stdout


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("MODEL",), 2, "error: expected a run of the store, or a MODEL and a FOLDER"),
        (("MODEL", "absent"), 1, "absent: expected a folder with images and Pascal-VOC XML, found no folder"),
        (("MODEL", "EMPTY"), 1, "EMPTY"),
        (("XML", "PHOTOS"), 1, "no TFLite file"),
        (("absent.tflite", "PHOTOS"), 2, "absent.tflite: no such file"),
        (("MODEL", "PHOTOS", "--form", "int8"), 2, "takes no --store and no --form"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_evaluate_refuses_what_it_cannot_measure_in_one_line(
    two_runs: Path, small_voc: Path, tmp_path: Path, words: tuple[str, ...], code: int, said: str
) -> None:
    (tmp_path / "empty").mkdir()
    places: dict[str, Any] = {
        "MODEL": two_runs / "runs/old/model_int8.tflite",
        "EMPTY": tmp_path / "empty",
        "PHOTOS": small_voc,
        "XML": next((small_voc / "Annotations").iterdir()),
    }
    told = voc2tflite("evaluate", *(places.get(word, word) for word in words), code=code).stderr
    assert str(places.get(said, said)) in told
    assert told.count("error: ") == 1
    assert "Traceback" not in told


def test_in_a_bucket_a_run_goes_on_too(object_server: Any, small_voc: Path) -> None:
    url = object_server.url("months")
    settings = os.environ | {"PYTHONPATH": str(REPOSITORY), "VOC_BROKER_URL": ""}

    def submit(*words: str) -> str:
        command = [sys.executable, "-m", "producer", "submit", *words, "--local", "--store", url]
        done = subprocess.run(command, env=settings, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stderr

    submit(str(small_voc), "--job", "job", *TINY, *SHORT[:2])
    assert "goes on from job (nano, conv)" in submit("--job", "job", "--run", "more", "--from", "job", *SHORT)
    assert "continued from job" in Storage(url).read("runs/more/model_card.md").decode()
