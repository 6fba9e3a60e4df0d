"""Files that are no model, or one made to harm: each is refused in one line, in seconds, without taking the memory."""

import json
import os
import random
import re
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

from shared.errors import ExportError
from shared.model.description import DESCRIPTION_FILE, LABELS_FILE, description_archive, read_description
from shared.model.file import MOST_ARCHIVE_BYTES, MOST_MODEL_BYTES, ModelFile
from tests.unit.trainer.exported import LABELS, SIZE, Exported
from tests.unit.trainer.hostile import (
    ARCHIVES,
    FLATBUFFERS,
    forget_scale,
    labelled,
    mutated,
    rewritten,
    without_archive,
    zipped,
)
from trainer.inference.detector import Detector
from trainer.inference.lite_model import check_outputs
from trainer.inference.trial_load import try_model

FILE = "hostile.tflite"


def refusal(content: bytes) -> str:
    """The text with which a file is refused; one printable line that says what to do."""
    with pytest.raises(ExportError) as caught:
        Detector(content, file=FILE)
    text = str(caught.value)
    assert re.fullmatch(rf"{FILE}: .+; expected .+; .+", text)
    assert text.isprintable()
    assert len(text) < 600
    return text


@pytest.mark.parametrize("name", ARCHIVES)
def test_archive_that_is_not_ours_is_refused(name: str, exported: Exported) -> None:
    make, named = ARCHIVES[name]
    start = time.monotonic()
    assert named in refusal(without_archive(exported.forms["int8"]) + make())
    assert time.monotonic() - start < 5


def test_bytes_that_are_no_flatbuffer_are_refused(exported: Exported) -> None:
    content = exported.forms["int8"]
    noise = random.Random(1).randbytes(100_000)
    for hostile in (b"", b"a", b"\xff\xd8\xff\xe0" + bytes(100), noise, content[:4] + b"TFL2" + content[8:]):
        assert "no TFLite file" in refusal(hostile)
    assert "a zip, as model.keras is one; expected a .tflite" in refusal(b"PK\x03\x04" + noise)


