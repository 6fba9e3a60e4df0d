"""An audit from the command to a corrected copy that is submitted: by a broker's trainers, and by a local run."""

import csv
import io
import json
import os
import re
import shutil
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from shared.storage import Storage
from tests.cluster import REPOSITORY, Cluster, wait_until
from tests.object_server import ObjectServer, wait_until_older
from trainer.audit.fold_detections import unpack

pytestmark = pytest.mark.whole
DATA = ("--image-size", "64", "--shard-images", "8")
QUICK = ("--model", "nano", "--epochs", "1")
FOLDS = ["job.fold-1-of-2", "job.fold-2-of-2"]


def states(cluster: Cluster) -> dict[str, str]:
    status = json.loads(cluster.producer("status", "job", "--json").stdout)
    return {run["run"]: run["state"] for run in status["runs"]}


def photo_facts(folder: Path) -> dict[str, tuple[int, int, int]]:
    """What tells that somebody touched a file: inode, links, and the time of any change."""
    stats = {path: path.stat() for path in folder.rglob("*") if path.is_file()}
    return {str(path): (stat.st_ino, stat.st_nlink, stat.st_ctime_ns) for path, stat in stats.items()}


def with_a_double(source: Path, folder: Path) -> Path:
    """A copy of a set in which the first object of photo 0 is marked twice: no model is needed to doubt that."""
    shutil.copytree(source, folder)
    (xml,) = folder.rglob("shapes_00000.xml")
    text = xml.read_text()
    first = text[text.index("<object>") : text.index("</object>") + len("</object>")]
    again = re.sub(r"<xmax>(\d+)", lambda found: f"<xmax>{int(found[1]) + 1}", first)
    xml.write_text(text.replace("</annotation>", f"{again}</annotation>"))
    return folder


def test_two_trainers_audit_a_job_and_its_corrected_copy_reuses_the_other_shards(
    cluster: Cluster, small_voc: Path
) -> None:
    cluster.serve()
    cluster.worker()
    voc = with_a_double(small_voc, small_voc.parent / f"doubled-{os.getpid()}")
    before = photo_facts(voc)
    cluster.producer("submit", str(voc), "--job", "job", *DATA, "--no-train", "--wait")
    asked = cluster.producer("audit", "job", "--folds", "2", *QUICK, "--no-wait")
    assert (
        "40 photos → 2 trainings of nano on 20 photos, up to 30 min each, 60 min in all by one trainer" in asked.stderr
    )
    waiting = json.loads(cluster.producer("status", "job", "--run", "job.audit-2", "--json").stdout)
    assert waiting["why"] == "waits for its folds, 0 of 2 done"
    for name in ("one", "two"):
        cluster.trainer(name=name)
    doubts = small_voc.parent / f"doubts-{os.getpid()}"
    again = cluster.producer("audit", "job", "--folds", "2", *QUICK, "--out", str(doubts))
    assert "more likely wrong than right" in again.stdout
    (doubts / "audit.csv").write_text((doubts / "audit.csv").read_text() + "\n")
    shown = cluster.producer("audit", "job", "--folds", "2", *QUICK, "--out", str(doubts))
    assert shown.stdout == again.stdout, "shown again, and what somebody wrote into the table stays"
    assert (doubts / "audit.csv").read_text().endswith("\n\n")
    assert set(states(cluster).values()) == {"DONE"}
    assert_folds_saw_every_photo_once(cluster.storage())
    assert f"job --run job.audit-2: {cluster.store}/runs/job.audit-2/audit.html" in cluster.producer("list").stdout
    shards_of_copy(cluster, doubts)
    assert photo_facts(voc) == before, "the user's own files are not touched"
    checks = json.loads(cluster.producer("doctor", "job", "--json").stdout)
    assert all(check["is_well"] for check in checks)
    assert "and 2 folds with it" in cluster.producer("rm", "job", "--run", "job.audit-2", "--yes").stdout
    assert states(cluster) == {}


def assert_folds_saw_every_photo_once(storage: Storage) -> None:
    parts = [unpack(storage.read(f"runs/{name}/detections.npz")).keys() for name in FOLDS]
    assert list(map(len, parts)) == [20, 20]
    assert len(parts[0] | parts[1]) == 40


