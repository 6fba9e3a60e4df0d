"""What `audit` asks for and refuses, and what becomes of its runs before a trainer comes: with a real broker."""

import json
import re
from pathlib import Path

import pytest

from producer.audit.decisions import Decision, Decisions
from shared.jobs.identity import find_job, make_note
from shared.jobs.paths import RunPaths
from shared.leasing.ledger import Ledger
from shared.leasing.scopes import RUN_QUEUE, Demand
from tests.cluster import Cluster, wait_until
from worker.synthetic.shapes import synthesize

DATA = ("--image-size", "64", "--shard-images", "8", "--no-train", "--wait")
QUICK = ("--model", "nano", "--epochs", "1")
FOLDS = ["job.fold-1-of-2", "job.fold-2-of-2"]


@pytest.fixture
def started(cluster: Cluster) -> Cluster:
    cluster.serve()
    cluster.worker()
    return cluster


def states(cluster: Cluster) -> dict[str, str]:
    status = json.loads(cluster.producer("status", "job", "--json").stdout)
    return {run["run"]: run["state"] for run in status["runs"]}


def test_a_cancelled_audit_goes_on_and_one_with_other_options_is_refused(started: Cluster, small_voc: Path) -> None:
    cluster = started
    cluster.producer("submit", str(small_voc), "--job", "job", *DATA)
    cluster.producer("audit", "job", "--folds", "2", *QUICK, "--no-wait")
    assert states(cluster) == dict.fromkeys(["job.audit-2", *FOLDS], "FINALIZED")
    Decisions(cluster.storage(), "job.audit-2").add(Decision(finding="0123456789", answer="wrong", at=1.0))
    other = cluster.producer("audit", "job", "--folds", "2", "--no-wait", check=False)
    assert other.returncode == 1
    assert "` removes that audit with 1 decision made on it" in other.stderr
    assert "was audited with other options (epochs, model)" in other.stderr
    assert "rm job --run job.audit-2" in other.stderr
    cluster.producer("cancel", "job", "--run", "job.audit-2")
    assert set(states(cluster).values()) == {"CANCELLED"}
    ended = cluster.producer("audit", "job", "--folds", "2", *QUICK, check=False)
    assert ended.returncode == 4
    assert "cancelled" in ended.stderr
    assert "retry job --run job.audit-2" in ended.stderr, "one command takes the folds back too"
    unfinished = cluster.producer("audit", "job", "--folds", "2", "--accept", "0.5", "--out", "copy", check=False)
    assert "audit job.audit-2 is not done" in unfinished.stderr
    cluster.producer("retry", "job", "--run", "job.audit-2")
    assert states(cluster) == dict.fromkeys(["job.audit-2", *FOLDS], "FINALIZED")
    cluster.producer("cancel", "job", "--run", FOLDS[0])
    assert states(cluster) == {"job.audit-2": "CANCELLED", FOLDS[0]: "CANCELLED", FOLDS[1]: "FINALIZED"}


def test_trainers_are_not_called_for_a_run_that_waits_for_its_folds(started: Cluster, small_voc: Path) -> None:
    started.producer("submit", str(small_voc), "--job", "job", *DATA)
    started.producer("audit", "job", "--folds", "2", *QUICK, "--no-wait")
    ledger: Ledger = started.broker.ledger()
    wait_until(lambda: len(ledger.queued_ids(RUN_QUEUE)) == 2, 60, "two runs in the queue")
    wait_until(lambda: ledger.demand() == Demand(shards=0, runs=2), 60, "a round that says so")
    assert len(ledger.queued_ids(RUN_QUEUE)) == 2


def test_an_audit_fails_with_the_first_fold_that_does_and_retry_does_both_again(
    started: Cluster, small_voc: Path
) -> None:
    started.producer("submit", str(small_voc), "--job", "job", *DATA)
    started.producer("audit", "job", "--folds", "2", *QUICK, "--no-wait")
    storage = started.storage()
    job = find_job(storage, "job")
    assert job is not None
    note = make_note(job.incarnation, run=FOLDS[1], kind="TrainingError", reason="TrainingError: the loss is nan")
    storage.write(RunPaths(FOLDS[1]).failed, note)
    assert states(started) == {"job.audit-2": "FAILED", FOLDS[0]: "FINALIZED", FOLDS[1]: "FAILED"}
    ended = started.producer("audit", "job", "--folds", "2", *QUICK, check=False)
    assert ended.returncode == 3
    assert "the run failed: TrainingError: the loss is nan" in ended.stderr
    started.producer("retry", "job", "--run", "job.audit-2")
    assert states(started) == dict.fromkeys(["job.audit-2", *FOLDS], "FINALIZED")


def test_sets_that_cannot_be_audited_are_refused_in_one_line(started: Cluster, small_voc: Path) -> None:
    few = small_voc.parent / "few"
    synthesize(few, images=10, seed=1)
    annotation = next(path for path in sorted(few.rglob("*.xml")) if "<bndbox>" in path.read_text())
    annotation.write_text(re.sub(r"<(xmin|xmax|ymin|ymax)>", r"<\1>0.00", annotation.read_text()))
    started.producer("submit", str(few), "--job", "job", *DATA)
    asked = started.producer("audit", "job", "--folds", "5", *QUICK, "--no-wait")
    assert "10 photos: a model learns little from so few; check every finding yourself" in asked.stderr
    assert "the boxes of 1 photo look normalized (0 to 1): mend them first" in asked.stderr
    far = small_voc.parent / "far"
    synthesize(far, images=4, seed=2)
    for xml in far.rglob("*.xml"):
        xml.write_text(xml.read_text().replace("<xmin>", "<xmin>9").replace("<xmax>", "<xmax>99"))
    started.producer("submit", str(far), "--job", "far", *DATA)
    boxless = started.producer("audit", "far", "--folds", "2", check=False)
    assert boxless.returncode == 1
    assert "job 'far': no photo has a box, so there are no labels to audit" in boxless.stderr
    many = started.producer("audit", "job", "--folds", "11", check=False)
    assert many.returncode == 2
    little = small_voc.parent / "little"
    synthesize(little, images=3, seed=1)
    started.producer("submit", str(little), "--job", "little", *DATA)
    fewer = started.producer("audit", "little", "--folds", "4", check=False)
    assert fewer.returncode == 2
    assert "--folds 4: job little has 3 photos, and every fold needs one: `--folds 3` or `--quick`" in fewer.stderr
    assert states(started) == dict.fromkeys(
        [*(f"job.fold-{at}-of-5" for at in range(1, 6)), "job.audit-5"], "FINALIZED"
    )
