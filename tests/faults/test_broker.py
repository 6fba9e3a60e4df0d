"""Rows 6, 7, 16, 18 and 19 of docs/faults.md: a broker that is killed, wiped, doubled, and a cancel."""

import json
import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from producer.reconcile.dispatch import send_shard
from producer.state.status import JobStatus
from producer.state.stored import load_job
from shared.broker import SHARD_TASK, celery_app
from shared.broker import Broker as Sender
from shared.jobs.job import ShardTask
from shared.leasing.scopes import SHARD_QUEUE
from tests.cluster import Cluster, assert_common_outcome, children, wait_for_progress, wait_until
from tests.hostile import hostile_messages
from tests.tiny import make_tiny_voc

pytestmark = pytest.mark.faults
Tell = Callable[[str, JobStatus], None]


# Slows a worker down without a sleep in the product: many tiny shards.
MANY = ("--no-train", "--shard-images", "1")


def test_redis_killed_five_times_on_its_file(cluster: Cluster, tmp_path: Path, tell: Tell) -> None:
    folder = make_tiny_voc(tmp_path / "tiny", 600)
    cluster.data_root = folder
    cluster.serve()
    cluster.worker(slots=2)
    wait_until(lambda: cluster.broker.ledger().workers(), 30, "the worker is there")
    cluster.producer("submit", str(folder), "--job", "job", *MANY)
    gaps = []
    for kill in range(5):
        wait_for_progress(cluster, 2 * kill)
        cluster.broker.kill()
        time.sleep(0.5)
        cluster.broker.start()
        gaps.append(wait_for_progress(cluster, cluster.status("job").done))
    status = cluster.wait_for("job")
    assert_common_outcome(cluster, "job")
    assert max(gaps) < 10
    tell(f"killed Redis 5 times, consuming again after at most {max(gaps):.1f} s", status)


def test_redis_killed_before_a_message_of_every_slot_is_acknowledged(
    cluster: Cluster, small_voc: Path, tell: Tell
) -> None:
    """Messages that cannot be acknowledged any more must not use up what a worker may hold: it would wait for ever."""
    cluster.serve()
    worker = cluster.worker(slots=2)
    ledger = cluster.broker.ledger()
    wait_until(ledger.workers, 30, "the worker is there")
    slots = children(worker.pid)
    for pid in slots:
        os.kill(pid, signal.SIGSTOP)
    cluster.producer("submit", str(small_voc), "--job", "job", *MANY)
    # An acknowledgement is sent when a slot accepts its message, which a stopped one does not.
    wait_until(lambda: ledger.client.hlen("shards.unacked") == len(slots), 30, "each slot was given a message")
    cluster.broker.kill()
    for pid in slots:
        os.kill(pid, signal.SIGCONT)
    wait_until(lambda: cluster.text("worker").count("Couldn't ack") == len(slots), 30, "no slot can acknowledge")
    cluster.broker.start()
    took = wait_for_progress(cluster, len(slots))
    status = cluster.wait_for("job")
    assert_common_outcome(cluster, "job")
    assert took < 10
    tell(f"killed Redis between {len(slots)} messages and their acknowledgement, consuming after {took:.1f} s", status)


def test_redis_out_of_memory_only_delays_the_job(cluster: Cluster, tmp_path: Path, tell: Tell) -> None:
    folder = make_tiny_voc(tmp_path / "tiny", 200)
    cluster.data_root = folder
    service, worker = cluster.serve(), cluster.worker(slots=2)
    ledger = cluster.broker.ledger()
    wait_until(ledger.workers, 30, "the worker is there")
    cluster.producer("submit", str(folder), "--job", "job", *MANY)
    wait_for_progress(cluster, 10)
    ledger.client.config_set("maxmemory", 1)
    wait_until(lambda: cluster.events("serve", "redis_unreachable"), 30, "Redis refuses")
    wait_until(lambda: cluster.events("worker", "heartbeat_not_written"), 60, "the worker cannot write its heartbeat")
    done = cluster.status("job").done
    ledger.client.config_set("maxmemory", 0)
    ended = worker.poll() is not None
    if ended:
        cluster.worker(slots=2)
    status = cluster.wait_for("job")
    assert_common_outcome(cluster, "job")
    assert service.poll() is None
    tell(f"Redis refused every write at {done} shards{', Celery ended its worker' if ended else ''}", status)


@pytest.mark.parametrize("how", ["flushall", "volume lost"])
def test_redis_wiped_three_times(cluster: Cluster, tmp_path: Path, tell: Tell, how: str) -> None:
    folder = make_tiny_voc(tmp_path / "tiny", 400)
    cluster.data_root = folder
    cluster.serve()
    cluster.worker(slots=2)
    wait_until(lambda: cluster.broker.ledger().workers(), 30, "the worker is there")
    cluster.producer("submit", str(folder), "--job", "cancelled", *MANY)
    cluster.producer("cancel", "cancelled")
    cluster.producer("submit", str(folder), "--job", "job", *MANY)
    for wipe in range(3):
        wait_for_progress(cluster, 3 * wipe)
        if how == "flushall":
            cluster.broker.ledger().client.flushall()
        else:
            cluster.broker.kill(with_volume=True)
            cluster.broker.start()
    status = cluster.wait_for("job")
    assert_common_outcome(cluster, "job")
    assert cluster.state("cancelled") == "CANCELLED"
    assert cluster.status("cancelled").done < cluster.status("cancelled").shards
    tell(f"wiped Redis 3 times ({how})", status)


