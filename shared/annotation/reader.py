"""VOC XML bytes -> `Annotation`: labels and boxes in image pixels, and what was mended on the way.

Whatever can be decided without the picture is decided here. The worker decides what needs the picture's true size:
clipping, the rotated frame of an EXIF orientation, a wrong `<size>`.
"""

import math
from typing import Final

from lxml import etree

from shared.annotation.box import parse_number, read_box, turned
from shared.annotation.parse import parse_respelled
from shared.annotation.voc import Annotation, Box, FileFindings, VocObject
from shared.errors import AnnotationError
from shared.jobs.findings import of_emptied_photo
from shared.specs.data import JobSpec
from shared.text import class_name

MAX_OBJECTS: Final = 10_000

# What other programs write in place of the devkit's <bndbox>.
_OTHER_SHAPES: Final = ("bbox", "box", "polygon", "robndbox", "points", "mask")
_TRUE: Final = frozenset({"true", "yes", "t", "y"})
_FALSE: Final = frozenset({"", "false", "no", "f", "n", "unspecified"})


def read_annotation(xml: bytes, *, file: str, spec: JobSpec) -> Annotation:
    """Read one VOC annotation, in whatever encoding it declares, under the options of a job.

    Each object of the file is either in `objects` or named by a finding of rank dropped or error. `file` is the file's
    name in findings and errors.

    Raises:
        AnnotationError: Malformed, hostile, too large, or not a VOC annotation.
    """
    root, respelled = parse_respelled(xml, file)
    findings = FileFindings(file)
    for written, name in respelled.items():
        findings.add("mended", "element_respelled", None, f"<{written}>", f"read as <{name}>")
    texts = {child.tag: child.text for child in root if child.tag in ("filename", "path", "folder")}
    size = _read_size(root, findings)
    elements = root.findall("object")
    if not elements and (misplaced := _misplaced(root)):
        raise AnnotationError(
            f"{file}: {misplaced} but no <object> directly below <annotation>, expected annotation/object/bndbox"
        )
    if len(elements) > MAX_OBJECTS:
        raise AnnotationError(f"{file}: {len(elements)} objects, at most {MAX_OBJECTS} are read")
    objects: dict[tuple[str, Box], VocObject] = {}
    for index, element in enumerate(elements, start=1):
        voc_object = _read_object(element, index, spec, findings)
        if voc_object is None:
            continue
        first = objects.setdefault((voc_object.name, voc_object.box), voc_object)
        if first is not voc_object:
            findings.drop("object_duplicate", index, f"same class and box as object {first.index}", first.name)
    return Annotation(
        size=size,
        filename=(texts.get("filename") or "").strip(),
        path=(texts.get("path") or "").strip(),
        folder=(texts.get("folder") or "").strip(),
        objects_read=len(elements),
        objects=tuple(objects.values()),
        findings=tuple(findings.found if objects else of_emptied_photo(findings.found)),
        written=tuple(findings.written),
        predicted=sum(element.find("confidence") is not None for element in elements),
    )


def _misplaced(root: etree._Element) -> str:
    """What shows that a file without an `<object>` in its place has objects, in another form than VOC; "" if nothing.

    Such a file is no picture of nothing. FAIR1M, for example, has `<objects>` around all its objects.
    """
    if root.find(".//bndbox") is not None:
        return "a <bndbox>"
    element = root.find(".//object")
    parent = None if element is None else element.getparent()
    return "" if parent is None else f"an <object> in <{str(parent.tag)[:80]}>"


def _read_size(root: etree._Element, findings: FileFindings) -> tuple[int, int] | None:
    """(width, height) in whole pixels, or None."""
    size = root.find("size")
    texts = {} if size is None else {child.tag: child.text or "" for child in size}
    width, height = (parse_number(texts.get(side, "")) for side in ("width", "height"))
    if _is_side(width) and _is_side(height):
        return int(width), int(height)
    found = "no <size>" if size is None else f"width {texts.get('width')!r}, height {texts.get('height')!r}"
    findings.add("info", "size_missing", None, found, "the picture's own size is used")
    return None


def _is_side(number: float) -> bool:
    return 1 <= number < 2**31 and number == int(number)


def _read_object(element: etree._Element, index: int, spec: JobSpec, findings: FileFindings) -> VocObject | None:
    """One `<object>`; None if it is dropped."""
    texts: dict[str, str] = {}
    boxes: list[etree._Element] = []
    names: list[str] = []
    for child in element:
        if child.tag == "bndbox":
            boxes.append(child)
        elif child.tag == "name":
            names.append(child.text or "")
        else:
            texts.setdefault(child.tag, child.text or "")
    name = _choose_class(names[0] if names else "", index, spec, findings)
    if name is None:
        return None
    if len(distinct := dict.fromkeys(map(class_name, names))) > 1:
        found = f"{len(names)} <name> in one object: {', '.join(distinct)}"
        findings.add("mended", "class_extra", index, found, "the first one is used", name)
    if len(boxes) > 1:
        findings.add(
            "mended", "box_extra", index, f"{len(boxes)} <bndbox> in one object", "the first one is used", name
        )
    if not boxes:
        shape = next((f", but a <{shape}>" for shape in _OTHER_SHAPES if shape in texts), "")
        findings.drop("box_missing", index, f"no <bndbox>{shape}", name)
        return None
    box = read_box(boxes[0], index, name, spec, findings)
    if box is None:
        return None
    if "attributes" in texts:
        box = turned(box, element, index, name, findings)
    difficult = _read_flag(texts, "difficult", index, name, findings)
    if difficult and spec.difficult == "drop":
        findings.drop("difficult_dropped", index, f"{name} is marked difficult", name)
        return None
    return VocObject(
        index=index,
        name=name,
        box=box,
        difficult=difficult,
        truncated=_read_flag(texts, "truncated", index, name, findings),
        occluded=_read_flag(texts, "occluded", index, name, findings),
        pose=texts.get("pose", "").strip() or "Unspecified",
    )


def _choose_class(text: str, index: int, spec: JobSpec, findings: FileFindings) -> str | None:
    """The class name, cleaned and renamed; None if the object is not part of this job."""
    written = class_name(text)
    name = written and spec.rename.get(written, written)
    if not name:
        findings.drop("class_missing", index, "no class name")
        return None
    findings.written.append(written)
    if written != text.strip():
        findings.add("mended", "class_respelled", index, repr(text), f"read as {written!r}", name)
    if written in spec.ignore_classes or name in spec.ignore_classes:
        findings.drop("class_ignored", index, f"class {name!r} is in --ignore-classes", name)
        return None
    if spec.classes is None or name in spec.classes:
        return name
    if spec.unknown == "skip":
        findings.drop("class_skipped", index, f"class {name!r} is not in --classes", name)
    else:
        findings.add("error", "class_unknown", index, f"class {name!r} is not in --classes", "object dropped", name)
    return None


def _read_flag(texts: dict[str, str], key: str, index: int, name: str, findings: FileFindings) -> bool:
    """`difficult`, `truncated` or `occluded`. Missing and blank mean no; a fraction (0.3) means yes."""
    text = texts.get(key, "0")
    if text == "0":
        return False
    text = text.strip().lower()
    if text in _FALSE or text in _TRUE:
        return text in _TRUE
    number = parse_number(text)
    if math.isnan(number):
        findings.add("mended", "flag_unreadable", index, f"{key} is {text!r}", "taken as 0", name)
        return False
    return number != 0
