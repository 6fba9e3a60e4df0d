"""`rm --older`, `prune` and the disk that `list` tells, as a person calls them."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from producer.audit.decisions import Decision, Decisions
from producer.finalize.dataset_files import dataset_files
from producer.jobs.control import cancel, note_of
from producer.jobs.submit import Request, further_run
from producer.state.local_lock import lock_for_local_run
from producer.state.stored import load_job
from shared.jobs.identity import make_note, read_receipt
from shared.jobs.paths import JobPaths, RunPaths
from shared.specs.data import JobSpec
from shared.specs.training import TrainingOptions
from shared.storage import Storage
from tests.tiny import make_tiny_voc
from tests.unit.producer.folders import lint_and_submit
from tests.unit.producer.jobs.test_reuse import work
from tests.unit.producer.page.audited import IDS, JOB, RUN, make_audited

DAY_S = 86_400


def call(store: Path | str, *arguments: str, typed: str = "", **settings: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "producer", *arguments, "--store", str(store)]
    environment = {**os.environ, "VOC_BROKER_URL": "", **settings}
    return subprocess.run(
        command, capture_output=True, text=True, env=environment, input=typed, check=False, timeout=60
    )


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Three jobs with a run each: two done, `old` 40 days ago; `open` is not, as old."""
    storage, folder = Storage(str(tmp_path / "store")), make_tiny_voc(tmp_path / "voc", 12)
    for name in ("old", "new", "open"):
        spec, run = JobSpec(image_size=32), TrainingOptions()
        request = Request(dataset=folder, name=name, spec=spec, run=run)
        job = lint_and_submit(request, storage=storage, data_root=folder).job
        work(storage, job, folder)
        assert job.run is not None
        storage.write(RunPaths(name).request, job.run.to_json().encode())
        if name == "open":
            continue
        dataset_files(job, [receipt for shard in job.shards if (receipt := read_receipt(storage, job, shard))], storage)
        finish(storage, name, name)
    age(tmp_path / "store", "old", "open")
    return tmp_path / "store"


def finish(storage: Storage, job: str, run: str) -> None:
    root = RunPaths(run).root
    for key, size in (("model.keras", 1000), ("checkpoints/step-000000009.npz", 5_000_000), ("tensorboard/e", 70_000)):
        storage.write(f"{root}/{key}", bytes(size))
    storage.write(RunPaths(run).run, note_of(load_job(storage, job)))


def age(store: Path, *names: str) -> None:
    past = time.time() - 40 * DAY_S
    for name in names:
        for folder in (store / "jobs" / name, store / "runs" / name):
            for path in [folder, *folder.rglob("*")]:
                if path.exists():
                    os.utime(path, (past, past))


def jobs_in(store: Path) -> list[str]:
    return Storage(str(store)).list_names("jobs")


def test_rm_older_asks_once_and_removes_what_ended_before(store: Path) -> None:
    asked = call(store, "rm", "--older", "30d", typed="n\n")
    assert asked.returncode == 1
    assert "Remove jobs/old and all runs" in asked.stdout
    assert "1 job has not ended and will stay: open" in asked.stderr
    assert jobs_in(store) == ["new", "old", "open"]
    removed = call(store, "rm", "--older", "30d", "--yes")
    assert (removed.returncode, removed.stdout) == (0, "old is removed\n")
    assert (jobs_in(store), Storage(str(store)).list_names("runs")) == (["new", "open"], ["new", "open"])
    assert "no job" in call(store, "rm", "--older", "30d", "--yes").stdout


def test_rm_older_takes_a_failed_job_by_the_share_that_is_set(store: Path) -> None:
    storage = Storage(str(store))
    job, paths = load_job(storage, "open"), JobPaths("open")
    storage.remove(paths.receipt(job.shards[0]))
    storage.write(paths.failure(job.shards[0]), make_note(job.incarnation, reason="disk full"))
    age(store, "open")
    kept = call(store, "rm", "--older", "30d", "--yes", VOC_FAILED_SHARE="0.5")
    assert "1 job has not ended and will stay: open" in kept.stderr
    assert call(store, "rm", "--older", "30d", "--yes").stdout == "open is removed\n"


def test_rm_refuses_a_job_that_goes_on_before_it_asks(store: Path) -> None:
    with lock_for_local_run(Storage(str(store)), "open"):
        refused = call(store, "rm", "open", typed="y\n")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.startswith("error: open is running: `")
    assert "cancel open" in refused.stderr
    assert "open" in jobs_in(store)


