"""Further runs of a job: asked for on the shards that are there, known by name, cancelled and removed by themselves."""

from dataclasses import replace
from pathlib import Path

import pytest

from producer.doctor.job_chain import check_chain
from producer.finalize.dataset_files import dataset_files
from producer.jobs.control import cancel, note_of, retry
from producer.jobs.removal import remove
from producer.jobs.submit import Request, for_known_job, further_run
from producer.progress import no_progress
from producer.run.start_job import folds_first
from producer.state.local_lock import lock_for_local_run
from producer.state.runs import add_request, differing_fields, runs_of
from producer.state.status import job_status
from producer.state.stored import ended_badly, load_job, require_same, run_state, stored_state
from producer.terminal.job_text import failure_text
from shared.errors import OptionError, PlanError
from shared.jobs.identity import read_receipt
from shared.jobs.job import Job, ShardTask
from shared.jobs.paths import JobPaths, RunPaths
from shared.leasing.guard import Unguarded
from shared.specs.data import JobSpec
from shared.specs.run import RunSpec
from shared.specs.training import TrainingOptions
from shared.storage import Storage
from tests.tiny import make_tiny_voc
from tests.unit.producer.folders import lint_and_submit
from worker.shard import write_shard

SPEC = JobSpec(shard_images=32, image_size=32)
MEDIUM = TrainingOptions(model="medium", backbone="conv")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_tiny_voc(tmp_path / "voc", 24)


@pytest.fixture
def storage(tmp_path: Path, folder: Path) -> Storage:
    return finished_job(tmp_path, folder)


def finished_job(root: Path, folder: Path) -> Storage:
    """A store with a job whose data set is finished, and whose run is not."""
    made = Storage(str(root / "store"))
    job = lint_and_submit(request(folder), storage=made, data_root=folder).job
    for line in made.lines(JobPaths("job").plan(job.incarnation)):
        task = ShardTask.model_validate_json(line)
        write_shard(task, job, storage=made, data_root=folder, guard=Unguarded(), attempt=1)
    dataset_files(job, [receipt for shard in job.shards if (receipt := read_receipt(made, job, shard))], made)
    return made


def request(folder: Path, run_name: str | None = None, options: TrainingOptions | None = None) -> Request:
    run = options or TrainingOptions(backbone="conv")
    return Request(dataset=folder, name="job", spec=SPEC, run=run, run_name=run_name)


def add(storage: Storage, name: str = "two", options: TrainingOptions = MEDIUM) -> str:
    return further_run(load_job(storage, "job"), name, options, storage).outcome


def state_of(storage: Storage, run: str | None) -> str:
    return stored_state(storage, load_job(storage, "job", run), 0.1).state


def test_a_further_run_leaves_the_job_as_it_is_and_is_known_the_next_time(storage: Storage, folder: Path) -> None:
    before = storage.read(JobPaths("job").job)
    asked = lint_and_submit(request(folder, "two", MEDIUM), storage=storage, data_root=folder)
    assert asked.outcome == "run"
    assert asked.job.run is not None
    assert (asked.job.run.run, asked.job.run.model) == ("two", "medium")
    assert storage.read(JobPaths("job").job) == before
    assert [run.run for run in runs_of(storage, load_job(storage, "job"))] == ["job", "two"]
    assert add(storage) == "known"
    with pytest.raises(PlanError, match=r"run 'two' exists with other options \(model\): choose another --run"):
        add(storage, options=TrainingOptions(model="nano"))


def test_other_training_options_for_a_known_job_name_the_way(storage: Storage, folder: Path) -> None:
    with pytest.raises(PlanError, match=r"other training options \(model\): --run NAME trains on its shards"):
        lint_and_submit(request(folder, options=MEDIUM), storage=storage, data_root=folder)


def test_a_run_of_a_version_that_wrote_float32_unasked_is_known(tmp_path: Path, folder: Path) -> None:
    storage = Storage(str(tmp_path / "other"))
    old = TrainingOptions(backbone="conv", precision="float32")
    for name in (None, "two"):
        lint_and_submit(request(folder, name, old), storage=storage, data_root=folder)
        again = lint_and_submit(request(folder, name), storage=storage, data_root=folder)
        assert again.outcome == "known"
        assert again.job.run is not None
        assert again.job.run.precision == "float32"
        bfloat16 = TrainingOptions(backbone="conv", precision="mixed_bfloat16")
        with pytest.raises(PlanError, match=r"\(precision\)"):
            lint_and_submit(request(folder, name, bfloat16), storage=storage, data_root=folder)
    audit = RunSpec(run="audit", job="job", audits=("fold",))
    assert differing_fields(audit.model_copy(update={"precision": "float32"}), audit) == []


