"""From photos to files of both kinds by one command, and what the other commands do with them."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import REPOSITORY

pytestmark = pytest.mark.whole

FORMS = ("float32", "float16", "dynamic", "int8")
STEP_OF_INT8 = 1 / 256


def call(service: str, *words: str) -> subprocess.CompletedProcess[str]:
    where = {**os.environ, "PYTHONPATH": str(REPOSITORY), "VOC_BROKER_URL": "", "TMPDIR": tempfile.mkdtemp(prefix="f-")}
    command = [sys.executable, "-m", service, *words]
    return subprocess.run(command, env=where, capture_output=True, text=True, check=False)


def seen(model: Path, photos: Path) -> list[dict[str, Any]]:
    done = call("trainer", "predict", str(model), str(photos), "--json", "--threshold", "0")
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)["annotations"]
    return found


def test_one_run_makes_files_with_and_without_suppression_and_one_report_measures_both(
    small_voc: Path, tmp_path: Path
) -> None:
    store, run = tmp_path / "store", tmp_path / "store/runs/forms"
    asked = ["--job", "forms", "--store", str(store), "--local", "--yes", "--image-size", "96", "--model", "nano"]
    done = call("producer", "submit", str(small_voc), *asked, "--epochs", "2", "--max-drop", "100", "--nms", "both")
    assert done.returncode == 0, done.stderr
    metrics = json.loads((run / "metrics.json").read_text())
    assert list(metrics) == [f"{form}{raw}" for raw in ("", "_raw") for form in FORMS]
    page, card = ((run / name).read_text() for name in ("report.html", "model_card.md"))
    for form, row in metrics.items():
        assert row["bytes"] == (run / f"model_{form}.tflite").stat().st_size
        assert f"<td>{form}" in page
        assert f"`model_{form}.tflite`: " in card
    assert "--nms both" in page
    assert "float32_raw" in done.stdout, "the table at the end has both"

    both = [seen(run / f"model_{form}.tflite", small_voc / "JPEGImages") for form in ("int8", "int8_raw")]
    assert len(both[0]) == len(both[1]) > 0
    for inside, outside in zip(*both, strict=True):
        assert inside["image_id"] == outside["image_id"]
        assert abs(inside["score"] - outside["score"]) <= STEP_OF_INT8

    measured = call("trainer", "evaluate", "forms", "--store", str(store), "--json")
    assert measured.returncode == 0, measured.stderr
    rows = json.loads(measured.stdout)
    assert list(rows) == list(metrics)
    assert rows["int8_raw"]["map50"] == pytest.approx(rows["int8"]["map50"], abs=0.003)

    # Only those without, from now on.
    exported = call("trainer", "export", "forms", "--store", str(store), "--nms", "outside")
    assert exported.returncode == 0, exported.stderr
    assert {path.name for path in run.glob("*.tflite")} == {f"model_{form}_raw.tflite" for form in FORMS}
    status = json.loads(call("producer", "status", "forms", "--store", str(store), "--json").stdout)
    assert status["model"] == str(run / "model_int8_raw.tflite")
    assert status["state"] == "DONE"
