"""Rows 21 and 22 of docs/faults.md: what is finished stays true. Late retries and receipts, changed bytes."""

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from producer.jobs.control import note_of
from producer.state.status import JobStatus
from producer.state.stored import load_job
from shared.jobs.job import ShardTask
from shared.jobs.manifest import Manifest
from shared.jobs.paths import JobPaths
from shared.leasing.guard import Unguarded
from shared.storage import Storage
from tests.cluster import Cluster, assert_chain, assert_common_outcome, wait_until
from worker.shard import write_shard

pytestmark = pytest.mark.faults
Tell = Callable[[str, JobStatus], None]
SMALL = ("--job", "job", "--no-train", "--shard-images", "4")
TINY = ("--image-size", "64", "--model", "nano", "--max-drop", "100", "--epochs", "1")
HURT = "train-00003-of-00008"


def give_up(cluster: Cluster, shard: str) -> None:
    """Write that `shard` was tried too often, as the reconciler does."""
    job = load_job(cluster.storage(), "job")
    note = note_of(job, shard=shard, attempts=5, reason="disk full")
    cluster.storage().write(JobPaths("job").failure(shard), note)


def flip_a_byte(storage: Storage, key: str) -> None:
    content = bytearray(storage.read(key))
    content[len(content) // 2] ^= 1
    storage.write(key, bytes(content))


def replace_in(storage: Storage, key: str, old: str, new: str) -> None:
    storage.write(key, storage.read(key).decode().replace(old, new, 1).encode())


def test_a_retry_in_the_moment_of_finalization_is_not_lost(cluster: Cluster, small_voc: Path, tell: Tell) -> None:
    marker = cluster.store.parent / "marker"
    cluster.producer("submit", str(small_voc), *SMALL)
    give_up(cluster, HURT)
    service = cluster.serve(VOC_FAULT=f"freeze/job:before_manifest@{marker}")
    cluster.worker()
    wait_until(
        lambda: marker.exists() and psutil.Process(service.pid).status() == psutil.STATUS_STOPPED, 60, "it finalizes"
    )
    assert "1 failed shard is queued again" in cluster.producer("retry", "job").stdout
    os.kill(service.pid, signal.SIGCONT)
    wait_until(lambda: cluster.status("job").done == cluster.status("job").shards, 60, "the shard is done")
    status = cluster.wait_for("job")
    assert assert_common_outcome(cluster, "job").failed == ()
    assert_chain(cluster, "job")
    tell("retry while the job was being finalized", status)


def test_a_shard_that_is_failed_and_done_counts_once(cluster: Cluster, small_voc: Path, tell: Tell) -> None:
    cluster.producer("submit", str(small_voc), *SMALL)
    storage, job, ledger = cluster.storage(), load_job(cluster.storage(), "job"), cluster.broker.ledger()
    tasks = [ShardTask.model_validate_json(line) for line in storage.lines(JobPaths("job").shown_plan)]
    give_up(cluster, tasks[0].shard)
    cluster.serve(VOC_LISTING_S="600")
    wait_until(lambda: cluster.under_way(cluster.scope("job")).queued, 30, "the service knows that it was given up")
    for task in tasks[:-1]:
        write_shard(task, job, storage=storage, data_root=cluster.data_root, guard=Unguarded(), attempt=1)
        ledger.mark_done(cluster.scope("job"), [job.ordinal(task.shard)])
    time.sleep(2)  # some rounds of the service
    assert cluster.state("job") == "RUNNING"  # one shard is missing
    cluster.worker()
    status = cluster.wait_for("job")
    assert assert_common_outcome(cluster, "job").failed == ()
    assert (status.done, status.failed) == (status.shards, 0)
    tell("a shard given up whose receipt came after all", status)


def finish(cluster: Cluster, folder: Path, *, listing_s: int) -> Manifest:
    """A finished job, and a service that lists the store every so many seconds."""
    cluster.serve(VOC_LISTING_S=str(listing_s))
    cluster.worker()
    cluster.producer("submit", str(folder), *SMALL)
    cluster.wait_for("job")
    return assert_common_outcome(cluster, "job")


# By the bytes alone; what a listing shows may be mended before a person has typed the next command.
HIDDEN = ("a flipped byte", "other boxes", "other labels", "another manifest")
SHARD = f"jobs/job/shards/{HURT}"
DAMAGES: dict[str, Callable[[Storage], object]] = {
    "a flipped byte": lambda store: flip_a_byte(store, f"{SHARD}.tfrecord"),
    "other boxes": lambda store: flip_a_byte(store, f"{SHARD}.coco.json"),
    "no records": lambda store: store.remove(f"{SHARD}.tfrecord"),
    "no receipt": lambda store: store.remove(f"{SHARD}.json"),
    "an empty receipt": lambda store: store.write(f"{SHARD}.json", b""),
    "other labels": lambda store: store.write("jobs/job/labels.txt", b"cat\n"),
    "another manifest": lambda store: replace_in(store, "jobs/job/manifest.json", '"objects":', '"objects":1'),
    "half a file": lambda store: store.write(f"{SHARD}.tfrecord", store.read(f"{SHARD}.tfrecord")[:100]),
}


@pytest.mark.parametrize(
    ("command", "damage"), [*(("retry", damage) for damage in DAMAGES), ("resume", "a flipped byte")]
)
def test_a_finished_job_that_does_not_hold_is_mended(
    cluster: Cluster, small_voc: Path, tell: Tell, damage: str, command: str
) -> None:
    before = finish(cluster, small_voc, listing_s=600)
    DAMAGES[damage](cluster.storage())
    if damage in HIDDEN:
        assert cluster.producer("doctor", "job", check=False).returncode == 1
    cluster.producer(command, "job", *(["--wait"] if command == "resume" else []))
    status = cluster.wait_for("job")
    assert assert_common_outcome(cluster, "job") == before
    assert_chain(cluster, "job")
    tell(f"{damage} after DONE, then {command}", status)


@pytest.mark.parametrize("damage", ["no records", "no receipt", "half a file"])
def test_what_a_listing_shows_is_mended_by_itself(cluster: Cluster, small_voc: Path, tell: Tell, damage: str) -> None:
    before = finish(cluster, small_voc, listing_s=1)
    DAMAGES[damage](cluster.storage())
    assert cluster.state("job") == "RUNNING"
    status = cluster.wait_for("job")
    assert assert_common_outcome(cluster, "job") == before
    assert_chain(cluster, "job")
    tell(f"{damage} after DONE", status)


@pytest.mark.timeout(600)
def test_a_byte_that_flips_before_the_training_costs_its_shard_only(
    cluster: Cluster, small_voc: Path, tell: Tell
) -> None:
    cluster.settings["VOC_RUN_LEASE_S"] = "10"
    cluster.serve()
    cluster.worker()
    cluster.producer("submit", str(small_voc), "--job", "job", "--shard-images", "4", *TINY)
    cluster.wait_for("job", states=("TRAINING",))
    flip_a_byte(cluster.storage(), "jobs/job/shards/train-00000-of-00008.tfrecord")
    cluster.trainer()
    status = cluster.wait_for("job", timeout_s=300)
    assert_common_outcome(cluster, "job")
    assert_chain(cluster, "job")
    assert cluster.events("serve", "shards_done_again")
    # And a model whose file is not the one that was released does not pass for it.
    flip_a_byte(cluster.storage(), "runs/job/model_int8.tflite")
    told = cluster.producer("doctor", "job", "--json", check=False)
    assert told.returncode == 1
    wrong = [check for check in json.loads(told.stdout) if not check["is_well"]]
    assert [check["name"] for check in wrong] == ["trained"]
    assert "model_int8.tflite: its bytes are not those that run.json says" in wrong[0]["found"]
    assert "the model is released again" in cluster.producer("retry", "job").stdout
    status = cluster.wait_for("job", timeout_s=300)
    assert_chain(cluster, "job")
    tell("a byte flipped between finalization and training", status)


def test_a_retry_while_redis_is_away_is_tried(cluster: Cluster, copied_voc: Callable[[], Path], tell: Tell) -> None:
    cluster.settings["VOC_ATTEMPTS"] = "2"
    folder = copied_voc()
    cluster.data_root = folder.parent
    cluster.producer("submit", str(folder), "--job", "job", "--no-train", "--shard-images", "20")
    moved = folder.rename(folder.with_name("unmounted"))
    cluster.serve(VOC_LISTING_S="2")
    cluster.worker()
    cluster.wait_for("job", ("FAILED",))
    moved.rename(folder)
    cluster.broker.kill()
    cluster.producer("retry", "job")
    cluster.broker.start()
    status = cluster.wait_for("job")
    assert_common_outcome(cluster, "job")
    tell("retry while Redis was away, which remembers every attempt", status)
