"""The Python snippet of docs/recipes.md, as it stands there, sees in every form what our detector and `predict` see."""

import re
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest

from tests.unit.trainer.exported import Exported
from trainer.inference.detector import Detector
from trainer.tflite.convert import FORMS
from trainer.tflite.metadata import with_best_score

RECIPES = (Path(__file__).resolve().parents[4] / "docs/recipes.md").read_text(encoding="utf-8")


def snippet() -> str:
    section = RECIPES.split("## Use the model")[1].split("\n## ")[0]
    found = re.search(r"```python\n(.*?)```", section, re.S)
    assert found is not None
    return found[1]


@pytest.mark.parametrize("form", FORMS)
def test_snippet_prints_what_the_detector_sees(exported: Exported, tmp_path: Path, form: str) -> None:
    scores = Detector(exported.forms[form]).detect_stored(exported.pictures[0].rgb).scores
    model = with_best_score(exported.forms[form], round(float(scores[scores.size // 2]), 2))
    (tmp_path / f"model_{form}.tflite").write_bytes(model)
    picture = exported.pictures[0].rgb
    cv2.imwrite(str(tmp_path / "photo.jpg"), picture[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, 100])
    read = cv2.imread(str(tmp_path / "photo.jpg"))
    assert read is not None
    done = subprocess.run(
        [sys.executable, "-c", snippet().replace("model_int8", f"model_{form}")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    detector = Detector(model)
    ours = detector.detect_stored(np.ascontiguousarray(read[..., ::-1]).astype(np.uint8)).above(
        detector.description.threshold
    )
    lines = [line.split() for line in done.stdout.splitlines()]
    assert len(lines) == ours.scores.size
    assert 0 < ours.scores.size < scores.size
    assert [line[0] for line in lines] == [detector.labels[class_id - 1] for class_id in ours.class_ids]
    assert [float(line[1]) for line in lines] == [round(float(score), 2) for score in ours.scores]


def test_kotlin_is_marked_as_not_run() -> None:
    before = RECIPES.split("```kotlin")[0]
    assert "was not run here" in before[-300:]
