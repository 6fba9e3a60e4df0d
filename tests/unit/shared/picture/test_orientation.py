"""docs/reading-rules.md's row on EXIF orientation: the frame of the boxes, decided once a picture, and the turns."""

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.picture.orientation import choose_frame, turn_box, upright_size
from shared.picture.pixels import turn_pixels

RAW = (60, 40)
UPRIGHT = (40, 60)
INSIDE_BOTH = [(5.0, 6.0, 20.0, 30.0)]


@pytest.mark.parametrize("orientation", range(1, 9))
def test_boxes_turn_as_the_pixels_do(orientation: int) -> None:
    raw = np.zeros((40, 60, 3), np.uint8)
    raw[10:22, 5:33] = 255
    upright = turn_pixels(raw, orientation)
    assert (upright.shape[1], upright.shape[0]) == upright_size(orientation, RAW)
    x, y, width, height = cv2.boundingRect(upright[:, :, 0])
    assert turn_box((5, 10, 33, 22), orientation, RAW) == (x, y, x + width, y + height)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_turns_are_those_of_the_exif_standard(orientation: int) -> None:
    """Row 0 and column 0 of the stored picture, as the standard names their visual place."""
    raw = np.zeros((4, 6, 3), np.uint8)
    raw[0, 0] = 255
    upright = turn_pixels(raw, orientation)
    row, column = np.argwhere(upright[:, :, 0])[0]
    bottom, right = upright.shape[0] - 1, upright.shape[1] - 1
    places = {1: (0, 0), 2: (0, right), 3: (bottom, right), 4: (bottom, 0)}
    places |= {5: (0, 0), 6: (0, right), 7: (bottom, right), 8: (bottom, 0)}
    assert (row, column) == places[orientation]


@pytest.mark.parametrize("orientation", [5, 6, 7, 8])
def test_size_of_the_upright_picture_says_that_boxes_are_upright(orientation: int) -> None:
    choice = choose_frame(orientation, RAW, UPRIGHT, INSIDE_BOTH, "raw")
    assert (choice.frame, choice.by) == ("upright", "size")


@pytest.mark.parametrize("orientation", [5, 6, 7, 8])
def test_size_of_the_raw_picture_says_that_boxes_are_raw(orientation: int) -> None:
    choice = choose_frame(orientation, RAW, RAW, INSIDE_BOTH, "upright")
    assert (choice.frame, choice.by) == ("raw", "size")


def test_boxes_of_a_tool_that_counts_from_one_fit_their_frame_up_to_its_edge() -> None:
    """Their last pixel is the width itself, and a box that ends there one more."""
    edge, beyond = [(5.0, 6.0, 41.0, 58.0)], [(5.0, 6.0, 41.5, 58.0)]
    assert choose_frame(6, RAW, None, edge, "raw").by == "boxes"
    assert choose_frame(6, RAW, None, beyond, "raw").by == "default"


@pytest.mark.parametrize("labelled", [None, (1, 1)])
def test_without_a_usable_size_the_only_frame_that_holds_the_boxes_wins(labelled: tuple[int, int] | None) -> None:
    wide, tall = [(5.0, 6.0, 58.0, 30.0)], [(5.0, 6.0, 20.0, 58.0)]
    raw, upright = choose_frame(6, RAW, labelled, wide, "upright"), choose_frame(6, RAW, labelled, tall, "raw")
    assert (raw.frame, raw.by) == ("raw", "boxes")
    assert (upright.frame, upright.by) == ("upright", "boxes")


@pytest.mark.parametrize("default", ["upright", "raw"])
@pytest.mark.parametrize(
    ("orientation", "raw_size", "labelled", "boxes"),
    [(orientation, RAW, RAW, INSIDE_BOTH) for orientation in (2, 3, 4)]
    + [(6, (50, 50), (50, 50), INSIDE_BOTH), (6, RAW, None, INSIDE_BOTH), (8, RAW, None, [(0.0, 0.0, 90.0, 90.0)])],
)
def test_what_nothing_decides_follows_the_option_and_is_marked(
    default: str,
    orientation: int,
    raw_size: tuple[int, int],
    labelled: tuple[int, int] | None,
    boxes: list[tuple[float, float, float, float]],
) -> None:
    choice = choose_frame(orientation, raw_size, labelled, boxes, default)  # type: ignore[arg-type]  # both literals
    assert (choice.frame, choice.by) == (default, "default")


def test_upright_pictures_and_pictures_without_boxes_need_no_decision() -> None:
    assert choose_frame(1, RAW, UPRIGHT, INSIDE_BOTH, "raw").by == "no_turn"
    assert choose_frame(6, RAW, RAW, [], "raw").by == "no_boxes"


@given(st.integers(1, 8), st.integers(1, 5000), st.integers(1, 5000), st.lists(st.floats(0, 1), min_size=4, max_size=4))
def test_turned_boxes_keep_their_area_and_stay_inside(
    orientation: int, width: int, height: int, fractions: list[float]
) -> None:
    xmin, xmax = sorted((fractions[0] * width, fractions[1] * width))
    ymin, ymax = sorted((fractions[2] * height, fractions[3] * height))
    turned = turn_box((xmin, ymin, xmax, ymax), orientation, (width, height))
    upright = upright_size(orientation, (width, height))
    assert 0 <= turned[0] <= turned[2] <= upright[0] + 1e-6
    assert 0 <= turned[1] <= turned[3] <= upright[1] + 1e-6
    area = (turned[2] - turned[0]) * (turned[3] - turned[1])
    assert area == pytest.approx((xmax - xmin) * (ymax - ymin), abs=1e-3)
