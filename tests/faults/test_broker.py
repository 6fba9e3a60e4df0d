"""Rows 6, 7, 16, 18 and 19 of FAULTS: a broker that is killed, wiped, doubled, and a cancel."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from producer.feed import send_shard
from producer.state import JobStatus, load_job
from shared.broker import Broker as Sender
from shared.job import ShardTask
from tests.cluster import Cluster, assert_common_outcome, wait_for_progress, wait_until

pytestmark = pytest.mark.faults
Tell = Callable[[str, JobStatus], None]
# Slows a worker down without a sleep in the product: many tiny shards.
MANY = ("--no-train", "--shard-images", "1")


def test_redis_killed_five_times_on_its_file(cluster: Cluster, small_voc: Path, tell: Tell) -> None:
    cluster.serve()
    cluster.worker(slots=2)
    wait_until(lambda: cluster.broker.ledger().workers(), 30, "the worker is there")
    cluster.producer("submit", str(small_voc), "--job", "job", *MANY)
    gaps = []
    for kill in range(5):
        wait_for_progress(cluster, 2 * kill)
        cluster.broker.kill()
        time.sleep(0.5)
        cluster.broker.start()
        before = cluster.status("job").done
        if cluster.state("job") != "DONE":
            gaps.append(wait_for_progress(cluster, before))
    status = cluster.wait_for("job")
    assert_common_outcome(cluster, "job")
    assert max(gaps) < 10
    tell(f"killed Redis 5 times, consuming again after at most {max(gaps):.1f} s", status)


@pytest.mark.parametrize("how", ["flushall", "volume lost"])
def test_redis_wiped_three_times(cluster: Cluster, small_voc: Path, tell: Tell, how: str) -> None:
    cluster.serve()
    cluster.worker(slots=2)
    wait_until(lambda: cluster.broker.ledger().workers(), 30, "the worker is there")
    cluster.producer("submit", str(small_voc), "--job", "cancelled", *MANY)
    cluster.producer("cancel", "cancelled")
    cluster.producer("submit", str(small_voc), "--job", "job", *MANY)
    for wipe in range(3):
        wait_for_progress(cluster, 3 * wipe)
        if how == "flushall":
            cluster.broker.ledger().client.flushall()
        else:
            cluster.broker.kill(with_volume=True)
            cluster.broker.start()
    status = cluster.wait_for("job", timeout_s=90)
    assert_common_outcome(cluster, "job")
    assert cluster.state("cancelled") == "CANCELLED"
    assert cluster.status("cancelled").done < cluster.status("cancelled").shards
    tell(f"wiped Redis 3 times ({how})", status)


def test_cancel_with_many_shards_pending_stops_every_claim(cluster: Cluster, small_voc: Path, tell: Tell) -> None:
    cluster.serve()
    cluster.worker(slots=2)
    cluster.producer("submit", str(small_voc), "--job", "job", *MANY)
    wait_until(lambda: cluster.status("job").done, 30, "a shard is done")
    cluster.producer("cancel", "job")
    time.sleep(1)
    done = cluster.status("job").done
    time.sleep(5)
    status = cluster.status("job")
    assert status.state == "CANCELLED"
    assert status.done == done
    cluster.producer("retry", "job")
    again = cluster.wait_for("job")
    assert_common_outcome(cluster, "job")
    tell(f"cancelled at {done} of {status.shards} shards, retried", again)


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


def test_small_job_is_not_starved_by_a_large_one(cluster: Cluster, small_voc: Path, tell: Tell) -> None:
    cluster.serve()
    cluster.producer("submit", str(small_voc), "--job", "large", *MANY)
    cluster.producer("submit", str(small_voc), "--job", "small", "--no-train", "--shard-images", "16")
    cluster.worker()
    status = cluster.wait_for("small")
    large = cluster.status("large")
    assert large.done < large.shards
    tell(f"beside it the large one stood at {large.done}/{large.shards}", status)
