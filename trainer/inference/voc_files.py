"""Detections -> Pascal-VOC XML as LabelImg writes it, to be corrected by a person and submitted again."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

from shared.errors import OptionError
from shared.text import counted, printable
from trainer.detections import Detections
from trainer.inference.sources import Frame

# What LabelImg writes where nobody has said otherwise.
_SOURCE: Final = "Unknown"
_POSE: Final = "Unspecified"


class VocWriter:
    """Writes `<stem>.xml` into one folder for each picture, without an object where nothing was seen."""

    def __init__(self, folder: Path, labels: Sequence[str]) -> None:
        """`labels`: class names, that of class 1 first.

        Raises:
            OptionError: `folder` is a file, or has XML files already: they may be somebody's work.
        """
        if folder.exists() and not folder.is_dir():
            raise OptionError(f"--voc {folder}: expected a folder, found a file")
        known = sorted(path.name for path in folder.glob("*.xml"))
        if known:
            there = f"{counted(len(known), 'XML file')} {'is' if len(known) == 1 else 'are'} there already"
            raise OptionError(f"--voc {folder}: {there}, as {known[0]}; they are never overwritten: name a new folder")
        self.folder, self._labels = folder, labels
        self.written = 0
        self.refused: list[str] = []
        self._owners: dict[str, str] = {}

    def add(self, frame: Frame, seen: Detections) -> None:
        """Write the XML of one picture, boxes in its pixels; where there can be none, `refused` gets a line."""
        if frame.path is None or frame.video is not None:
            if frame.is_first:
                self.refused.append(f"{frame.video} is a video: save its frames as pictures first")
            return
        stem = frame.path.stem
        owner = self._owners.setdefault(stem, str(frame.path))
        if owner != str(frame.path):
            self.refused.append(f"{stem}.xml is that of {owner}, so {frame.path} has none: rename one of them")
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / f"{stem}.xml").write_bytes(voc_xml(frame, seen, self._labels))
        self.written += 1


@dataclass(frozen=True, slots=True, kw_only=True)
class XmlObject:
    """An object to be written: its `box` in pixels of the picture; a `score` where a model saw it."""

    name: str
    box: tuple[float, float, float, float]
    is_difficult: bool = False
    score: float | None = None


def voc_xml(frame: Frame, seen: Detections, labels: Sequence[str]) -> bytes:
    """One picture's annotation: what was seen in it, as `annotation_xml` writes it."""
    path = Path(frame.name) if frame.path is None else frame.path.absolute()
    rows = zip(seen.boxes.tolist(), seen.class_ids, seen.scores, strict=True)
    objects = [
        XmlObject(name=labels[int(class_id) - 1], box=(*corners,), score=float(score))
        for corners, class_id, score in rows
    ]
    return annotation_xml(path, frame.pixels.shape, objects)


def annotation_xml(path: Path, shape: tuple[int, ...], objects: Iterable[XmlObject]) -> bytes:
    """One picture's annotation: whole corners (xmin, ymin, xmax, ymax) in pixels from 0, at least a pixel apart.

    Of several of one class with the same corners the first is written. A score is in `<confidence>`, which readers of
    VOC pass over. The form is that of LabelImg's `pascal_voc_io`. `shape` is (height, width, depth).
    """
    height, width, depth = shape
    root = ElementTree.Element("annotation")
    _add(root, "folder", printable(path.parent.name))
    _add(root, "filename", printable(path.name))
    _add(root, "path", printable(str(path)))
    _add(_add(root, "source"), "database", _SOURCE)
    size = _add(root, "size")
    for name, value in (("width", width), ("height", height), ("depth", depth)):
        _add(size, name, str(value))
    _add(root, "segmented", "0")
    written: set[tuple[str, tuple[int, ...]]] = set()
    for each in objects:
        corners = _whole(each.box, width, height)
        if (each.name, corners) in written:
            continue
        written.add((each.name, corners))
        _add_object(root, each, corners)
    ElementTree.indent(root, "\t")
    content: bytes = ElementTree.tostring(root, encoding="utf-8")
    return content + b"\n"


def _whole(box: tuple[float, float, float, float], width: int, height: int) -> tuple[int, int, int, int]:
    xmin, ymin, xmax, ymax = (round(float(value)) for value in box)
    xmin, ymin = min(max(xmin, 0), width - 1), min(max(ymin, 0), height - 1)
    return xmin, ymin, min(max(xmax, xmin + 1), width), min(max(ymax, ymin + 1), height)


def _add_object(root: ElementTree.Element, each: XmlObject, corners: tuple[int, int, int, int]) -> None:
    found = _add(root, "object")
    _add(found, "name", printable(each.name))
    for name, text in (("pose", _POSE), ("truncated", "0"), ("difficult", str(int(each.is_difficult)))):
        _add(found, name, text)
    bounds = _add(found, "bndbox")
    for name, value in zip(("xmin", "ymin", "xmax", "ymax"), corners, strict=True):
        _add(bounds, name, str(value))
    if each.score is not None:
        _add(found, "confidence", f"{each.score:.4f}")


def _add(parent: ElementTree.Element, name: str, text: str | None = None) -> ElementTree.Element:
    child = ElementTree.SubElement(parent, name)
    child.text = text
    return child