def test_a_job_may_begin_with_a_named_run(tmp_path: Path, folder: Path) -> None:
    storage = Storage(str(tmp_path / "other"))
    job = lint_and_submit(request(folder, "first"), storage=storage, data_root=folder).job
    assert job.run is not None
    assert (job.job, job.run.run) == ("job", "first")
    assert lint_and_submit(request(folder, "first"), storage=storage, data_root=folder).outcome == "known"


def test_data_options_are_the_jobs_and_another_one_is_refused(storage: Storage, folder: Path) -> None:
    job = load_job(storage, "job")
    usual = Request(dataset=folder, name="job", spec=JobSpec(seed=7), run=MEDIUM, run_name="two")
    assert for_known_job(usual, job, storage).spec == job.spec
    typed = Request(dataset=folder, name="job", spec=JobSpec(image_size=64), run=MEDIUM, run_name="two")
    with pytest.raises(PlanError, match="image_size"):
        for_known_job(typed, job, storage)
    spelled = replace(typed, spec=JobSpec(), typed=frozenset({"image_size"}))  # typed, and what it is without
    with pytest.raises(PlanError, match="image_size"):
        for_known_job(spelled, job, storage)


def test_a_rule_to_stop_by_validation_needs_photos_in_val(tmp_path: Path, folder: Path) -> None:
    storage, rule = Storage(str(tmp_path / "new")), TrainingOptions(backbone="conv", stop_at_map=0.5, patience=3)
    without = SPEC.model_copy(update={"split": (90, 0, 10)})
    refused = "--stop-at-map 0.5, --patience 3: expected photos in val to stop by, found none"
    with pytest.raises(OptionError, match=refused):
        lint_and_submit(replace(request(folder, options=rule), spec=without), storage=storage, data_root=folder)
    assert storage.list_names("jobs") == []
    lint_and_submit(replace(request(folder), spec=without), storage=storage, data_root=folder)
    with pytest.raises(OptionError, match=refused):
        add(storage, options=rule)


def test_a_name_is_one_runs_only(storage: Storage, folder: Path) -> None:
    add(storage)
    other = Request(dataset=folder, name="other", spec=SPEC, run=TrainingOptions())
    lint_and_submit(other, storage=storage, data_root=folder)
    with pytest.raises(PlanError, match="run 'two' of job 'job' has this name already"):
        further_run(load_job(storage, "other"), "two", MEDIUM, storage)
    taken = Request(dataset=folder, name="two", spec=SPEC, run=TrainingOptions())
    with pytest.raises(PlanError, match="run 'two' of job 'job' has this name already"):
        lint_and_submit(taken, storage=storage, data_root=folder)
    with pytest.raises(PlanError, match="a job has this name"):
        add(storage, "other")
    with pytest.raises(OptionError, match="'Two!' is no run name"):
        add(storage, "Two!")


def test_a_run_is_cancelled_and_taken_back_by_its_name_alone(storage: Storage) -> None:
    add(storage)
    assert cancel(storage, None, "job", "two") == "run two of job is cancelled"
    assert (state_of(storage, "two"), state_of(storage, None)) == ("CANCELLED", "FINALIZED")
    assert "nothing failed" in retry(storage, None, "job")
    assert state_of(storage, "two") == "CANCELLED"  # it was cancelled by itself
    for run in ("two", None):
        told = job_status(storage, None, load_job(storage, "job", run), 0.1).next
        assert (" retry job --run two" if run else " resume job") in str(told)
    assert retry(storage, None, "job", run="two") == "run two of job: the cancel is taken back"
    assert state_of(storage, "two") == "TRAINING"


def test_a_cancelled_job_takes_its_runs_with_it_and_back(storage: Storage) -> None:
    add(storage)
    cancel(storage, None, "job")
    assert run_state(storage, runs_of(storage, load_job(storage, "job"))[1]) == "CANCELLED"
    with pytest.raises(PlanError, match="job is cancelled as a whole"):
        retry(storage, None, "job", run="two")
    assert retry(storage, None, "job") == "job: the cancel is taken back"
    assert state_of(storage, "two") == "TRAINING"


