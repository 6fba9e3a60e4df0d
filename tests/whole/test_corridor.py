"""From a folder of photos to a .tflite by the one command, with everything embedded; and stopped half way."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest

from shared.jobs.manifest import Manifest
from tests.cluster import REPOSITORY, wait_until

pytestmark = pytest.mark.whole
FORMS = {"float32", "float16", "dynamic", "int8"}


# Takes the terminal of its standard input as its own, as a shell has it, and becomes the command.
TERMINAL = """
import fcntl, os, signal, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
if int(sys.argv[1]):
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
os.execv(sys.argv[2], sys.argv[2:])
"""


def command(voc: Path, store: Path, *options: str) -> list[str]:
    asked = [
        "--job",
        "whole",
        "--store",
        str(store),
        "--local",
        "--image-size",
        "96",
        "--model",
        "nano",
        "--max-drop",
        "100",
    ]
    return [sys.executable, "-m", "producer", "submit", str(voc), *asked, *options]


def environment(scratch: Path) -> dict[str, str]:
    """An environment in which the broker's private folder and all else temporary is below `scratch`."""
    scratch.mkdir()
    return {**os.environ, "PYTHONPATH": str(REPOSITORY), "TMPDIR": str(scratch), "VOC_BROKER_URL": ""}


@pytest.fixture
def scratch() -> Path:
    """A folder with a short name, for the broker's socket."""
    return Path(tempfile.mkdtemp(prefix="w-")) / "t"


