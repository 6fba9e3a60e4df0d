"""Each row of docs/reading-rules.md's "Reading an annotation" that can be decided without the picture."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.jobs.findings import EMPTIED
from tests.unit.shared.annotation.voc_text import SIZE, corners, kinds, read, voc_object


def test_plain_annotation_is_read_whole() -> None:
    annotation = read(
        "<folder> f\n</folder><filename>\ta b.jpg </filename><path>C:\\pictures\\a b.jpg</path>"
        + SIZE
        + voc_object(extra="<pose>Left</pose><truncated>1</truncated><difficult>0</difficult><occluded>1</occluded>")
    )
    assert annotation.size == (640, 480)
    assert (annotation.folder, annotation.filename, annotation.path) == ("f", "a b.jpg", "C:\\pictures\\a b.jpg")
    (cat,) = annotation.objects
    assert (cat.index, cat.name, cat.box, cat.pose) == (1, "cat", (10, 20, 110, 220), "Left")
    assert (cat.difficult, cat.truncated, cat.occluded) == (False, True, True)
    assert annotation.findings == ()


@pytest.mark.parametrize(
    "size",
    [
        "",
        "<size/>",
        "<size><width>0</width><height>480</height></size>",
        "<size><width>640</width></size>",
        "<size><width>x</width><height>480</height></size>",
        "<size><width>-5</width><height>480</height></size>",
        "<size><width>640.5</width><height>480</height></size>",
        "<size><width>nan</width><height>480</height></size>",
        "<size><width>640</width><height>1e99</height></size>",
    ],
)
def test_missing_or_zero_size_is_noted_and_left_to_the_picture(size: str) -> None:
    annotation = read(size)
    assert annotation.size is None
    assert kinds(annotation) == ["size_missing"]


@pytest.mark.parametrize(
    ("size", "found"),
    [("", "no <size>"), ("<size><width>0</width><height>4</height></size>", "width '0', height '4'")],
)
def test_what_stands_in_place_of_a_size_is_told(size: str, found: str) -> None:
    assert [finding.found for finding in read(size).findings] == [found]


def test_size_written_as_float_is_read() -> None:
    assert read("<size><width> 640.0 </width><height>480</height></size>").size == (640, 480)


@pytest.mark.parametrize(
    "extra", ["", "<difficult/><truncated/><occluded></occluded><pose/>", "<difficult> </difficult>"]
)
def test_missing_and_blank_flags_mean_no(extra: str) -> None:
    annotation = read(SIZE + voc_object(extra=extra))
    (cat,) = annotation.objects
    assert (cat.difficult, cat.truncated, cat.occluded, cat.pose) == (False, False, False, "Unspecified")
    assert annotation.findings == ()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("true", True),
        ("True", True),
        (" 1 ", True),
        ("yes", True),
        ("y", True),
        ("T", True),
        ("-1", True),
        ("inf", True),
        ("no", False),
        ("n", False),
        ("f", False),
        ("0.4", True),
        ("FALSE", False),
        ("0.0", False),
        ("Unspecified", False),
    ],
)
def test_flags_are_read_as_words_and_numbers(text: str, expected: bool) -> None:
    annotation = read(SIZE + voc_object(extra=f"<truncated>{text}</truncated>"))
    assert annotation.objects[0].truncated is expected
    assert annotation.findings == ()


def test_unreadable_flag_is_taken_as_no_and_counted() -> None:
    annotation = read(SIZE + voc_object(extra="<difficult>maybe</difficult>"))
    assert annotation.objects[0].difficult is False
    assert kinds(annotation) == ["flag_unreadable"]


@pytest.mark.parametrize(
    ("difficult", "kept", "found"), [("keep", 1, []), ("ignore", 1, []), ("drop", 0, ["difficult_dropped"])]
)
def test_difficult_objects_are_kept_and_flagged_or_dropped(difficult: str, kept: int, found: list[str]) -> None:
    annotation = read(SIZE + voc_object(extra="<difficult>1</difficult>"), difficult=difficult)
    assert len(annotation.objects) == kept
    assert all(kept_object.difficult for kept_object in annotation.objects)
    assert kinds(annotation) == found


@pytest.mark.parametrize(
    ("text", "expected"),
    [("10.25", 10.25), (" 10 ", 10), ("+10", 10), ("1.0e1", 10), ("\n10\t", 10), ("-3", -3), ("010", 10)],
)
def test_coordinates_are_read_and_kept_as_floats(text: str, expected: float) -> None:
    annotation = read(SIZE + voc_object(box=corners(text, 20, 110, 220)))
    assert annotation.objects[0].box[0] == expected


def test_corner_coordinates_are_not_shifted_and_voc1_moves_only_the_near_corner() -> None:
    body = SIZE + voc_object(box=corners(1, 1, 640, 480))
    assert read(body).objects[0].box == (1, 1, 640, 480)
    assert read(body, voc_coords="voc1").objects[0].box == (0, 0, 640, 480)


def test_one_pixel_box_has_an_area_only_as_voc1() -> None:
    body = SIZE + voc_object(box=corners(5, 5, 5, 5))
    assert read(body, voc_coords="voc1").objects[0].box == (4, 4, 5, 5)
    assert kinds(read(body)) == ["box_zero_area"]


def test_swapped_corners_are_put_in_order_before_the_shift_and_counted() -> None:
    annotation = read(SIZE + voc_object(box=corners(110, 220, 10, 20)), voc_coords="voc1")
    assert annotation.objects[0].box == (9, 19, 110, 220)
    assert kinds(annotation) == ["box_swapped"]


@pytest.mark.parametrize(
    ("written", "kind", "found"),
    [
        ("<bndbox/>", "box_unreadable", "<bndbox> without <xmin>, <ymin>, <xmax>, <ymax>"),
        (
            "<bndbox><x>1</x><y>2</y><w>3</w><h>4</h></bndbox>",
            "box_unreadable",
            "<bndbox> without <xmin>, <ymin>, <xmax>, <ymax>, but <x>, <y>, <w>, <h>",
        ),
        (
            '<bndbox xmin="1" ymin="2"><xmax>3</xmax><ymax>4</ymax></bndbox>',
            "box_unreadable",
            "<bndbox> without <xmin>, <ymin>, but xmin=, ymin=",
        ),
        ("<polygon><x1>1</x1></polygon>", "box_missing", "no <bndbox>, but a <polygon>"),
        ("<bbox><xmin>1</xmin></bbox>", "box_missing", "no <bndbox>, but a <bbox>"),
        ("<pose>Left</pose>", "box_missing", "no <bndbox>"),
    ],
)
def test_what_stands_instead_of_a_box_is_named(written: str, kind: str, found: str) -> None:
    annotation = read(f"{SIZE}<object><name>cat</name>{written}</object>")
    assert annotation.objects == ()
    assert [(finding.kind, finding.found) for finding in annotation.findings] == [(kind, found)]


@pytest.mark.parametrize(
    ("box", "done"),
    [
        ((110, 20, 10, 220), "xmin and xmax swapped"),
        ((10, 220, 110, 20), "ymin and ymax swapped"),
        ((110, 220, 10, 20), "xmin and xmax, ymin and ymax swapped"),
    ],
)
def test_all_corners_that_were_swapped_are_named(box: tuple[int, ...], done: str) -> None:
    assert [finding.done for finding in read(SIZE + voc_object(box=corners(*box))).findings] == [done]


@pytest.mark.parametrize("box", [corners(10, 20, 10, 220), corners(10, 20, 110, 20), corners(0, 0, 0, 0)])
def test_box_of_zero_area_is_dropped_and_counted(box: str) -> None:
    annotation = read(SIZE + voc_object(box=box) + voc_object())
    assert [kept.index for kept in annotation.objects] == [2]
    assert kinds(annotation) == ["box_zero_area"]
    assert annotation.findings[0].object_index == 1


@pytest.mark.parametrize("text", ["nan", "inf", "-Infinity", "1e999", "", "x", "12,5", "1_0", "0x10"])
def test_box_that_is_not_finite_numbers_is_dropped_and_counted(text: str) -> None:
    annotation = read(SIZE + voc_object(box=corners(10, 20, text, 220)))
    assert annotation.objects == ()
    assert kinds(annotation) == ["box_unreadable"]


def test_object_without_bndbox_or_without_a_corner_is_dropped_and_counted() -> None:
    annotation = read(SIZE + "<object><name>cat</name></object>" + voc_object(box="<xmin>1</xmin>"))
    assert kinds(annotation) == ["box_missing", "box_unreadable"]
    assert annotation.objects_read == 2


def test_exact_duplicate_is_kept_once_and_counted() -> None:
    annotation = read(SIZE + voc_object() + voc_object("dog") + voc_object())
    assert [(kept.index, kept.name) for kept in annotation.objects] == [(1, "cat"), (2, "dog")]
    assert kinds(annotation) == ["object_duplicate"]
    assert annotation.findings[0].object_index == 3


def test_parts_attributes_actions_and_comments_are_ignored() -> None:
    part = "<part><name>head</name><bndbox>" + corners(1, 2, 3, 4) + "</bndbox></part>"
    nested = "<parts><object><name>not a child</name></object></parts>"
    annotation = read(
        SIZE
        + nested
        + voc_object(extra=part + "<attributes><attribute/></attributes><actions><jumping>1</jumping></actions>")
        + "<segmented>1</segmented><!-- <object/> -->"
    )
    (cat,) = annotation.objects
    assert (cat.name, cat.box) == ("cat", (10, 20, 110, 220))
    assert annotation.findings == ()


@pytest.mark.parametrize("written", ["<!-- c -->10", "1<!-- c -->0", "<?c d?>10", "1<?c d?>0"])
def test_comment_or_instruction_inside_a_coordinate_does_not_hide_it(written: str) -> None:
    annotation = read(SIZE + voc_object(box=corners(written, 20, 110, 220)))
    assert annotation.objects[0].box[0] == 10
    assert annotation.findings == ()


def test_a_photo_that_loses_its_last_object_is_told_to_stay_as_a_picture_of_nothing() -> None:
    empty = voc_object(box=corners(0, 0, 0, 0))
    assert [finding.done for finding in read(SIZE + empty).findings] == [f"object dropped{EMPTIED}"]
    assert [finding.done for finding in read(SIZE + empty + voc_object()).findings] == ["object dropped"]
    swapped = read(SIZE + voc_object(box=corners(9, 9, 9, 1))).findings
    assert [finding.done for finding in swapped] == ["ymin and ymax swapped", f"object dropped{EMPTIED}"]


def test_objects_that_a_model_drew_are_counted() -> None:
    objects = voc_object() + voc_object("bird") + voc_object("dog", extra="<confidence>0.9</confidence>")
    assert read(SIZE + objects).predicted == 1


def test_of_a_flag_that_an_object_has_twice_the_first_one_is_used() -> None:
    annotation = read(SIZE + voc_object(extra="<truncated>1</truncated><truncated>0</truncated>"))
    assert annotation.objects[0].truncated


def test_class_names_are_stripped_and_keep_their_case() -> None:
    assert [kept.name for kept in read(SIZE + voc_object(" Cat\n") + voc_object("été ß")).objects] == ["Cat", "été ß"]


@pytest.mark.parametrize(
    ("written", "name"),
    [("a\n b", "a b"), ("a\u2028b", "a b"), (" a\u00a0b", "a b"), ("a  b", "a b"), ("a\x9b31mb", "a\\x9b31mb")],
)
def test_class_names_are_one_line_and_what_was_changed_is_counted(written: str, name: str) -> None:
    annotation = read(SIZE + voc_object(written))
    assert [kept.name for kept in annotation.objects] == [name]
    (finding,) = annotation.findings
    assert (finding.rank, finding.kind, finding.object_index) == ("mended", "class_respelled", 1)
    assert (finding.found, finding.done) == (repr(written), f"read as {name!r}")


@pytest.mark.parametrize("written", ["\n\t\tcat\n\t", " cat ", "\u2028cat", "cat\u3000", "cat"])
def test_white_space_around_a_class_name_is_no_finding(written: str) -> None:
    annotation = read(SIZE + voc_object(written))
    assert [kept.name for kept in annotation.objects] == ["cat"]
    assert annotation.findings == ()


def test_a_respelled_name_as_long_as_the_file_fills_no_receipt() -> None:
    (finding,) = read(SIZE + voc_object("a\n" * 100_000)).findings
    assert len(finding.found) + len(finding.done) <= 400


def test_asked_classes_are_respelled_as_those_of_the_file() -> None:
    body = SIZE + voc_object("a\nb") + voc_object("c\u2028d") + voc_object("e  f")
    spec = {"classes": ["a\tb", " g"], "ignore_classes": ["c d\n"], "rename": {"e f ": "g\n"}}
    assert [kept.name for kept in read(body, **spec).objects] == ["a b", "g"]


def test_an_object_without_a_class_gets_none_by_a_rename_of_white_space() -> None:
    assert kinds(read(SIZE + voc_object(" "), rename={" ": "cat"})) == ["class_missing"]


def test_object_without_a_class_is_dropped_and_counted() -> None:
    annotation = read(SIZE + voc_object("  ") + "<object><bndbox>" + corners(1, 2, 3, 4) + "</bndbox></object>")
    assert kinds(annotation) == ["class_missing", "class_missing"]


def test_classes_are_renamed_ignored_and_selected() -> None:
    body = SIZE + voc_object("Cat") + voc_object("dog") + voc_object("bird")
    annotation = read(body, rename={"Cat": "cat"}, ignore_classes=["dog"], classes=["cat"], unknown="skip")
    assert [kept.name for kept in annotation.objects] == ["cat"]
    assert kinds(annotation) == ["class_ignored", "class_skipped"]


@pytest.mark.parametrize("ignored", ["Cat", "cat"])
def test_a_renamed_class_is_ignored_under_either_name_and_told_as_the_file_has_it(ignored: str) -> None:
    annotation = read(SIZE + voc_object("Cat") + voc_object("dog"), rename={"Cat": "cat"}, ignore_classes=[ignored])
    assert [kept.name for kept in annotation.objects] == ["dog"]
    assert kinds(annotation) == ["class_ignored"]
    assert annotation.written == ("Cat", "dog")


def test_unknown_class_is_an_error_unless_skipped() -> None:
    annotation = read(SIZE + voc_object("bird"), classes=["cat"])
    assert annotation.objects == ()
    assert [(finding.kind, finding.rank) for finding in annotation.findings] == [("class_unknown", "error")]


@given(
    st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=4, max_size=4),
    st.sampled_from(["corner", "voc1"]),
)
def test_every_object_is_kept_or_named(numbers: list[float], voc_coords: str) -> None:
    annotation = read(SIZE + voc_object(box=corners(*numbers)), voc_coords=voc_coords)
    dropped = [finding for finding in annotation.findings if finding.rank in ("dropped", "error")]
    assert len(annotation.objects) + len(dropped) == annotation.objects_read == 1
    for kept in annotation.objects:
        assert all(map(math.isfinite, kept.box))
        xmin, ymin, xmax, ymax = kept.box
        assert xmin < xmax
        assert ymin < ymax


def test_a_finding_about_an_object_names_its_class_as_the_job_does() -> None:
    objects = [
        voc_object("cat", corners(50, 9, 10, 2)),
        voc_object("big\ncat", corners(1, 1, 1, 9)),
        voc_object("dog", corners("x", 1, 2, 9)),
        voc_object("", corners(1, 1, 2, 9)),
        voc_object("crow"),
        voc_object("owl"),
        voc_object("dog", extra="<difficult>maybe</difficult>"),
        voc_object("dog"),
        "<object><name>dog</name></object>",
        voc_object("dog", corners(5, 5, 9, 9), "<difficult>1</difficult>"),
    ]
    annotation = read(
        "".join(objects), rename={"big cat": "cat"}, ignore_classes=["owl"], classes=["cat", "dog"], difficult="drop"
    )
    named = {(finding.object_index, finding.kind): finding.class_name for finding in annotation.findings}
    assert named == {
        (None, "size_missing"): "",
        (1, "box_swapped"): "cat",
        (2, "class_respelled"): "cat",
        (2, "box_zero_area"): "cat",
        (3, "box_unreadable"): "dog",
        (4, "class_missing"): "",
        (5, "class_unknown"): "crow",
        (6, "class_ignored"): "owl",
        (7, "flag_unreadable"): "dog",
        (8, "object_duplicate"): "dog",
        (9, "box_missing"): "dog",
        (10, "difficult_dropped"): "dog",
    }


def test_the_class_in_a_finding_is_no_longer_than_its_other_texts() -> None:
    (_, finding) = read(voc_object("x" * 1000, corners(1, 1, 1, 9))).findings
    assert finding.class_name == "x" * 200
