"""Rows 1 to 5 and 12 to 14 of docs/faults.md: workers that are killed, frozen, poisoned and stopped."""

import os
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from producer.reconcile.dispatch import send_shard
from producer.state.status import JobStatus
from producer.state.stored import load_job
from shared.broker import Broker as Sender
from shared.jobs.identity import read_receipt
from shared.jobs.job import ShardTask
from shared.jobs.paths import JobPaths
from shared.leasing.scopes import SHARD_QUEUE
from tests.cluster import Cluster, assert_common_outcome, children, wait_until
from tests.faults.conftest import LEASE_S

pytestmark = pytest.mark.faults
Tell = Callable[[str, JobStatus], None]
# Instead of the 30 s of VOC_LOST_AFTER_S.
LOST_AFTER_S = 5.0


def submit(cluster: Cluster, folder: Path, job: str = "job", shard_images: int = 4) -> None:
    cluster.producer("submit", str(folder), "--job", job, "--no-train", "--shard-images", str(shard_images))


def is_stopped(pid: int) -> bool:
    """Whether the process was stopped by a signal and not continued."""
    return psutil.Process(pid).status() == psutil.STATUS_STOPPED


def frozen_child(cluster: Cluster, point: str) -> Path:
    """Arm a fault that fires once in all processes together; the marker that it leaves."""
    marker = cluster.store.parent / "marker"
    cluster.settings["VOC_FAULT"] = f"{point}@{marker}"
    return marker


@pytest.mark.parametrize("who", ["child", "parent"])
def test_killed_worker_is_replaced_within_its_lease(cluster: Cluster, small_voc: Path, tell: Tell, who: str) -> None:
    cluster.serve()
    submit(cluster, small_voc)
    victim = cluster.worker(name="victim", VOC_FAULT="poison:loop:shapes")  # works for ever on its first picture
    wait_until(lambda: cluster.status("job").holders, 30, "a shard is held")
    shard = cluster.status("job").holders[0]["shard"]
    cluster.worker(name="heir")
    wait_until(lambda: len(cluster.broker.ledger().workers()) == 2, 30, "the heir is there")
    for pid in children(victim.pid) if who == "child" else []:
        os.kill(pid, signal.SIGKILL)
    victim.kill()
    took = wait_until(lambda: cluster.events("serve", "lease_expired"), LEASE_S + 3, "the lease is over")
    storage = cluster.storage()
    wait_until(lambda: read_receipt(storage, load_job(storage, "job"), shard), 60, "the heir has done it")
    tell(f"killed the {who}, its shard free after {took:.1f} s", cluster.wait_for("job"))
    assert_common_outcome(cluster, "job")


def test_message_lost_between_broker_and_worker_is_sent_again(cluster: Cluster, small_voc: Path, tell: Tell) -> None:
    submit(cluster, small_voc, shard_images=256)
    line = next(cluster.storage().lines(JobPaths("job").shown_plan))
    ledger, task = cluster.broker.ledger(), ShardTask.model_validate_json(line)
    sender = Sender(cluster.broker.url)
    victim = cluster.worker(name="victim")
    wait_until(ledger.workers, 60, "the worker is there")

    def is_lost() -> bool:
        """Whether Redis handed the message to a process that sleeps; its BRPOP of 1 s may just have ended."""
        os.kill(victim.pid, signal.SIGCONT)
        ledger.client.delete(SHARD_QUEUE)
        wait_until(lambda: ledger.client.info("clients")["blocked_clients"], 60, "it waits in BRPOP")
        os.kill(victim.pid, signal.SIGSTOP)
        send_shard(sender, ledger, task)
        return ledger.queue_length(SHARD_QUEUE) == 0

    wait_until(is_lost, 60, "the message is in the gap between Redis and the worker")
    for pid in [*children(victim.pid), victim.pid]:
        os.kill(pid, signal.SIGKILL)
    ledger.set_generation("test")  # nothing was wiped: no time to wait for holders
    cluster.serve(VOC_LOST_AFTER_S=str(LOST_AFTER_S))
    wait_until(lambda: ledger.round_age_s() is not None, 60, "the reconciler has made a round")
    took = wait_until(lambda: cluster.events("serve", "hint_lost"), LOST_AFTER_S + 5, "the loss is noticed")
    cluster.worker(name="heir")
    status = cluster.wait_for("job")
    assert_common_outcome(cluster, "job")
    tell(f"a message lost in the BRPOP gap, sent again after {took:.1f} s (limit {LOST_AFTER_S:.0f} + 5)", status)


