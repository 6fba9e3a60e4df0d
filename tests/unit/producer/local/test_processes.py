"""Processes that are kept running, and none of which outlives an interrupt, whenever it comes."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from producer.local import processes
from producer.local.processes import Child, Processes
from shared.errors import PipelineError
from tests.cluster import wait_until


def child(tmp_path: Path, *command: str) -> Child:
    return Child(name="sleeper", command=command, environment=os.environ, log=tmp_path / "logs/log", stop_s=5)


def has_ended(process: psutil.Process) -> bool:
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_a_process_that_dies_is_started_again_until_it_has_died_too_often(tmp_path: Path) -> None:
    ours, mortal = Processes(), child(tmp_path, sys.executable, "-c", "print('no such broker')")
    ours.start(mortal)

    def keep_all() -> None:
        for _ in range(processes.DEATHS):
            wait_until(lambda: not mortal.is_running(), 20, "it has ended")
            ours.restart_dead()

    with pytest.raises(PipelineError, match=r"(?s)the sleeper died 10 times; .*no such broker"):
        keep_all()
    assert mortal.log.read_text().count("no such broker") == processes.DEATHS


def leaver(tmp_path: Path, name: str, *, leave: str = "time.sleep(0.3)") -> Child:
    """A process that says when it is told to end, does something, and says when it ends."""
    script = (
        "import os, signal, time\n"
        "def leave(*_):\n"
        "    print('told', time.monotonic(), flush=True)\n"
        f"    {leave}\n"
        "    print('ends', time.monotonic(), flush=True)\n"
        "    raise SystemExit\n"
        "signal.signal(signal.SIGTERM, leave)\n"
        "print('ready', flush=True)\n"
        "time.sleep(60)\n"
    )
    command = (sys.executable, "-c", script)
    return Child(name=name, command=command, environment=os.environ, log=tmp_path / name, stop_s=20)


def test_those_that_end_last_are_told_when_the_others_have_ended(tmp_path: Path) -> None:
    needed, leaving, ours = leaver(tmp_path, "needed"), leaver(tmp_path, "leaving"), Processes()
    needed.ends_last = True
    for each in (needed, leaving):
        ours.start(each)
    for each in (needed, leaving):
        wait_until(lambda log=each.log: "ready" in log.read_text(), 10, "its handler is there")  # type: ignore[misc]
    ours.stop()
    words = {each.name: each.log.read_text().split() for each in (needed, leaving)}
    assert float(words["needed"][2]) > float(words["leaving"][4])


def test_an_interrupt_while_one_ends_by_itself_does_not_stop_the_others_from_being_ended(tmp_path: Path) -> None:
    # Popen.wait gives the process a quarter of a second more and has often reaped it when it raises.
    interrupting = "time.sleep(0.5); os.kill(os.getppid(), signal.SIGINT)"
    ending, other, ours = leaver(tmp_path, "ending", leave=interrupting), child(tmp_path, "sleep", "60"), Processes()
    other.ends_last = True
    for each in (ending, other):
        ours.start(each)
    wait_until(lambda: "ready" in ending.log.read_text(), 10, "its handler is there")
    ours.stop()
    assert ending.process is not None
    assert other.process is not None
    assert ending.process.returncode in (0, -signal.SIGKILL)
    assert other.process.returncode == -signal.SIGTERM


def test_a_process_that_does_not_end_in_its_time_is_killed_with_its_children(tmp_path: Path) -> None:
    stubborn = child(tmp_path, "sh", "-c", "trap '' TERM; echo ready; sleep 61 & wait; wait")
    stubborn.stop_s = 0.3
    ours = Processes()
    ours.start(stubborn)
    wait_until(lambda: "ready" in stubborn.log.read_text(), 10, "the trap is set")
    assert stubborn.process is not None
    wait_until(lambda: psutil.Process(stubborn.process.pid).children(), 10, "it has a child")  # type: ignore[union-attr]
    (grandchild,) = psutil.Process(stubborn.process.pid).children()
    ours.stop()
    assert stubborn.process.returncode == -signal.SIGKILL
    wait_until(lambda: has_ended(grandchild), 10, "its child has ended")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process of its parent's death")
def test_processes_end_with_the_one_that_started_them_even_if_it_is_killed(tmp_path: Path) -> None:
    code = (
        "import os, pathlib, time\n"
        "from producer.local.processes import Child, Processes\n"
        f"log = pathlib.Path({str(tmp_path / 'log')!r})\n"
        "sleeper = Child(name='s', command=['sleep', '60'], environment=os.environ, log=log, stop_s=5)\n"
        "Processes().start(sleeper)\n"
        "print(sleeper.process.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    with parent.stdout:
        sleeper = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
    parent.wait()
    wait_until(lambda: has_ended(sleeper), 10, "it has ended with its parent")
