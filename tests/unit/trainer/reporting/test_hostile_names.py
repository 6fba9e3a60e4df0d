"""Names of pictures and labels that would command the terminal, or are not UTF-8, on the trainer's command line."""

import json
import os
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest

from tests.unit.trainer.exported import Exported


@pytest.fixture(scope="module")
def model_path(exported: Exported, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "model_int8.tflite"
    path.write_bytes(exported.forms["int8"])
    return path


def predict(model_path: Path, *arguments: str | Path) -> "subprocess.CompletedProcess[bytes]":
    command = [sys.executable, "-m", "trainer", "predict", model_path, *arguments]
    return subprocess.run(command, capture_output=True, check=False)


def photos(folder: Path, *names: str) -> Path:
    """A folder of pictures of these names."""
    folder.mkdir()
    content = cv2.imencode(".jpg", np.full((40, 60, 3), 99, np.uint8))[1].tobytes()
    for name in names:
        (folder / name).write_bytes(content)
    return folder


def test_control_characters_of_a_name_are_printed_as_their_escapes(model_path: Path, tmp_path: Path) -> None:
    done = predict(model_path, photos(tmp_path / "photos", "a\nb\x1b]0;owned\x07.jpg", os.fsdecode(b"caf\xe9.jpg")))
    assert done.returncode == 0, done.stderr
    assert sorted(line.partition(":")[0] for line in done.stdout.decode().splitlines()) == [
        r"a\nb\x1b]0;owned\x07.jpg",
        r"caf\udce9.jpg",
    ]
    absent = predict(model_path, tmp_path / "none\x1b[31m")
    assert absent.returncode == 1
    assert r"none\x1b[31m" in absent.stderr.decode()
    assert b"\x1b" not in absent.stderr


def test_any_name_of_a_file_is_in_the_json(model_path: Path, tmp_path: Path) -> None:
    names = [os.fsdecode(b"caf\xe9.jpg"), "größe\u2028\x9b.jpg"]
    done = predict(model_path, photos(tmp_path / "photos", *names), "--json", "--out", tmp_path / "seen")
    assert done.returncode == 0, done.stderr
    for text in (done.stdout, (tmp_path / "seen/detections.json").read_bytes()):
        assert {image["file_name"] for image in json.loads(text)["images"]} == set(names)
