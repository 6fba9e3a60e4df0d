"""The window and whose turn it is."""

from hypothesis import given
from hypothesis import strategies as st

from producer.reconcile.dispatch import LEAST_WINDOW, in_turn, window


def test_jobs_take_turns_whatever_their_size() -> None:
    assert list(in_turn([iter("aaaa"), iter("b"), iter("cc")])) == list("abcacaa")


@given(st.lists(st.lists(st.integers(), max_size=8), max_size=5))
def test_every_unit_comes_once(streams: list[list[int]]) -> None:
    units = [unit for stream in streams for unit in stream]
    assert sorted(in_turn([iter(stream) for stream in streams])) == sorted(units)


def test_window_follows_the_slots_and_never_closes_for_a_first_worker() -> None:
    assert window(slots=0, queued=0) == LEAST_WINDOW
    assert window(slots=8, queued=3) == 13
    assert window(slots=1, queued=9) < 0
