"""VOC XML bytes -> `Annotation`: labels and boxes in image pixels, and what was mended on the way.

Everything that can be decided without the picture is decided here; what needs its true size (clipping, the rotated
frame of an EXIF orientation, a wrong `<size>`) is decided by the worker. The only module that knows lxml.
"""

import codecs
import math
import re
from dataclasses import dataclass
from typing import Final

from lxml import etree

from shared.errors import AnnotationError
from shared.jobs.findings import Finding, Rank, of_emptied_photo
from shared.specs.data import JobSpec
from shared.text import LFS_POINTER, class_name

Box = tuple[float, float, float, float]

# The largest real files (a thousand boxes in a picture) are below 0.5 MB. libxml2 copes with far more, but one file
# must not fill a worker's memory.
MAX_XML_BYTES: Final = 8 * 2**20
MAX_OBJECTS: Final = 10_000

_CORNERS: Final = ("xmin", "ymin", "xmax", "ymax")
# The elements that decide anything. A file that spells one otherwise (`<Object>`) is mended, not read as empty.
_ELEMENTS: Final = frozenset(
    (
        *("annotation", "folder", "filename", "path", "size", "width", "height", "object", "name", "bndbox", *_CORNERS),
        *("difficult", "truncated", "occluded", "pose"),
    )
)
# What other programs write where the devkit has <bndbox>.
_OTHER_SHAPES: Final = ("bbox", "box", "polygon", "robndbox", "points", "mask")
# A name with a capital letter: few files have one or a namespace, and only those are searched.
_CAPITAL: Final = re.compile(rb"<[a-z]*[A-Z]")
_ENCODING: Final = re.compile(rb"""\A(<\?xml\s[^>]*?encoding\s*=\s*["'])([\w-]+)""")
_TRUE: Final = frozenset({"true", "yes", "t", "y"})
_FALSE: Final = frozenset({"", "false", "no", "f", "n", "unspecified"})


@dataclass(frozen=True, slots=True, kw_only=True)
class VocObject:
    """One labelled object.

    `box` is (xmin, ymin, xmax, ymax) in pixels of the picture as 0-based corners (xmax = width touches the right edge):
    finite, with an area above zero, but it may lie beyond the picture. `index` counts the direct `object` children of
    the file from 1.
    """

    index: int
    name: str
    box: Box
    difficult: bool
    truncated: bool
    occluded: bool
    pose: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotation:
    """What one VOC file says. `size` is (width, height) in pixels, None unless both are whole numbers above zero.

    `filename`, `path` and `folder` are "" where absent. `objects_read` counts all direct `object` children;
    `objects` are those kept. `written` has the class name of each object that has one, before any option changed it.
    `predicted` counts the objects with a `<confidence>`, which a model has drawn.
    """

    size: tuple[int, int] | None
    filename: str
    path: str
    folder: str
    objects_read: int
    objects: tuple[VocObject, ...]
    findings: tuple[Finding, ...]
    written: tuple[str, ...] = ()
    predicted: int = 0


# The annotation of a background picture without XML.
EMPTY: Final = Annotation(size=None, filename="", path="", folder="", objects_read=0, objects=(), findings=())


class _Findings:
    """The findings of one file, in the order of its objects, and the class names that it writes."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.found: list[Finding] = []
        self.written: list[str] = []

    def add(self, rank: Rank, kind: str, index: int | None, found: str, done: str, name: str = "") -> None:
        """Note one; `name` is the object's class."""
        # 200 characters: a hostile file must not blow up the receipt.
        about = {"file": self.file, "object_index": index, "class_name": name[:200]}
        self.found.append(Finding(**about, rank=rank, kind=kind, found=found[:200], done=done[:200]))

    def drop(self, kind: str, index: int, found: str, name: str = "") -> None:
        self.add("dropped", kind, index, found, "object dropped", name)


