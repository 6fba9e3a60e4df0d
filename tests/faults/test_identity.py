"""Row 21 of docs/faults.md: people and names. A job is never mistaken for another that had, or has, its name."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from producer.jobs.control import note_of
from producer.state.status import JobStatus
from producer.state.stored import load_job
from shared.jobs.paths import JobPaths
from shared.jobs.schema import HEIGHT
from tests.cluster import Cluster, assert_chain, assert_common_outcome, children, wait_until
from worker.record.example import parse_example
from worker.record.tfrecord import read_records

pytestmark = pytest.mark.faults
Tell = Callable[[str, JobStatus], None]
SMALL = ("--job", "job", "--no-train", "--shard-images", "4")
TINY = ("--image-size", "64", "--model", "nano", "--max-drop", "100")


def stopped(pid: int) -> bool:
    return any(psutil.Process(child).status() == psutil.STATUS_STOPPED for child in [pid, *children(pid)])


def labels_on_disk(cluster: Cluster) -> dict[str, list[str]]:
    """The class names in every file of the job that has them."""
    manifest, labels, coco_file = (
        cluster.storage().read(f"jobs/job/{name}") for name in ("manifest.json", "labels.txt", "annotations_train.json")
    )
    coco = json.loads(coco_file)
    return {
        "manifest": json.loads(manifest)["labels"],
        "labels.txt": labels.decode().split("\n")[:-1],
        "coco": [category["name"] for category in coco["categories"]],
    }


@pytest.mark.timeout(600)
def test_a_new_job_never_gets_the_model_of_the_removed_one(cluster: Cluster, small_voc: Path, tell: Tell) -> None:
    cluster.settings["VOC_RUN_LEASE_S"] = "10"
    cluster.serve()
    cluster.worker()
    cluster.trainer()
    cluster.producer("submit", str(small_voc), "--job", "job", *TINY, "--epochs", "4000")
    wait_until(lambda: (cluster.status("job").run or {}).get("step", 0), 240, "the run trains")
    cluster.producer("cancel", "job")
    cluster.producer("rm", "job", "--yes")
    cluster.producer("submit", str(small_voc), "--job", "job", *TINY, "--epochs", "2", "--ignore-classes", "circle")
    status = cluster.wait_for("job", timeout_s=300)
    run = json.loads(cluster.storage().read("runs/job/run.json"))
    assert run["labels"] == list(load_job(cluster.storage(), "job").labels) == ["cross", "triangle"]
    assert_chain(cluster, "job")
    tell("cancelled, removed and submitted with other classes while it trained", status)


@pytest.mark.parametrize("point", ["shard:before_rename", "shard:after_rename", "shard:after_receipt"])
def test_a_worker_of_the_removed_job_writes_nothing_into_the_new_one(
    cluster: Cluster, small_voc: Path, tell: Tell, point: str
) -> None:
    marker = cluster.store.parent / "marker"
    cluster.serve()
    frozen = cluster.worker(name="frozen", VOC_FAULT=f"freeze/{point}@{marker}")
    cluster.producer("submit", str(small_voc), *SMALL, "--image-size", "320")
    wait_until(lambda: marker.exists() and stopped(frozen.pid), 60, "a child has stopped itself")
    if cluster.state("job") != "SUBMITTED":
        cluster.producer("cancel", "job")
    cluster.producer("rm", "job", "--yes")
    cluster.producer("submit", str(small_voc), *SMALL, "--image-size", "64", "--ignore-classes", "circle")
    cluster.worker(name="heir")
    status = cluster.wait_for("job")
    for child in children(frozen.pid):
        os.kill(child, signal.SIGCONT)
    ended = ("shard_left", "shard_failed", "shard_written", "message_refused")
    wait_until(lambda: any(cluster.events("frozen", event) for event in ended), 60, "it goes on")
    status = cluster.wait_for("job")
    assert_common_outcome(cluster, "job")
    assert_chain(cluster, "job")
    sizes = {
        parse_example(record)[HEIGHT][0]
        for key in cluster.storage().walk("jobs/job/shards")
        if key.endswith(".tfrecord")
        for record in read_records(cluster.storage().read(key), file=key)
    }
    assert sizes == {64}
    assert set(map(tuple, labels_on_disk(cluster).values())) == {("cross", "triangle")}
    tell(f"a worker of the removed job frozen at {point} wakes after the new one is done", status)


def test_the_reconciler_does_not_keep_the_removed_job(cluster: Cluster, small_voc: Path, tell: Tell) -> None:
    cluster.serve(VOC_LISTING_S="600")
    cluster.producer("submit", str(small_voc), *SMALL)
    wait_until(lambda: cluster.under_way(cluster.scope("job")).queued, 30, "the service knows the job")
    cluster.producer("rm", "job", "--yes")
    cluster.producer("submit", str(small_voc), *SMALL, "--ignore-classes", "circle")
    cluster.worker()
    status = cluster.wait_for("job")
    assert set(map(tuple, labels_on_disk(cluster).values())) == {("cross", "triangle")}
    assert_common_outcome(cluster, "job")
    assert_chain(cluster, "job")
    tell("removed and submitted with other classes", status)


@pytest.mark.parametrize("left", ["rm:after_note", "rm:after_run", "without job.json"])
@pytest.mark.parametrize("then", ["submit", "rm"])
def test_an_interrupted_removal_goes_on(cluster: Cluster, small_voc: Path, tell: Tell, left: str, then: str) -> None:
    cluster.serve()
    cluster.worker()
    cluster.producer("submit", str(small_voc), *SMALL)
    cluster.wait_for("job")
    if left == "without job.json":  # as version 0.1.0 left it
        cluster.storage().remove("jobs/job/job.json")
    else:
        assert cluster.producer("rm", "job", "--yes", check=False, VOC_FAULT=left).returncode == -signal.SIGKILL
    assert cluster.producer("status", "job", check=False).returncode == 1
    if then == "rm":
        cluster.producer("rm", "job", "--yes")
        assert not cluster.storage().has_files("jobs/job")
        assert "nothing to remove" in cluster.producer("rm", "job", "--yes", check=False).stderr
    cluster.producer("submit", str(small_voc), *SMALL, "--ignore-classes", "circle")
    status = cluster.wait_for("job")
    assert_common_outcome(cluster, "job")
    assert_chain(cluster, "job")
    assert set(map(tuple, labels_on_disk(cluster).values())) == {("cross", "triangle")}
    tell(f"a removal killed ({left}), then {then}", status)


def test_a_copied_job_is_nobodys_and_its_removal_leaves_the_original(cluster: Cluster, small_voc: Path) -> None:
    cluster.producer("submit", str(small_voc), "--job", "mine", "--shard-images", "4")
    job = load_job(cluster.storage(), "mine")
    assert job.run is not None
    storage = cluster.storage()
    storage.write("runs/mine/request.json", job.run.to_json().encode())
    storage.write("runs/mine/model_int8.tflite", b"a model")
    for key in [*storage.walk("jobs/mine"), *storage.walk("runs/mine")]:
        storage.write(key.replace("/mine/", "/mine-backup/"), storage.read(key))
    refused = cluster.producer("rm", "mine-backup", "--yes", check=False)
    assert refused.returncode == 1
    assert "the file of job 'mine': a copied folder?" in refused.stderr
    assert "mine-backup is left out" in cluster.producer("list").stderr
    assert storage.exists("runs/mine/model_int8.tflite")
    cluster.producer("rm", "mine", "--yes")
    assert not storage.has_files("runs/mine")
    assert storage.exists("jobs/mine-backup/job.json")


@pytest.mark.parametrize("options", [(), ("--seed", "1")], ids=["the same", "another"])
def test_of_two_submits_at_once_one_wins_and_its_plan_stays(
    cluster: Cluster, small_voc: Path, tell: Tell, options: tuple[str, ...]
) -> None:
    marker = cluster.store.parent / "marker"
    slow = subprocess.Popen(
        [sys.executable, "-m", "producer", "submit", str(small_voc), *SMALL],
        env=cluster.environment("producer", VOC_FAULT=f"freeze/submit:after_plan@{marker}"),
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_until(lambda: marker.exists() and stopped(slow.pid), 60, "the first one has written its plan")
    cluster.producer("submit", str(small_voc), *SMALL, *options)
    slow.send_signal(signal.SIGCONT)
    _, told = slow.communicate(timeout=60)
    if options:
        assert slow.returncode == 1
        assert "exists with other options (seed)" in told
    else:
        assert slow.returncode == 0, told
        assert "known already" in told
    cluster.serve()
    cluster.worker()
    status = cluster.wait_for("job")
    assert_common_outcome(cluster, "job")
    assert_chain(cluster, "job")
    plans = [name for name in cluster.storage().list_names("jobs/job") if name.startswith("plan-")]
    assert len(plans) == 1
    tell("two submits of one name", status)


def test_removing_a_waiting_job_stops_nobody(cluster: Cluster, small_voc: Path, tell: Tell) -> None:
    cluster.serve(VOC_LISTING_S="600")
    waiting = subprocess.Popen(
        [sys.executable, "-m", "producer", "submit", str(small_voc), *SMALL, "--wait"],
        env=cluster.environment("producer"),
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_until(lambda: cluster.storage().exists("jobs/job/job.json"), 60, "the job is there")
    cluster.producer("submit", str(small_voc), "--job", "other", *SMALL[2:], "--seed", "1")
    cluster.producer("rm", "job", "--yes")
    _, told = waiting.communicate(timeout=60)
    assert waiting.returncode == 1
    assert "was removed while it was waited for" in told
    cluster.worker()
    took = wait_until(lambda: cluster.state("other") == "DONE", 60, "the other job is done")
    assert_common_outcome(cluster, "other")
    assert not cluster.storage().has_files("jobs/job")
    assert took < 30
    tell(f"removed a job beside another one, which was done after {took:.1f} s", cluster.status("other"))


def test_a_run_of_another_job_of_the_name_is_not_of_this_one(cluster: Cluster, small_voc: Path) -> None:
    """Notes that carry another identity, or none, say nothing of this job."""
    cluster.producer("submit", str(small_voc), "--job", "job", "--shard-images", "4")
    job = load_job(cluster.storage(), "job")
    other = job.model_copy(update={"incarnation": "f" * 32})
    for key in ("jobs/job/cancelled.json", f"jobs/job/failed/{job.shards[0]}.json", "runs/job/run.json"):
        cluster.storage().write(key, note_of(other, reason="x"))
    assert cluster.state("job") == "SUBMITTED"
    assert cluster.status("job").failed == 0
    cluster.storage().write(JobPaths("job").cancelled, note_of(job))
    assert cluster.state("job") == "CANCELLED"
