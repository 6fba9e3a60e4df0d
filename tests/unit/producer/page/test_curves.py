"""Curves: where points come to lie, and what has none."""

import math

import pytest

from producer.page.facts.curves import HEIGHT, WIDTH, chart


def points_of(text: str) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in (pair.split(",") for pair in text.split())]


def test_the_first_point_is_left_below_and_the_highest_above() -> None:
    drawn = chart("loss", "steps", [("loss", [(0, 0), (50, 10), (100, 5)])])
    assert drawn is not None
    (left, bottom), (middle, top), (right, half) = points_of(drawn.curves[0].points)
    assert left < middle < right <= WIDTH
    assert right - middle == pytest.approx(middle - left, abs=0.2)
    assert 0 <= top < half < bottom <= HEIGHT
    assert half - top == pytest.approx(bottom - half, abs=0.2)


def test_lines_are_at_round_values_inside_the_box() -> None:
    drawn = chart("mAP on val, %", "steps", [("map", [(17, 3.2), (1500, 61.5)])], top=100.0)
    assert drawn is not None
    assert [text for _, text in drawn.y_lines] == ["0", "50", "100"]
    assert [text for _, text in drawn.x_lines] == ["0", "500", "1000", "1500"]
    assert all(0 <= y <= HEIGHT for y, _ in drawn.y_lines)


@pytest.mark.parametrize(
    "points", [[], [(1.0, 2.0)], [(1.0, math.nan), (2.0, 3.0)], [(math.inf, 1.0), (2.0, math.inf)]], ids=str
)
def test_no_curve_without_two_points(points: list[tuple[float, float]]) -> None:
    assert chart("loss", "steps", [("loss", points)]) is None


def test_a_curve_of_zeros_is_a_line_at_the_bottom() -> None:
    drawn = chart("loss", "steps", [("loss", [(1.0, 0.0), (2.0, 0.0)])])
    assert drawn is not None
    assert len({y for _, y in points_of(drawn.curves[0].points)}) == 1


def test_a_long_training_has_no_more_points_than_the_box_has_pixels() -> None:
    drawn = chart("loss", "steps", [("loss", [(float(step), 1.0) for step in range(100_000)])])
    assert drawn is not None
    points = points_of(drawn.curves[0].points)
    assert len(points) <= 402
    assert points[-1][0] == max(x for x, _ in points)
