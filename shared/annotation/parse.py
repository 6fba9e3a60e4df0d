"""The bytes of a VOC file -> its elements, under the names that the devkit gives them."""

import codecs
import re
from typing import Final

from lxml import etree

from shared.annotation.box import CORNERS
from shared.errors import AnnotationError
from shared.text import LFS_POINTER, collapsed

# The largest real files (a thousand boxes in a picture) are below 0.5 MB. libxml2 copes with far more, but one file
# must not fill a worker's memory.
MAX_XML_BYTES: Final = 8 * 2**20

# The elements that are used. If a file spells one differently (`<Object>`), it is mended, not read as empty.
_ELEMENTS: Final = frozenset(
    (
        *("annotation", "folder", "filename", "path", "size", "width", "height", "object", "name", "bndbox", *CORNERS),
        *("difficult", "truncated", "occluded", "pose"),
    )
)
# An element name with a capital letter. Few files have one, or a namespace, and only those are searched.
_CAPITAL: Final = re.compile(rb"<[a-z]*[A-Z]")
_ENCODING: Final = re.compile(rb"""\A(<\?xml\s[^>]*?encoding\s*=\s*["'])([\w-]+)""")


def parse_xml(xml: bytes, *, file: str) -> etree._Element:
    """The root of a VOC file, comments kept. Refuses XML that could read other files or grow, or that is not VOC.

    Raises:
        AnnotationError: It is refused or malformed; the message has the parser's line number where it has one.
    """
    return parse_respelled(xml, file, with_comments=True)[0]


def parse_respelled(xml: bytes, file: str, *, with_comments: bool = False) -> tuple[etree._Element, dict[str, str]]:
    """The root, and the element names that were spelled differently: as written -> as read."""
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
        said = collapsed(error.msg or "no content")  # some messages end with a line break
        raise AnnotationError(f"{file}: malformed XML: {_belied(xml) or _told(xml, error) or said}") from error
    except (ValueError, LookupError) as error:
        raise AnnotationError(f"{file}: unreadable XML: {error}") from error
    # `resolve_entities=False` silently turns entity text into '', so a document that could hold any is refused.
    if root.getroottree().docinfo.internalDTD is not None:
        raise AnnotationError(f"{file}: it has a DOCTYPE, which no VOC annotation needs; refused")
    respelled = _respell(root, xml)
    if root.tag == "annotations" and root.find("annotation") is not None:
        raise AnnotationError(f"{file}: an <annotation> in <annotations>, expected a file for each photo: split it")
    if root.tag == "annotations":
        raise AnnotationError(f"{file}: CVAT's own format, expected Pascal VOC; export it again as Pascal VOC 1.1")
    if root.tag != "annotation":
        remedy = (
            "convert it to Pascal VOC" if str(root.tag).lower() != "html" else "it is a web page, download it again"
        )
        raise AnnotationError(f"{file}: the root element is <{str(root.tag)[:80]}>, expected <annotation>: {remedy}")
    return root, respelled


def _root(xml: bytes, parser: etree.XMLParser) -> etree._Element:
    """Parse a file; its encoding may have a name that only Python knows, such as `latin-1`.

    Raises:
        etree.XMLSyntaxError: It is malformed.
        LookupError: Nobody knows its encoding.
    """
    try:
        return etree.fromstring(xml, parser)
    except etree.XMLSyntaxError as error:
        if error.code != etree.ErrorTypes.ERR_UNSUPPORTED_ENCODING:
            raise
        return etree.fromstring(_ENCODING.sub(_common_name, xml), parser)


def _belied(xml: bytes) -> str:
    """What is wrong with a file that declares UTF-16 or UTF-32 but is not written in it; "" for other files."""
    declared = _ENCODING.match(xml)
    name = declared[2].decode() if declared is not None else ""
    if not name.lower().startswith(("utf-16", "utf-32", "ucs-2", "ucs-4")):
        return ""
    return f"it declares {name}, and is written otherwise: declare what it is written in, such as utf-8"


def _told(xml: bytes, error: etree.XMLSyntaxError) -> str:
    """What is wrong with a file and what to do about it; "" if the parser's own message is the best there is."""
    if xml.startswith(LFS_POINTER):
        return "a pointer of Git LFS instead of the XML: `git lfs pull` fetches it"
    if b"\0" in xml[:4]:
        return "it looks like UTF-16 without the mark that belongs in front: save it as UTF-8"
    if "EntityRef:" in (error.msg or ""):  # `xmlParseEntityRef: no name`, `EntityRef: expecting ';'`
        return f"an & in line {error.lineno}: write it as &amp;"
    if error.code == etree.ErrorTypes.ERR_UNDECLARED_ENTITY:
        return f"{collapsed(error.msg or '')}: write the letter itself instead"
    if error.code == etree.ErrorTypes.ERR_INVALID_ENCODING:
        declared = _ENCODING.match(xml)
        name = "no encoding, which means UTF-8," if declared is None else declared[2].decode()
        todo = "declare what it is written in, such as latin-1, or save it as UTF-8"
        return f"it declares {name} and line {error.lineno} is written otherwise: {todo}"
    return ""


def _common_name(declared: re.Match[bytes]) -> bytes:
    return declared[1] + codecs.lookup(declared[2].decode()).name.encode()


def _respell(root: etree._Element, xml: bytes) -> dict[str, str]:
    """Rename elements that differ from the devkit's only in case or namespace: as written -> as read."""
    letters = xml.replace(b"\0", b"")  # so that UTF-16 and UTF-32 can be searched like UTF-8
    if b"xmlns" not in letters and not _CAPITAL.search(letters):
        return {}
    respelled: dict[str, str] = {}
    for element in root.iter(etree.Element):
        written = str(element.tag)
        name = etree.QName(element).localname.lower()
        if name != written and name in _ELEMENTS:
            element.tag = respelled[written[:80]] = name
    return respelled