def test_rm_takes_what_was_interrupted_and_is_left_alone_since(store: Path) -> None:
    assert "INTERRUPTED" in call(store, "status", "open").stdout
    removed = call(store, "rm", "open", "--yes")
    assert (removed.returncode, removed.stdout) == (0, "open is removed\n")
    assert "open" not in jobs_in(store)


def test_rm_refuses_what_a_local_run_has_though_it_looks_interrupted_by_another_clock(store: Path) -> None:
    storage = Storage(str(store))
    job = load_job(storage, "open")
    dataset_files(job, [receipt for shard in job.shards if (receipt := read_receipt(storage, job, shard))], storage)
    facts = {"phase": "train", "step": 100, "worker": "host-1", "pid": 7, "held": True, "at": time.time() - 3600}
    storage.write(RunPaths("open").progress, make_note(job.incarnation, **facts))
    with lock_for_local_run(storage, "open"):
        refused = call(store, "rm", "open", "--yes")
    assert refused.returncode == 1
    assert "open is running: `" in refused.stderr
    assert load_job(storage, "open") == job
    assert call(store, "rm", "open", "--yes").returncode == 0  # interrupted, and left alone since


def test_rm_takes_several_jobs_and_goes_on_after_one_that_is_not_there(store: Path) -> None:
    removed = call(store, "rm", "old", "absent", "new", "--yes")
    assert removed.returncode == 1
    assert removed.stderr.startswith("error: no job 'absent'")
    assert jobs_in(store) == ["open"]


@pytest.mark.parametrize(
    "wrong", [["--older", "30"], ["--older", "30d", "old"], [], ["old", "new", "--run", "x"]], ids=str
)
def test_rm_refuses_what_it_cannot_mean(store: Path, wrong: list[str]) -> None:
    ended = call(store, "rm", *wrong, "--yes")
    assert (ended.returncode, ended.stderr.count("\n")) == (2, 1)
    assert len(jobs_in(store)) == 3


def test_rm_of_an_audit_says_that_the_decisions_of_people_go_with_it(tmp_path: Path) -> None:
    store = make_audited(tmp_path)
    command = ("rm", JOB, "--run", RUN)
    assert f"Remove runs/{RUN} from " in call(store, *command, typed="n\n").stdout
    decisions = Decisions(Storage(str(store)), RUN)
    for finding, answer in ((IDS[0], "right"), (IDS[1], "wrong"), (IDS[2], "right"), (IDS[2], "open")):
        decisions.add(Decision(finding=finding, answer=answer, at=1.0))
    assert f"Remove runs/{RUN} with 2 decisions made on it from " in call(store, *command, typed="n\n").stdout


def test_prune_shows_first_and_removes_with_yes_what_nobody_needs(store: Path) -> None:
    storage = Storage(str(store))
    job = load_job(storage, "old")
    further_run(job, "kept", TrainingOptions(model="nano"), storage)  # not done: its checkpoint is needed
    storage.write("runs/kept/checkpoints/step-000000001.npz", bytes(900))
    storage.write("weights/used.h5", bytes(10))
    further_run(job, "transfer", TrainingOptions(backbone="mobilenet_v2", weights="weights/used.h5"), storage)
    storage.write("weights/unused.h5", bytes(2000))
    storage.write("jobs/old.tmp-host-1-ab/x", bytes(3000))
    storage.write("runs/left/request.json", b'{"run":"left","job":"gone"}')
    storage.write("runs/left/model.keras", bytes(4000))
    storage.write("jobs/old/plan-" + "a" * 32 + ".jsonl", bytes(500))
    age(store, "old.tmp-host-1-ab", "left", "old")
    for path in (
        store / "weights/unused.h5",
        store / "jobs/old.tmp-host-1-ab",
        store / "jobs/old",
        store / "runs/left",
    ):
        os.utime(path, (1, 1))
    before = sorted(path for path in store.rglob("*"))
    shown = json.loads(call(store, "prune", "--json").stdout)
    assert sorted(store.rglob("*")) == before
    assert {each["key"]: (each["kind"], each["size_bytes"]) for each in shown["found"]} == {
        "runs/old/checkpoints": ("checkpoints", 5_000_000),
        "runs/new/checkpoints": ("checkpoints", 5_000_000),
        "runs/old/tensorboard": ("tensorboard", 70_000),
        "runs/new/tensorboard": ("tensorboard", 70_000),
        "runs/left": ("orphan", 4000 + len(b'{"run":"left","job":"gone"}')),
        "jobs/old.tmp-host-1-ab": ("leftover", 3000),
        "weights/unused.h5": ("weights", 2000),
        "jobs/old/plan-" + "a" * 32 + ".jsonl": ("leftover", 500),
    }
    told = call(store, "prune")
    assert "prune --yes --store" in told.stdout.replace("\n", " ")
    assert "frees 10.1 MB" in told.stdout.replace("\n", " ")
    assert "10.1 MB freed" in call(store, "prune", "--yes").stdout
    assert json.loads(call(store, "prune", "--json").stdout)["found"] == []
    assert storage.exists("runs/old/model.keras")
    assert storage.exists("runs/kept/checkpoints/step-000000001.npz")
    assert storage.exists("weights/used.h5")
    assert json.loads(call(store, "status", "old", "--json").stdout)["state"] == "DONE"


