"""Rows 8, 9, 10 and 14 of FAULTS: a trainer that is killed, disconnected, doubled and stopped."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from producer.state import JobStatus
from tests.cluster import Cluster, GuardedBroker, assert_common_outcome, children, wait_until
from tests.faults.conftest import LEASE_S

pytestmark = pytest.mark.faults
Tell = Callable[[str, JobStatus], None]
TINY = ("--image-size", "64", "--model", "nano", "--max-drop", "100")


@pytest.fixture
def sharded(broker_folder: Path, tmp_path: Path, small_voc: Path) -> Iterator[Cluster]:
    """A cluster with the service and a worker, each service as its own Redis user, and short leases of runs."""
    broker = GuardedBroker(broker_folder)
    broker.start()
    made = Cluster(broker=broker, store=tmp_path / "store", data_root=small_voc.parent)
    # The converter holds the interpreter for seconds on a busy machine: a run's lease must be longer than that.
    made.settings |= {"VOC_LEASE_S": str(LEASE_S), "VOC_RUN_LEASE_S": "10"}
    made.serve()
    made.worker()
    yield made
    made.stop()
    denied = broker.denied()
    broker.stop()
    assert denied == []


def train(cluster: Cluster, folder: Path, job: str = "job", epochs: int = 12) -> None:
    cluster.producer("submit", str(folder), "--job", job, *TINY, "--epochs", str(epochs))


def steps_done(cluster: Cluster, job: str = "job") -> int:
    """The training steps that the ledger shows for the job's run."""
    run = cluster.status(job).run or {}
    return int(run.get("step", 0)) if run.get("phase") == "train" else 0


def test_killed_trainer_is_followed_and_the_run_resumes_from_its_checkpoint(
    sharded: Cluster, small_voc: Path, tell: Tell
) -> None:
    marker = sharded.store.parent / "marker"
    trainer = sharded.trainer(VOC_FAULT=f"run:after_checkpoint@{marker}")
    train(sharded, small_voc, epochs=4)
    wait_until(marker.exists, 200, "the trainer has killed itself after a checkpoint")
    for pid in [*children(trainer.pid), trainer.pid]:
        os.kill(pid, signal.SIGKILL)
    sharded.trainer(name="heir")
    took = wait_until(
        lambda: (sharded.status("job").run or {}).get("worker", "").endswith(str(sharded.processes[-1].pid)),
        60,
        "the heir has claimed the run",
    )
    status = sharded.wait_for("job", timeout_s=240)
    assert_common_outcome(sharded, "job")
    resumed = sharded.events("heir", "training_resumed")
    assert len(resumed) == 1
    assert resumed[0]["step"] > 0
    tell(f"killed the trainer, claimed again after {took:.1f} s, resumed at step {resumed[0]['step']}", status)


def test_cut_connections_and_a_second_trainer_disturb_no_run(sharded: Cluster, small_voc: Path, tell: Tell) -> None:
    sharded.trainer(name="one")
    sharded.trainer(name="two")
    train(sharded, small_voc, "first")
    train(sharded, small_voc, "second", epochs=2)
    wait_until(lambda: steps_done(sharded, "first") or steps_done(sharded, "second"), 200, "a run trains")
    for kind in ("normal", "pubsub"):
        sharded.broker.ledger().client.execute_command("CLIENT", "KILL", "TYPE", kind)
    first, second = (sharded.wait_for(job, timeout_s=240) for job in ("first", "second"))
    state = [sharded.broker.ledger().read_state(f"run:{job}") for job in ("first", "second")]
    assert [facts["attempts"] for facts in state] == ["1", "1"]
    done = sharded.events("one", "run_done") + sharded.events("two", "run_done")
    assert sorted(line["run"] for line in done) == ["first", "second"]
    assert not sharded.events("one", "training_resumed") + sharded.events("two", "training_resumed")
    tell("CLIENT KILL with two trainers and two runs", first)
    tell("", second)


def test_stopped_trainer_saves_and_gives_its_run_back_uncounted(sharded: Cluster, small_voc: Path, tell: Tell) -> None:
    leaver = sharded.trainer(name="leaver")
    train(sharded, small_voc, epochs=40)
    wait_until(lambda: steps_done(sharded) > 3, 200, "the run trains")
    leaver.terminate()
    leaver.wait(60)
    assert sharded.events("leaver", "run_given_back")
    saved = sharded.events("leaver", "checkpoint_saved")[-1]["step"]
    assert sharded.broker.ledger().under_way("run:job").attempts.get("run", 0) == 0
    sharded.trainer(name="heir")
    wait_until(lambda: sharded.events("heir", "training_resumed"), 120, "the heir has resumed")
    assert sharded.events("heir", "training_resumed")[0]["step"] == saved
    sharded.producer("cancel", "job")
    status = sharded.wait_for("job", ("CANCELLED",))
    wait_until(lambda: sharded.events("heir", "run_left"), 60, "the cancelled run is left")
    tell(f"SIGTERM in training: saved at step {saved}, resumed there, then cancelled", status)
