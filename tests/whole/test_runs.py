"""Several runs of one job on the same shards, by a broker's trainers and by a local run; nothing is made twice."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster import REPOSITORY, Cluster, assert_chain

pytestmark = pytest.mark.whole
DATA = ("--image-size", "64", "--shard-images", "8")
QUICK = ("--model", "nano", "--epochs", "1", "--max-drop", "100")


def test_two_trainers_do_two_runs_of_one_job_on_the_same_shards(cluster: Cluster, small_voc: Path) -> None:
    cluster.serve()
    cluster.worker()
    for name in ("one", "two"):
        cluster.trainer(name=name)
    cluster.producer("submit", str(small_voc), "--job", "job", *DATA, *QUICK)
    added = cluster.producer("submit", "--job", "job", "--run", "second", *QUICK, "--seed", "5")
    assert "run second" in added.stderr
    cluster.wait_for("job")
    ended = cluster.producer("watch", "job", "--run", "second")
    assert "second" in ended.stdout
    status = json.loads(cluster.producer("status", "job", "--json").stdout)
    assert {run["run"]: run["state"] for run in status["runs"]} == {"job": "DONE", "second": "DONE"}
    assert len(cluster.events("worker", "shard_written")) == status["shards"]
    holders = {name: {line["run"] for line in cluster.events(name, "run_done")} for name in ("one", "two")}
    assert sorted(map(sorted, holders.values())) == [["job"], ["second"]]
    assert_chain_of_both(cluster)
    trained_s = seconds(cluster)["train"]
    results = (cluster.store / "runs/second/results.csv").stat().st_mtime_ns
    assert "freed" in cluster.producer("prune", "--yes").stdout
    (cluster.store / "runs/second/model_int8.tflite").write_bytes(b"cut")
    (problem,) = [
        check["found"]
        for check in json.loads(cluster.producer("doctor", "job", "--json", check=False).stdout)
        if not check["is_well"]
    ]
    assert "model_int8.tflite: cut short, 3 of the" in problem
    assert "labels" not in problem
    told = cluster.producer("retry", "job", "--run", "second").stdout
    assert "the model is released again from its weights, without training" in told
    cluster.producer("watch", "job", "--run", "second")
    again = seconds(cluster)
    assert (cluster.store / "runs/second/results.csv").stat().st_mtime_ns == results, "nothing was trained"
    assert not (cluster.store / "runs/second/trained.json").exists()
    assert again["train"] >= 0.8 * trained_s, "a release alone takes no training away"
    assert again["total"] >= again["train"] + again["release"]
    compared = trainer(cluster.store, "compare", "job", "second")
    assert "job" in compared
    assert "second" in compared
    assert "is removed" in cluster.producer("rm", "job", "--run", "second", "--yes").stdout
    assert_chain(cluster, "job")


def seconds(cluster: Cluster) -> dict[str, float]:
    summary: dict[str, dict[str, float]] = json.loads((cluster.store / "runs/second/run.json").read_text())
    return summary["seconds"]


def assert_chain_of_both(cluster: Cluster) -> None:
    checks = json.loads(cluster.producer("doctor", "job", "--json").stdout)
    assert [check["name"] for check in checks][-2:] == ["trained", "trained second"]
    assert all(check["is_well"] for check in checks)


def trainer(store: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "trainer", *arguments, "--store", str(store)]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


def test_a_local_run_adds_one_to_a_job_whose_photos_are_gone(copied_voc: object, tmp_path: Path) -> None:
    voc = copied_voc()  # type: ignore[operator]

    def submit(*options: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "producer", "submit", *options, "--local", "--store", str(tmp_path / "store")]
        environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "VOC_BROKER_URL": ""}
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    assert submit(str(voc), "--job", "job", *DATA, "--no-train").returncode == 0
    shards = tmp_path / "store/jobs/job/shards"
    before = {path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in shards.iterdir()}
    voc.rename(tmp_path / "elsewhere")
    ended = submit("--job", "job", "--run", "late", *QUICK)
    assert ended.returncode == 0, ended.stderr
    assert (tmp_path / "store/runs/late/model_int8.tflite").exists()
    assert {path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in shards.iterdir()} == before
