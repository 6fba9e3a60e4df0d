"""A made-up VOC folder with one pair for each known quirk of real ones, and what reading it must count.

The table below is the expectation; the tests hold receipts and the lint report against it.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.quirks import pictures
from tests.quirks.pictures import HEIGHT_PX, WIDTH_PX

_CORNERS: Final = ("xmin", "ymin", "xmax", "ymax")
_HEAD: Final = '<?xml version="1.0" encoding="utf-8"?>'


@dataclass(frozen=True, slots=True, kw_only=True)
class Quirk:
    """One pair of files: its stem, how its picture and its annotation are made (None: absent), what it counts."""

    stem: str
    xml: bytes | None
    image: Callable[[], bytes] | None
    extension: str
    counts: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class QuirkSet:
    """What was planted, and what a job with default options must count: pairs, outcomes and findings by kind."""

    quirks: list[str]
    pairs: int
    written: int
    quarantined: int
    images_without_annotation: int
    annotations_without_image: int
    counters: dict[str, int]


def synthesize_quirks(folder: Path) -> QuirkSet:
    """Write the set in VOC layout, without lists.

    Args:
        folder: Where to write.

    Returns:
        What a job over it must count.
    """
    quirks = all_quirks()
    for name in ("Annotations", "JPEGImages"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for quirk in quirks:
        if quirk.image is not None:
            (folder / "JPEGImages" / f"{quirk.stem}{quirk.extension}").write_bytes(quirk.image())
        if quirk.xml is not None:
            (folder / "Annotations" / f"{quirk.stem}.xml").write_bytes(quirk.xml)
    pairs = [quirk for quirk in quirks if quirk.image is not None and quirk.xml is not None]
    quarantined = sum(any(kind.endswith("_unreadable") and kind in _FATAL for kind in quirk.counts) for quirk in pairs)
    return QuirkSet(
        quirks=[quirk.stem for quirk in quirks],
        pairs=len(pairs),
        written=len(pairs) - quarantined,
        quarantined=quarantined,
        images_without_annotation=sum(quirk.xml is None for quirk in quirks),
        annotations_without_image=sum(quirk.image is None for quirk in quirks),
        counters=dict(sorted(Counter(kind for quirk in pairs for kind in quirk.counts).items())),
    )


_FATAL: Final = frozenset({"annotation_unreadable", "image_unreadable"})


def all_quirks() -> list[Quirk]:
    """Every planted quirk, in the order of their stems."""
    return sorted(
        (
            *_annotation_quirks(),
            *_encodings_and_names(),
            *_broken_annotations(),
            *_image_quirks(),
            *_turned_images(),
            *_lonely(),
        ),
        key=lambda quirk: quirk.stem,
    )


def _plain_jpeg() -> bytes:
    return pictures.encode(".jpg")


def _quirk(
    stem: str,
    *counts: str,
    xml: str | bytes | None = None,
    image: Callable[[], bytes] = _plain_jpeg,
    extension: str = ".jpg",
) -> Quirk:
    text = _xml() if xml is None else xml
    encoded = text if isinstance(text, bytes) else text.encode()
    return Quirk(stem=stem, xml=encoded, image=image, extension=extension, counts=counts)


def _xml(*objects: str, size: tuple[object, object] | None = (WIDTH_PX, HEIGHT_PX), head: str = "") -> str:
    sides = "" if size is None else f"<size><width>{size[0]}</width><height>{size[1]}</height><depth>3</depth></size>"
    return f"<annotation>{head}{sides}{''.join(objects or (_object(),))}</annotation>"


def _object(*corners: object, name: str = "circle", extra: str = "") -> str:
    values = corners or (10, 10, 50, 50)
    box = "".join(f"<{key}>{value}</{key}>" for key, value in zip(_CORNERS, values, strict=True))
    return f"<object><name>{name}</name>{extra}<bndbox>{box}</bndbox></object>"


def _flags(truncated: str, difficult: str) -> str:
    return f"<pose/><truncated>{truncated}</truncated><difficult>{difficult}</difficult>"


def _annotation_quirks() -> list[Quirk]:
    """Annotations that are bent and read."""
    part = "<part><name>rim</name><bndbox><xmin>1</xmin><ymin>1</ymin><xmax>2</xmax><ymax>2</ymax></bndbox></part>"
    windows = "<folder>old</folder><filename>other name.jpg</filename><path>C:\\moved\\other name.jpg</path>"
    return [
        _quirk("plain"),
        _quirk("size_absent", "size_missing", xml=_xml(size=None)),
        _quirk("size_zero", "size_missing", xml=_xml(size=(0, 0))),
        _quirk("size_of_another_picture", "size_differs", xml=_xml(size=(1000, 900))),
        _quirk("size_as_float", xml=_xml(size=(f"{WIDTH_PX}.0", f" {HEIGHT_PX} "))),
        _quirk("flags_blank", xml=_xml(_object(extra=_flags("", " ")))),
        _quirk("flags_as_words", xml=_xml(_object(extra=_flags("true", "False")))),
        _quirk("flag_of_no_meaning", "flag_unreadable", xml=_xml(_object(extra=_flags("perhaps", "0")))),
        _quirk("difficult_object", xml=_xml(_object(extra=_flags("0", "1")))),
        _quirk("corners_as_floats", xml=_xml(_object("10.25", "10.5", "50.75", "5.0e1"))),
        _quirk("corners_with_spaces_and_signs", xml=_xml(_object(" 10", "+10", "50 ", "\n50\n"))),
        _quirk("corners_swapped", "box_swapped", xml=_xml(_object(50, 50, 10, 10))),
        _quirk("box_without_width", "box_zero_area", xml=_xml(_object(), _object(10, 10, 10, 45))),
        _quirk("box_without_height", "box_zero_area", xml=_xml(_object(), _object(10, 10, 45, 10))),
        _quirk("corner_nan", "box_unreadable", xml=_xml(_object(), _object("nan", 10, 45, 45))),
        _quirk("corner_infinite", "box_unreadable", xml=_xml(_object(), _object(10, 10, "inf", 45))),
        _quirk("corner_empty", "box_unreadable", xml=_xml(_object(), _object(10, 10, "", 45))),
        _quirk("object_without_box", "box_missing", xml=_xml(_object(), "<object><name>circle</name></object>")),
        _quirk("box_over_the_edge", "box_clipped", xml=_xml(_object(100, 50, WIDTH_PX + 10, HEIGHT_PX + 10))),
        _quirk("box_one_pixel_over", "box_clipped", xml=_xml(_object(0, 0, WIDTH_PX + 1, HEIGHT_PX))),
        _quirk("box_mostly_outside", "box_outside", xml=_xml(_object(), _object(110, 70, 200, 150))),
        _quirk("box_quite_outside", "box_outside", xml=_xml(_object(), _object(250, 250, 300, 300))),
        _quirk("object_twice", "object_duplicate", xml=_xml(_object(), _object(), _object(name="cross"))),
        _quirk("object_with_parts", xml=_xml(_object(extra=part + "<attributes/><actions/>"))),
        _quirk("class_padded", xml=_xml(_object(name=" circle\n"))),
        _quirk("class_absent", "class_missing", xml=_xml(_object(), _object(name=" "))),
        _quirk(
            "no_object",
            xml=f"<annotation><size><width>{WIDTH_PX}</width><height>{HEIGHT_PX}</height></size></annotation>",
        ),
        _quirk("names_of_a_moved_folder", xml=_xml(head=windows)),
    ]


def _encodings_and_names() -> list[Quirk]:
    """Annotations in other encodings than UTF-8, and files of other names than ASCII ones."""
    return [
        _quirk("encoding_utf16", xml=f'<?xml version="1.0" encoding="utf-16"?>{_xml()}'.encode("utf-16")),
        _quirk("encoding_bom", xml=f"{_HEAD}{_xml()}".encode("utf-8-sig")),
        _quirk(
            "encoding_latin1",
            xml=f'<?xml version="1.0" encoding="iso-8859-1"?>{_xml(head="<folder>é</folder>")}'.encode("latin-1"),
        ),
        _quirk("name with spaces ü 写真"),
    ]


def _broken_annotations() -> list[Quirk]:
    """Annotations that set their pair aside."""
    lol = '<!ENTITY a "lol"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;"><!ENTITY c "&b;&b;&b;&b;&b;&b;&b;&b;">'
    broken: dict[str, str | bytes] = {
        "xml_cut_off": _xml()[:120],
        "xml_empty": b"",
        "xml_is_html": "<html><body>not found</body></html>",
        "xml_of_wrong_encoding": f"{_HEAD}{_xml(head='<folder>é</folder>')}".encode("latin-1"),
        "xml_entity_bomb": f"<!DOCTYPE annotation [{lol}]>{_xml(_object(name='&c;'))}",
        "xml_external_entity": f'<!DOCTYPE annotation [<!ENTITY x SYSTEM "file:///etc/hostname">]>{_xml(_object(name="&x;"))}',
        "xml_external_dtd": f'<!DOCTYPE annotation SYSTEM "http://localhost/voc.dtd">{_xml()}',
    }
    return [_quirk(stem, "annotation_unreadable", xml=xml) for stem, xml in broken.items()]


def _image_quirks() -> list[Quirk]:
    """Pictures of every kind, read; and pictures that set their pair aside."""
    read: dict[str, tuple[Callable[[], bytes], str]] = {
        "image_gray": (pictures.gray, ".jpg"),
        "image_progressive": (pictures.progressive, ".jpg"),
        "image_upper_case_extension": (_plain_jpeg, ".JPG"),
        "image_png": (lambda: pictures.encode(".png"), ".png"),
        "image_16_bit": (pictures.deep, ".png"),
        "image_alpha": (pictures.with_alpha, ".png"),
        "image_palette": (pictures.palette, ".png"),
        "image_webp": (lambda: pictures.encode(".webp"), ".webp"),
        "image_bmp": (lambda: pictures.encode(".bmp"), ".bmp"),
        "image_tiff": (lambda: pictures.encode(".tiff"), ".tiff"),
    }
    refused: dict[str, tuple[Callable[[], bytes], str]] = {
        "image_truncated": (lambda: pictures.truncated(".jpg"), ".jpg"),
        "image_truncated_png": (lambda: pictures.truncated(".png"), ".png"),
        "image_damaged_in_its_scan": (pictures.damaged, ".jpg"),
        "image_truncated_and_closed": (pictures.closed_again, ".jpg"),
        "image_empty": (lambda: b"", ".jpg"),
        "image_is_html": (lambda: b"<html>404</html>", ".jpg"),
        "image_is_heic": (lambda: b"\0\0\0\x18ftypheic" + bytes(40), ".jpg"),
        "image_bomb": (pictures.bomb, ".png"),
    }
    return [
        *(_quirk(stem, image=image, extension=extension) for stem, (image, extension) in read.items()),
        _quirk("image_without_its_end", "image_cut_short", image=lambda: pictures.encode(".jpg")[:-2]),
        *(
            _quirk(stem, "image_unreadable", image=image, extension=extension)
            for stem, (image, extension) in refused.items()
        ),
        _quirk("image_png_named_jpg", "format_differs", image=lambda: pictures.encode(".png")),
        _quirk("image_jpg_named_png", "format_differs", extension=".png"),
    ]


def _turned_images() -> list[Quirk]:
    """EXIF orientations: 6 lies on its side (stored 120x80, seen 80x120), 3 stands on its head."""
    upright, raw = _object(30, 10, 70, 50), _object()
    no_size = _xml(_object(10, 90, 50, 115), size=None)
    sideways = lambda: pictures.turned(6)  # noqa: E731  # six times below
    background = f"<annotation><size><width>{WIDTH_PX}</width><height>{HEIGHT_PX}</height></size></annotation>"
    return [
        _quirk("exif_labelled_upright", "exif_upright", xml=_xml(upright, size=(HEIGHT_PX, WIDTH_PX)), image=sideways),
        _quirk("exif_labelled_raw", "exif_raw", xml=_xml(raw), image=sideways),
        _quirk("exif_decided_by_boxes", "size_missing", "exif_upright", xml=no_size, image=sideways),
        _quirk("exif_undecided", "exif_undecided", image=lambda: pictures.turned(3)),
        _quirk("exif_on_background", "exif_turned", xml=background, image=sideways),
        _quirk("exif_says_upright", image=lambda: pictures.turned(1)),
    ]


def _lonely() -> list[Quirk]:
    """Files without their other half."""
    return [
        Quirk(stem="lonely_image", xml=None, image=_plain_jpeg, extension=".jpg", counts=()),
        Quirk(stem="lonely_annotation", xml=_xml().encode(), image=None, extension=".jpg", counts=()),
    ]
