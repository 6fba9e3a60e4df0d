"""Files that are no model, or one made to harm: each is refused in one line, in seconds, without taking the memory."""

import json
import os
import random
import re
import resource
import subprocess
import sys
import time
import zipfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from shared.errors import ExportError
from shared.jobs.manifest import Manifest
from shared.jobs.paths import JobPaths, RunPaths
from shared.jobs.specs import RunSpec
from shared.model.description import description_archive, read_description
from shared.model.file import MOST_ARCHIVE_BYTES, MOST_MODEL_BYTES, ModelFile
from shared.storage import Storage
from tests.unit.trainer.exported import LABELS, SIZE, Exported
from tests.unit.trainer.hostile import (
    ARCHIVES,
    FLATBUFFERS,
    HOSTILE,
    bomb,
    forget_scale,
    labelled,
    mutated,
    rewritten,
    without_archive,
)
from trainer.inference.detector import Detector
from trainer.inference.lite_model import check_outputs
from trainer.inference.trial_load import try_model
from trainer.rerun import evaluate_run

# A `predict` that runs takes about 80 MB.
MOST_PEAK_MB = 300
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    code: int
    errors: list[str]
    peak_mb: float
    seconds: float


# Between the tests and the command: the peak that wait4 tells of a child is at least its parent's, TensorFlow's here.
MEASURED = """
import json, os, subprocess, sys, time
start = time.monotonic()
child = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
errors = child.stderr.read().splitlines()
_, status, usage = os.wait4(child.pid, 0)
child.returncode = os.waitstatus_to_exitcode(status)
ended = {"code": child.returncode, "errors": errors, "peak_mb": usage.ru_maxrss / 2**10}
print(json.dumps(ended | {"seconds": time.monotonic() - start}))
"""


def run(*words: str) -> Ended:
    """`python -m trainer WORDS`, and the most memory that it or a child of it took."""
    command = [sys.executable, "-c", MEASURED, sys.executable, "-m", "trainer", *words]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return Ended(**json.loads(done.stdout))


@pytest.fixture(scope="module")
def photo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("photo") / "photo.png"
    cv2.imwrite(str(path), np.random.default_rng(0).integers(0, 255, (120, 200, 3), np.uint8))
    return path


@pytest.mark.parametrize("name", HOSTILE)
def test_predict_ends_in_one_line_without_taking_the_memory(
    name: str, exported: Exported, photo: Path, tmp_path: Path
) -> None:
    path = tmp_path / FILE
    path.write_bytes(HOSTILE[name](exported.forms["int8"]))
    ended = run("predict", str(path), str(photo))
    assert ended.code == 1
    assert len(ended.errors) == 1
    assert re.fullmatch(rf"error: {re.escape(str(path))}: .+; expected .+; .+", ended.errors[0])
    assert ended.peak_mb < MOST_PEAK_MB
    assert ended.seconds < 15


def test_predict_still_runs_and_takes_little_more(exported: Exported, photo: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(exported.forms["int8"])
    ended = run("predict", str(path), str(photo))
    assert ended.code == 0
    assert ended.peak_mb < MOST_PEAK_MB


@pytest.fixture
def store(tmp_path: Path) -> Storage:
    """A run whose model is put in by the test, of a job without shards."""
    storage = Storage(str(tmp_path / "store"))
    storage.make_root()
    spec = RunSpec(run="tiny-run", job="tiny")
    manifest = Manifest(
        job="tiny",
        request_digest="ab" * 32,
        labels=LABELS,
        image_size=SIZE,
        resize="letterbox",
        splits={},
        failed=(),
        counters={},
        class_counts={},
    )
    storage.write(RunPaths(spec.run).request, spec.model_dump_json().encode())
    storage.write(JobPaths(spec.job).manifest, manifest.model_dump_json().encode())
    truth = b'{"images": [], "annotations": [], "categories": []}'
    storage.write(JobPaths(spec.job).annotations("test"), truth)
    return storage


def put_model(store: Storage, content: bytes) -> str:
    key = f"{RunPaths('tiny-run').root}/model_int8.tflite"
    store.write(key, content)
    return store.url(key)


def evaluation_refusal(store: Storage) -> str:
    with pytest.raises(ExportError) as caught:
        evaluate_run("tiny-run", storage=store, split="test", forms=["int8"])
    assert str(caught.value).isprintable()
    return str(caught.value)


def test_evaluate_names_the_hostile_file(store: Storage, exported: Exported) -> None:
    for content in (b"", exported.forms["int8"][:-9], rewritten(exported.forms["int8"], forget_scale)):
        url = put_model(store, content)
        assert evaluation_refusal(store).startswith(f"{url}: ")


def test_evaluate_does_not_read_a_model_beyond_the_limit(store: Storage) -> None:
    url = put_model(store, b"")
    os.truncate(url, 8 * MOST_MODEL_BYTES)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert f"{url}: 134,217,729 bytes or more; expected at most 134,217,728" in evaluation_refusal(store)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2 * MOST_MODEL_BYTES / 2**10


def test_evaluate_refuses_a_model_of_other_classes_or_size(store: Storage, exported: Exported) -> None:
    content = without_archive(exported.forms["int8"])
    description = replace(exported.model.description, labels=("cross", "box", "Ähre"), form="int8")
    url = put_model(store, content + description_archive(len(content), description))
    assert re.match(rf"{url}: labels .*; expected .*Ähre.*; ", evaluation_refusal(store))


def test_evaluate_at_the_command_line_ends_in_one_line(store: Storage, exported: Exported) -> None:
    url = put_model(store, without_archive(exported.forms["int8"]) + bomb())
    ended = run("evaluate", "tiny-run", "--store", store.root, "--form", "int8")
    assert ended.code == 1
    assert ended.errors[-1].startswith(f"error: {url}: ")
    # TensorFlow has its say before.
    assert not any(line.startswith("Traceback") for line in ended.errors)


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
