"""README's Python snippet, as it stands there, sees what our detector sees."""

import re
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np

from tests.unit.trainer.exported import Exported
from trainer.predict import Detector

README = (Path(__file__).resolve().parents[3] / "README.md").read_text(encoding="utf-8")


def snippet() -> str:
    section = README.split("## Use the model")[1].split("\n## ")[0]
    found = re.search(r"```python\n(.*?)```", section, re.S)
    assert found is not None
    return found[1]


def test_readme_snippet_prints_what_the_detector_sees(exported: Exported, tmp_path: Path) -> None:
    (tmp_path / "model_int8.tflite").write_bytes(exported.forms["int8"])
    picture = exported.pictures[0].rgb
    cv2.imwrite(str(tmp_path / "photo.jpg"), picture[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, 100])
    read = cv2.imread(str(tmp_path / "photo.jpg"))
    assert read is not None
    done = subprocess.run(
        [sys.executable, "-c", snippet()], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=120
    )
    detector = Detector(exported.forms["int8"])
    ours = detector.detect_stored(np.ascontiguousarray(read[..., ::-1]).astype(np.uint8)).above(0.4)
    lines = [line.split() for line in done.stdout.splitlines()]
    assert len(lines) == ours.scores.size > 0
    assert [line[0] for line in lines] == [detector.labels[class_id - 1] for class_id in ours.class_ids]
    assert [float(line[1]) for line in lines] == [round(float(score), 2) for score in ours.scores]


def test_kotlin_is_marked_as_not_run() -> None:
    before = README.split("```kotlin")[0]
    assert "was not run here" in before[-300:]
