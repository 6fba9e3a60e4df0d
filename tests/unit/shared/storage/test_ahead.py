"""Fetching ahead: in order, within its bounds, and over when it is over."""

import threading
from collections.abc import Callable

import pytest

from shared.storage.ahead import Admit, Ahead


def test_results_come_in_the_order_in_which_they_were_asked_for_each_once() -> None:
    later = threading.Event()

    def fetch(asked: int, _: Admit) -> int:
        if asked == 0:
            assert later.wait(60)  # until one that was asked for later is there
        if asked == 7:
            later.set()
        return asked * asked

    with Ahead(range(1000), fetch, threads=8) as found:
        assert list(found) == [number * number for number in range(1000)]


def test_what_fetch_raises_is_raised_in_its_place_and_the_next_one_can_be_taken() -> None:
    def fetch(asked: int, _: Admit) -> int:
        if asked == 1:
            raise ValueError("one")
        return asked

    with Ahead(range(3), fetch, threads=2) as found:
        assert found.take() == 0
        with pytest.raises(ValueError, match="one"):
            found.take()
        assert found.take() == 2
        with pytest.raises(IndexError):
            found.take()


@pytest.mark.parametrize(("size", "most_held"), [(10, 4), (1000, 0)])
def test_memory_holds_what_may_wait_and_the_one_in_use_whatever_their_number(size: int, most_held: int) -> None:
    held: set[int] = set()
    most, lock = 0, threading.Lock()

    def fetch(asked: int, admit: Admit) -> int:
        nonlocal most
        admit(size)
        with lock:
            held.add(asked)
            most = max(most, len(held))
        return asked

    with Ahead(range(200), fetch, threads=16, most_bytes=40) as found:
        for number in found:
            with lock:
                held.discard(number)
    # Beside what may wait there are the one in use and the next one, which is let in whatever its size.
    assert 1 <= most <= most_held + 2


def test_who_waits_is_called_and_may_leave() -> None:
    never = threading.Event()

    def leave() -> None:
        never.set()  # for the thread
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), Ahead([1], lambda *_: never.wait(60), threads=1) as found:
        found.take(leave)


def test_who_waits_for_room_is_let_go_at_the_end() -> None:
    ended: list[int] = []
    done: Callable[[int], None] = ended.append

    def fetch(asked: int, admit: Admit) -> int:
        admit(100)
        done(asked)
        return asked

    with Ahead(range(5), fetch, threads=4, most_bytes=100) as found:
        assert found.take() == 0
        pool = found._pool
    pool.shutdown(wait=True)  # hangs where a thread still waits
    assert 0 in ended
