"""What a run has come to, told from its `run.json`, whatever somebody has put there."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from producer.state.outcome import Outcome, read_outcome, seconds_taken, written_at
from shared.jobs.identity import make_note
from shared.jobs.job import Job
from shared.specs.run import RunSpec
from shared.storage import Storage

ASKED = RunSpec(run="r", job="j", incarnation="a" * 32)
FIGURES = {
    "map50": 0.9,
    "map50_interval": [0.8, 0.95],
    "map": 0.6,
    "map_interval": [0.5, 0.7],
    "objects": 26,
}


def storage_with(tmp_path: Path, **summary: Any) -> Storage:
    storage = Storage(str(tmp_path))
    storage.write("runs/r/run.json", make_note(ASKED.incarnation, **summary))
    return storage


def test_a_finished_run_has_its_model_figures_and_seconds(tmp_path: Path) -> None:
    said = {"metrics": {"int8": FIGURES}, "seconds": {"total": 61.5}, "warnings": ["few photos"]}
    assert read_outcome(storage_with(tmp_path, **said), ASKED) == Outcome(
        model=f"{tmp_path}/runs/r/model_int8.tflite",
        map50=0.9,
        map50_interval=(0.8, 0.95),
        map=0.6,
        map_interval=(0.5, 0.7),
        objects=26,
        warnings=("few photos",),
        seconds=61.5,
    )


def test_a_run_that_is_not_finished_or_of_another_job_has_come_to_nothing(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    assert read_outcome(storage, ASKED) == Outcome()
    storage.write("runs/r/run.json", make_note("b" * 32, metrics={"int8": FIGURES}))
    assert read_outcome(storage, ASKED) == Outcome()


@pytest.mark.parametrize(
    "summary",
    [
        {"metrics": None},
        {"metrics": []},
        {"metrics": {"int8": "good"}},
        {"metrics": {"int8": {"map50": "0.9", "map50_interval": [0.1], "objects": "many"}}},
        {"metrics": {"int8": {"map50_interval": {"low": 1}, "map_interval": ["a", "b"], "objects": 2.5}}},
        {"seconds": 7, "warnings": "none"},
    ],
)
def test_fields_of_another_form_are_taken_for_absent(tmp_path: Path, summary: dict[str, Any]) -> None:
    found = read_outcome(storage_with(tmp_path, **summary), ASKED)
    assert found == Outcome(model=f"{tmp_path}/runs/r/model_int8.tflite")


def test_a_fold_of_an_audit_has_no_model(tmp_path: Path) -> None:
    fold = ASKED.model_copy(update={"fold": 1, "folds": 3})
    found = read_outcome(storage_with(tmp_path, seconds={"total": 5}), fold)
    assert (found.model, found.seconds) == (None, 5.0)


def test_when_a_file_was_written_is_known_of_files_only(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    storage.write("jobs/j/job.json", b"{}")
    os.utime(tmp_path / "jobs/j/job.json", (1000, 1000))
    assert written_at(storage, "jobs/j/job.json") == 1000
    assert written_at(storage, "jobs/j/manifest.json") is None


def job_with_files(storage: Storage, **written_at: float) -> Job:
    """A job whose files were written at these moments (Unix time)."""
    golden = json.loads((Path(__file__).parents[3] / "golden/store-0.1.0/jobs/upgraded/job.json").read_text())
    job = Job.model_validate(golden)
    for name, at in written_at.items():
        storage.write(f"jobs/{job.job}/{name}.json", b"{}")
        os.utime(Path(storage.url(f"jobs/{job.job}/{name}.json")), (at, at))
    return job


def test_a_job_took_from_its_submit_to_its_data_set_and_the_time_of_its_run(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    job = job_with_files(storage, job=1000, manifest=1030.26)
    assert seconds_taken(storage, job, None) == 30.3
    assert seconds_taken(storage, job, 12.04) == 42.3
    (tmp_path / f"jobs/{job.job}/manifest.json").unlink()
    assert seconds_taken(storage, job, 12.0) is None


@pytest.mark.parametrize(("retried_at", "took_s"), [(5000, None), (6000, 5012.0)])
def test_how_long_a_job_lay_idle_before_a_retry_had_its_data_set_made_is_not_counted_as_work(
    tmp_path: Path, retried_at: float, took_s: float | None
) -> None:
    storage = Storage(str(tmp_path))
    job = job_with_files(storage, job=500, manifest=5500, retried=retried_at)
    assert seconds_taken(storage, job, 12.0) == took_s


@pytest.mark.parametrize(
    ("files", "model"),
    [
        ({"model_int8.tflite": {}}, "model_int8.tflite"),
        ({"model_int8.tflite": {}, "model_int8_raw.tflite": {}}, "model_int8.tflite"),
        ({"model_int8_raw.tflite": {}}, "model_int8_raw.tflite"),
        ({}, "model_int8.tflite"),
        ("no files", "model_int8.tflite"),
    ],
)
def test_the_model_is_the_one_that_was_handed_out(tmp_path: Path, files: object, model: str) -> None:
    found = read_outcome(storage_with(tmp_path, files=files), ASKED).model
    assert found is not None
    assert found.endswith(f"/{model}")
