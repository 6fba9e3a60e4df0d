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


def snippets() -> list[str]:
    """The program, and the lines that it needs for a letterboxed model."""
    section = RECIPES.split("## Use the model")[1].split("\n## ")[0]
    return re.findall(r"```python\n(.*?)```", section, re.S)


def run(program: str, folder: Path) -> list[list[str]]:
    """The words of each line that the program prints."""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return [line.split() for line in done.stdout.splitlines()]


@pytest.mark.parametrize("form", FORMS)
def test_snippet_prints_what_the_detector_sees(exported: Exported, tmp_path: Path, form: str) -> None:
    scores = Detector(exported.forms[form]).detect_stored(exported.pictures[0].rgb).scores
    model = with_best_score(exported.forms[form], round(float(scores[scores.size // 2]), 2))
    (tmp_path / f"model_{form}.tflite").write_bytes(model)
    picture = exported.pictures[0].rgb
    cv2.imwrite(str(tmp_path / "photo.jpg"), picture[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, 100])
    read = cv2.imread(str(tmp_path / "photo.jpg"))
    assert read is not None
    lines = run(snippets()[0].replace("model_int8", f"model_{form}"), tmp_path)
    detector = Detector(model)
    ours = detector.detect_stored(np.ascontiguousarray(read[..., ::-1]).astype(np.uint8)).above(
        detector.description.threshold
    )
    assert len(lines) == ours.scores.size
    assert 0 < ours.scores.size < scores.size
    assert [line[0] for line in lines] == [detector.labels[class_id - 1] for class_id in ours.class_ids]
    assert [float(line[1]) for line in lines] == [round(float(score), 2) for score in ours.scores]


def test_with_the_lines_for_letterboxed_models_the_snippet_sees_the_whole_photo(
    exported: Exported, tmp_path: Path
) -> None:
    """A photo with the model's longer side, so that nothing is resized and scores are the same."""
    program, letterbox = snippets()
    photo = np.ascontiguousarray(exported.pictures[0].rgb[:40, :, ::-1])
    (tmp_path / "model_int8.tflite").write_bytes(exported.forms["int8"])
    cv2.imwrite(str(tmp_path / "photo.png"), photo)
    reads = 'photo = cv2.imread("photo.jpg")\n'
    assert reads in program
    lines = run(
        program.replace(reads, reads.replace("jpg", "png") + letterbox).replace("score >= best", "True"), tmp_path
    )
    detector = Detector(exported.forms["int8"])
    assert detector.description.resize == "letterbox"
    ours = detector.detect(photo)
    assert len(lines) >= len(ours.scores) > 0
    # `left` and `right`, `top` and `bottom` in the square; our detector cuts off what lies in its bars, 12 pixels each.
    seen = [(float(words[1]), *_ends(words[3], 0, 64), *_ends(words[5], 12, 52)) for words in lines]
    for score, (xmin, ymin, xmax, ymax) in zip(ours.scores, ours.boxes, strict=True):
        place = [score, xmin, xmax, ymin + 12, ymax + 12]
        assert any(np.abs(np.array(row) - place).max() <= 0.51 for row in seen if abs(row[0] - score) < 0.006)


def _ends(written: str, low: int, high: int) -> list[int]:
    """`3..47` as numbers, no less than `low` and no more than `high`."""
    return [min(max(int(end), low), high) for end in written.split("..")]


def test_kotlin_is_marked_as_not_run() -> None:
    before = RECIPES.split("```kotlin")[0]
    assert "was not run here" in before[-300:]
