"""An object that has more boxes than one: a box must not be lost in silence."""

from shared.annotation import read_annotation
from shared.specs.data import JobSpec

BOX = "<bndbox><xmin>{0}</xmin><ymin>{0}</ymin><xmax>9</xmax><ymax>9</ymax></bndbox>"


def test_the_first_box_of_an_object_is_used_and_the_others_are_told() -> None:
    objects = f"<object><name>cat</name>{BOX.format(1)}{BOX.format(2)}</object>"
    size = "<size><width>20</width><height>20</height></size>"
    annotation = read_annotation(f"<annotation>{size}{objects}</annotation>".encode(), file="a.xml", spec=JobSpec())
    assert [each.box for each in annotation.objects] == [(1.0, 1.0, 9.0, 9.0)]
    [finding] = annotation.findings
    assert (finding.rank, finding.kind, finding.object_index) == ("mended", "box_extra", 1)
    assert (finding.found, finding.class_name) == ("2 <bndbox> in one object", "cat")