@pytest.mark.parametrize(
    "point", ["shard:before_rename", "shard:after_rename", "shard:after_receipt", "shard:after_ledger"]
)
def test_death_at_every_step_of_publishing_doubles_nothing(
    cluster: Cluster, small_voc: Path, tell: Tell, point: str
) -> None:
    marker = frozen_child(cluster, point)
    cluster.serve()
    cluster.worker()
    submit(cluster, small_voc)
    status = cluster.wait_for("job")
    assert marker.exists()
    assert_common_outcome(cluster, "job")
    tell(f"killed at {point}", status)


@pytest.mark.parametrize(
    ("point", "event", "publishes"),
    [
        # It has just been told that the shard is its own; what it wants to rename is cleared by the time it wakes. In
        # a bucket nothing is cleared: it takes the lease that nobody has by now, and writes the same bytes.
        ("shard:before_rename", "shard_failed", 1),
        ("shard:after_rename", "shard_written", 2),
    ],
)
def test_worker_frozen_past_its_lease_changes_nothing(
    cluster: Cluster, small_voc: Path, tell: Tell, point: str, event: str, publishes: int
) -> None:
    event, publishes = ("shard_written", 2) if cluster.url else (event, publishes)
    marker = cluster.store.parent / "marker"
    cluster.serve()
    frozen = cluster.worker(name="frozen", VOC_FAULT=f"freeze/{point}@{marker}")
    submit(cluster, small_voc)
    # The marker comes before the signal: a child that we stopped between the two would stop once more when continued.
    wait_until(lambda: marker.exists() and any(map(is_stopped, children(frozen.pid))), 60, "a child has stopped itself")
    pids = [*children(frozen.pid), frozen.pid]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    cluster.worker(name="heir")
    status = cluster.wait_for("job")
    before = assert_common_outcome(cluster, "job")
    for pid in pids:
        os.kill(pid, signal.SIGCONT)
    wait_until(lambda: cluster.events("frozen", event), 60, "it goes on")
    after = assert_common_outcome(cluster, "job")
    assert before == after
    written = Counter(line["shard"] for name in ("frozen", "heir") for line in cluster.events(name, "shard_written"))
    assert max(written.values()) == publishes
    tell(f"froze {len(pids)} processes at {point} past their lease: {publishes} publishes, the same bytes", status)


@pytest.mark.parametrize("how", ["segv", "memory", "loop"])
def test_poison_picture_is_named_and_the_others_are_written(
    cluster: Cluster, small_voc: Path, tell: Tell, how: str
) -> None:
    cluster.serve()
    # Only the loop is ended by the clock; a machine that stands still for seconds must not make others look like one.
    stall_s = "8" if how == "loop" else "60"
    worker = cluster.worker(VOC_FAULT=f"poison:{how}:shapes_00007", VOC_STALL_S=stall_s, slots=2)
    submit(cluster, small_voc)
    status = cluster.wait_for("job")
    manifest = assert_common_outcome(cluster, "job")
    assert manifest.counters["quarantined"] == 1
    assert "shapes_00007" in cluster.storage().read(JobPaths("job").lint).decode()
    assert (status.attempts or 0) <= status.shards + 4
    assert worker.poll() is None
    tell(f"one picture that is a {how}", status)


def test_picture_that_kills_its_parent_fails_its_shard_only(cluster: Cluster, small_voc: Path, tell: Tell) -> None:
    cluster.settings["VOC_LEASE_S"] = "1.5"
    cluster.serve()
    submit(cluster, small_voc)
    armed = {"VOC_FAULT": "poison:parent:shapes_00007"}
    worker = cluster.worker(slots=2, **armed)

    def again() -> bool:
        nonlocal worker
        if worker.poll() is not None:
            worker = cluster.worker(slots=2, **armed)
        return cluster.state("job") in ("DONE", "FAILED")

    wait_until(again, 200, "the job has an end")
    status = cluster.status("job")
    assert status.done == status.shards - 1
    assert len(status.failures) == 1
    tell("a picture that kills its parent", status)


def test_scaled_down_worker_gives_its_shard_back_uncounted(cluster: Cluster, small_voc: Path, tell: Tell) -> None:
    # So long that within the test no lease expires by itself.
    cluster.settings |= {"VOC_SOFT_STOP_S": "2", "VOC_LEASE_S": "120"}
    cluster.leading_serve()
    leaver = cluster.worker(name="leaver", VOC_FAULT="poison:loop:shapes")
    submit(cluster, small_voc)
    wait_until(lambda: cluster.status("job").holders, 30, "a shard is held")
    leaver.terminate()
    assert leaver.wait(10) is not None
    wait_until(lambda: not cluster.status("job").holders, 10, "the lease is given back, not expired")
    assert not cluster.under_way(cluster.scope("job")).attempts.get("train-00000-of-00008")
    cluster.worker(name="heir")
    status = cluster.wait_for("job")
    assert_common_outcome(cluster, "job")
    assert status.attempts == status.shards
    tell("SIGTERM in the middle of a shard", status)
