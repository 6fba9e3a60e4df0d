"""Figures as a person reads them."""

import pytest

from producer.terminal.figures import age, duration, map_text, percent


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0, "0:00"), (9.4, "0:09"), (59.6, "1:00"), (725, "12:05"), (3599.6, "1:00:00"), (3723, "1:02:03")],
)
def test_a_duration_has_hours_only_where_it_has_any(seconds: float, shown: str) -> None:
    assert duration(seconds) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0, "0 s"), (40, "40 s"), (60, "1 min"), (3599, "59 min"), (7300, "2 h"), (86399, "23 h"), (5 * 86400, "5 d")],
)
def test_an_age_is_in_its_largest_whole_unit(seconds: float, shown: str) -> None:
    assert age(seconds) == shown


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ((0.914, None), "91.4 %"),
        ((0.914, (0.88, 0.941)), "91.4 % (88.0 to 94.1)"),
        ((1.0, (1.0, 1.0), 1), "100.0 % (100.0 to 100.0, 1 object)"),
        ((0.0, None, 26), "0.0 % (26 objects)"),
        ((0.0, (0.0, 1.0), 0), "not measured (0 objects)"),
    ],
)
def test_a_map_has_what_is_known_of_it(arguments: tuple[float, tuple[float, float] | None], shown: str) -> None:
    assert map_text(*arguments) == shown


def test_fractions_are_percent() -> None:
    assert [percent(value) for value in (0, 0.00049, 0.5, 1)] == ["0.0 %", "0.0 %", "50.0 %", "100.0 %"]
