"""Each row of docs/reading-rules.md's "Reading an annotation" that can be decided without the picture."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.annotation import MAX_OBJECTS, MAX_XML_BYTES, Annotation, read_annotation
from shared.errors import AnnotationError
from shared.specs.data import JobSpec

SIZE = "<size><width>640</width><height>480</height><depth>3</depth></size>"


def voc_object(name: str = "cat", box: str | None = None, extra: str = "") -> str:
    corners = box if box is not None else "<xmin>10</xmin><ymin>20</ymin><xmax>110</xmax><ymax>220</ymax>"
    return f"<object><name>{name}</name>{extra}<bndbox>{corners}</bndbox></object>"


def corners(*values: object) -> str:
    return "".join(
        f"<{key}>{value}</{key}>" for key, value in zip(("xmin", "ymin", "xmax", "ymax"), values, strict=True)
    )


def read(body: str, **options: object) -> Annotation:
    spec = JobSpec.model_validate(options)
    return read_annotation(f"<annotation>{body}</annotation>".encode(), file="a.xml", spec=spec)


def kinds(annotation: Annotation) -> list[str]:
    return [finding.kind for finding in annotation.findings]


def test_plain_annotation_is_read_whole() -> None:
    annotation = read(
        "<folder>f</folder><filename>a b.jpg</filename><path>C:\\pictures\\a b.jpg</path>"
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
        "<size><width>nan</width><height>1e99</height></size>",
    ],
)
def test_missing_or_zero_size_is_noted_and_left_to_the_picture(size: str) -> None:
    annotation = read(size)
    assert annotation.size is None
    assert kinds(annotation) == ["size_missing"]


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


def test_comment_inside_a_coordinate_does_not_hide_it() -> None:
    annotation = read(SIZE + voc_object(box=corners("<!-- c -->10", 20, 110, 220)))
    assert annotation.objects[0].box[0] == 10


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


def test_unknown_class_is_an_error_unless_skipped() -> None:
    annotation = read(SIZE + voc_object("bird"), classes=["cat"])
    assert annotation.objects == ()
    assert [(finding.kind, finding.rank) for finding in annotation.findings] == [("class_unknown", "error")]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-16-le", "iso-8859-1", "gb2312", "utf-8-sig"])
def test_declared_encodings_and_byte_order_marks_are_honoured(encoding: str) -> None:
    name = "猫" if encoding == "gb2312" else "chaît" if encoding == "iso-8859-1" else "猫é"
    declared = {"utf-8-sig": "utf-8", "utf-16-le": "utf-16"}.get(encoding, encoding)
    text = f'<?xml version="1.0" encoding="{declared}"?><annotation>{SIZE}{voc_object(name)}</annotation>'
    xml = (b"\xff\xfe" if encoding == "utf-16-le" else b"") + text.encode(encoding)
    assert read_annotation(xml, file="a.xml", spec=JobSpec()).objects[0].name == name


@pytest.mark.parametrize("encoding", ["latin-1", "utf_8", "UTF_8", "windows_1252"])
def test_encodings_that_are_declared_as_python_spells_them_are_honoured(encoding: str) -> None:
    text = f"<?xml version='1.0' encoding='{encoding}'?>\n<annotation>{SIZE}{voc_object('été')}</annotation>"
    annotation = read_annotation(text.encode(encoding), file="a.xml", spec=JobSpec())
    assert [each.name for each in annotation.objects] == ["été"]
    with pytest.raises(AnnotationError, match="malformed XML"):
        read_annotation(text.replace("</size>", "").encode(encoding), file="a.xml", spec=JobSpec())


@pytest.mark.parametrize(
    "xml",
    [
        b"",
        b"   ",
        b"not xml",
        b"<annotation><object></annotation>",
        b"<annotation>",
        b"<html><body/></html>",
        b'<?xml version="1.0" encoding="utf-8"?><annotation><filename>\xe9\xff</filename></annotation>',
        b'<?xml version="1.0" encoding="no-such"?><annotation/>',
        b'<?xml version="1.0" encoding="unicode_escape"?><annotation/>',
        b'<?xml version="1.0" encoding="zip"?><annotation/>',
        b'<voc xmlns="urn:x"/>',
        b"\x00" * 64,
        "<annotation/>".encode("utf-16")[:-3],
        b"<a>" * 100_000,
    ],
)
def test_malformed_xml_is_refused(xml: bytes) -> None:
    with pytest.raises(AnnotationError, match=r"a\.xml"):
        read_annotation(xml, file="a.xml", spec=JobSpec())


def test_malformed_xml_names_the_line_of_the_parser() -> None:
    with pytest.raises(AnnotationError, match="line 3"):
        read_annotation(b"<annotation>\n<object>\n</wrong>", file="a.xml", spec=JobSpec())


@pytest.mark.parametrize("name", ["utf-16", "UTF-16LE", "utf-32"])
def test_a_declaration_of_wider_letters_than_the_file_has_is_named(name: str) -> None:
    """As .NET declares UTF-16 where it then writes UTF-8."""
    declared = f'<?xml version="1.0" encoding="{name}"?>\n<annotation/>'
    with pytest.raises(AnnotationError, match=rf"malformed XML: it declares {name}, and is written otherwise: declare"):
        read_annotation(declared.encode(), file="a.xml", spec=JobSpec())
    if name != "UTF-16LE":  # which is without a mark, so the parser takes it for a name of its own
        assert read_annotation(declared.encode(name), file="a.xml", spec=JobSpec()).objects == ()


BOMB = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 10))


@pytest.mark.parametrize(
    "doctype",
    [
        '<!DOCTYPE annotation [<!ENTITY l0 "lol">' + BOMB + "]>",
        '<!DOCTYPE annotation [<!ENTITY x SYSTEM "file:///etc/passwd">]>',
        '<!DOCTYPE annotation [<!ENTITY % p SYSTEM "http://127.0.0.1:1/x.dtd">%p;]>',
        '<!DOCTYPE annotation SYSTEM "http://127.0.0.1:1/x.dtd">',
        "<!DOCTYPE annotation>",
    ],
)
def test_doctype_is_refused_with_or_without_entities(doctype: str) -> None:
    for name in ("cat", "&l9;", "&x;"):
        xml = f"{doctype}<annotation>{voc_object(name)}</annotation>".encode()
        with pytest.raises(AnnotationError, match=r"a\.xml"):
            read_annotation(xml, file="a.xml", spec=JobSpec())


def test_entity_bomb_in_an_attribute_is_refused() -> None:
    xml = f'<!DOCTYPE annotation [<!ENTITY l0 "lol">{BOMB}]><annotation a="&l9;"/>'.encode()
    with pytest.raises(AnnotationError):
        read_annotation(xml, file="a.xml", spec=JobSpec())


def test_too_large_a_file_is_refused_before_it_is_parsed() -> None:
    with pytest.raises(AnnotationError, match="at most"):
        read_annotation(b" " * (MAX_XML_BYTES + 1), file="a.xml", spec=JobSpec())


def test_too_many_objects_are_refused() -> None:
    with pytest.raises(AnnotationError, match="objects"):
        read("<object/>" * (MAX_OBJECTS + 1))


def test_file_without_objects_is_a_background_annotation() -> None:
    annotation = read(SIZE)
    assert (annotation.objects, annotation.objects_read, annotation.findings) == ((), 0, ())


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


@given(st.text(max_size=200) | st.binary(max_size=200).map(lambda raw: raw.decode("latin-1")))
def test_any_text_as_a_name_or_number_is_kept_or_named_or_refused(text: str) -> None:
    body = f"<annotation>{SIZE}{voc_object(text, corners(text, 1, 2, 3))}</annotation>"
    try:
        annotation = read_annotation(body.encode("utf-8", "surrogatepass"), file="a.xml", spec=JobSpec())
    except AnnotationError:
        return
    assert len(annotation.objects) + sum(f.rank == "dropped" for f in annotation.findings) >= annotation.objects_read


@pytest.mark.parametrize(
    ("before", "after", "written"),
    [
        ("<object>", "<Object>", "<Object>"),
        ("<bndbox>", "<BndBox>", "<BndBox>"),
        ("<name>", "<NAME>", "<NAME>"),
        ("<xmin>", "<Xmin>", "<Xmin>"),
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_element_in_capitals_is_mended_not_read_as_nothing(
    before: str, after: str, written: str, encoding: str
) -> None:
    xml = f"<annotation>{SIZE}{voc_object()}</annotation>"
    for old, new in ((before, after), (before.replace("<", "</"), after.replace("<", "</"))):
        xml = xml.replace(old, new)
    annotation = read_annotation(xml.encode(encoding), file="a.xml", spec=JobSpec())
    assert [each.box for each in annotation.objects] == [(10, 20, 110, 220)]
    (finding,) = annotation.findings
    assert (finding.rank, finding.kind, finding.found) == ("mended", "element_respelled", written)
    assert finding.done == f"read as {before}"


@pytest.mark.parametrize("prefix", ["", "v:"])
def test_namespace_changes_nothing_but_is_told(prefix: str) -> None:
    declared = f"xmlns{':v' if prefix else ''}='http://voc.example/1'"
    body = f"<annotation>{SIZE}{voc_object()}</annotation>".replace("</", f"<#{prefix}").replace("<", f"<{prefix}")
    xml = body.replace(f"<{prefix}#{prefix}", f"</{prefix}").replace("annotation>", f"annotation {declared}>", 1)
    annotation = read_annotation(xml.encode(), file="a.xml", spec=JobSpec())
    assert [each.name for each in annotation.objects] == ["cat"]
    assert annotation.size == (640, 480)
    assert {finding.kind for finding in annotation.findings} == {"element_respelled"}


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le", "utf-16-be", "utf-32"])
@pytest.mark.parametrize("element", ["object", "bndbox", "name", "xmin"])
@pytest.mark.parametrize(("prefix", "declared"), [("", "xmlns"), ("v:", "xmlns:v")])
def test_namespace_of_a_child_alone_hides_no_object_and_is_told(
    prefix: str, declared: str, element: str, encoding: str
) -> None:
    text = f"<annotation>{SIZE}{voc_object()}</annotation>".replace(f"</{element}>", f"</{prefix}{element}>")
    text = text.replace(f"<{element}>", f'<{prefix}{element} {declared}="http://x">')
    xml = f'<?xml version="1.0" encoding="{encoding}"?>{text}'.encode(encoding)
    annotation = read_annotation(xml, file="a.xml", spec=JobSpec())
    assert [(each.name, each.box) for each in annotation.objects] == [("cat", (10, 20, 110, 220))]
    assert f"<{{http://x}}{element}>" in {finding.found for finding in annotation.findings}
    assert {finding.kind for finding in annotation.findings} == {"element_respelled"}


def test_boxes_outside_of_objects_are_no_picture_of_nothing() -> None:
    wrapped = f"<annotation>{SIZE}<objects>{voc_object()}</objects></annotation>"
    assert read(SIZE + voc_object(extra="<part><bndbox/></part>")).objects
    for xml in (wrapped, wrapped.replace("objects", "labels").replace("object>", "thing>")):
        with pytest.raises(AnnotationError, match=r"a\.xml: a <bndbox> .* expected annotation/object/bndbox"):
            read_annotation(xml.encode(), file="a.xml", spec=JobSpec())


def test_cvats_own_format_is_named_with_the_way_out() -> None:
    with pytest.raises(AnnotationError, match="CVAT's own format, expected Pascal VOC; export it again"):
        read_annotation(b"<annotations><version>1.1</version></annotations>", file="a.xml", spec=JobSpec())


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
