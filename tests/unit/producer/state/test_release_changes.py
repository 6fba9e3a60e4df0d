"""A run that was asked for is exported and judged otherwise from now on; after a refusal, the ways on are named."""

import json
from pathlib import Path
from typing import Any

import pytest

from producer.doctor.job_chain import check_chain
from producer.jobs.control import note_of, retry
from producer.jobs.submit import Request
from producer.progress import no_progress
from producer.state.runs import change_release, ways_on
from producer.state.status import job_status, times_retried
from producer.state.stored import load_job, stored_state
from producer.terminal.job_text import status_text
from shared.errors import OptionError, PlanError
from shared.jobs.identity import asked_now, read_receipt, read_request
from shared.jobs.job import Job, ShardTask
from shared.jobs.paths import JobPaths, RunPaths
from shared.leasing.guard import Unguarded
from shared.specs.data import JobSpec
from shared.specs.run import ReleaseOptions
from shared.specs.training import TrainingOptions
from shared.storage import Storage
from tests.tiny import make_tiny_voc
from tests.unit.producer.folders import lint_and_submit
from worker.shard import write_shard

RUN = RunPaths("job")
MAX_DROP = ReleaseOptions(max_drop=5)


def finished(folder: Path, run: TrainingOptions | None) -> tuple[Storage, Job]:
    """A job all of whose shards are written, and its manifest."""
    from producer.finalize.dataset_files import dataset_files

    storage, photos = Storage(str(folder / "store")), make_tiny_voc(folder / "voc", 20)
    request = Request(dataset=photos, name="job", spec=JobSpec(image_size=32), run=run)
    job = lint_and_submit(request, storage=storage, data_root=photos).job
    for line in storage.lines(JobPaths("job").plan(job.incarnation)):
        task = ShardTask.model_validate_json(line)
        write_shard(task, job, storage=storage, data_root=photos, guard=Unguarded(), attempt=1)
    dataset_files(job, [receipt for shard in job.shards if (receipt := read_receipt(storage, job, shard))], storage)
    return storage, job


def refused(
    folder: Path, run: TrainingOptions | None = None, check: str = "int8: accuracy kept"
) -> tuple[Storage, Job]:
    """A job whose run trained, and whose gate refused `check` for a loss of 3.21 points."""
    storage, job = finished(folder, run or TrainingOptions(backbone="conv"))
    assert job.run is not None
    storage.write(RUN.request, job.run.to_json().encode())
    storage.write(
        RUN.failed, note_of(job, kind="ExportError", reason="ExportError: the export gate refuses this model")
    )
    checks: list[dict[str, Any]] = [{"name": check, "is_ok": False}, {"name": "int8: class ids", "is_ok": True}]
    storage.write(f"{RUN.root}/gate.json", json.dumps(checks).encode())
    rows = {form: {"gate": {"map50": map50}} for form, map50 in (("float32", 0.8), ("int8", 0.7679))}
    storage.write(RUN.metrics, json.dumps(rows).encode())
    return storage, job


def state(storage: Storage) -> str:
    return stored_state(storage, load_job(storage, "job"), 0.1).state


def test_a_refused_run_is_released_again_with_another_limit(tmp_path: Path) -> None:
    storage, job = refused(tmp_path)
    told = retry(storage, None, "job", changes=MAX_DROP)
    assert told == "job: from now on with --max-drop 5, the refused model is released again"
    assert state(storage) == "TRAINING"
    request = read_request(storage, "job")
    assert request is not None
    assert job.run is not None
    assert (request.max_drop, request.quantize, request.trains_as(job.run)) == (5, "ptq", True)


def test_status_and_doctor_know_what_was_changed(tmp_path: Path) -> None:
    storage, job = refused(tmp_path)
    retry(storage, None, "job", changes=ReleaseOptions(max_drop=2.5, quantize="qat"))
    status = job_status(storage, None, job, 0.1)
    assert status.run is not None
    assert status.run["changed"] == ["--quantize", "qat", "--max-drop", "2.5"]
    assert "changed to --quantize qat --max-drop 2.5" in status_text(status)
    assert all(check.is_well for check in check_chain(storage, job, 0.1, no_progress))


def test_changes_add_up(tmp_path: Path) -> None:
    storage, job = refused(tmp_path)
    assert job.run is not None
    change_release(storage, job, MAX_DROP)
    change_release(storage, job, ReleaseOptions(quantize="qat"))
    now = asked_now(storage, job.run)
    assert (now.max_drop, now.quantize) == (5, "qat")


def test_the_ways_on_are_commands_with_what_was_lost(tmp_path: Path) -> None:
    storage, job = refused(tmp_path)
    assert [way.split(" retry ")[1].split(" --store")[0] for way in ways_on(storage, job)] == [
        "job --quantize qat",
        "job --max-drop 3.3",
    ]


@pytest.mark.parametrize("run", [TrainingOptions(quantize="qat"), TrainingOptions(backbone="mobilenet_v2")])
def test_fine_tuning_is_no_way_on_where_it_was_done_or_cannot_be(tmp_path: Path, run: TrainingOptions) -> None:
    storage, job = refused(tmp_path, run)
    assert ["--max-drop" in way for way in ways_on(storage, job)] == [True]


def test_a_broken_file_is_not_accepted_by_a_larger_limit(tmp_path: Path) -> None:
    storage, job = refused(tmp_path, check="int8: class ids")
    assert ways_on(storage, job) == []


def test_a_finished_run_is_exported_by_hand(tmp_path: Path) -> None:
    storage, job = refused(tmp_path)
    storage.write(RUN.run, note_of(job))
    with pytest.raises(
        PlanError, match=r"run job is DONE: `.* export job --max-drop 5 --store .*` exports its model again"
    ):
        retry(storage, None, "job", changes=MAX_DROP)
    assert times_retried(storage, job) == 0


def test_options_that_do_not_fit_are_named(tmp_path: Path) -> None:
    storage, job = refused(tmp_path, TrainingOptions(backbone="mobilenet_v2"))
    with pytest.raises(OptionError, match=r"^--quantize qat is for --backbone conv"):
        change_release(storage, job, ReleaseOptions(quantize="qat"))
    assert storage.exists(RUN.failed)


def test_a_job_without_training_says_so(tmp_path: Path) -> None:
    storage, job = finished(tmp_path, None)
    with pytest.raises(OptionError, match=r"^--max-drop 5: job job has no training"):
        change_release(storage, job, MAX_DROP)


@pytest.mark.parametrize(("is_done", "verb"), [(False, "retry"), (True, "export")])
def test_a_submit_with_another_limit_names_the_command_that_sets_it(tmp_path: Path, is_done: bool, verb: str) -> None:
    storage, job = refused(tmp_path)
    if is_done:
        storage.write(RUN.run, note_of(job))
    request = Request(
        dataset=Path(job.dataset), name="job", spec=JobSpec(image_size=32), run=TrainingOptions(max_drop=5)
    )
    with pytest.raises(PlanError, match=rf"other options for its export: `.* {verb} job --max-drop 5 --store "):
        lint_and_submit(request, storage=storage, data_root=Path(job.dataset))
    retry(storage, None, "job") if is_done else retry(storage, None, "job", changes=MAX_DROP)
    if not is_done:
        assert lint_and_submit(request, storage=storage, data_root=Path(job.dataset)).outcome == "known"