def read_annotation(xml: bytes, *, file: str, spec: JobSpec) -> Annotation:
    """Read one VOC annotation, in any encoding that it declares, under the options of a job.

    Each object of the file is in `objects` or named by a finding of rank dropped or error; `file` is the file's name
    for findings and errors.

    Raises:
        AnnotationError: Malformed, hostile, too large, or not a VOC annotation.
    """
    root, respelled = _parse(xml, file)
    findings = _Findings(file)
    for written, name in respelled.items():
        findings.add("mended", "element_respelled", None, f"<{written}>", f"read as <{name}>")
    texts = {child.tag: child.text for child in root if child.tag in ("filename", "path", "folder")}
    size = _read_size(root, findings)
    elements = root.findall("object")
    if not elements and root.find(".//bndbox") is not None:
        raise AnnotationError(
            f"{file}: a <bndbox> but no <object> directly below <annotation>, expected annotation/object/bndbox"
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


def parse_xml(xml: bytes, *, file: str) -> etree._Element:
    """The root of a VOC file with its comments, refusing what could read other files, grow, or be something else.

    Raises:
        AnnotationError: With the parser's line where it is malformed.
    """
    return _parse(xml, file, with_comments=True)[0]


def _parse(xml: bytes, file: str, *, with_comments: bool = False) -> tuple[etree._Element, dict[str, str]]:
    """The root, and the names of elements that were written otherwise: written -> read."""
    if len(xml) > MAX_XML_BYTES:
        raise AnnotationError(f"{file}: {len(xml)} bytes, at most {MAX_XML_BYTES} are read")
    parser = etree.XMLParser(
        resolve_entities=False,
        no_network=True,
        load_dtd=False,
        huge_tree=False,
        remove_comments=not with_comments,
        remove_pis=not with_comments,
    )
    try:
        root = _root(xml, parser)
    except etree.XMLSyntaxError as error:
        said = error.msg or "no content"
        raise AnnotationError(f"{file}: malformed XML: {_belied(xml) or _told(xml, error) or said}") from error
    except (ValueError, LookupError) as error:
        raise AnnotationError(f"{file}: unreadable XML: {error}") from error
    # `resolve_entities=False` turns entity text into '' in silence, so no document that could hold any is read.
    if root.getroottree().docinfo.internalDTD is not None:
        raise AnnotationError(f"{file}: it has a DOCTYPE, which no VOC annotation needs; refused")
    respelled = _respell(root, xml)
    if root.tag == "annotations":
        raise AnnotationError(f"{file}: CVAT's own format, expected Pascal VOC; export it again as Pascal VOC 1.1")
    if root.tag != "annotation":
        raise AnnotationError(f"{file}: the root element is <{str(root.tag)[:80]}>, expected <annotation>")
    return root, respelled


def _root(xml: bytes, parser: etree.XMLParser) -> etree._Element:
    """Parse a file, whose encoding may have a name that only Python knows, such as `latin-1`. Raises as lxml does."""
    try:
        return etree.fromstring(xml, parser)
    except etree.XMLSyntaxError as error:
        if error.code != etree.ErrorTypes.ERR_UNSUPPORTED_ENCODING:
            raise
        return etree.fromstring(_ENCODING.sub(_common_name, xml), parser)


def _belied(xml: bytes) -> str:
    """What is wrong with a declaration of 16 or 32 bits a letter that is written in 8: the parser stumbles over it."""
    declared = _ENCODING.match(xml)
    name = declared[2].decode() if declared is not None else ""
    if not name.lower().startswith(("utf-16", "utf-32", "ucs-2", "ucs-4")):
        return ""
    return f"it declares {name}, and is written otherwise: declare what it is written in, such as utf-8"


def _told(xml: bytes, error: etree.XMLSyntaxError) -> str:
    """What is wrong with a file, and what to do, where the parser's words do not say it; "" elsewhere."""
    if xml.startswith(LFS_POINTER):
        return "a pointer of Git LFS instead of the XML: `git lfs pull` fetches it"
    if b"\0" in xml[:4]:
        return "it looks like UTF-16 without the mark that belongs in front: save it as UTF-8"
    if "EntityRef:" in (error.msg or ""):  # `xmlParseEntityRef: no name`, `EntityRef: expecting ';'`
        return f"an & in line {error.lineno}: write it as &amp;"
    if error.code == etree.ErrorTypes.ERR_INVALID_ENCODING:
        declared = _ENCODING.match(xml)
        name = "no encoding, which means UTF-8," if declared is None else declared[2].decode()
        todo = "declare what it is written in, such as latin-1, or save it as UTF-8"
        return f"it declares {name} and line {error.lineno} is written otherwise: {todo}"
    return ""


def _common_name(declared: re.Match[bytes]) -> bytes:
    try:
        return declared[1] + codecs.lookup(declared[2].decode()).name.encode()
    except LookupError:
        return declared[0]


def _respell(root: etree._Element, xml: bytes) -> dict[str, str]:
    """Give elements that differ in case or namespace only the devkit's names: written -> read."""
    letters = xml.replace(b"\0", b"")  # UTF-16 and UTF-32 read as UTF-8 does
    if root.tag == "annotation" and b"xmlns" not in letters and not _CAPITAL.search(letters):
        return {}
    respelled: dict[str, str] = {}
    for element in root.iter(etree.Element):
        written = str(element.tag)
        name = etree.QName(element).localname.lower()
        if name != written and name in _ELEMENTS:
            element.tag = respelled[written[:80]] = name
    return respelled


def _read_size(root: etree._Element, findings: _Findings) -> tuple[int, int] | None:
    """(width, height) in whole pixels, or None."""
    size = root.find("size")
    texts = {} if size is None else {child.tag: child.text or "" for child in size}
    width, height = (_parse_number(texts.get(side, "")) for side in ("width", "height"))
    if _is_side(width) and _is_side(height):
        return int(width), int(height)
    found = "no <size>" if size is None else f"width {texts.get('width')!r}, height {texts.get('height')!r}"
    findings.add("info", "size_missing", None, found, "the picture's own size is used")
    return None


def _is_side(number: float) -> bool:
    return 1 <= number < 2**31 and number == int(number)


def _parse_number(text: str) -> float:
    """`text` as a float; NaN if it is none. Unlike Python, no number has underscores here."""
    try:
        return math.nan if "_" in text else float(text)
    except ValueError:
        return math.nan


def _read_object(element: etree._Element, index: int, spec: JobSpec, findings: _Findings) -> VocObject | None:
    """One `<object>`; None where it is dropped."""
    texts: dict[str, str] = {}
    boxes: list[etree._Element] = []
    names: list[str] = []
    for child in element:
        if child.tag == "bndbox":
            boxes.append(child)
        elif child.tag == "name":
            names.append(child.text or "")
        elif isinstance(child.tag, str):
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
    box = _read_box(boxes[0], index, name, spec, findings)
    if box is None:
        return None
    if "attributes" in texts:
        box = _turned(box, element, index, name, findings)
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


def _choose_class(text: str, index: int, spec: JobSpec, findings: _Findings) -> str | None:
    """The class name as it is read and renamed; None where the object is not of this job."""
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


def _read_flag(texts: dict[str, str], key: str, index: int, name: str, findings: _Findings) -> bool:
    """`difficult`, `truncated` or `occluded`; missing and blank mean no, a part (0.3) means yes."""
    text = texts.get(key, "0")
    if text == "0":
        return False
    text = text.strip().lower()
    if text in _FALSE or text in _TRUE:
        return text in _TRUE
    number = _parse_number(text)
    if math.isnan(number):
        findings.add("mended", "flag_unreadable", index, f"{key} is {text!r}", "taken as 0", name)
        return False
    return number != 0


def _read_box(corners: etree._Element, index: int, name: str, spec: JobSpec, findings: _Findings) -> Box | None:
    """(xmin, ymin, xmax, ymax) in pixels as 0-based corners, min below max; None where there is no such box."""
    texts = {child.tag: (child.text or "").strip() for child in corners}
    if len(texts) != len(corners):
        _tell_repeated(corners, index, name, findings)
    numbers = [_parse_number(texts.get(key, "")) for key in _CORNERS]
    if not all(map(math.isfinite, numbers)):
        found = ", ".join(f"{key} {texts.get(key)!r}" for key in _CORNERS)
        findings.drop("box_unreadable", index, _without_corners(corners, texts) or found, name)
        return None
    xmin, ymin, xmax, ymax = numbers
    if xmin > xmax or ymin > ymax:
        pairs = (("xmin and xmax", xmin > xmax), ("ymin and ymax", ymin > ymax))
        swapped = ", ".join(names for names, is_swapped in pairs if is_swapped)
        findings.add("mended", "box_swapped", index, _spell(numbers), f"{swapped} swapped", name)
        xmin, xmax = sorted((xmin, xmax))
        ymin, ymax = sorted((ymin, ymax))
    if spec.voc_coords == "voc1":
        # The devkit counts pixels from 1 and includes the last one: only the near corner moves.
        xmin, ymin = xmin - 1, ymin - 1
    if not (xmax > xmin and ymax > ymin):
        findings.drop("box_zero_area", index, _spell(numbers), name)
        return None
    return xmin, ymin, xmax, ymax


def _without_corners(corners: etree._Element, texts: dict[str, str]) -> str:
    """Which corners a box does not have, and what it has instead; "" where it has all four."""
    missing = [f"<{key}>" for key in _CORNERS if key not in texts]
    others = [f"<{tag}>" for tag in texts if tag not in _CORNERS and isinstance(tag, str)]
    others += [f"{name}=" for name in corners.attrib]
    instead = f", but {', '.join(others)}" if others else ""
    return f"<bndbox> without {', '.join(missing)}{instead}" if missing else ""


def _tell_repeated(corners: etree._Element, index: int, name: str, findings: _Findings) -> None:
    """Name the corners that a box has several times with other values: nobody knows which one was meant."""
    for key in _CORNERS:
        texts = [(child.text or "").strip() for child in corners.iterfind(key)]
        if len(set(texts)) > 1:
            found = f"{len(texts)} <{key}> in one box: {', '.join(texts)}"
            findings.add("mended", "box_corner_extra", index, found, f"the last one, {texts[-1]}, is used", name)


def rotation_elements(element: etree._Element) -> list[etree._Element]:
    """The attributes of an object by which CVAT says that its box is turned around its centre, in degrees."""
    return [each for each in element.iterfind("attributes/attribute") if each.findtext("name") == "rotation"]


def _turned(box: Box, element: etree._Element, index: int, name: str, findings: _Findings) -> Box:
    """The upright box around one that CVAT turned: its `<bndbox>` is the box as it was before."""
    degrees = next((_parse_number(each.findtext("value") or "") for each in rotation_elements(element)), 0.0)
    if not math.isfinite(degrees) or degrees % 180 == 0:
        return box
    xmin, ymin, xmax, ymax = box
    cos, sin = (abs(turn(math.radians(degrees))) for turn in (math.cos, math.sin))
    width, height = (xmax - xmin) * cos + (ymax - ymin) * sin, (xmax - xmin) * sin + (ymax - ymin) * cos
    x, y = xmin / 2 + xmax / 2, ymin / 2 + ymax / 2
    around = (x - width / 2, y - height / 2, x + width / 2, y + height / 2)
    # Coordinates far beyond any picture are too coarse for it.
    if not (-math.inf < around[0] < around[2] < math.inf and -math.inf < around[1] < around[3] < math.inf):
        return box
    findings.add("mended", "box_turned", index, f"rotation {degrees:g}", "the upright box around it is taken", name)
    return around


def _spell(numbers: list[float]) -> str:
    return ", ".join(f"{key} {number:g}" for key, number in zip(_CORNERS, numbers, strict=True))
