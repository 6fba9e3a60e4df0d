"""What a second terminal sees of a local run, while it trains, after it was interrupted, and when it is done."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import REPOSITORY, wait_until

pytestmark = pytest.mark.whole


def command(store: Path, *words: str) -> list[str]:
    return [sys.executable, "-m", "producer", *words, "--store", str(store)]


ENVIRONMENT = {**os.environ, "PYTHONPATH": str(REPOSITORY), "VOC_BROKER_URL": "", "COLUMNS": "80"}


def told(store: Path, *words: str) -> str:
    ended = subprocess.run(command(store, *words), env=ENVIRONMENT, capture_output=True, text=True, check=True)
    assert "Redis" not in ended.stderr
    return ended.stdout


def status(store: Path) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads(told(store, "status", "job", "--json"))
    return facts


def test_a_second_terminal_sees_a_local_run_train_stop_and_end(small_voc: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    options = ("--image-size", "64", "--model", "nano", "--max-drop", "100", "--max-minutes", "0.4", "--epochs", "4000")
    asked = command(store, "submit", str(small_voc), "--job", "job", "--local", *options)
    process = subprocess.Popen(asked, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True)
    wait_until((store / "jobs/job/job.json").exists, 60, "the job is there")
    wait_until(lambda: "loss" in (status(store)["run"] or {}), 120, "the second terminal sees a loss")

    seen = status(store)
    run = seen["run"]
    assert (seen["state"], seen["why"], seen["next"]) == ("TRAINING", None, None)
    assert (run["phase"], run["held"]) == ("train", True)
    assert run["step"] > 0
    assert run["pid"] != process.pid
    text = told(store, "status", "job")
    for fact in ("job: TRAINING", "train, step", "loss", f"held by {run['worker']} (process {run['pid']})"):
        assert fact in text, fact

    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    stopped = status(store)
    assert stopped["state"] == "INTERRUPTED"
    assert stopped["why"].startswith("interrupted ")
    assert stopped["why"].endswith(", nobody works on it")
    assert stopped["next"].endswith(f"resume job --store {store}")
    assert stopped["took_s"] > 0
    assert "interrupted " in told(store, "list")

    resumed = subprocess.run(command(store, "resume", "job"), env=ENVIRONMENT, capture_output=True, text=True)
    assert resumed.returncode == 0, resumed.stderr
    assert "INTERRUPTED" not in resumed.stderr
    done = status(store)
    assert (done["state"], done["why"], done["attempts"]) == ("DONE", None, done["shards"])
    assert done["map50_interval"][0] <= done["map50"] <= done["map50_interval"][1]
    assert done["took_s"] > stopped["took_s"]
    assert Path(done["model"]).exists()
    table = told(store, "list")
    for fact in ("worked", "photos", "mAP50", "40", f"{100 * done['map50']:.1f} %", done["model"]):
        assert fact in table, fact
    text = told(store, "status", "job")
    assert "objects), int8" in text
    assert "not known" not in text
