"""`predict` and `evaluate` end in one line, in seconds, without taking the memory, whatever file they are given."""

import json
import os
import re
import resource
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import cv2
import numpy as np
import pytest

from shared.errors import ExportError
from shared.jobs.manifest import Manifest, ManifestShard
from shared.jobs.paths import JobPaths, RunPaths
from shared.model.description import description_archive
from shared.model.file import MOST_MODEL_BYTES
from shared.specs.run import RunSpec
from shared.storage import Storage
from tests.unit.trainer.exported import LABELS, SIZE, Exported
from tests.unit.trainer.hostile import (
    HOSTILE,
    bomb,
    forget_scale,
    rewritten,
    without_archive,
)
from trainer.rerun import evaluate_run

# A `predict` that runs takes about 80 MB.
MOST_PEAK_MB = 300
FILE = "hostile.tflite"


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
    """A run whose model is put in by the test, of a job whose shard is never read."""
    storage = Storage(str(tmp_path / "store"))
    storage.make_root()
    spec = RunSpec(run="tiny-run", job="tiny")
    manifest = Manifest(
        job="tiny",
        request_digest="ab" * 32,
        labels=LABELS,
        image_size=SIZE,
        resize="letterbox",
        splits={"test": (ManifestShard(file="test.tfrecord", size_bytes=1, sha256="0", examples=1, objects=0),)},
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
