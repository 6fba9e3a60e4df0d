"""Interrupts that wait for a moment at which they do no harm."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from producer.local import interrupts
from producer.local.processes import Child, Processes

STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
pytestmark = pytest.mark.parametrize("number", STOPS)


@pytest.fixture(autouse=True)
def _as_the_command_line_has_them() -> Iterator[None]:
    before = {each: signal.signal(each, signal.default_int_handler) for each in STOPS}
    yield
    for each, handler in before.items():
        signal.signal(each, handler)


def unharmed(act: Callable[[], None]) -> None:
    """Do something that no interrupt may cut short; one that does fails this test, not the whole session."""
    try:
        act()
    except KeyboardInterrupt:
        pytest.fail("interrupted")


def assert_ends_or_is_one_with_the_first(number: signal.Signals) -> None:
    """A second one: whoever asks twice does not wait; a terminal that is closed sends SIGHUP twice, and means one."""
    if number == signal.SIGHUP:
        unharmed(lambda: signal.raise_signal(number))
        return
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(number)


def test_the_first_waits_for_a_pause(number: signal.Signals) -> None:
    with interrupts.deferred() as pause:
        unharmed(lambda: signal.raise_signal(number))
        with pytest.raises(KeyboardInterrupt):
            pause(60)


def test_one_that_comes_in_a_pause_ends_it_at_once(number: signal.Signals) -> None:
    began_s = time.monotonic()
    with interrupts.deferred() as pause:
        threading.Timer(0.1, os.kill, (os.getpid(), number)).start()
        with pytest.raises(KeyboardInterrupt):
            pause(60)
    assert time.monotonic() - began_s < 30


def test_the_second_does_not_wait(number: signal.Signals) -> None:
    with interrupts.deferred():
        unharmed(lambda: signal.raise_signal(number))
        assert_ends_or_is_one_with_the_first(number)


def test_one_after_that_which_ended_a_pause_does_not_wait(number: signal.Signals) -> None:
    with interrupts.deferred() as pause:
        threading.Timer(0.1, os.kill, (os.getpid(), number)).start()
        with pytest.raises(KeyboardInterrupt):
            pause(60)
        assert_ends_or_is_one_with_the_first(number)


def test_one_that_is_ignored_stays_ignored_if_it_is_a_closed_terminal(number: signal.Signals) -> None:
    """As `nohup` starts a command; a shell script has SIGINT ignored in what it starts in the background."""
    signal.signal(number, signal.SIG_IGN)
    with interrupts.deferred() as pause:
        signal.raise_signal(number)
        if number == signal.SIGHUP:
            unharmed(lambda: pause(0))
            return
        with pytest.raises(KeyboardInterrupt):
            pause(0)


def test_afterwards_they_are_as_before(number: signal.Signals) -> None:
    with interrupts.deferred() as pause:
        pause(0)
    assert signal.getsignal(number) is signal.default_int_handler
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(number)


def test_an_interrupt_while_a_process_starts_leaves_none_behind(tmp_path: Path, number: signal.Signals) -> None:
    def interrupt_parent(parent: int) -> None:
        os.kill(parent, number)
        time.sleep(0.2)  # the parent waits for the new process all the while

    sleeper = Child(
        name="sleeper",
        command=("sleep", "60"),
        environment=os.environ,
        log=tmp_path / "log",
        stop_s=5,
        at_start=interrupt_parent,
    )
    ours = Processes()
    with interrupts.deferred() as pause:
        unharmed(lambda: ours.start(sleeper))
        assert sleeper.is_running()
        with pytest.raises(KeyboardInterrupt):
            pause(0)
    ours.stop()
    assert sleeper.process is not None
    assert sleeper.process.returncode == -signal.SIGTERM
