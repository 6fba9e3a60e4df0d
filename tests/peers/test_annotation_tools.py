"""What `predict --voc` writes is read by LabelImg's own reader, and by CVAT's (datumaro): the same boxes."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import cv2
import pytest

from shared.annotation.reader import read_annotation
from shared.specs.data import JobSpec
from tests.peers.environment import python_with
from tests.unit.trainer.exported import LABELS, make_exported

pytestmark = [
    pytest.mark.peers,
    pytest.mark.timeout(1200),
    # Keras 3.15's save() turns TensorFlow variables into numpy arrays in a way that numpy 2 warns of.
    pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy keyword"),
]
HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def annotations(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """XML of pictures with detections; the last one shows nothing that the model knows."""
    folder, exported = tmp_path_factory.mktemp("predicted"), make_exported()
    (folder / "model.tflite").write_bytes(exported.forms["int8"])
    (folder / "photos").mkdir()
    for number, picture in enumerate(exported.pictures):
        cv2.imwrite(str(folder / f"photos/photo {number} & Äpfel.png"), cv2.resize(picture.rgb, (300 + number, 200)))
    command = [sys.executable, "-m", "trainer", "predict", str(folder / "model.tflite"), str(folder / "photos")]
    command += ["--voc", str(folder / "xml"), "--threshold", "0.3"]
    subprocess.run(command, check=True, capture_output=True, env=os.environ | {"PYTHONPATH": str(HERE.parents[1])})
    return folder / "xml"


def boxes_in(annotations: Path) -> dict[str, list[list[Any]]]:
    """Class, corners and flag of every object, as our own reader has them."""
    found = {}
    for path in annotations.glob("*.xml"):
        annotation = read_annotation(path.read_bytes(), file=path.name, spec=JobSpec())
        found[path.stem] = sorted([each.name, *each.box, each.difficult] for each in annotation.objects)
    assert any(found.values())
    return found


def read_by(packages: list[str], variable: str, script: str, *words: str | Path, folder: Path) -> Mapping[str, Any]:
    """What another project's reader says, in an environment of its own."""
    try:
        python = python_with(packages, variable=variable, folder=folder)
    except subprocess.CalledProcessError:
        pytest.skip(f"{packages[-1]} cannot be installed here; {variable} may name an environment that has it")
    done = subprocess.run([python, HERE / script, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, list[list[Any]]] = json.loads(done.stdout.splitlines()[-1])
    return {name: sorted(rows) for name, rows in found.items()}


def test_labelimg_reads_the_same_boxes(annotations: Path, tmp_path: Path) -> None:
    packages = ["--no-deps", "lxml", "labelImg==1.8.6"]  # its reader needs no Qt
    found = read_by(packages, "VOC_PEERS_LABELIMG_ENV", "labelimg_read.py", annotations, folder=tmp_path / "venv")
    assert found == boxes_in(annotations)


def test_cvat_reads_the_same_boxes(annotations: Path, tmp_path: Path) -> None:
    words = (annotations, tmp_path / "devkit", *LABELS)
    found = read_by(
        ["datumaro==1.13.12"], "VOC_PEERS_DATUMARO_ENV", "datumaro_read.py", *words, folder=tmp_path / "venv"
    )
    assert found == boxes_in(annotations)
