"""From a folder to a manifest with a real broker and real workers, also when they are killed."""

import json
import os
import signal
import tempfile
from pathlib import Path

from shared.broker import SHARD_TASK, celery_app
from shared.leasing.scopes import SHARD_QUEUE
from tests.cluster import Cluster, assert_common_outcome, children, wait_until
from tests.hostile import hostile_messages


def submit(cluster: Cluster, folder: Path, job: str = "job", *options: str) -> None:
    cluster.producer("submit", str(folder), "--job", job, "--no-train", "--shard-images", "4", *options)


def test_job_is_done_by_two_workers_and_every_pair_is_in_one_shard(cluster: Cluster, small_voc: Path) -> None:
    cluster.serve()
    cluster.worker(name="one")
    cluster.worker(name="two")
    wait_until(lambda: len(cluster.broker.ledger().workers()) == 2, 60, "both workers are there")
    submit(cluster, small_voc)
    cluster.wait_for("job")
    manifest = assert_common_outcome(cluster, "job")
    assert sum(manifest.examples(split) for split in manifest.splits) == 40
    assert cluster.events("one", "shard_written")
    assert cluster.events("two", "shard_written")


def test_submitting_the_same_again_is_recognised_and_other_options_are_refused(
    cluster: Cluster, small_voc: Path
) -> None:
    submit(cluster, small_voc)
    again = cluster.producer("submit", str(small_voc), "--job", "job", "--no-train", "--shard-images", "4")
    assert "known already" in again.stderr
    other = cluster.producer("submit", str(small_voc), "--job", "job", "--no-train", check=False)
    assert other.returncode == 1
    assert "never overwritten" in other.stderr


def test_killed_child_and_killed_parent_cost_a_lease_and_nothing_else(cluster: Cluster, small_voc: Path) -> None:
    cluster.settings["VOC_LEASE_S"] = "3"
    cluster.settings["VOC_FAULT"] = f"shard:before_rename@{cluster.store.parent / 'marker'}"
    cluster.serve()
    parent = cluster.worker(name="victim", slots=2)
    submit(cluster, small_voc)
    wait_until((cluster.store.parent / "marker").exists, 30, "a child has killed itself")
    wait_until(lambda: cluster.status("job").done >= 2, 30, "two shards are done")
    for pid in children(parent.pid):
        os.kill(pid, signal.SIGKILL)
    parent.kill()
    cluster.worker(name="heir")
    status = cluster.wait_for("job")
    assert_common_outcome(cluster, "job")
    assert (status.attempts or 0) > status.shards


def test_nobody_elses_file_stops_a_worker(cluster: Cluster, small_voc: Path) -> None:
    cluster.serve()
    worker = cluster.worker()
    foreign = Path(tempfile.gettempdir(), f"voc-{worker.pid}.stop")
    foreign.write_text("0")
    try:
        cluster.producer("submit", str(small_voc), "--job", "job", "--no-train", "--shard-images", "4")
        cluster.wait_for("job")
    finally:
        foreign.unlink()
    assert not cluster.events("worker", "shard_given_back")
    assert cluster.status("job").attempts == cluster.status("job").shards


def test_message_that_is_not_of_the_plan_is_refused_and_the_worker_goes_on(cluster: Cluster, small_voc: Path) -> None:
    cluster.settings["VOC_LEASE_S"] = "2"
    submit(cluster, small_voc)
    messages = hostile_messages(json.loads(next(cluster.storage().lines("jobs/job/plan.jsonl"))))
    app = celery_app("hostile", cluster.broker.url, SHARD_QUEUE)
    for message in messages:
        app.send_task(SHARD_TASK, args=[message], queue=SHARD_QUEUE)
    cluster.worker()
    cluster.serve()
    cluster.wait_for("job")
    assert_common_outcome(cluster, "job")
    assert len(cluster.events("worker", "message_refused")) == len(messages)