def test_flatbuffer_that_is_damaged_is_refused(exported: Exported) -> None:
    content = without_archive(exported.forms["int8"])
    noise = content[:4] + b"TFL3" + random.Random(1).randbytes(100_000)
    for hostile in (b"\0\0\0\0TFL3", content[: len(content) // 2], noise, b"\xff" * 4 + content[4:]):
        assert "LiteRT" in refusal(hostile + labelled())


@pytest.mark.parametrize("name", FLATBUFFERS)
def test_network_that_is_not_ours_is_refused(name: str, exported: Exported) -> None:
    change, named = FLATBUFFERS[name]
    assert named in refusal(rewritten(exported.forms["int8"], change))


def test_model_beyond_the_limit_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "big.tflite"
    with open(path, "wb") as file:
        file.truncate(MOST_MODEL_BYTES + 1)
    with pytest.raises(ExportError, match=r"big\.tflite: 134,217,729 bytes or more; expected at most 134,217,728"):
        Detector(path)
    with pytest.raises(ExportError, match=r"134,217,729 bytes or more; expected at most 134,217,728"):
        Detector(bytes(MOST_MODEL_BYTES + 1))


@pytest.mark.skipif(sys.platform == "win32", reason="no named pipes in folders there")
def test_pipe_and_folder_are_no_model(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, tmp_path / "absent"):
        with pytest.raises(ExportError, match=rf"{path.name}: .*; expected "):
            Detector(path)


def test_name_that_would_break_the_line_is_escaped(tmp_path: Path) -> None:
    with pytest.raises(ExportError) as caught:
        Detector(tmp_path / "two\nlines.tflite")
    assert str(caught.value).isprintable()


def test_deflated_description_is_read(exported: Exported) -> None:
    content = without_archive(exported.forms["int8"]) + labelled(b"a\nb\nc\n", method=zipfile.ZIP_DEFLATED)
    assert Detector(content).labels == ("a", "b", "c")


def test_description_behind_a_large_model_is_read(exported: Exported) -> None:
    description = exported.model.description
    model = bytes(5 * MOST_ARCHIVE_BYTES)
    assert read_description(model + description_archive(len(model), description)) == description


def test_description_is_read_with_the_standard_library_alone(exported: Exported, tmp_path: Path) -> None:
    (tmp_path / "model.tflite").write_bytes(exported.forms["int8"])
    block = (
        "import sys; from pathlib import Path\n"
        "sys.modules.update(dict.fromkeys(['numpy', 'cv2', 'ai_edge_litert', 'pydantic', 'flatbuffers']))\n"
        "from shared.model.description import read_description\n"
        "print(read_description(Path(sys.argv[1])).image_size)"
    )
    command = [sys.executable, "-c", block, str(tmp_path / "model.tflite")]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == f"{SIZE}\n"


def test_every_form_is_tried_and_taken(exported: Exported) -> None:
    for content in exported.forms.values():
        try_model(ModelFile(name=FILE, content=content), SIZE)
        assert Detector(content).labels == LABELS


def test_model_that_takes_too_long_is_refused(exported: Exported) -> None:
    with pytest.raises(ExportError, match=r"hostile\.tflite: .*0\.01 s; expected "):
        try_model(ModelFile(name=FILE, content=exported.forms["int8"]), SIZE, most_s=0.01)


def raw_refusal(exported: Exported, content: bytes | None = None, **changes: Any) -> str:
    """The text with which the file without suppression is refused when its decoding is stated otherwise."""
    fields = asdict(read_description(exported.raw["int8"]))
    fields = {name: value for name, value in fields.items() if name != "labels" and value is not None}
    decoding = fields["decoding"] | changes
    fields["decoding"] = {name: value for name, value in decoding.items() if value is not None}
    archive = zipped({LABELS_FILE: "".join(f"{name}\n" for name in LABELS).encode(), DESCRIPTION_FILE: as_json(fields)})
    return refusal((content or without_archive(exported.raw["int8"])) + archive)


def as_json(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields).encode()


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"strides": None}, "decoding has ['boxes'"),
        ({"colour": 1}, "'colour'"),
        ({"strides": []}, "decoding's strides is []"),
        ({"strides": [8, 0]}, "decoding's strides is [8, 0]; expected int from 1 to 256"),
        ({"strides": 8}, "decoding's strides is 8"),
        ({"strides": [8, 16]}, "its outputs are 84 boxes of 3 classes; expected 80 of 3"),
        ({"center_scale": 0.0}, "decoding's center_scale is 0.0"),
        ({"size_scale": 5}, "decoding's size_scale is 5; expected float"),
        ({"score_lift": float("nan")}, "decoding's score_lift is nan"),
        ({"nms_iou": 1.0}, "decoding's nms_iou is 1.0"),
        ({"most_detections": 10**9}, "decoding's most_detections is 1000000000; expected int from 1 to 1000"),
        ({"boxes": "xywh\x1b[2J"}, r"decoding's boxes are 'xywh\x1b[2J'; expected ty tx th tw"),
        ({"scores": "probabilities"}, "decoding's scores are 'probabilities'"),
    ],
)
def test_a_decoding_that_cannot_be_is_refused(changes: dict[str, Any], named: str, exported: Exported) -> None:
    assert named in raw_refusal(exported, **changes)


def test_a_file_of_one_form_with_the_description_of_the_other_is_refused(exported: Exported) -> None:
    assert "has a decoding, but suppression is inside it" in raw_refusal(
        exported, without_archive(exported.forms["int8"])
    )
    plain = without_archive(exported.raw["int8"]) + labelled()
    assert "its suppression is outside, and voc2tflite.json does not say how" in refusal(plain)


