"""The XML of a photo, corrected by accepted findings."""

import pytest

from producer.audit.corrected_xml import corrected
from shared.annotation.reader import read_annotation
from shared.audit.findings import AuditFinding, PhotoBox
from shared.picture.header import ImageHeader
from shared.specs.data import JobSpec

SPEC = JobSpec()
HEADER = ImageHeader(format="jpeg", width=200, height=100, orientation=1, can_pass=True)


def voc(*objects: tuple[str, PhotoBox], size: str = "<size><width>200</width><height>100</height></size>") -> bytes:
    text = "".join(
        f"<object><name>{name}</name><pose>Left</pose><difficult>1</difficult><bndbox><xmin>{xmin}</xmin>"
        f"<ymin>{ymin}</ymin><xmax>{xmax}</xmax><ymax>{ymax}</ymax></bndbox></object>"
        for name, (xmin, ymin, xmax, ymax) in objects
    )
    return f"<annotation><filename>a.jpg</filename>{size}{text}</annotation>".encode()


def finding(
    box: PhotoBox | None, proposed_box: PhotoBox | None, name: str = "cat", proposed: str = "cat", number: int = 1
) -> AuditFinding:
    return AuditFinding(
        id="0",
        kind="misplaced",
        file="a.jpg",
        object=None if box is None else number,
        score=0.9,
        class_name="" if box is None else name,
        box=box,
        proposed_class="" if proposed_box is None else proposed,
        proposed_box=proposed_box,
        reason="",
    )


CAT, DOG = (10, 20, 50, 60), (100, 10, 160, 90)


def objects(xml: bytes, spec: JobSpec = SPEC) -> list[tuple[str, tuple[float, ...]]]:
    return [(each.name, each.box) for each in read_annotation(xml, file="a.xml", spec=spec).objects]


def test_each_kind_changes_its_object_and_no_other() -> None:
    xml = voc(("cat", CAT), ("dog", DOG), ("cat", DOG))
    moved = corrected(xml, [finding(CAT, (12, 20, 55, 60))], HEADER, SPEC, file="a.xml")
    assert objects(moved.xml) == [("cat", (12, 20, 55, 60)), ("dog", DOG), ("cat", DOG)]
    assert moved.outcomes == ("moved from 10 20 50 60 to 12 20 55 60",)
    assert b"<pose>Left</pose><difficult>1</difficult>" in moved.xml, "what nobody doubts stays"
    removed = corrected(xml, [finding(DOG, None)], HEADER, SPEC, file="a.xml")
    assert objects(removed.xml) == [("cat", CAT), ("dog", DOG)]
    called = corrected(xml, [finding(CAT, CAT, proposed="dog")], HEADER, SPEC, file="a.xml")
    assert objects(called.xml) == [("dog", CAT), ("dog", DOG), ("cat", DOG)]
    assert called.outcomes == ("called dog",)
    added = corrected(xml, [finding(None, (1.4, 2.6, 30, 40))], HEADER, SPEC, file="a.xml")
    assert objects(added.xml)[3] == ("cat", (1, 3, 30, 40))


def test_a_box_that_was_clipped_is_met_and_one_that_is_gone_is_said() -> None:
    xml = voc(("cat", (-8, 20, 50, 60)))
    assert objects(corrected(xml, [finding((0, 20, 50, 60), None)], HEADER, SPEC, file="a.xml").xml) == []
    unmet = corrected(xml, [finding(DOG, None), finding((0, 20, 50, 60), None, name="dog")], HEADER, SPEC, file="a.xml")
    assert unmet.outcomes == ("not changed, the file has no such box any more",) * 2
    assert not unmet.is_changed


def test_of_two_findings_on_one_object_the_first_counts() -> None:
    both = [finding(CAT, None), finding(CAT, CAT, proposed="dog")]
    made = corrected(voc(("cat", CAT)), both, HEADER, SPEC, file="a.xml")
    assert objects(made.xml) == []
    assert made.outcomes[1] == "not changed, the file has no such box any more"


def test_a_class_is_written_so_that_the_same_renames_make_it_what_was_proposed() -> None:
    swapped = JobSpec(rename={"cat": "dog", "dog": "cat"})
    about = [finding(CAT, CAT, name="dog", proposed="cat"), finding(None, DOG, proposed="dog")]
    made = corrected(voc(("cat", CAT)), about, HEADER, swapped, file="a.xml")
    assert objects(made.xml, swapped) == [("cat", CAT), ("dog", DOG)]
    assert objects(made.xml) == [("dog", CAT), ("cat", DOG)]
    joined = JobSpec(rename={"kitten": "cat"})
    made = corrected(voc(("dog", CAT)), [finding(CAT, CAT, name="dog", proposed="cat")], HEADER, joined, file="a.xml")
    assert objects(made.xml) == [("cat", CAT)], "a name that stays as it is needs no other"