def processes_of(store: Path) -> list[psutil.Process]:
    """The processes that work on `store`, found by their environment."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("VOC_STORE") == str(store):
                found.append(process)
        except psutil.Error:
            continue
    return found


def test_one_command_makes_a_measured_int8_detector_and_knows_it_the_next_time(
    small_voc: Path, tmp_path: Path, scratch: Path
) -> None:
    store, run = tmp_path / "store", tmp_path / "store/runs/whole"
    where = environment(scratch)
    first = subprocess.run(
        command(small_voc, store, "--epochs", "2", "--json"), env=where, capture_output=True, text=True, check=False
    )
    assert first.returncode == 0, first.stderr
    assert json.loads(first.stdout)["state"] == "DONE"
    metrics = json.loads((run / "metrics.json").read_text())
    assert set(metrics) == FORMS
    for form, row in metrics.items():
        model = run / f"model_{form}.tflite"
        assert row["bytes"] == model.stat().st_size > 0
        assert 0 <= row["map"] <= row["map50"] <= 1
        assert row["median_ms"] > 0
        assert set(row["per_class"]) == {"circle", "cross", "triangle"}
    manifest = Manifest.model_validate_json((store / "jobs/whole/manifest.json").read_text())
    assert sum(manifest.examples(split) for split in manifest.splits) == 40
    assert processes_of(store) == []
    assert list(scratch.iterdir()) == []
    written = {path: path.stat().st_mtime_ns for path in store.rglob("*") if path.is_file()}
    again = subprocess.run(
        command(small_voc, store, "--epochs", "2"), env=where, capture_output=True, text=True, check=False
    )
    assert again.returncode == 0, again.stderr
    assert "already done" in again.stderr
    assert "nothing to do" in again.stderr
    assert {path: path.stat().st_mtime_ns for path in store.rglob("*") if path.is_file()} == written


def interrupt(voc: Path, store: Path, scratch: Path, sign: Path) -> tuple[int, str]:
    """Submit, send Ctrl-C once `sign` is there, see that nothing half-done is left; exit code and text."""
    asked = command(voc, store, "--epochs", "200")
    process = subprocess.Popen(asked, env=environment(scratch), stderr=subprocess.PIPE, text=True)
    wait_until(sign.exists, 120, f"{sign} is there")
    wait_until(lambda: processes_of(store), 30, "workers are there")
    process.send_signal(signal.SIGINT)
    _, text = process.communicate(timeout=60)
    assert processes_of(store) == []
    assert list(scratch.iterdir()) == []
    assert [path for path in store.rglob("*") if ".tmp-" in path.name] == []
    return process.returncode, text


def test_interrupt_while_shards_are_written_leaves_no_process_no_socket_and_no_partial_file(
    small_voc: Path, tmp_path: Path, scratch: Path
) -> None:
    store = tmp_path / "store"
    code, text = interrupt(small_voc, store, scratch, store / "jobs/whole/plan.jsonl")
    assert code == 130, text
    assert "; the same command goes on" in text


@pytest.mark.parametrize("is_ignored", [False, True])
def test_a_closed_terminal_ends_it_as_ctrl_c_does_and_not_at_all_under_nohup(
    small_voc: Path, tmp_path: Path, scratch: Path, *, is_ignored: bool
) -> None:
    store, (terminal, inside) = tmp_path / "store", os.openpty()
    output = subprocess.DEVNULL if is_ignored else inside  # nohup writes into a file
    process = subprocess.Popen(
        [sys.executable, "-c", TERMINAL, str(int(is_ignored)), *command(small_voc, store, "--epochs", "200")],
        env=environment(scratch),
        stdin=inside,
        stdout=output,
        stderr=output,
        start_new_session=True,
    )
    os.close(inside)
    wait_until((store / "jobs/whole/plan.jsonl").exists, 120, "the plan is there")
    wait_until(lambda: processes_of(store), 30, "workers are there")
    os.close(terminal)
    if is_ignored:
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(3)
        assert processes_of(store)
        process.terminate()
    code = process.wait(60)
    assert is_ignored or code == 130
    assert processes_of(store) == []
    assert list(scratch.iterdir()) == []
    assert [path for path in store.rglob("*") if ".tmp-" in path.name] == []


def test_interrupted_training_leaves_nothing_half_done_and_a_checkpoint_that_can_be_exported(
    small_voc: Path, tmp_path: Path, scratch: Path
) -> None:
    store, run = tmp_path / "store", tmp_path / "store/runs/whole"
    code, text = interrupt(small_voc, store, scratch, run / "results.csv")
    assert code == 130, text
    newest = max((run / "checkpoints").glob("step-*.npz"))
    step = newest.stem.removeprefix("step-").lstrip("0")
    asked = [sys.executable, "-m", "trainer", "export", "whole", "--step", step, "--store", str(store), "--json"]
    exported = subprocess.run(asked, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert exported.returncode == 0, exported.stderr
    assert set(json.loads((run / "metrics.json").read_text())) == FORMS
    assert (run / "model_int8.tflite").stat().st_size == json.loads(exported.stdout)["int8"]["bytes"]


def test_two_embedded_runs_on_one_store_keep_to_their_own_job_and_one_job_has_one_run(
    small_voc: Path, tmp_path: Path, scratch: Path
) -> None:
    store = tmp_path / "store"
    where = environment(scratch)
    (tmp_path / "other").mkdir()
    other = shutil.copytree(small_voc, tmp_path / "other" / "photos")
    asked = command(small_voc, store, "--epochs", "200")
    first = subprocess.Popen(asked, env=where, stderr=subprocess.PIPE, text=True)
    try:
        wait_until((store / "jobs/whole/local.lock").exists, 60, "the first run has begun")
        again = subprocess.run(asked, env=where, capture_output=True, text=True, check=False)
        assert again.returncode == 1
        assert "another --local command works on it already" in again.stderr
        # Of another folder, which the first run's workers could not read; of another size, so that no shard is taken
        # over.
        options = ["--job", "mine", "--store", str(store), "--local", "--image-size", "64", "--no-train"]
        mine = [sys.executable, "-m", "producer", "submit", str(other), *options]
        second = subprocess.run(mine, env=where, capture_output=True, text=True, check=False)
        assert second.returncode == 0, second.stderr
        assert first.poll() is None
    finally:
        first.send_signal(signal.SIGINT)
        _, text = first.communicate(timeout=60)
    assert "; the same command goes on" in text
    worker_log = (store / "logs/worker.log").read_text()
    assert worker_log.count('"event": "shard_written", "job": "mine"') == len(
        list((store / "jobs/mine/shards").glob("*.tfrecord"))
    )
