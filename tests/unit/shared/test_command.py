"""One command for all packages that are there, quick to start; and hints that work when they are copied."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from shared.command import CALLED_AS, PROGRAM, hint, program, start_hint
from shared.storage import Storage
from tests.tiny import make_tiny_voc

REPOSITORY = Path(__file__).resolve().parents[3]
ENTRY_POINTS = """[voc2tflite.commands]
jobs = producer.__main__:app
models = trainer.__main__:app
elsewhere = not_there.__main__:app
"""
TALKS = """
import time, typer
from shared import command
app = typer.Typer()
@app.command()
def talk() -> None:
    while True:
        typer.echo("still here")
        time.sleep(0.01)
command.run(app)
"""
HEAVY = ("tensorflow", "keras", "numpy", "cv2", "lxml", "celery")


@pytest.fixture
def there(tmp_path: Path) -> dict[str, str]:
    """An environment with the entry points above, of which one package is missing; no broker answers."""
    folder = tmp_path / "entry points" / "voc2tflite.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text("Name: voc2tflite\n")
    (folder / "entry_points.txt").write_text(ENTRY_POINTS)
    own = {name: value for name, value in os.environ.items() if not name.startswith("VOC_")}
    path = os.pathsep.join([str(folder.parent), str(REPOSITORY)])
    return own | {"PYTHONPATH": path, "VOC_BROKER_URL": "redis://127.0.0.1:1/0", "COLUMNS": "200"}


def run(command: list[str] | str, folder: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """A command by its words, or a line as a person pastes it into a shell, who answers yes."""
    return subprocess.run(
        command,
        shell=isinstance(command, str),
        input="y\n",
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env=environment,
        timeout=120,
    )


def whole(*words: str) -> list[str]:
    return [sys.executable, "-m", "shared.command", *words]


def test_help_has_the_commands_of_the_packages_that_are_there(tmp_path: Path, there: dict[str, str]) -> None:
    shown = run(whole("--help"), tmp_path, there)
    assert shown.returncode == 0, shown.stderr
    assert re.findall(r"─ (Jobs|Models|Shards|Elsewhere) ─", shown.stdout) == ["Jobs", "Models"]
    assert set(re.findall(r"^│ ([a-z]+) ", shown.stdout, re.M)) == {
        *(
            "submit",
            "audit",
            "page",
            "resume",
            "cancel",
            "retry",
            "rm",
            "prune",
            "acl",
            "serve",
            "lint",
            "doctor",
            "status",
            "list",
            "watch",
        ),
        *("predict", "evaluate", "export", "compare", "sizes"),
    }
    assert shown.stderr == ""


def test_a_package_that_lacks_its_libraries_is_left_out(tmp_path: Path, there: dict[str, str]) -> None:
    code = f"""
