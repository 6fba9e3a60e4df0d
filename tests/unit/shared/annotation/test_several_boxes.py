"""An object that has more boxes, corners or names than one: none must be lost in silence."""

from shared.annotation.reader import read_annotation
from shared.specs.data import JobSpec
from tests.unit.shared.annotation.voc_text import SIZE, corners, read, voc_object

BOX = "<bndbox><xmin>{0}</xmin><ymin>{0}</ymin><xmax>9</xmax><ymax>9</ymax></bndbox>"


def test_the_first_box_of_an_object_is_used_and_the_others_are_told() -> None:
    objects = f"<object><name>cat</name>{BOX.format(1)}{BOX.format(2)}</object>"
    size = "<size><width>20</width><height>20</height></size>"
    annotation = read_annotation(f"<annotation>{size}{objects}</annotation>".encode(), file="a.xml", spec=JobSpec())
    assert [each.box for each in annotation.objects] == [(1.0, 1.0, 9.0, 9.0)]
    [finding] = annotation.findings
    assert (finding.rank, finding.kind, finding.object_index) == ("mended", "box_extra", 1)
    assert (finding.found, finding.class_name) == ("2 <bndbox> in one object", "cat")


def test_a_corner_that_a_box_has_twice_with_other_values_is_told() -> None:
    annotation = read(SIZE + voc_object(box=f"<xmin>5</xmin>{corners(10, 20, 110, 220)}"))
    assert [each.box for each in annotation.objects] == [(10.0, 20.0, 110.0, 220.0)]
    [finding] = annotation.findings
    assert (finding.rank, finding.kind, finding.object_index) == ("mended", "box_corner_extra", 1)
    assert (finding.found, finding.done) == ("2 <xmin> in one box: 5, 10", "the last one, 10, is used")


def test_a_corner_that_a_box_has_twice_with_one_value_is_no_finding() -> None:
    assert not read(SIZE + voc_object(box=f"<xmin> 10</xmin>{corners(10, 20, 110, 220)}")).findings


def test_a_second_name_of_an_object_is_told() -> None:
    annotation = read(SIZE + voc_object(extra="<name>dog</name>"))
    assert [each.name for each in annotation.objects] == ["cat"]
    [finding] = annotation.findings
    assert (finding.rank, finding.kind, finding.class_name) == ("mended", "class_extra", "cat")
    assert (finding.found, finding.done) == ("2 <name> in one object: cat, dog", "the first one is used")


def test_a_name_that_an_object_has_twice_is_no_finding() -> None:
    assert not read(SIZE + voc_object(extra="<name> cat</name>")).findings