def test_cancel_with_a_thousand_shards_pending_stops_every_claim(cluster: Cluster, tmp_path: Path, tell: Tell) -> None:
    folder = make_tiny_voc(tmp_path / "tiny", 1000)
    cluster.data_root = folder
    cluster.serve()
    cluster.worker(slots=2)
    cluster.producer("submit", str(folder), "--job", "job", *MANY)
    wait_until(lambda: cluster.status("job").done, 30, "a shard is done")
    cluster.producer("cancel", "job")
    time.sleep(5)
    done = cluster.status("job").done
    time.sleep(3)
    status = cluster.status("job")
    assert status.state == "CANCELLED"
    assert status.done == done < status.shards == 1000
    tell(f"cancelled with {status.shards - done} shards pending", status)


def test_cancelled_job_goes_on_with_what_is_missing(cluster: Cluster, small_voc: Path, tell: Tell) -> None:
    cluster.producer("submit", str(small_voc), "--job", "job", *MANY)
    cluster.producer("cancel", "job")
    cluster.serve()
    cluster.worker(slots=2)
    wait_until(lambda: cluster.broker.ledger().workers(), 30, "the worker is there")
    time.sleep(2)
    assert cluster.status("job").done == 0
    cluster.producer("retry", "job")
    status = cluster.wait_for("job")
    assert_common_outcome(cluster, "job")
    tell("cancelled before its first shard, retried", status)


def test_every_message_delivered_twice_has_no_double_effect(cluster: Cluster, small_voc: Path, tell: Tell) -> None:
    cluster.serve()
    cluster.producer("submit", str(small_voc), "--job", "job", "--no-train", "--shard-images", "4")
    storage, ledger, sender = cluster.storage(), cluster.broker.ledger(), Sender(cluster.broker.url)
    for line in storage.lines("jobs/job/plan.jsonl"):
        for _ in range(2):
            send_shard(sender, ledger, ShardTask.model_validate_json(line))
    cluster.worker(name="one")
    cluster.worker(name="two")
    status = cluster.wait_for("job")
    assert_common_outcome(cluster, "job")
    assert status.attempts == status.shards == len(load_job(storage, "job").shards)
    written = cluster.events("one", "shard_written") + cluster.events("two", "shard_written")
    assert len(written) == status.shards
    tell("every message three times", status)


def test_small_job_is_not_starved_by_one_of_100_000_pictures(
    cluster: Cluster, small_voc: Path, tmp_path: Path, tell: Tell
) -> None:
    folder = make_tiny_voc(tmp_path / "large", 100_000, annotated=1000)
    cluster.data_root = tmp_path
    shutil.copytree(small_voc, tmp_path / "small")
    cluster.serve()
    cluster.producer("submit", str(folder), "--job", "large", "--no-train", "--background", "orphans")
    assert cluster.status("large").images == 100_000
    cluster.worker()
    wait_until(lambda: cluster.status("large").done, 60, "the large job has begun")
    cluster.producer("submit", str(tmp_path / "small"), "--job", "small", "--no-train")
    status = cluster.wait_for("small")
    large = cluster.status("large")
    assert large.done < large.shards / 2
    tell(f"beside it one of 100,000 pictures stood at {large.done}/{large.shards} shards", status)


def test_hostile_messages_are_refused_and_the_worker_goes_on(cluster: Cluster, small_voc: Path, tell: Tell) -> None:
    cluster.producer("submit", str(small_voc), "--job", "job", "--no-train", "--shard-images", "4")
    line = json.loads(next(cluster.storage().lines("jobs/job/plan.jsonl")))
    wrong: list[object] = ["x", 1.5, None, [], -1]
    messages = [*hostile_messages(line), *({**line, "index": value} for value in wrong)]
    worker = cluster.worker()
    wait_until(cluster.broker.ledger().workers, 60, "the worker is there")
    app = celery_app("hostile", cluster.broker.url, SHARD_QUEUE)
    for message in messages:
        app.send_task(SHARD_TASK, args=[message], queue=SHARD_QUEUE)
    # Not for our task at all: too many arguments, unknown to us, code instead of JSON.
    app.send_task(SHARD_TASK, args=[1, 2, 3], queue=SHARD_QUEUE)
    app.send_task("os.system", args=["true"], queue=SHARD_QUEUE)
    client = cluster.broker.ledger().client
    app.send_task("os.system", args=["true"], queue="aside")
    envelope = json.loads(client.lpop("aside"))
    client.lpush(SHARD_QUEUE, json.dumps({**envelope, "content-type": "application/x-python-serialize"}))
    cluster.serve()
    status = cluster.wait_for("job")
    assert_common_outcome(cluster, "job")
    assert len(cluster.events("worker", "message_refused")) == len(messages)
    assert worker.poll() is None
    tell(f"{len(messages)} hostile tasks, one with 3 arguments, one unknown, one pickled", status)
