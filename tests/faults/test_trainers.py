"""Rows 8, 9, 10 and 14 of docs/faults.md: a trainer that is killed, disconnected, doubled and stopped."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from producer.state.status import JobStatus
from shared.jobs.paths import RunPaths
from tests.cluster import Cluster, GuardedBroker, assert_common_outcome, children, wait_until
from tests.faults.conftest import LEASE_S
from trainer.audit.fold_detections import unpack

pytestmark = [pytest.mark.faults, pytest.mark.timeout(900)]
RUN_LEASE_S = 10.0
Tell = Callable[[str, JobStatus], None]
TINY = ("--image-size", "64", "--model", "nano", "--max-drop", "100")


@pytest.fixture
def sharded(broker_folder: Path, tmp_path: Path, small_voc: Path, store_url: str) -> Iterator[Cluster]:
    """A cluster with the service and a worker, each service as its own Redis user, and short leases of runs."""
    broker = GuardedBroker(broker_folder)
    broker.start()
    made = Cluster(broker=broker, store=tmp_path / "store", data_root=small_voc.parent, url=store_url)
    # The converter holds the interpreter for seconds on a busy machine: a run's lease must be longer than that.
    made.settings |= {"VOC_LEASE_S": str(LEASE_S), "VOC_RUN_LEASE_S": str(RUN_LEASE_S)}
    made.serve()
    made.worker()
    yield made
    made.stop()
    denied = broker.denied()
    broker.stop()
    assert denied == []


def train(cluster: Cluster, folder: Path, job: str, epochs: int) -> None:
    cluster.producer("submit", str(folder), "--job", job, *TINY, "--epochs", str(epochs))


def run_of(cluster: Cluster, job: str) -> dict[str, Any]:
    """Who works on the job's run and how far, as the ledger has it."""
    return cluster.status(job).run or {}


def steps_done(cluster: Cluster, job: str) -> int:
    """The training steps that the ledger shows for the job's run."""
    run = run_of(cluster, job)
    return int(run.get("step", 0)) if run.get("phase") == "train" else 0


def is_held_by(cluster: Cluster, job: str, trainer: "subprocess.Popen[bytes]") -> bool:
    return str(run_of(cluster, job).get("worker", "")).endswith(f"-{trainer.pid}")


def test_stopped_then_killed_trainer_is_followed_and_the_run_resumes(
    sharded: Cluster, small_voc: Path, tell: Tell
) -> None:
    """Rows 9 and 14: asked to stop in training; its heir killed in training; the heir's heir finishes."""
    ledger = sharded.broker.ledger()
    train(sharded, small_voc, "job", epochs=40)
    leaver = sharded.trainer(name="leaver")
    wait_until(lambda: sharded.events("leaver", "epoch"), 300, "the run trains")
    leaver.terminate()
    leaver.wait(60)
    assert sharded.events("leaver", "run_given_back")
    saved = sharded.events("leaver", "checkpoint_saved")[-1]["step"]
    assert not sharded.under_way(sharded.run_scope("job")).attempts.get("run")
    heir = sharded.trainer(name="heir")
    wait_until(lambda: sharded.events("heir", "training_resumed"), 300, "the heir has resumed")
    last = sharded.trainer(name="last")
    wait_until(lambda: len(ledger.workers()) == 3, 60, "a worker and two trainers are there")
    killed_at = time.monotonic()
    for pid in [*children(heir.pid), heir.pid]:
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: is_held_by(sharded, "job", last), 60, "the last has claimed the run")
    took = time.monotonic() - killed_at
    assert took < RUN_LEASE_S + 5, took
    status = sharded.wait_for("job", timeout_s=400)
    assert_common_outcome(sharded, "job")
    resumed = [sharded.events(name, "training_resumed")[0]["step"] for name in ("heir", "last")]
    assert resumed[0] == saved > 0
    assert resumed[1] == (sharded.events("heir", "checkpoint_saved") or [{"step": saved}])[-1]["step"]
    tell(
        f"SIGTERM: saved and resumed at step {saved}; SIGKILL: claimed in {took:.1f} s, resumed at {resumed[1]}", status
    )


def test_cut_connections_a_wiped_redis_and_a_second_trainer_disturb_no_run(
    sharded: Cluster, small_voc: Path, tell: Tell
) -> None:
    """Rows 7, 8 and 10."""
    trainers = ["one", "two"]
    for name in trainers:
        sharded.trainer(name=name)
    train(sharded, small_voc, "long", epochs=4000)
    train(sharded, small_voc, "short", epochs=2)
    wait_until(lambda: steps_done(sharded, "long"), 240, "the long run trains")
    holder = run_of(sharded, "long")["worker"]
    client = sharded.broker.ledger().client
    for kind in ("normal", "pubsub"):
        client.execute_command("CLIENT", "KILL", "TYPE", kind)
    client.flushall()
    short = sharded.wait_for("short", timeout_s=300)
    assert_common_outcome(sharded, "short")
    step = steps_done(sharded, "long")
    wait_until(lambda: steps_done(sharded, "long") > step, 120, "the long run trains on")
    assert run_of(sharded, "long")["worker"] == holder
    sharded.producer("cancel", "long")
    wait_until(lambda: any(sharded.events(name, "run_left") for name in trainers), 120, "the cancelled run is left")
    done = {name: [line["run"] for line in sharded.events(name, "run_done")] for name in trainers}
    left = {name: [line["run"] for line in sharded.events(name, "run_left")] for name in trainers}
    assert sorted([*done.values()]) == [[], ["short"]]
    assert sorted([*left.values()]) == [[], ["long"]]
    assert not [line for name in trainers for line in sharded.events(name, "training_resumed")]
    tell("CLIENT KILL and FLUSHALL with two trainers and two runs, none started again", short)


def test_killed_trainer_of_an_audit_is_followed_and_every_photo_is_seen_once(sharded: Cluster, small_voc: Path) -> None:
    """Row 9, of a fold: whoever takes it over deals the photos as the one before did."""
    sharded.producer("submit", str(small_voc), "--job", "job", "--image-size", "64", "--no-train", "--wait")
    sharded.producer("audit", "job", "--folds", "2", "--model", "nano", "--epochs", "40", "--no-wait")
    first = sharded.trainer(name="first")
    wait_until(lambda: sharded.events("first", "epoch"), 300, "a fold trains")
    sharded.trainer(name="heir")
    for pid in [*children(first.pid), first.pid]:
        os.kill(pid, signal.SIGKILL)
    storage, runs = sharded.storage(), ["job.fold-1-of-2", "job.fold-2-of-2", "job.audit-2"]
    wait_until(lambda: storage.exists(RunPaths(runs[-1]).run), 600, "the audit is done")
    parts = [unpack(storage.read(RunPaths(name).detections)).keys() for name in runs[:2]]
    assert list(map(len, parts)) == [20, 20]
    assert len(parts[0] | parts[1]) == 40
    wait_until(
        lambda: {line["run"] for line in sharded.events("heir", "run_done")} == set(runs), 60, "the heir did all"
    )