def shards_of_copy(cluster: Cluster, doubts: Path) -> None:
    """Accept what is proposed for one photo; its shard alone is written again."""
    with (doubts / "audit.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    first = [row for row in rows if row["kind"] == "double" and row["file"].endswith("shapes_00000.jpg")]
    assert len(first) == 1
    assert (doubts / "proposals" / Path(first[0]["file"]).with_suffix(".xml")).is_file()
    listed = doubts / "accepted.csv"
    listed.write_text("\n".join(["id", "ffffffffff", *(row["id"] for row in first)]))
    copy = doubts.with_name(f"{doubts.name}-copy")
    accept = ("audit", "job", "--folds", "2", "--accept", str(listed), "--out", str(copy))
    told = cluster.producer(*accept, check=False)
    assert told.returncode == 1
    assert f"{listed}: 'ffffffffff' is no finding of job.audit-2: left out" in told.stderr
    assert [line.split()[:2] for line in told.stdout.splitlines()] == [[row["id"], row["file"]] for row in first]
    assert "is not empty" in cluster.producer(*accept, check=False).stderr
    submitted = cluster.producer("submit", str(copy), "--job", "better", *DATA, "--no-train", "--wait")
    shards = json.loads(cluster.producer("status", "better", "--json").stdout)["shards"]
    assert f"{shards - 1} of {shards} shards reused from job; the others not, because photos were" in submitted.stderr
    shutil.rmtree(copy)
    shutil.rmtree(doubts)


def test_a_quick_audit_asks_the_finished_run_and_leaves_out_photos_that_are_gone(
    copied_voc: Callable[[], Path], tmp_path: Path
) -> None:
    voc, store = copied_voc(), tmp_path / "store"
    produced = run_producer(
        "submit", str(voc), "--job", "job", *DATA, *QUICK, "--max-drop", "100", "--local", store=store
    )
    assert produced.returncode == 0, produced.stderr
    early = run_producer("audit", "job", "--quick", "--run", "none", store=store)
    assert "job 'job' has no run 'none' with a model" in early.stderr
    gone = sorted((voc / "JPEGImages").iterdir())[4]
    gone.unlink()
    told = run_producer("audit", "job", "--quick", "--local", "--json", store=store)
    assert told.returncode == 0, told.stderr
    found = json.loads(told.stdout)
    assert found["photos"] == 39
    assert found["remarks"][0] == (
        f"1 photo not audited, gone from the folder or replaced since the submit: JPEGImages/{gone.name}"
    )
    assert "has learnt most of these" in found["remarks"][1]
    status = json.loads(run_producer("status", "job", "--json", store=store).stdout)
    assert status["model"].endswith("runs/job/model_int8.tflite"), "the audit is not taken for the job's model"
    refused = subprocess.run(
        [sys.executable, "-m", "trainer", "evaluate", "job.audit-quick", "--store", str(store)],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "belongs to an audit and has no model" in refused.stderr


def test_a_cancelled_audit_is_done_to_its_end_without_a_broker(copied_voc: Callable[[], Path], tmp_path: Path) -> None:
    store = tmp_path / "store"
    made = run_producer("submit", str(copied_voc()), "--job", "job", *DATA, "--no-train", "--local", store=store)
    assert made.returncode == 0, made.stderr
    command = ("audit", "job", "--folds", "2", *QUICK, "--local", "--yes")
    with started_producer(*command, store=store) as audit:
        wait_until((store / "runs/job.audit-2/request.json").exists, 120, "the audit is asked for")
        cancelled = run_producer("cancel", "job", "--run", "job.audit-2", store=store)
        assert cancelled.returncode == 0, cancelled.stderr
        assert audit.wait(180) == 4
    retried = run_producer("retry", "job", "--run", "job.audit-2", store=store)
    assert retried.returncode == 0, retried.stderr
    assert (store / "runs/job.audit-2/findings.json").is_file(), "its folds were trained too"


def test_photos_and_store_in_a_bucket_from_a_submit_to_a_model_and_a_corrected_copy(
    object_server: ObjectServer, small_voc: Path, tmp_path: Path
) -> None:
    """No broker, no trainer, nothing on this machine but the copy that is asked for."""
    voc = with_a_double(small_voc, tmp_path / "voc")
    name = uuid.uuid4().hex
    photos, store = object_server.upload(voc, f"{name}/photos"), object_server.url(f"{name}/store")
    storage = Storage(store)
    wait_until_older(photos, storage)
    tiny = (*DATA, *QUICK, "--backbone", "conv", "--max-drop", "100", "--local", "--wait")
    submitted = run_producer("submit", photos, "--job", "job", *tiny, store=store)
    assert submitted.returncode == 0, submitted.stderr
    assert storage.exists("runs/job/model_int8.tflite")
    audited = run_producer(
        "audit", "job", "--folds", "2", *QUICK, "--backbone", "conv", "--local", "--yes", store=store
    )
    assert audited.returncode == 0, audited.stderr
    table = csv.DictReader(io.StringIO(storage.read("runs/job.audit-2/audit.csv").decode()))
    doubles = [row for row in table if row["kind"] == "double"]
    listed, copy = tmp_path / "list.csv", tmp_path / "copy"
    listed.write_text(f"id\n{doubles[0]['id']}\n")
    accepted = run_producer("audit", "job", "--folds", "2", "--accept", str(listed), "--out", str(copy), store=store)
    assert accepted.returncode == 0, accepted.stderr
    (told,) = accepted.stdout.splitlines()
    assert " JPEGImages/shapes_00000.jpg object " in told
    assert ": removed " in told
    there = {path.relative_to(voc): path.read_bytes() for path in voc.rglob("*") if path.is_file()}
    here = {path.relative_to(copy): path.read_bytes() for path in copy.rglob("*") if path.is_file()}
    assert [path.name for path in there if here[path] != there[path]] == ["shapes_00000.xml"]
    again = run_producer("submit", str(copy), "--job", "better", *DATA, "--no-train", "--local", store=store)
    assert "9 of 10 shards reused from job" in " ".join(again.stderr.split())


@contextmanager
def started_producer(*arguments: str, store: Path) -> Iterator["subprocess.Popen[bytes]"]:
    command = [sys.executable, "-m", "producer", *arguments, "--store", str(store)]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "VOC_BROKER_URL": ""}
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.terminate()


def run_producer(*arguments: str, store: Path | str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "producer", *arguments, "--store", str(store)]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "VOC_BROKER_URL": ""}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