def test_an_object_that_the_file_has_twice_is_corrected_as_one() -> None:
    xml = voc(("cat", CAT), ("dog", DOG), ("cat", CAT))
    removed = corrected(xml, [finding(CAT, None)], HEADER, SPEC, file="a.xml")
    assert objects(removed.xml) == [("dog", DOG)]
    called = corrected(xml, [finding(CAT, CAT, proposed="dog")], HEADER, SPEC, file="a.xml")
    assert objects(called.xml) == [("dog", CAT), ("dog", DOG)]
    same = corrected(xml, [finding(CAT, CAT)], HEADER, SPEC, file="a.xml")
    assert not same.is_changed


def test_a_box_that_a_model_drew_is_a_persons_once_it_is_corrected() -> None:
    score = b"<confidence>0.61</confidence></object>"
    xml = voc(("cat", CAT), ("dog", DOG)).replace(b"</object>", score)
    assert read_annotation(xml, file="a.xml", spec=SPEC).predicted == 2
    called = corrected(xml, [finding(CAT, CAT, proposed="dog")], HEADER, SPEC, file="a.xml")
    assert read_annotation(called.xml, file="a.xml", spec=SPEC).predicted == 1
    assert called.xml.index(b"<confidence>") > called.xml.index(b"</object>"), "the other one's"
    as_it_is = corrected(xml, [finding(CAT, CAT)], HEADER, SPEC, file="a.xml")
    assert not as_it_is.is_changed
    assert read_annotation(as_it_is.xml, file="a.xml", spec=SPEC).predicted == 2


def test_a_missing_box_that_somebody_marked_meanwhile_is_not_added_again() -> None:
    made = corrected(voc(("cat", CAT)), [finding(None, (12, 20, 55, 60))], HEADER, SPEC, file="a.xml")
    assert made.outcomes == ("not changed, the file has cat 10 20 50 60 there by now",)
    assert not made.is_changed
    beside = corrected(voc(("cat", CAT)), [finding(None, (40, 20, 80, 60))], HEADER, SPEC, file="a.xml")
    assert objects(beside.xml) == [("cat", CAT), ("cat", (40, 20, 80, 60))]


def test_corners_are_written_as_the_files_others_are_counted() -> None:
    spec = SPEC.model_copy(update={"voc_coords": "voc1"})
    made = corrected(voc(("cat", (11, 21, 50, 60))), [finding(CAT, (12, 22, 50, 60))], HEADER, spec, file="a.xml")
    assert b"<xmin>13</xmin><ymin>23</ymin><xmax>50</xmax><ymax>60</ymax>" in made.xml
    assert objects(made.xml, spec) == [("cat", (12, 22, 50, 60))]


@pytest.mark.parametrize(("width", "is_done"), [(200, False), (100, True)])
def test_a_turned_photo_is_corrected_where_its_size_says_that_boxes_are_upright(width: int, *, is_done: bool) -> None:
    size = f"<size><width>{width}</width><height>{300 - width}</height></size>"
    turned = ImageHeader(format="jpeg", width=200, height=100, orientation=6, can_pass=False)
    xml = voc(("cat", (10, 120, 50, 160)), size=size)
    made = corrected(xml, [finding((10, 120, 50, 160), None)], turned, SPEC, file="a.xml")
    assert made.is_changed == is_done
    assert ("turned by EXIF" in made.outcomes[0]) != is_done


@pytest.mark.parametrize(
    ("size", "found"),
    [
        ("<size><width>640</width><height>480</height></size>", "its <size> is 640x480"),
        ("", "it has no <size>"),
    ],
)
@pytest.mark.parametrize("orientation", [5, 6, 7, 8])
def test_a_size_of_neither_frame_is_told_with_those_that_were_expected(orientation: int, size: str, found: str) -> None:
    turned = ImageHeader(format="jpeg", width=200, height=100, orientation=orientation, can_pass=False)
    made = corrected(voc(("cat", CAT), size=size), [finding(CAT, None)], turned, SPEC, file="a.xml")
    assert made.outcomes == (
        f"not changed, its photo is turned by EXIF (orientation {orientation}) and {found}, expected 100x200, where "
        "its boxes are of the upright photo, or 200x100, where they are of the stored pixels: write 100x200 there if "
        "that is so, and accept again; otherwise correct it by hand",
    )


