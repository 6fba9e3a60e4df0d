"""The decoders of docs/runtimes.md, as they stand there, see what the file with suppression inside sees."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from tests.unit.trainer.exported import SIZE, Exported
from trainer.detections import Detections
from trainer.inference.detector import Detector
from trainer.tflite.convert import DECODING, FORMS, save_keras
from trainer.tflite.metadata import with_best_score

PAGE = (Path(__file__).resolve().parents[4] / "docs/runtimes.md").read_text(encoding="utf-8")
SCORE, PIXELS = 1e-3, 0.5


def block(language: str, heading: str | None = None) -> str:
    section = PAGE.split(f"## {heading or language.capitalize()}\n")[1].split("\n## ")[0]
    (found,) = re.findall(rf"```{language}\n(.*?)```", section, re.S)
    return str(found)


def said(command: list[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("form", FORMS)
def test_python_prints_what_the_file_with_suppression_sees(form: str, exported: Exported, tmp_path: Path) -> None:
    inside = Detector(exported.forms[form])
    cv2.imwrite(str(tmp_path / "photo.jpg"), exported.pictures[0].rgb[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, 100])
    read = cv2.imread(str(tmp_path / "photo.jpg"))
    assert read is not None
    seen = inside.detect_stored(np.ascontiguousarray(read[..., ::-1]).astype(np.uint8))
    # Between two scores, so that rounding decides nothing.
    least = float(seen.scores[seen.scores.size // 2 : seen.scores.size // 2 + 2].mean())
    wanted = seen.above(least)
    (tmp_path / "model_int8_raw.tflite").write_bytes(with_best_score(exported.raw[form], least))
    lines = [line.split() for line in said([sys.executable, "-c", block("python")], tmp_path).splitlines()]
    assert len(lines) == wanted.scores.size > 3
    assert [line[0] for line in lines] == [inside.labels[class_id - 1] for class_id in wanted.class_ids]
    for line, score, box in zip(lines, wanted.scores, wanted.boxes, strict=True):
        assert abs(float(line[1]) - score) <= 0.005 + SCORE, "printed with two digits"
        spans = [float(edge) for span in (line[3], line[5]) for edge in span.split("..")]
        np.testing.assert_allclose(spans, box[[0, 2, 1, 3]], atol=0.5 + PIXELS)


def vector(exported: Exported, form: str, place: int) -> tuple[dict[str, Any], Detections]:
    """The outputs for one picture, as numbers, and what the file with suppression inside sees in it."""
    rgb = exported.pictures[place].rgb
    raw = Detector(exported.raw[form]).network.run(rgb)
    flat = {name: [float(value) for value in values.ravel()] for name, values in raw.items()}
    return flat, Detector(exported.forms[form]).detect_stored(rgb)


def assert_same(rows: list[list[float]], wanted: Detections) -> None:
    """Rows of xmin, ymin, xmax, ymax, label from 0, score."""
    found = np.asarray(rows, np.float64)
    assert len(found) == wanted.scores.size > 10
    np.testing.assert_allclose(found[:, 5], wanted.scores, atol=SCORE)
    near = np.abs(found[:, None, :4] - wanted.boxes[None]).max(axis=2) <= PIXELS
    near &= found[:, None, 4] + 1 == wanted.class_ids[None]
    assert near.any(axis=0).all()
    assert near.any(axis=1).all()


RUN_JAVASCRIPT = """
import {readFileSync} from "node:fs";
import {decode} from "./decode.mjs";
const {boxes, scores, how, side} = JSON.parse(readFileSync("vector.json"));
const seen = decode(Float32Array.from(boxes), Float32Array.from(scores), how, side);
console.log(JSON.stringify(seen.map(({box, label, score}) => [...box, label, score])));
"""


def by_javascript(folder: Path, outputs: dict[str, Any]) -> list[list[float]]:
    (folder / "decode.mjs").write_text(block("javascript", "JavaScript"))
    (folder / "run.mjs").write_text(RUN_JAVASCRIPT)
    (folder / "vector.json").write_text(json.dumps(outputs | {"how": asdict(DECODING), "side": SIZE}))
    rows: list[list[float]] = json.loads(said(["node", "run.mjs"], folder))
    return rows


RUN_KOTLIN = """
fun main(words: Array<String>) {
    val lines = java.io.File("vector.txt").readLines()
    val (boxes, scores) = lines.map { line -> line.split(" ").map { it.toFloat() }.toFloatArray() }
    val how = Decoding(intArrayOf(8, 16, 32), 4f, 10f, 5f, 6f, 0.01f, 0.5f, 100)
    for (one in decode(boxes, scores, how, words[0].toInt()))
        println("${one.xmin} ${one.ymin} ${one.xmax} ${one.ymax} ${one.label} ${one.score}")
}
"""


def by_kotlin(folder: Path, outputs: dict[str, Any]) -> list[list[float]]:
    (folder / "Decode.kt").write_text(block("kotlin") + RUN_KOTLIN)
    lines = [" ".join(map(str, outputs[name])) for name in ("boxes", "scores")]
    (folder / "vector.txt").write_text("\n".join(lines))
    if not (folder / "decode.jar").exists():
        said(["kotlinc", "Decode.kt", "-include-runtime", "-d", "decode.jar"], folder)
    printed = said(["java", "-jar", "decode.jar", str(SIZE)], folder)
    return [[float(word) for word in line.split()] for line in printed.splitlines()]


@pytest.mark.parametrize(
    ("tool", "decode"),
    [
        pytest.param("node", by_javascript, marks=pytest.mark.skipif(shutil.which("node") is None, reason="no node")),
        pytest.param(
            "kotlinc", by_kotlin, marks=pytest.mark.skipif(shutil.which("kotlinc") is None, reason="no Kotlin")
        ),
    ],
)
def test_other_languages_decode_what_the_file_with_suppression_sees(
    tool: str, decode: Callable[[Path, dict[str, Any]], list[list[float]]], exported: Exported, tmp_path: Path
) -> None:
    for form in ("float32", "int8"):
        for place in (0, 3):
            outputs, wanted = vector(exported, form, place)
            assert_same(decode(tmp_path, outputs), wanted)


@pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy keyword")
def test_tensorflow_prints_names(exported: Exported, tmp_path: Path) -> None:
    save_keras(exported.model, tmp_path)
    picture = exported.pictures[0].rgb
    cv2.imwrite(str(tmp_path / "photo.jpg"), picture[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, 100])
    lines = said([sys.executable, "-c", block("python", "TensorFlow")], tmp_path).splitlines()
    ours = Detector(exported.forms["float32"]).detect_stored(picture)
    assert abs(len(lines) - ours.scores.size) <= 5, "the photo was compressed once more"
    name, score = lines[0].split()[:2]
    assert name in exported.model.description.labels
    assert abs(float(score) - float(ours.scores[0])) < 0.1


def test_the_page_names_every_number_of_the_decoding() -> None:
    text = PAGE.split("## Python")[0]
    assert [name for name in asdict(DECODING) if f"`{name}`" not in text] == []