def test_prune_removes_photos_out_of_an_archive_that_no_job_is_of(store: Path) -> None:
    storage = Storage(str(store))
    for name in ("used", "unused"):
        storage.write(f"unpacked/{name}/photos/1.jpg", bytes(1000))
        for path in (store / "unpacked" / name, store / "unpacked" / name / "photos"):
            os.utime(path, (1, 1))
    told = json.loads(storage.read(JobPaths("open").job))
    photos = str((store / "unpacked/used/photos").resolve())
    storage.write(JobPaths("open").job, json.dumps({**told, "dataset": photos}).encode())
    found = [each["key"] for each in json.loads(call(store, "prune", "--json").stdout)["found"]]
    assert [key for key in found if key.startswith("unpacked")] == ["unpacked/unused"]
    storage.write(JobPaths("new").job, b"damaged")
    found = [each["key"] for each in json.loads(call(store, "prune", "--json").stdout)["found"]]
    assert not [key for key in found if key.startswith("unpacked")]


def test_prune_finishes_a_removal_that_was_killed(store: Path) -> None:
    storage = Storage(str(store))
    cancel(storage, None, "open")
    storage.write(JobPaths("open").removed, note_of(load_job(storage, "open")))
    age(store, "open")
    assert "jobs/open" in call(store, "prune").stdout
    call(store, "prune", "--yes")
    assert jobs_in(store) == ["new", "old"]
    assert not storage.list_names("runs/open")


def test_list_tells_the_disk_of_each_job(store: Path) -> None:
    rows = {row["job"]: row["size_bytes"] for row in json.loads(call(store, "list", "--json").stdout)}
    shards = sum(path.stat().st_size for path in (store / "jobs/new/shards").iterdir())
    assert shards + 5_071_000 < rows["new"] < shards + 5_071_000 + 50_000
    assert rows["open"] < 100_000
    shown = call(store, "list").stdout
    assert "5.1 MB" in next(line for line in shown.splitlines() if line.startswith("new "))
    assert max(len(line) for line in shown.splitlines() if "/" not in line) <= 80
    assert "5.1 MB on disk" in call(store, "status", "new").stdout


def test_rm_asks_nothing_of_a_job_that_is_not_there(store: Path) -> None:
    absent = call(store, "rm", "absent", "old", typed="y\n")
    assert (absent.returncode, absent.stdout) == (1, "")
    assert absent.stderr.startswith("error: no job 'absent'")
    assert jobs_in(store) == ["new", "old", "open"]
    unanswered = call(store, "rm", "old")
    assert (unanswered.returncode, unanswered.stderr.strip()) == (1, "nothing was done; --yes goes on without asking")


def test_list_shows_an_added_run_and_its_state(store: Path) -> None:
    storage = Storage(str(store))
    further_run(load_job(storage, "new"), "new-longer", TrainingOptions(), storage)
    listed = call(store, "list").stdout
    assert ["--run", "new-longer", "FINALIZED"] in [line.split() for line in listed.splitlines()]
    finish(storage, "new", "new-longer")
    listed = call(store, "list").stdout
    assert ["--run", "new-longer", "DONE"] in [line.split() for line in listed.splitlines()]
