"""Why nothing moves, and what to type: told by `status` from a real broker, and by a `submit --wait` that waits."""

import json
import os
import pty
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from producer.doctor.setup import CheckResult, check_setup
from producer.settings import ProducerSettings
from shared.jobs.identity import make_note
from shared.jobs.paths import RunPaths
from shared.leasing.scopes import Demand
from tests.cluster import REPOSITORY, Cluster, kill_tree, wait_until

DATA = ("--image-size", "64", "--shard-images", "16")
TINY = (*DATA, "--model", "nano", "--epochs", "1")


def status(cluster: Cluster, job: str) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads(cluster.producer("status", job, "--json").stdout)
    return facts


def test_each_thing_that_is_missing_is_named_with_the_command_that_starts_it(cluster: Cluster, small_voc: Path) -> None:
    for job in ("one", "two"):
        cluster.producer("submit", str(small_voc), "--job", job, *TINY)
    asked = status(cluster, "one")
    assert (asked["state"], asked["why"]) == ("SUBMITTED", "0 of 5 shards done, no `serve` is running")
    assert asked["next"].endswith("voc2tflite serve")

    cluster.serve()
    wait_until(lambda: "worker" in (status(cluster, "one")["why"] or ""), 60, "the service makes rounds")
    waiting = status(cluster, "one")
    assert waiting["why"] == "0 of 5 shards done, waits for a worker (0 alive)"
    assert "worker.app" in waiting["next"]

    cluster.worker()
    cluster.wait_for("one", states=("TRAINING",))
    cluster.wait_for("two", states=("TRAINING",))
    wait_until(lambda: "in line" in (status(cluster, "two")["why"] or ""), 30, "both runs are queued")
    standings = {job: status(cluster, job) for job in ("one", "two")}
    assert {each["state"] for each in standings.values()} == {"FINALIZED"}
    places = {each["why"] for each in standings.values()}
    assert places == {f"waits for a trainer (0 alive, {place} in line)" for place in ("1st", "2nd")}
    assert all("trainer.app" in each["next"] for each in standings.values())
    listed = cluster.producer("list", COLUMNS="80").stdout
    assert "waits for a trainer (0 alive, 2nd in line)" in listed

    first, second = sorted(standings, key=lambda job: str(standings[job]["why"]))
    cluster.producer("cancel", first)
    assert status(cluster, second)["why"] == "waits for a trainer (0 alive, 1st in line)"
    cluster.producer("rm", first, "--yes")
    assert status(cluster, second)["why"] == "waits for a trainer (0 alive, 1st in line)"


@pytest.mark.parametrize(
    ("age_s", "held", "state", "why"),
    [
        (0, True, "TRAINING", None),
        (12, True, "TRAINING", None),
        (0, False, "INTERRUPTED", "interrupted at step 992 of 3024 (no checkpoint yet, it begins again), "),
        (60, True, "INTERRUPTED", "interrupted at step 992 of 3024 (no checkpoint yet, it begins again), "),
    ],
    ids=["at work", "silent for 12 s", "told that it ended", "silent for a minute"],
)
def test_training_means_that_somebody_trains(
    cluster: Cluster, small_voc: Path, age_s: float, held: bool, state: str, why: str | None
) -> None:
    cluster.serve()
    cluster.worker()
    cluster.producer("submit", str(small_voc), "--job", "job", *TINY)
    cluster.wait_for("job", states=("TRAINING",))
    facts = {"worker": "train-1@host", "pid": 7, "since": 1.0, "phase": "train", "step": 992, "steps": 3024}
    incarnation = json.loads((cluster.store / "jobs/job/job.json").read_text())["incarnation"]

    def be_heard() -> None:
        note = make_note(incarnation, **facts, at=time.time() - age_s, held=held)
        cluster.storage().write(RunPaths("job").progress, note)

    def is_told() -> bool:
        be_heard()
        return "last heard" in cluster.producer("status", "job").stdout

    if age_s == 12:
        wait_until(is_told, 60, "status tells when it was heard")  # a busy machine may look after 15 s, too late
        return
    be_heard()
    seen = status(cluster, "job")
    assert seen["state"] == state
    assert (seen["why"] or "").startswith(why or "")
    without = cluster.producer("status", "job", "--json", VOC_BROKER_URL="")
    alone = json.loads(without.stdout)
    assert alone["state"] == state
    assert alone["why"] == (why and f"{why}nobody works on it")
    if state == "INTERRUPTED":
        assert "resume job" in alone["next"]


def test_a_wait_on_a_fresh_redis_says_what_it_waits_for(cluster: Cluster, small_voc: Path) -> None:
    """A store with an unfinished job, and a Redis that knows nothing: the first round waits for leases to run out."""
    cluster.producer("submit", str(small_voc), "--job", "before", *DATA, "--no-train")
    asked = ["submit", str(small_voc), "--job", "job", *DATA, "--no-train", "--wait"]
    with open(cluster.store.parent / "wait.log", "w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "producer", *asked], env=cluster.environment("producer"), stdout=log, stderr=log
        )
    try:
        wait_until(lambda: "waiting: " in cluster.text("wait"), 12, "it says that it waits")
        assert "Redis is new or was emptied" in cluster.text("wait")
        wait_until(
            lambda: "waits for a worker (0 alive)" in cluster.text("wait"), 40, "it says that no worker is there"
        )
    finally:
        process.kill()
        process.wait()


