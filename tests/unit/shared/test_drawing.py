"""Marks on pictures: names that can be read and hide no other name, lines that differ without their colours."""

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.colours import PALETTE, colour_of, ink_on
from shared.drawing import Dash, Mark, caption, draw_marks, grid, place_names

GRAY = np.full((320, 320, 3), 128, np.uint8)


def mark(text: str = "", dash: Dash = "solid", box: tuple[float, float, float, float] = (60, 60, 260, 260)) -> Mark:
    return Mark(box=box, text=text, colour=PALETTE[1], dash=dash)


def changed(drawn: np.ndarray) -> np.ndarray:
    return np.asarray((drawn != GRAY).any(axis=2))


def test_boxes_are_thick_and_the_picture_itself_stays() -> None:
    drawn = changed(draw_marks(GRAY, [mark()]))
    assert drawn[160, 50:75].sum() >= 2
    assert not drawn[100:220, 100:220].any()
    assert (GRAY == 128).all()


def test_names_are_at_least_12_px_high() -> None:
    drawn = draw_marks(GRAY, [mark("RBC")])
    rows = np.flatnonzero((drawn[:, 70] == PALETTE[1]).all(axis=1) | (drawn[:, 62] == PALETTE[1]).all(axis=1))
    above = rows[rows < 60]
    assert above.size >= 12


def test_lines_differ_without_their_colours() -> None:
    shares = {
        dash: changed(draw_marks(GRAY, [mark(dash=dash)])).mean() for dash in ("solid", "dashed", "dotted", "double")
    }
    assert shares["dotted"] < shares["dashed"] < shares["solid"] < shares["double"]


@given(
    st.lists(st.tuples(st.floats(-50, 300), st.floats(-50, 300), st.floats(1, 200), st.floats(1, 200)), max_size=25),
    st.floats(5, 120),
)
def test_no_name_hides_another_or_leaves_the_picture(boxes: list[tuple[float, ...]], width: float) -> None:
    corners = [(x, y, x + w, y + h) for x, y, w, h in boxes]
    places = place_names(corners, [(width, 16.0)] * len(corners), (320, 320))
    shown = [place for place in places if place is not None]
    for index, (left, top) in enumerate(shown):
        assert 0 <= left <= 320 - width
        assert 0 <= top <= 304
        for other_left, other_top in shown[:index]:
            assert abs(left - other_left) >= width or abs(top - other_top) >= 16


def test_the_first_name_has_the_first_choice() -> None:
    box = (100.0, 100.0, 140.0, 140.0)
    places = place_names([box] * 9, [(80.0, 16.0)] * 9, (320, 320))
    assert places[0] == (100, 84)
    assert places[-1] is None


def test_box_beyond_the_edge_is_drawn_at_the_edge_and_a_name_of_any_script() -> None:
    drawn = changed(draw_marks(GRAY, [mark("Größe 赤血球", box=(-5, -5, 360, 360))]))
    assert drawn[160, 319]
    assert drawn[319, 160]
    assert drawn[3:12, 3:12].any()


@pytest.mark.parametrize("side", [32, 4000])
def test_pictures_of_any_size_are_drawn(side: int) -> None:
    picture = np.zeros((side, side, 3), np.uint8)
    assert draw_marks(picture, [mark("a", box=(0, side / 4, side / 2, side))]).any()


def test_letters_are_dark_on_light_colours_and_light_on_dark_ones() -> None:
    assert ink_on((255, 255, 255)) == (0, 0, 0)
    assert ink_on((0, 0, 120)) == (255, 255, 255)
    assert colour_of(1) == PALETTE[0] == colour_of(1 + len(PALETTE))


def test_grid_of_one_picture_and_caption() -> None:
    picture = np.zeros((10, 30, 3), np.uint8)
    assert grid([picture], 4).shape == (22, 42, 3)
    assert grid([picture] * 3, 2, gap=0).shape == (20, 60, 3)
    named = caption(picture, "text")
    assert named.shape == (30, 30, 3)
    assert cv2.cvtColor(named[10:], cv2.COLOR_BGR2GRAY).min() < 128
