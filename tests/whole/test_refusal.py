"""After a refusal of the gate: every way on that is printed, copied into a terminal without a broker, ends well.

The refusal itself is put into the store as a trainer leaves it: which run the gate refuses is chance.
"""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import REPOSITORY

pytestmark = pytest.mark.whole

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def voc2tflite(tmp_path: Path, small_voc: Path) -> Run:
    """The command as a person gives it, in a folder of theirs, with no broker anywhere."""
    settings = {name: value for name, value in os.environ.items() if not name.startswith("VOC_")}
    settings["PYTHONPATH"] = str(REPOSITORY)
    (tmp_path / "photos").symlink_to(small_voc)

    def run(*words: str, code: int = 0) -> "subprocess.CompletedProcess[str]":
        asked = [sys.executable, "-m", "shared.command", *words]
        ended = subprocess.run(asked, cwd=tmp_path, env=settings, capture_output=True, text=True, check=False)
        assert ended.returncode == code, ended.stdout + ended.stderr
        return ended

    return run


def refuse(folder: Path) -> None:
    """What a trainer leaves whose gate refused int8 for a loss of 4.2 points."""
    incarnation = json.loads((folder / "run.json").read_text())["incarnation"]
    metrics = json.loads((folder / "metrics.json").read_text())
    metrics["int8"]["gate"]["map50"], metrics["float32"]["gate"]["map50"] = 0.758, 0.8
    (folder / "metrics.json").write_text(json.dumps(metrics))
    checks = json.loads((folder / "gate.json").read_text())
    for check in checks:
        check["is_ok"] = check["name"] != "int8: accuracy kept"
    (folder / "gate.json").write_text(json.dumps(checks))
    (folder / "run.json").unlink()
    note = {"run": "mine", "kind": "ExportError", "reason": "ExportError: the export gate refuses this model", "at": 1}
    (folder / "failed.json").write_text(json.dumps({**note, "incarnation": incarnation}))


def commands_in(text: str) -> list[list[str]]:
    """What stands between back quotes, as words behind the program's name."""
    quoted = [part for line in text.splitlines() if "to go on" in line for part in line.split("`")[1::2]]
    return [shlex.split(command)[1:] for command in quoted]


def states(voc2tflite: Run) -> dict[str, Any]:
    status: dict[str, Any] = json.loads(voc2tflite("status", "mine", "--store", "out", "--json").stdout)
    return status


def test_every_way_on_that_is_printed_works_when_it_is_copied(voc2tflite: Run, tmp_path: Path) -> None:
    store, folder = ("--store", "out"), tmp_path / "out/runs/mine"
    voc2tflite("submit", "photos", "--job", "mine", *store, "--epochs", "2", "--model", "nano", "--image-size", "96")
    trained = (folder / "results.csv").read_bytes()

    refuse(folder)
    said = voc2tflite("resume", "mine", *store, code=3).stderr
    fine_tuned, larger = commands_in(said)
    assert fine_tuned[:4] == ["retry", "mine", "--quantize", "qat"]
    assert larger[:4] == ["retry", "mine", "--max-drop", "4.2"]

    done = voc2tflite(*larger)
    assert "from now on with --max-drop 4.2, the refused model is released again" in done.stdout
    assert "model_int8.tflite" in done.stdout
    status = states(voc2tflite)
    assert (status["state"], status["run"]["changed"]) == ("DONE", ["--max-drop", "4.2"])
    assert not (folder / "failed.json").exists()
    assert "--max-drop 4.2" in (folder / "model_card.md").read_text().replace(" \\\n ", "")
    assert (folder / "results.csv").read_bytes() == trained, "nothing was trained again"

    refuse(folder)
    voc2tflite("resume", "mine", *store, "--max-drop", "7", "--json")
    assert states(voc2tflite)["run"]["changed"] == ["--max-drop", "7"]

    refuse(folder)
    said = voc2tflite("export", "mine", *store, "--max-drop", "50").stderr
    assert "run mine is finished with these models" in said
    assert states(voc2tflite)["state"] == "DONE"
    assert not (folder / "failed.json").exists()
    kept = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert "nothing failed, nothing to do again" in voc2tflite("retry", "mine", *store).stdout
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == kept
    assert "problem" not in voc2tflite("doctor", "mine", *store).stdout

    refuse(folder)
    voc2tflite("prune", *store, "--yes")
    voc2tflite(*fine_tuned)
    assert (folder / "results.csv").read_bytes() == trained, "nothing was trained again"
    assert (folder / "model_qat.keras").exists()
    assert json.loads((folder / "metrics.json").read_text())["int8"]["quantize"] == "qat"
    again = voc2tflite("retry", "mine", *store, "--max-drop", "9", code=1).stderr
    assert "mine is DONE: `" in again
    assert len(again.splitlines()) == 1