def test_a_service_says_what_it_serves_and_that_another_one_leads(cluster: Cluster) -> None:
    first = cluster.serve()
    wait_until(lambda: cluster.events("serve", "serving"), 20, "the first one serves")
    (told,) = cluster.events("serve", "serving")
    assert told["store"] == str(cluster.store)
    assert "redis" in told["broker"] or "unix" in told["broker"]
    wait_until(cluster.broker.ledger().is_led, 20, "it leads")
    cluster.start("second", ["-m", "producer", "serve"], user="producer", VOC_TICK_S="0.3")
    wait_until(lambda: cluster.events("second", "another_serve_leads"), 20, "the second one waits")
    (waits,) = cluster.events("second", "another_serve_leads")
    assert waits["leader"] == f"{socket.gethostname()}, process {first.pid}"
    assert not cluster.events("serve", "redis_lost")
    refused = cluster.producer("serve", "--store", "/proc/voc", check=False)
    assert (refused.returncode, refused.stderr.count("error: ")) == (1, 1), refused.stderr


def at_a_terminal(voc: Path, store: Path, answer: str, *options: str) -> tuple[int, str]:
    """`submit` with a terminal of 80 columns for its input and output; its exit code, and all that was shown."""
    terminal, end = pty.openpty()
    command = [sys.executable, "-m", "producer", "submit", str(voc), "--store", str(store), "--no-train", *options]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "VOC_BROKER_URL": "", "COLUMNS": "80"}
    process = subprocess.Popen(command, env=environment, stdin=end, stdout=end, stderr=end, start_new_session=True)
    os.close(end)
    os.write(terminal, answer.encode())
    shown = b""
    while True:
        try:
            shown += os.read(terminal, 65536)
        except OSError:  # the other end is closed
            break
    os.close(terminal)
    return process.wait(), shown.decode(errors="replace")


def test_a_new_job_that_runs_here_for_want_of_a_broker_is_asked_about_at_a_terminal(
    small_voc: Path, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    code, shown = at_a_terminal(small_voc, store, "n\n", "--job", "job")
    assert code == 1
    assert "job job: 40 photos with 3 classes → shards, no training" in shown
    assert "it runs here, on this machine, because no broker is set (VOC_BROKER_URL)" in shown
    assert "Go on?" in shown
    assert not (store / "jobs").exists()
    for answer, options in (("", ("--yes",)), ("", ("--local",))):
        code, shown = at_a_terminal(small_voc, store, answer, "--job", f"job{options[0]}", *options)
        assert code == 0, shown
        assert "Go on?" not in shown
    code, shown = at_a_terminal(small_voc, store, "y\n", "--job", "job")
    assert (code, "Go on?" in shown) == (0, True)
    code, shown = at_a_terminal(small_voc, store, "", "--job", "job")  # known: the same command goes on unasked
    assert (code, "Go on?" in shown) == (0, False)


def test_doctor_knows_a_service_that_lets_old_leases_run_out(cluster: Cluster, tmp_path: Path) -> None:
    settings = ProducerSettings(broker_url=SecretStr(cluster.broker.url), store=str(tmp_path), data_root=str(tmp_path))

    def service() -> CheckResult:
        return next(check for check in check_setup(settings) if check.name == "service")

    assert not service().is_well
    assert "start it: " in service().advice
    assert cluster.broker.ledger().lead("somebody", 60)
    assert service().is_well
    assert "waits until old leases have run out (VOC_LEASE_S)" in service().found
    cluster.broker.ledger().note_round(Demand(shards=0, runs=0))
    assert service().is_well
    assert service().found.endswith("s ago, by somebody")
    cluster.broker.ledger().client.delete("voc:leader")  # it ended a moment ago
    assert not service().is_well
    assert service().found.endswith("s ago, and none is running now")


def test_two_stores_on_one_redis_are_told_that_each_needs_its_own(cluster: Cluster, small_voc: Path) -> None:
    """One service leads on a Redis; the other store's jobs would wait for workers that are there, and never come."""
    cluster.leading_serve()
    other = Cluster(broker=cluster.broker, store=cluster.store.parent / "other/store", data_root=cluster.data_root)
    try:
        stranger = other.worker()
        other.serve()
        wait_until(lambda: other.events("serve", "another_serve_leads"), 30, "the other store's service waits")
        (waits,) = other.events("serve", "another_serve_leads")
        assert "give each store a Redis of its own" in waits["hint"]
        for each in (cluster, other):
            each.producer("submit", str(small_voc), "--job", "job", *DATA, "--no-train")
        wait_until(lambda: "does not see this job" in str(status(other, "job")["why"]), 40, "it says why")
        told = status(other, "job")
        assert told["why"].startswith(f"0 of 5 shards done, the service that leads ({socket.gethostname()}, process ")
        assert told["why"].endswith("serves another store, and each store needs a Redis of its own (VOC_BROKER_URL)")
        wait_until(lambda: other.events("worker", "message_refused"), 40, "a worker meets the first store's hint")
        reasons = {line["reason"] for line in other.events("worker", "message_refused")}
        assert all("or is of another store, which needs a Redis of its own" in reason for reason in reasons), reasons
        kill_tree(stranger.pid)  # what it took from the queue is sent again
        cluster.worker()
        cluster.wait_for("job")
        assert other.state("job") == "SUBMITTED"
    finally:
        other.stop()