def test_a_size_of_the_stored_pixels_is_told_as_that() -> None:
    turned = ImageHeader(format="jpeg", width=200, height=100, orientation=6, can_pass=False)
    (told,) = corrected(voc(("cat", CAT)), [finding(CAT, None)], turned, SPEC, file="a.xml").outcomes
    assert "its boxes are not, by its <size> 200x100, that of the stored pixels: correct it by hand" in told


@pytest.mark.parametrize(("width", "orientation"), [(200, 3), (100, 6)])
@pytest.mark.parametrize("exif", ["upright", "raw"])
def test_where_no_size_tells_how_boxes_are_meant_the_option_exif_does(width: int, orientation: int, exif: str) -> None:
    spec = SPEC.model_copy(update={"exif": exif})
    turned = ImageHeader(format="jpeg", width=width, height=100, orientation=orientation, can_pass=False)
    xml = voc(("cat", CAT), size=f"<size><width>{width}</width><height>100</height></size>")
    made = corrected(xml, [finding(None, (60, 60, 90, 90))], turned, spec, file="a.xml")
    assert made.is_changed == (exif == "upright")
    assert ("turned by EXIF" in made.outcomes[0]) == (exif == "raw")


def test_comments_stay_but_for_those_inside_of_a_value_that_is_changed() -> None:
    plain = voc(("cat", CAT), ("dog", DOG)).decode()
    text = plain.replace("<size>", "<!-- by Ann --><?tool 3?><size>").replace("<name>dog", "<name><!-- sure -->dog")
    text = text.replace("<name>cat", "<!-- asleep --><name>c<!-- or dog? -->at")
    text = text.replace("<xmin>10", "<xmin>1<!-- ? -->0")
    xml = f"<!-- first --><?look x?>{text}<!-- last -->".encode()
    findings = [finding(CAT, (12, 20, 50, 60), proposed="dog"), finding(None, CAT)]
    made = corrected(xml, findings, HEADER, SPEC, file="a.xml")
    assert objects(made.xml) == [("dog", (12, 20, 50, 60)), ("dog", DOG), ("cat", CAT)]
    for kept in ("<!-- first -->", "<?look x?>", "<!-- by Ann --><?tool 3?>", "<!-- asleep --><name>dog</name>"):
        assert kept in made.xml.decode()
    for kept in ("<name><!-- sure -->dog</name>", "<!-- last -->", "<xmin>12</xmin>"):
        assert kept in made.xml.decode()


def test_of_two_corners_of_one_name_the_one_that_is_read_is_moved() -> None:
    xml = voc(("cat", CAT)).replace(b"<xmin>", b"<xmin>0</xmin><xmin>")
    made = corrected(xml, [finding(CAT, (12, 20, 50, 60))], HEADER, SPEC, file="a.xml")
    assert made.outcomes == ("moved from 10 20 50 60 to 12 20 50 60",)
    assert objects(made.xml) == [("cat", (12, 20, 50, 60))]


@pytest.mark.parametrize("flat", [(10.2, 10.2, 10.4, 12.9), (199.6, 10, 200, 13), (10, 12.6, 20, 13.4)])
def test_a_proposed_box_without_area_in_whole_pixels_is_refused_and_the_file_stays(flat: PhotoBox) -> None:
    xml = voc(("cat", CAT))
    made = corrected(xml, [finding(None, flat), finding(CAT, flat, proposed="dog")], HEADER, SPEC, file="a.xml")
    assert not made.is_changed
    assert ["has no area in whole pixels" in outcome for outcome in made.outcomes] == [True, True]
    assert objects(made.xml) == [("cat", CAT)]


def test_an_object_below_a_pixel_is_renamed_where_nothing_moves_it() -> None:
    box = (10.2, 10.2, 10.4, 12.9)
    made = corrected(voc(("cat", box)), [finding(box, box, proposed="dog")], HEADER, SPEC, file="a.xml")
    assert made.outcomes == ("called dog",)
    assert objects(made.xml) == [("dog", box)]


def test_a_box_that_was_turned_in_cvat_lies_where_it_is_moved_to() -> None:
    rotation = b"<attributes><attribute><name>rotation</name><value>90</value></attribute></attributes></object>"
    xml = voc(("cat", (20, 30, 60, 50))).replace(b"</object>", rotation)
    called = corrected(xml, [finding((30, 20, 50, 60), (30, 20, 50, 60), proposed="dog")], HEADER, SPEC, file="a.xml")
    [(name, box)] = objects(called.xml)
    assert (name, [round(corner, 6) for corner in box]) == ("dog", [30, 20, 50, 60])
    moved = corrected(xml, [finding((30, 20, 50, 60), (31, 22, 52, 62))], HEADER, SPEC, file="a.xml")
    assert objects(moved.xml) == [("cat", (31, 22, 52, 62))]