def test_a_file_of_another_program_is_told_from_a_damaged_one_of_ours(exported: Exported) -> None:
    for content in (exported.forms["int8"], exported.raw["int8"]):
        assert "another program made it, or it is cut short" in refusal(without_archive(content))
        assert "that can be read ('File is not a zip file')" in refusal(content[:-40])
        assert "another program made it, or it is cut short" in refusal(content[: len(content) // 2])


def without_output_scale(tree: Any) -> None:
    tree.subgraphs[0].tensors[tree.subgraphs[0].outputs[0]].quantization.scale = np.asarray([0.0], np.float32)


def output_of_words(tree: Any) -> None:
    tree.subgraphs[0].tensors[tree.subgraphs[0].outputs[1]].type = schema.TensorType.INT32


@pytest.mark.parametrize("change", [without_output_scale, output_of_words, forget_scale])
def test_a_file_without_suppression_whose_outputs_are_others_is_refused(
    change: Callable[[Any], None], exported: Exported
) -> None:
    assert re.search("output|LiteRT", refusal(rewritten(exported.raw["int8"], change)))


def test_heads_that_are_not_finite_are_refused(exported: Exported) -> None:
    detector = Detector(exported.raw["float32"], file=FILE)
    raw = detector.network.run(exported.pictures[0].rgb)
    for name in raw:
        broken = raw | {name: np.full_like(raw[name], np.inf)}
        with pytest.raises(ExportError, match=rf"{FILE}: its output {name} holds a number that is not finite"):
            detector.decode(broken)


def test_detection_of_a_class_without_label_is_refused(exported: Exported) -> None:
    content = without_archive(exported.forms["int8"])
    description = replace(exported.model.description, labels=("only",), form="int8")
    detector = Detector(content + description_archive(len(content), description), file=FILE)
    with pytest.raises(ExportError, match=rf"{FILE}: .*class [12]; expected .*1 label"):
        [detector.detect_stored(picture.rgb) for picture in exported.pictures]


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("count", [np.nan]),
        ("count", [-1]),
        ("count", [101]),
        ("count", [1.5]),
        ("boxes", np.full((1, 100, 4), np.nan)),
        ("scores", np.full((1, 100), np.inf)),
        ("classes", np.full((1, 100), np.nan)),
        ("classes", np.full((1, 100), 3)),
        ("classes", np.full((1, 100), -1)),
        ("classes", np.full((1, 100), 0.5)),
    ],
)
def test_output_that_is_no_detection_is_refused(name: str, changed: Any) -> None:
    good = {
        "boxes": np.zeros((1, 100, 4), np.float32),
        "classes": np.zeros((1, 100), np.float32),
        "scores": np.zeros((1, 100), np.float32),
        "count": np.asarray([100], np.float32),
    }
    check_outputs(good, 3, ModelFile(name=FILE, content=b""))
    with pytest.raises(ExportError, match=rf"{FILE}: .*{name}.*; expected "):
        check_outputs(good | {name: np.asarray(changed, np.float32)}, 3, ModelFile(name=FILE, content=b""))


TRIED = """
import sys
from pathlib import Path
import numpy as np
from shared.errors import ExportError
from trainer.inference.lite_model import check_outputs
from trainer.inference.detector import Detector
for path in sorted(Path(sys.argv[1]).iterdir()):
    try:
        detector = Detector(path)
        detector.detect(np.random.default_rng(1).integers(0, 255, (90, 70, 3), np.uint8))
    except ExportError as error:
        assert str(error).startswith(str(path)) and str(error).isprintable(), str(error)
        print("refused")
    else:
        print("taken")
"""


def test_damaged_files_are_refused_or_run(exported: Exported, tmp_path: Path) -> None:
    """In a process of their own: a crash there is this test's failure and not its end."""
    content = without_archive(exported.forms["int8"])
    rng = random.Random(7)
    for index in range(24):
        (tmp_path / f"{index:02d}.tflite").write_bytes(mutated(content, rng) + labelled())
    done = subprocess.run([sys.executable, "-c", TRIED, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.count("refused") > 5
    assert done.stdout.count("\n") == 24


def test_limits_are_above_what_this_project_makes(exported: Exported) -> None:
    for content in exported.forms.values():
        assert 10 * (len(content) - len(without_archive(content))) < MOST_ARCHIVE_BYTES
        assert len(content) < MOST_MODEL_BYTES / 10
