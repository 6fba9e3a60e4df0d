"""How large boxes become in the stored picture."""

import pytest

from producer.dataset.box_sizes import BoxSizes
from shared.annotation import read_annotation
from shared.specs.data import JobSpec
from tests.unit.producer.folders import voc_xml


@pytest.mark.parametrize(
    ("resize", "wanted"), [("stretch", {"4 to 8 px": 1, "< 4 px": 1}), ("letterbox", {"4 to 8 px": 1, "< 4 px": 1})]
)
def test_box_sizes_are_those_of_the_stored_picture(resize: str, wanted: dict[str, int]) -> None:
    # 640x320 → 320x320: stretched only the width halves, letterboxed both do.
    sizes = BoxSizes()
    boxes = {"stretch": [(0, 0, 8, 4), (0, 0, 7, 40)], "letterbox": [(0, 0, 8, 8), (0, 0, 40, 7)]}[resize]
    xml = voc_xml([("cat", *box) for box in boxes], size=(640, 320))
    sizes.add(read_annotation(xml, file="a.xml", spec=JobSpec()), 320, resize)  # type: ignore[arg-type]
    assert {name: count for name, count in sizes.rows() if count} == wanted
    assert sizes.tiny == 1


def test_boxes_of_unknown_size_are_counted_apart() -> None:
    sizes = BoxSizes()
    sizes.add(read_annotation(voc_xml(size=None), file="a.xml", spec=JobSpec()), 320, "stretch")
    assert (sizes.unsized, sizes.tiny) == (1, 0)
