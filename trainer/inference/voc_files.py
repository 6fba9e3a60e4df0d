"""Detections -> Pascal-VOC XML as LabelImg writes it, for a person to correct and submit."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

import cv2

from shared.errors import OptionError
from shared.text import counted, printable
from trainer.detections import Detections
from trainer.inference.sources import Frame
from trainer.pixels import Picture

# LabelImg's defaults.
_SOURCE: Final = "Unknown"
_POSE: Final = "Unspecified"

# The JPEG quality of saved frames, which may be used for training.
_QUALITY: Final = 95


class VocWriter:
    """Writes `<stem>.xml` into one folder for each picture, without objects if nothing was seen.

    `written` counts the XML files, `saved` the frames of videos and cameras that were saved beside theirs.
    """

    def __init__(self, folder: Path, labels: Sequence[str]) -> None:
        """`labels` are the class names, that of class 1 first.

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
        self.written, self.saved = 0, 0
        self.refused: list[str] = []
        self._owners: dict[str, str] = {}

    def add(self, frame: Frame, seen: Detections) -> None:
        """Write the XML of one picture, boxes in its pixels; if that is impossible, `refused` gets a line.

        A frame of a video or camera is not a file yet, so it is saved beside its XML.
        """
        photo = self.folder / frame.name if frame.path is None or frame.video is not None else frame.path.absolute()
        source = str(frame.path or frame.video)
        owner = self._owners.setdefault(photo.stem, source)
        if owner != source:
            self.refused.append(f"{photo.stem}.xml is that of {owner}, so {source} has none: rename one of them")
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        if frame.video is not None and not self._save(photo, frame.pixels):
            self.refused.append(f"{photo} is there already, and is never overwritten: name a new folder")
            return
        (self.folder / f"{photo.stem}.xml").write_bytes(voc_xml(photo, frame.pixels.shape, seen, self._labels))
        self.written += 1

    def _save(self, photo: Path, pixels: Picture) -> bool:
        """Save a frame as a picture; False if a file has that name, which may be somebody's."""
        content = cv2.imencode(".jpg", pixels, [cv2.IMWRITE_JPEG_QUALITY, _QUALITY])[1].tobytes()
        try:
            with photo.open("xb") as file:
                file.write(content)
        except FileExistsError:
            return False
        self.saved += 1
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class XmlObject:
    """An object to be written: `box` is (xmin, ymin, xmax, ymax) in pixels, `score` that of a model that saw it."""

    name: str
    box: tuple[float, float, float, float]
    is_difficult: bool = False
    score: float | None = None


def voc_xml(photo: Path, shape: tuple[int, ...], seen: Detections, labels: Sequence[str]) -> bytes:
    """The annotation of the picture at `photo` with what was seen in it, written by `annotation_xml`."""
    rows = zip(seen.boxes.tolist(), seen.class_ids, seen.scores, strict=True)
    objects = [
        XmlObject(name=labels[int(class_id) - 1], box=(*corners,), score=float(score))
        for corners, class_id, score in rows
    ]
    return annotation_xml(photo, shape, objects)


def annotation_xml(path: Path, shape: tuple[int, ...], objects: Iterable[XmlObject]) -> bytes:
    """One picture's annotation: whole corners (xmin, ymin, xmax, ymax) in pixels from 0, at least one pixel apart.

    Of several objects of one class with the same corners only the first is written. A score is in `<confidence>`, which
    readers of VOC ignore. The format is that of LabelImg's `pascal_voc_io`. `shape` is (height, width, depth).
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