def test_a_failed_run_is_queued_again_by_its_name(storage: Storage) -> None:
    add(storage)
    storage.write(RunPaths("two").failed, note_of(load_job(storage, "job"), reason="gate"))
    assert state_of(storage, "two") == "FAILED"
    assert retry(storage, None, "job", run="two").endswith("queued again")
    assert state_of(storage, "two") == "TRAINING"


def test_status_and_doctor_tell_of_every_run(storage: Storage) -> None:
    add(storage)
    status = job_status(storage, None, load_job(storage, "job"), 0.1)
    assert [(run["run"], run["state"]) for run in status.runs] == [("job", "FINALIZED"), ("two", "FINALIZED")]
    assert (status.run or {})["run"] == "job"
    assert (job_status(storage, None, load_job(storage, "job", "two"), 0.1).run or {})["run"] == "two"
    checks = check_chain(storage, load_job(storage, "job"), 0.1, no_progress)
    assert (checks[-1].name, checks[-1].found) == ("trained two", "no model yet")
    assert all(check.is_well for check in checks)
    cancel(storage, None, "job", "two")
    checks = check_chain(storage, load_job(storage, "job"), 0.1, no_progress)
    assert (checks[-1].is_well, checks[-1].found) == (True, "no model: CANCELLED")
    with pytest.raises(PlanError, match=r"no run 'three' \(there are: job, two\)"):
        load_job(storage, "job", "three")


def add_audit(storage: Storage, job: Job) -> tuple[str, str]:
    """Ask for an audit of two folds, `job.audit-2`; the names of the folds."""
    ours = {"job": job.job, "incarnation": job.incarnation, "folds": 2}
    folds = ("job.fold-1-of-2", "job.fold-2-of-2")
    for fold, name in enumerate(folds, 1):
        add_request(storage, RunSpec(**ours, run=name, fold=fold))
    add_request(storage, RunSpec(**ours, run="job.audit-2", audits=folds))
    return folds


def test_doctor_has_a_failed_fold_done_again_with_its_audit_and_a_failed_run_by_its_name(storage: Storage) -> None:
    add(storage)
    job = load_job(storage, "job")
    audits = add_audit(storage, job)
    for name in ("two", audits[1]):
        storage.write(RunPaths(name).failed, note_of(job, reason="the loss is nan"))
    checks = {check.name: check for check in check_chain(storage, job, 0.1, no_progress)}
    assert " retry job --run two " in checks["trained two"].advice
    assert " retry job --run job.audit-2 " in checks[f"trained {audits[1]}"].advice
    seen = check_chain(storage, load_job(storage, "job", audits[1]), 0.1, no_progress)
    assert " retry job --run job.audit-2 " in seen[-1].advice
    told = retry(storage, None, "job", run="job.audit-2")
    assert told == f"run job.audit-2 of job: queued again: run {audits[1]}"


def test_a_failed_fold_is_said_to_be_done_again_with_its_audit(storage: Storage) -> None:
    job = load_job(storage, "job")
    fold = add_audit(storage, job)[1]
    storage.write(RunPaths(fold).failed, note_of(job, reason="the loss is nan"))
    status = job_status(storage, None, load_job(storage, "job", fold), 0.1)
    assert status.state == "FAILED"
    assert "voc2tflite retry job --run job.audit-2 " in failure_text(status, storage)
    assert " retry job --run job.audit-2 " in next(run["next"] for run in status.runs if run["run"] == fold)


def test_every_run_says_why_it_does_not_move_and_what_goes_on_with_it(storage: Storage) -> None:
    add(storage)
    cancel(storage, None, "job", "two")
    own, added = job_status(storage, None, load_job(storage, "job"), 0.1).runs
    assert (own["state"], own["why"]) == ("FINALIZED", "nobody works on it")
    assert own["next"].endswith(" resume job --store " + storage.root)
    assert (added["state"], added["why"]) == ("CANCELLED", "a person cancelled it")
    assert " retry job --run two" in added["next"]
    retry(storage, None, "job", run="two")
    _, added = job_status(storage, None, load_job(storage, "job"), 0.1).runs
    assert " resume job --run two" in added["next"]


