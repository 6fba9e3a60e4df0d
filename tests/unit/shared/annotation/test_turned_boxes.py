"""Boxes that were turned in CVAT, which writes the box before the turn and the degrees as an attribute."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.shared.annotation.voc_text import SIZE, corners, kinds, read

BOX = (100.0, 100.0, 200.0, 140.0)


def turned(degrees: object, box: tuple[float, ...] = BOX) -> str:
    other = "<attribute><name>colour</name><value>45</value></attribute>"
    rotation = f"<attribute><name>rotation</name><value>{degrees}</value></attribute>"
    bounds = f"<bndbox>{corners(*box)}</bndbox>"
    return f"{SIZE}<object><name>cat</name>{bounds}<attributes>{other}{rotation}</attributes></object>"


@pytest.mark.parametrize("box", [BOX, (300.0, 10.0, 400.0, 50.0), (10.0, 300.0, 50.0, 400.0)])
@pytest.mark.parametrize("degrees", [30, -30, 90, 135.5, 330])
def test_the_upright_box_around_a_turned_one_is_taken_and_told(degrees: float, box: tuple[float, ...]) -> None:
    """Each corner turned by itself around the centre."""
    annotation = read(turned(degrees, box))
    xmin, ymin, xmax, ymax = box
    turn = complex(math.cos(math.radians(degrees)), math.sin(math.radians(degrees)))
    center = complex((xmin + xmax) / 2, (ymin + ymax) / 2)
    points = [center + (complex(x, y) - center) * turn for x in (xmin, xmax) for y in (ymin, ymax)]
    wide, high = [point.real for point in points], [point.imag for point in points]
    assert annotation.objects[0].box == pytest.approx((min(wide), min(high), max(wide), max(high)))
    [finding] = annotation.findings
    assert (finding.rank, finding.kind, finding.object_index) == ("mended", "box_turned", 1)
    assert (finding.found, finding.class_name) == (f"rotation {degrees:g}", "cat")


@pytest.mark.parametrize("degrees", ["0.0", "180", "360.0", "", "nan", "inf", "upside down"])
def test_a_box_that_is_not_turned_stays_as_it_is(degrees: str) -> None:
    annotation = read(turned(degrees))
    assert [each.box for each in annotation.objects] == [BOX]
    assert kinds(annotation) == []


@pytest.mark.parametrize("box", [(1e17, 0.0, 1e17 + 16, 1e-3), (0.0, 1e17, 1e-3, 1e17 + 16)])
def test_a_box_too_far_away_to_be_turned_stays_as_it_is(box: tuple[float, ...]) -> None:
    """Turned by 90 degrees its one side would be less than a step of the numbers there."""
    annotation = read(turned(90, box))
    assert [each.box for each in annotation.objects] == [box]
    assert kinds(annotation) == []


@given(st.floats(allow_nan=False), st.tuples(*[st.floats(-1e308, 1e308)] * 4))
def test_any_turn_leaves_a_finite_box_with_an_area(degrees: float, box: tuple[float, ...]) -> None:
    for each in read(turned(degrees, box)).objects:
        assert all(map(math.isfinite, each.box))
        assert each.box[0] < each.box[2]
        assert each.box[1] < each.box[3]
