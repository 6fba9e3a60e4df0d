"""What the trainer's commands print besides their figures, and what the settings do to them."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cv2
import numpy as np
import pytest
from typer.testing import CliRunner

from producer.jobs.submit import Request
from shared.errors import PipelineError
from shared.jobs.paths import RunPaths
from shared.specs.data import JobSpec
from shared.specs.run import RunSpec
from shared.storage import Storage
from tests.unit.producer.folders import lint_and_submit, write_pair
from tests.unit.trainer.test_rerun import trained_run
from trainer.__main__ import _classes, _table, app

Run = Callable[..., "subprocess.CompletedProcess[str]"]

# Runs a command of the trainer as `python -m trainer` does, its log on standard error; at the end it tells there of
# the threads that TensorFlow and LiteRT's interpreters were given.
TELLING = """
import json, sys
from ai_edge_litert import interpreter
from shared import logs
given = []
class Telling(interpreter.Interpreter):
    def __init__(self, *values, num_threads=None, **options):
        given.append(num_threads)
        super().__init__(*values, num_threads=num_threads, **options)
interpreter.Interpreter = Telling
from trainer.__main__ import app
logs.set_up("json", "INFO")
app(standalone_mode=False)
import tensorflow as tf
threads = {"tensorflow": tf.config.threading.get_intra_op_parallelism_threads(), "litert": given}
print(json.dumps({"event": "threads", **threads}), file=sys.stderr)
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a run `r` that has trained; a test takes a copy."""
    folder = tmp_path_factory.mktemp("store")
    trained_run(folder)
    return folder


@pytest.fixture
def trainer(store: Path, tmp_path: Path) -> Run:
    """A command of the trainer, in a process, on a copy of the store in `store`."""
    return on_a_copy(store, tmp_path)


@pytest.fixture(scope="module")
def exporting(store: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    """A store in which `r` was exported by the command; what it wrote on standard output and standard error."""
    folder = tmp_path_factory.mktemp("exported")
    ended = on_a_copy(store, folder)("export", "r", "--store", "store")
    return folder / "store", ended.stdout, ended.stderr


@pytest.fixture
def trainer_after_export(exporting: tuple[Path, str, str], tmp_path: Path) -> Run:
    """As `trainer`, where `r` has been exported."""
    return on_a_copy(exporting[0], tmp_path)


def on_a_copy(store: Path, folder: Path) -> Run:
    """A command of the trainer, in a process in `folder`, on a copy of `store` there."""
    shutil.copytree(store, folder / "store")
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("VOC_", "TF_"))}
    plain["PYTHONPATH"] = str(Path(__file__).parents[3])

    def run(
        *words: str, program: tuple[str, ...] = ("-m", "trainer"), code: int = 0, **settings: str
    ) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, *program, *words]
        ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, env=plain | settings)
        assert ended.returncode == code, ended.stdout + ended.stderr
        return ended

    return run


def test_tensorflow_says_nothing_and_what_comes_after_is_heard() -> None:
    code = "import sys; from trainer.cli.session import quiet_tensorflow; quiet_tensorflow(); sys.stderr.write('heard')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "heard")


def test_the_commands_print_their_own_lines_only(
    exporting: tuple[Path, str, str], trainer_after_export: Run, tmp_path: Path
) -> None:
    trainer, (_, figures, told) = trainer_after_export, exporting
    assert told == "run r is finished with these models\n"
    head, *rows, measured = figures.splitlines()
    assert head.split()[0] == "form"
    assert [row.split()[0] for row in rows] == ["float32", "float16", "dynamic", "int8"]
    assert measured.startswith("measured on ")

    assert trainer("evaluate", "r", "--store", "store", "--split", "train", "--form", "int8").stderr == ""
    assert trainer("sizes", "--backbone", "conv", "--model", "nano", "--image-size", "64").stderr == ""

    cv2.imwrite(str(tmp_path / "photo.jpg"), np.zeros((40, 60, 3), np.uint8))
    seen = trainer("predict", "store/runs/r/model_int8.tflite", "photo.jpg")
    assert re.fullmatch(r"scores of at least 0\.\d\d, the model's best threshold; .*\n", seen.stderr)
    assert re.fullmatch(r"photo\.jpg: .*\n", seen.stdout)


def test_what_is_no_remark_of_a_library_is_heard_and_what_it_raises_is_not_said_twice() -> None:
    code = (
        "import os\n"
        "from trainer.inference.quiet import quiet_libraries\n"
        "with quiet_libraries():\n"
        "    os.write(2, b'INFO: a delegate\\nERROR: kept\\nfully_quantize: 0, and so on\\nWARNING: kept\\nkept')\n"
        "try:\n"
        "    with quiet_libraries():\n"
        "        os.write(2, b'ERROR: raised\\n another line\\n')\n"
        "        raise ValueError\n"
        "except ValueError:\n"
        "    os.write(2, b'caught\\n')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "ERROR: kept\nWARNING: kept\nkept another line\ncaught\n"


def told(ended: "subprocess.CompletedProcess[str]") -> dict[str, Any]:
    """The lines of its log by event."""
    lines = [json.loads(line) for line in ended.stderr.splitlines() if line.startswith("{")]
    return {line["event"]: line for line in lines}


def test_the_settings_of_threads_and_memory_reach_the_commands(trainer: Run) -> None:
    program = ("-c", TELLING)
    words = ("export", "r", "--store", "store", "--quantize", "qat", "--max-drop", "100")
    by_settings = told(trainer(*words, program=program, VOC_THREADS="3", VOC_CACHE_MB="0"))
    assert by_settings["threads"]["tensorflow"] == 3
    assert by_settings["dataset_cache"]["kept"] != "memory"

    words = ("evaluate", "r", "--store", "store", "--split", "train", "--form", "int8")
    assert told(trainer(*words, program=program, VOC_THREADS="3"))["threads"]["litert"] == [3, 1], "one is timed"
    by_default = told(trainer(*words, program=program))["threads"]
    assert (by_default["tensorflow"], by_default["litert"]) == (0, [1, 1])


def test_export_of_a_run_under_way_names_what_goes_on_with_that_run(trainer: Run, tmp_path: Path) -> None:
    (tmp_path / "store/runs/r/run.json").unlink()
    told = trainer("export", "r", "--store", "store", "--max-drop", "100").stderr
    assert re.search(r"run r is not finished: .*resume j --run r --store store` goes on with it", told)


def test_evaluate_times_each_number_of_threads(trainer_after_export: Run) -> None:
    words = ("evaluate", "r", "--store", "store", "--split", "train", "--form", "int8", "--threads", "1,3")
    row = json.loads(trainer_after_export(*words, "--json").stdout)["int8"]
    assert list(row["latency_ms"]) == ["1", "3"]
    assert row["median_ms"] == row["latency_ms"]["1"] > 0
    table = trainer_after_export(*words).stdout
    assert re.search(r"int8 .* 1: \d+\.\d\d, 3: \d+\.\d\d\n", table)


def test_evaluate_on_photos_of_other_classes_says_how_they_are_renamed(
    trainer_after_export: Run, tmp_path: Path
) -> None:
    (tmp_path / "photos").mkdir()
    box = "<bndbox><xmin>10</xmin><ymin>10</ymin><xmax>30</xmax><ymax>30</ymax></bndbox>"
    for name in ("a", "b", "c"):
        cv2.imwrite(str(tmp_path / f"photos/{name}.png"), np.zeros((40, 60, 3), np.uint8))
        xml = f"<annotation><object><name>Ape</name>{box}</object></annotation>"
        (tmp_path / f"photos/{name}.xml").write_text(xml)
    told = trainer_after_export("evaluate", "store/runs/r/model_int8.tflite", "photos", code=1).stderr
    assert "and the folder has none of them but Ape: where only names differ, --rename old=new reads" in told
    assert "export its run again" not in told


def learned_from(folder: Path, file: str) -> None:
    """Let the run `r` of the store there be one that has learned from a photo of this name."""
    write_pair(folder / "old", file, "a.xml")
    storage = Storage(str(folder / "store"))
    request = Request(dataset=folder / "old", name="old", spec=JobSpec(split=(100, 0, 0)), run=None)
    job = lint_and_submit(request, storage=storage, data_root=folder).job
    asked = RunSpec(run="r", job="old", incarnation=job.incarnation)
    storage.write(RunPaths("r").request, asked.to_json().encode())


def test_evaluate_on_photos_takes_all_of_them_or_says_what_it_left_out(
    trainer_after_export: Run, tmp_path: Path
) -> None:
    """A VOC set for tests has no list of train, and some photos are in no list or have no XML."""
    (tmp_path / "photos/ImageSets/Main").mkdir(parents=True)
    labels = (tmp_path / "store/runs/r/labels.txt").read_text().splitlines()
    for at, name in enumerate("abcd"):
        cv2.imwrite(str(tmp_path / f"photos/{name}.png"), np.full((40, 60, 3), at, np.uint8))
        box = "<bndbox><xmin>10</xmin><ymin>10</ymin><xmax>30</xmax><ymax>30</ymax></bndbox>"
        mark = f"<difficult>{at % 2}</difficult>"
        xml = f"<annotation><object><name>{labels[at % 2]}</name>{mark}{box}</object></annotation>"
        (tmp_path / f"photos/{name}.xml").write_text(xml)
    cv2.imwrite(str(tmp_path / "photos/orphan.png"), np.full((40, 60, 3), 9, np.uint8))
    (tmp_path / "photos/ImageSets/Main/test.txt").write_text("a\nb\n")
    learned_from(tmp_path, "a.png")
    words = ("evaluate", "store/runs/r/model_int8.tflite", "photos")
    done = trainer_after_export(*words, "--json")
    found = json.loads(done.stdout)
    assert (found["pictures"], found["objects"], found["left_out"], found["quarantined"]) == (2, 1, 3, 0)
    assert found["learned"] == 1
    assert "the model has learned from 1 of 2 photos: it looks better than it is" in done.stderr
    assert "3 photos not measured, without XML of its own, or in no list or split folder" in done.stderr
    assert f"all objects of these classes are marked difficult, so none counts: {labels[1]} (1)" in done.stderr


@pytest.mark.parametrize("option", ["--exif raw", "--voc-coords voc1", "--difficult drop", "--background orphans"])
def test_evaluate_reads_photos_as_their_submit_was_told_to(option: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def noted(*_: Any, options: list[str], **__: Any) -> None:
        asked.extend(options)
        raise PipelineError("enough")

    monkeypatch.setattr("trainer.evaluate_photos.evaluate_photos", noted)
    monkeypatch.setattr("trainer.__main__.model_at", Path)
    monkeypatch.setattr("trainer.__main__.start_tensorflow", lambda: SimpleNamespace(threads=1))
    CliRunner().invoke(app, ["evaluate", "model.tflite", "photos", *option.split()])
    assert asked == option.split()


def test_sizes_of_pictures_that_no_job_can_have_are_refused(trainer: Run) -> None:
    refused = trainer("sizes", "--image-size", "100000", code=2).stderr
    assert re.fullmatch(r"error: .*--image-size.*: .* less than or equal to 4096; .*\n", refused)


def test_sizes_tells_where_the_time_goes(trainer: Run) -> None:
    words = ("sizes", "--backbone", "conv", "--model", "nano", "--image-size", "64")
    plain, told_more = trainer(*words).stdout, trainer(*words, "--detail").stdout
    assert len(plain.splitlines()) == 3
    parts = told_more.split("  int8_raw: ")
    assert len(parts) == 2
    for part, has_suppression in zip(parts, (True, False), strict=True):
        shares = [float(share) for share in re.findall(r" ms +([\d.]+) %", part)]
        assert abs(sum(shares) - 100) < 1
        assert re.search(r"loading \d+\.\d ms, arena \d+ kB, a picture \d+\.\d\d ms", told_more)
        assert ("TFLite_Detection_PostProcess" in part) == has_suppression
        assert "operators by LiteRT's profiler" in part
        assert "    Convolution (" in part


@pytest.mark.parametrize("option", ["--out", "--voc"])
def test_predict_makes_no_folder_here_that_is_named_like_a_bucket(trainer: Run, tmp_path: Path, option: str) -> None:
    cv2.imwrite(str(tmp_path / "a.jpg"), np.zeros((40, 60, 3), np.uint8))
    refused = trainer("predict", "model.tflite", "a.jpg", option, "s3://bucket/seen", code=2).stderr
    assert refused.startswith(f"error: {option} s3://bucket/seen: expected a folder of this machine, found a URL")


@pytest.mark.parametrize(
    "where", [("photos/a.jpg", "photos"), ("photos", "photos"), ("a/../photos", "./photos")], ids=str
)
def test_predict_never_draws_over_the_photos_it_looks_at(trainer: Run, tmp_path: Path, where: tuple[str, str]) -> None:
    for folder in ("photos", "a"):
        (tmp_path / folder).mkdir()
    cv2.imwrite(str(tmp_path / "photos/a.jpg"), np.zeros((40, 60, 3), np.uint8))
    before = (tmp_path / "photos/a.jpg").read_bytes()
    refused = trainer("predict", "store/runs/r/model_int8.tflite", where[0], "--out", where[1], code=2)
    assert refused.stderr.endswith("lies there, and what is drawn could replace it: name a new folder\n")
    assert [path.name for path in (tmp_path / "photos").iterdir()] == ["a.jpg"]
    assert (tmp_path / "photos/a.jpg").read_bytes() == before


def test_predict_names_the_model_of_a_run(trainer: Run, tmp_path: Path) -> None:
    cv2.imwrite(str(tmp_path / "photo.jpg"), np.zeros((40, 60, 3), np.uint8))
    (tmp_path / "store/runs/r/model_int8.tflite").touch()
    folder = trainer("predict", "store/runs/r", "photo.jpg", code=2).stderr
    assert "a folder; expected an exported .tflite, such as store/runs/r/model_int8.tflite" in folder
    name = trainer("predict", "r", "photo.jpg", code=2).stderr
    assert "r: no such file; expected an exported .tflite, such as STORE/runs/r/model_int8.tflite" in name


def test_a_page_that_cannot_be_written_is_refused_before_anything_is_measured(trainer: Run, tmp_path: Path) -> None:
    """Neither the model, the photos nor the runs were looked at: there are none."""
    (tmp_path / "folder").mkdir()
    absent = "error: --html no/such/page.html: there is no folder no/such; make it first, or name another\n"
    for words in (("evaluate", "m.tflite", "photos"), ("compare", "a", "b", "--store", "store")):
        assert trainer(*words, "--html", "no/such/page.html", code=2).stderr == absent
        told = trainer(*words, "--html", "folder", code=2).stderr
        assert told.startswith("error: --html folder: expected a file, found a folder")


def test_predict_refuses_more_threads_than_litert_survives(trainer: Run, tmp_path: Path) -> None:
    cv2.imwrite(str(tmp_path / "photo.jpg"), np.zeros((40, 60, 3), np.uint8))
    refused = trainer("predict", "store/runs/r/model_int8.tflite", "photo.jpg", "--threads", "100000", code=2)
    assert "--threads" in refused.stderr
    assert "256" in refused.stderr


def test_a_mean_over_no_object_is_a_dash() -> None:
    row = {
        "map50": 0.0,
        "map50_interval": [0.0, 1.0],
        "map": 0.0,
        "map_interval": [0.0, 1.0],
        "bytes": 9,
        "pictures": 2,
    }
    head, line, measured = _table({"int8": row | {"objects": 0, "median_ms": 1.0}}).splitlines()
    assert line.split() == ["int8", "-", "-", "9", "1.00"]
    assert len(head) == len(line)
    assert measured == "measured on 0 objects in 2 pictures"


def test_a_long_class_name_does_not_break_the_table_of_classes() -> None:
    row = {"ap50": 0.9, "ap50_interval": [0.8, 1.0], "ap": 0.5, "objects": 3}
    lines = _classes({"per_class": {"cat": row, "n" * 300: row, "m" * 24: {**row, "ap50": None}}}).splitlines()
    assert {len(line) for line in lines} == {len(lines[0])}
    assert lines[2].startswith(f"{'n' * 22}… ")