def test_a_job_whose_shards_are_all_done_waits_for_no_worker(storage: Storage) -> None:
    storage.remove(JobPaths("job").manifest)
    job = load_job(storage, "job")
    with lock_for_local_run(storage, "job"):
        status = job_status(storage, None, job, 0.1)
    count = len(job.shards)
    why = f"{count} of {count} shards done, the data set is put together (--local)"
    assert (status.state, status.why) == ("RUNNING", why)


def test_a_run_is_removed_alone_and_a_job_with_all_of_its_runs(storage: Storage) -> None:
    add(storage)
    with pytest.raises(PlanError, match="cancel job --run two"):
        remove(storage, None, "job", "two")
    cancel(storage, None, "job", "two")
    assert remove(storage, None, "job", "two") == "run two of job is removed"
    assert storage.list_names("runs") == []
    assert add(storage, options=TrainingOptions(model="nano")) == "run"
    cancel(storage, None, "job")
    with pytest.raises(PlanError, match="submitted with"):
        remove(storage, None, "job", "job")
    remove(storage, None, "job")
    assert (storage.list_names("runs"), storage.list_names("jobs")) == ([], [])


def test_who_waits_for_a_run_hears_that_it_was_removed(storage: Storage) -> None:
    """A cancel and a removal may come between two of its looks; of a run that is gone nothing else would tell it."""
    add(storage)
    waited_for = load_job(storage, "job", "two")
    require_same(storage, waited_for)
    cancel(storage, None, "job", "two")
    remove(storage, None, "job", "two")
    with pytest.raises(PlanError, match="run 'two' of job 'job' was removed while it was waited for"):
        require_same(storage, waited_for)
    require_same(storage, load_job(storage, "job"))  # its own run is asked for later


def test_a_request_that_a_removed_job_left_does_not_keep_the_name(storage: Storage, folder: Path) -> None:
    left = RunSpec(**dict(MEDIUM), run="two", job="job", incarnation="f" * 32)
    storage.write(RunPaths("two").request, left.to_json().encode())
    assert add(storage) == "run"


def test_a_retry_takes_up_the_runs_that_ended_badly_and_the_folds_of_an_audit_before_it(storage: Storage) -> None:
    job = load_job(storage, "job")
    folds = add_audit(storage, job)
    storage.write(RunPaths(folds[0]).failed, note_of(job, reason="the loss is nan"))
    before = ended_badly(storage, job)
    assert [asked.run for asked in before] == [folds[0], "job.audit-2"], (
        "a fold comes before the audit that waits for it"
    )
    retry(storage, None, "job")
    assert ended_badly(storage, job) == []
    seen = folds_first(storage, [job, *(job.model_copy(update={"run": asked}) for asked in before)])
    # The second one has not failed: it never began.
    assert [each.run.run for each in seen if each.run] == ["job", folds[0], folds[1], "job.audit-2"]
    alone = job.model_copy(update={"run": None})
    assert folds_first(storage, [alone]) == [alone]


def test_a_job_without_a_photo_of_train_takes_no_run(storage: Storage, folder: Path) -> None:
    lists = folder / "ImageSets/Main"
    lists.mkdir(parents=True, exist_ok=True)
    for each in lists.iterdir():
        each.unlink()
    stem = next(folder.rglob("*.xml")).stem
    (lists / "test.txt").write_text(f"{stem}\n")
    tested = Request(dataset=folder, name="tested", spec=SPEC, run=None)
    job = lint_and_submit(tested, storage=storage, data_root=folder).job
    assert list(job.splits) == ["test"]
    with pytest.raises(PlanError, match="job 'tested' has no photo in train, expected some to learn from: submit its"):
        further_run(job, "two", MEDIUM, storage)
    assert not storage.exists(RunPaths("two").request)


def test_a_job_of_ignored_objects_alone_takes_no_run(storage: Storage, folder: Path) -> None:
    for xml in folder.rglob("*.xml"):
        xml.write_text(xml.read_text().replace("<bndbox>", "<difficult>1</difficult><bndbox>"))
    spec = SPEC.model_copy(update={"difficult": "ignore"})
    asked = Request(dataset=folder, name="ignored", spec=spec, run=None)
    job = lint_and_submit(asked, storage=storage, data_root=folder).job
    with pytest.raises(PlanError, match="'ignored' has only objects marked difficult in train, and was asked for with"):
        further_run(job, "two", MEDIUM, storage)
    assert not storage.exists(RunPaths("two").request)
