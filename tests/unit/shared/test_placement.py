"""Where a picture lies in its square, and that boxes find their way there and back."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from shared.placement import Resize, place

SIDES = st.integers(1, 6000)
RESIZES: st.SearchStrategy[Resize] = st.sampled_from(["stretch", "letterbox"])


@given(SIDES, SIDES, st.sampled_from([64, 320, 640]), RESIZES, st.lists(st.floats(0, 1), min_size=4, max_size=4))
def test_boxes_survive_the_move_and_back_within_half_a_pixel(
    width: int, height: int, size: int, resize: Resize, fractions: list[float]
) -> None:
    placement = place(width, height, size, resize)
    xmin, xmax = sorted((fractions[0] * width, fractions[1] * width))
    ymin, ymax = sorted((fractions[2] * height, fractions[3] * height))
    moved = placement.into((xmin, ymin, xmax, ymax))
    assert all(-1e-6 <= corner <= size + 1e-6 for corner in moved)
    rounded = tuple(float(np.float32(corner / size)) * size for corner in moved)
    back = placement.back(rounded)  # type: ignore[arg-type]  # a tuple of four
    np.testing.assert_allclose(back, (xmin, ymin, xmax, ymax), atol=0.5)


@given(SIDES, SIDES, RESIZES)
def test_picture_lies_inside_the_square_and_touches_two_sides(width: int, height: int, resize: Resize) -> None:
    placed = place(width, height, 320, resize)
    assert max(placed.width, placed.height) == 320
    assert 0 <= placed.left <= 320 - placed.width
    assert abs(320 - placed.width - 2 * placed.left) <= 1
    assert abs(320 - placed.height - 2 * placed.top) <= 1


def test_letterbox_keeps_the_aspect_and_stretch_fills_the_square() -> None:
    boxed, stretched = place(200, 100, 320, "letterbox"), place(200, 100, 320, "stretch")
    assert (boxed.width, boxed.height, boxed.left, boxed.top) == (320, 160, 0, 80)
    rounded = place(73, 100, 320, "letterbox")  # 233.6 px: to the nearest
    assert (rounded.width, rounded.height, rounded.left, rounded.top) == (234, 320, 43, 0)
    assert (stretched.width, stretched.height, stretched.left, stretched.top) == (320, 320, 0, 0)
