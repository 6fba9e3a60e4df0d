"""Annotation files: encodings, spelling of elements, malformed and hostile XML, limits."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.annotation.parse import MAX_XML_BYTES
from shared.annotation.reader import MAX_OBJECTS, read_annotation
from shared.errors import AnnotationError
from shared.specs.data import JobSpec
from shared.text import LFS_POINTER
from tests.unit.shared.annotation.voc_text import SIZE, corners, read, voc_object


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
        b"<annotation>" + b"<a>" * 1_000 + b"</a>" * 1_000 + b"</annotation>",
    ],
)
def test_malformed_xml_is_refused(xml: bytes) -> None:
    with pytest.raises(AnnotationError, match=r"a\.xml"):
        read_annotation(xml, file="a.xml", spec=JobSpec())


@pytest.mark.parametrize(
    ("xml", "told"),
    [
        (LFS_POINTER + b"v1\n", "a pointer of Git LFS instead of the XML: `git lfs pull` fetches it"),
        (
            "<annotation/>".encode("utf-16-le"),
            "it looks like UTF-16 without the mark that belongs in front: save it as UTF-8",
        ),
        (
            "<annotation/>".encode("utf-16-be"),
            "it looks like UTF-16 without the mark that belongs in front: save it as UTF-8",
        ),
        (b"<annotation>\n<name>cats & dogs</name></annotation>", "an & in line 2: write it as &amp;"),
        (b"<annotation>\n<name>M&M</name></annotation>", "an & in line 2: write it as &amp;"),
        (b"<annotation>\n<name>a&nbsp;b</name></annotation>", "Entity 'nbsp' not defined, line 2, column"),
        (
            "<annotation>\n<name>Waschbär</name></annotation>".encode("latin-1"),
            "it declares no encoding, which means UTF-8, and line 2 is written otherwise: declare what it is written "
            "in, such as latin-1, or save it as UTF-8",
        ),
        (
            b'<?xml version="1.0" encoding="utf-8"?><a>\xe4</a>',
            "it declares utf-8 and line 1 is written otherwise: declare",
        ),
    ],
)
def test_what_is_wrong_with_a_file_is_told_where_the_parser_does_not_say_it(xml: bytes, told: str) -> None:
    with pytest.raises(AnnotationError) as caught:
        read_annotation(xml, file="a.xml", spec=JobSpec())
    assert str(caught.value).startswith(f"a.xml: malformed XML: {told}")


def test_what_the_parser_says_is_one_line_and_an_unknown_entity_has_its_remedy() -> None:
    for xml in (b"<annotation><name>a\0b</name></annotation>", b"<annotation><name>a&nbsp;b</name></annotation>"):
        with pytest.raises(AnnotationError) as caught:
            read_annotation(xml, file="a.xml", spec=JobSpec())
        assert "\n" not in str(caught.value)
        assert "UTF-16" not in str(caught.value)
    assert str(caught.value).endswith(": write the letter itself instead")


def test_an_encoding_that_nobody_knows_is_named() -> None:
    with pytest.raises(AnnotationError, match=r"a\.xml: unreadable XML: unknown encoding: no-such"):
        read_annotation(b'<?xml version="1.0" encoding="no-such"?><annotation/>', file="a.xml", spec=JobSpec())


def test_malformed_xml_names_the_line_of_the_parser() -> None:
    with pytest.raises(AnnotationError, match="line 3"):
        read_annotation(b"<annotation>\n<object>\n</wrong>", file="a.xml", spec=JobSpec())


@pytest.mark.parametrize("name", ["utf-16", "UTF-16LE", "utf-32", "ucs-2", "UCS-4"])
def test_a_declaration_of_wider_letters_than_the_file_has_is_named(name: str) -> None:
    """As .NET declares UTF-16 where it then writes UTF-8."""
    declared = f'<?xml version="1.0" encoding="{name}"?>\n<annotation/>'
    with pytest.raises(AnnotationError, match=rf"malformed XML: it declares {name}, and is written otherwise: declare"):
        read_annotation(declared.encode(), file="a.xml", spec=JobSpec())
    if name in ("utf-16", "utf-32"):  # the others are without a mark, or none of Python's
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


@pytest.mark.parametrize(
    "doctype",
    [
        '<!DOCTYPE annotation SYSTEM "{pipe}">',
        '<!DOCTYPE annotation [<!ENTITY x SYSTEM "{pipe}">]>',
        '<!DOCTYPE annotation [<!ENTITY % x SYSTEM "{pipe}">%x;]>',
    ],
)
@pytest.mark.timeout(60)
def test_no_file_that_an_xml_names_is_opened(doctype: str, tmp_path: Path) -> None:
    """Whoever opens this one waits for ever: it is a pipe into which nobody writes."""
    os.mkfifo(tmp_path / "pipe")
    xml = f"{doctype.format(pipe=tmp_path / 'pipe')}<annotation>{voc_object('&x;')}</annotation>".encode()
    with pytest.raises(AnnotationError, match=r"a\.xml"):
        read_annotation(xml, file="a.xml", spec=JobSpec())


def test_entity_bomb_in_an_attribute_is_refused() -> None:
    xml = f'<!DOCTYPE annotation [<!ENTITY l0 "lol">{BOMB}]><annotation a="&l9;"/>'.encode()
    with pytest.raises(AnnotationError):
        read_annotation(xml, file="a.xml", spec=JobSpec())


def test_too_large_a_file_is_refused_before_it_is_parsed() -> None:
    largest = b"<annotation/>".ljust(MAX_XML_BYTES)
    assert read_annotation(largest, file="a.xml", spec=JobSpec()).objects == ()
    with pytest.raises(AnnotationError, match="at most"):
        read_annotation(largest + b" ", file="a.xml", spec=JobSpec())


def test_too_many_objects_are_refused() -> None:
    assert read("<object/>" * MAX_OBJECTS).objects_read == MAX_OBJECTS
    with pytest.raises(AnnotationError, match="objects"):
        read("<object/>" * (MAX_OBJECTS + 1))


def test_file_without_objects_is_a_background_annotation() -> None:
    annotation = read(SIZE)
    assert (annotation.objects, annotation.objects_read, annotation.findings) == ((), 0, ())


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
        ("<bndbox>", "<bndBox>", "<bndBox>"),
        ("<xmin>", "<xMin>", "<xMin>"),
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


def test_an_element_that_is_not_read_may_be_spelled_in_any_way() -> None:
    annotation = read(SIZE + voc_object(extra="<Part>x</Part><Segmented/>"))
    assert [each.name for each in annotation.objects] == ["cat"]
    assert annotation.findings == ()


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


def test_objects_in_another_place_and_form_are_no_picture_of_nothing() -> None:
    fair1m = "<objects><object><possibleresult><name>Boeing737</name></possibleresult><points/></object></objects>"
    with pytest.raises(AnnotationError, match=r"a\.xml: an <object> in <objects> but no .* expected annotation/object"):
        read(SIZE + fair1m)
    assert read(SIZE + voc_object() + fair1m).objects
    assert not read(SIZE + "<objects/>").objects


def test_cvats_own_format_is_named_with_the_way_out() -> None:
    with pytest.raises(AnnotationError, match="CVAT's own format, expected Pascal VOC; export it again"):
        read_annotation(b"<annotations><version>1.1</version></annotations>", file="a.xml", spec=JobSpec())


def test_a_file_for_several_photos_is_not_taken_for_cvats_own() -> None:
    xml = f"<annotations><annotation>{voc_object()}</annotation></annotations>".encode()
    with pytest.raises(
        AnnotationError, match=r"a\.xml: an <annotation> in <annotations>, expected a file for each photo"
    ):
        read_annotation(xml, file="a.xml", spec=JobSpec())