import sys
from importlib.abc import MetaPathFinder
class Without(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "celery": raise ModuleNotFoundError(name)
import importlib.util as util
found = util.find_spec
util.find_spec = lambda name: None if name == "celery" else found(name)
sys.argv = [{PROGRAM!r}, "--help"]
from shared.command import main
main()
"""
    shown = run([sys.executable, "-c", code], tmp_path, there)
    assert "predict" in shown.stdout
    assert "submit" not in shown.stdout


@pytest.mark.parametrize("words", [["--version"], ["--help"], ["status", "--store", "nothing"]], ids=" ".join)
def test_what_only_looks_imports_no_heavy_library(tmp_path: Path, there: dict[str, str], words: list[str]) -> None:
    code = f"""
import atexit, sys
atexit.register(lambda: print("HEAVY", [name for name in {HEAVY} if name in sys.modules]))
sys.argv = [{PROGRAM!r}, *{words}]
from shared.command import main
main()
"""
    done = run([sys.executable, "-c", code], tmp_path, there)
    assert done.returncode == 0, done.stderr
    assert "HEAVY []" in done.stdout


def test_a_hint_is_quoted_and_names_the_store_where_the_settings_name_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CALLED_AS, PROGRAM)
    monkeypatch.setenv("VOC_STORE", str(tmp_path))
    assert hint("submit", Path("my photos")) == "voc2tflite submit 'my photos'"
    assert hint("submit", Path("-photos"), "--no-train") == "voc2tflite submit ./-photos --no-train"
    assert hint("retry", "a", store=Storage(str(tmp_path))) == "voc2tflite retry a"
    assert hint("retry", "a", store=Storage(str(tmp_path / "b c"))) == f"voc2tflite retry a --store '{tmp_path}/b c'"
    assert hint("retry", "a", store=Storage("s3://b/jobs")) == "voc2tflite retry a --store s3://b/jobs"
    monkeypatch.chdir(tmp_path)
    assert hint("retry", "a", store=Storage("b")) == "voc2tflite retry a --store b"


def test_the_program_is_called_by_its_name_where_a_shell_finds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "venv/bin" / PROGRAM
    script.parent.mkdir(parents=True)
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    monkeypatch.delenv(CALLED_AS, raising=False)
    monkeypatch.setattr(sys, "executable", str(script.with_name("python")))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert program() == [str(script)]
    monkeypatch.chdir(tmp_path)
    assert program() == [f"venv/bin/{PROGRAM}"]
    monkeypatch.setenv("PATH", str(script.parent))
    assert program() == [PROGRAM]
    script.unlink()
    assert program() == ["venv/bin/python", "-m", "shared.command"]


def test_a_service_is_started_by_compose_where_that_runs_us(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CALLED_AS, "docker compose run --rm producer")
    assert hint("retry", "a") == "docker compose run --rm producer retry a"
    assert start_hint("worker", "shards") == "docker compose up --detach worker"
    assert start_hint("producer") == "docker compose up --detach producer"


def test_a_service_that_is_started_by_hand_finds_its_packages(tmp_path: Path, there: dict[str, str]) -> None:
    code = "from shared.command import start_hint; print(start_hint('worker', 'shards'))"
    shown = run([sys.executable, "-c", code], tmp_path, there).stdout.strip()
    bare = {name: value for name, value in there.items() if name != "PYTHONPATH"}
    done = run(shown.split(" worker -Q shards")[0] + " report", tmp_path, bare)
    assert done.returncode == 0, done.stderr
    assert "software -> celery" in done.stdout


def test_a_trainer_that_is_started_by_hand_trains_one_run_at_a_time() -> None:
    assert start_hint("trainer", "train").endswith(
        "-A trainer.app worker -Q train --concurrency 1 --without-mingle --without-gossip"
    )


def hints_in(text: str, verb: str) -> list[str]:
    """The commands in `text` that do `verb`: between back quotes, or after "next: "."""
    found = re.findall(r"`([^`]+)`|next: (.+)", text)
    return [line for pair in found for line in pair if f" {verb} " in line]


def test_every_hint_of_a_job_works_when_it_is_copied(tmp_path: Path, small_voc: Path, there: dict[str, str]) -> None:
    photos, store = tmp_path / "my photos", ["--store", "my store"]
    photos.symlink_to(small_voc)
    there["VOC_DATA_ROOT"] = str(small_voc.parent)

    linted = run(whole("lint", "my photos", "--seed", "3", "--split", "70/20/10"), tmp_path, there)
    (submit,) = hints_in(linted.stdout, "submit")
    assert shlex.split(submit)[-5:] == ["my photos", "--split", "70/20/10", "--seed", "3"]
    accepted = run(f"{submit} --no-train --job j --store 'my store'", tmp_path, there)
    assert accepted.returncode == 0, accepted.stderr

    other = run(whole("submit", "my photos", "--no-train", "--job", "j", *store), tmp_path, there)
    (remove,) = hints_in(other.stderr, "rm")
    cancelled = run(whole("cancel", "j", *store), tmp_path, there)
    assert cancelled.returncode == 0, cancelled.stderr
    again = run(f"{submit} --no-train --job j --store 'my store'", tmp_path, there)
    (retry, *_) = hints_in(again.stderr, "retry")
    assert run(whole("retry", "j", "--failed", *store), tmp_path, there).stdout.count(retry) == 1
    retried = run(retry, tmp_path, there)
    assert retried.returncode == 0, retried.stderr
    assert "the cancel is taken back" in retried.stdout

    (plan,) = (tmp_path / "my store/jobs/j").glob("plan-*.jsonl")
    plan.write_text("")
    checked = run(whole("doctor", "j", *store), tmp_path, {**there, "COLUMNS": "500"})
    assert set(hints_in(checked.stdout, "rm")) == {remove}
    assert "problem" in checked.stdout
    run(whole("cancel", "j", *store), tmp_path, there)
    removed = run(remove, tmp_path, there)
    assert removed.returncode == 0, removed.stderr
    assert not (tmp_path / "my store/jobs/j/job.json").exists()


def test_a_setting_that_is_none_is_one_line_and_exit_code_2(tmp_path: Path, there: dict[str, str]) -> None:
    ended = run(whole("status"), tmp_path, there | {"VOC_LEASE_S": "soon"})
    assert ended.returncode == 2
    assert ended.stderr.splitlines() == [
        "error: VOC_LEASE_S: should be a valid number, unable to parse string as a number (found 'soon')"
    ]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device of this system is always full")
def test_a_full_disk_is_one_line_with_what_to_do(tmp_path: Path, there: dict[str, str]) -> None:
    make_tiny_voc(tmp_path / "photos", 3)
    ended = run(whole("lint", "photos", "--csv", "/dev/full"), tmp_path, there)
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1] == "error: No space left on device; make room, then do the same again"
    assert "Traceback" not in ended.stderr


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="a system without such terminals")
def test_a_write_to_a_closed_terminal_ends_it_as_the_signal_of_that_does() -> None:
    """The write can fail first. Here no signal comes at all: the terminal does not control the process."""
    terminal, inside = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", TALKS],
        cwd=REPOSITORY,
        stdin=inside,
        stdout=inside,
        stderr=inside,
        start_new_session=True,
    )
    os.close(inside)
    assert b"still here" in os.read(terminal, 100)
    os.close(terminal)
    assert process.wait(30) == 130


def test_an_output_that_has_no_letter_for_a_name_gets_its_escape(tmp_path: Path, there: dict[str, str]) -> None:
    """As a pipe on Windows has none for most of the world's."""
    for path in (make_tiny_voc(tmp_path / "photos", 3) / "Annotations").iterdir():
        path.write_text(path.read_text().replace("<name>x", "<name>猫"), encoding="utf-8")
    ended = run(whole("lint", "photos"), tmp_path, there | {"PYTHONIOENCODING": "cp1252"})
    assert ended.returncode == 0, ended.stderr
    assert "\\u732b" in ended.stdout
