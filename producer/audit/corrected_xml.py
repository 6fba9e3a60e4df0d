"""The XML of a photo and accepted findings on it -> the corrected XML; whatever no finding is about stays as it was."""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from shared.annotation.box import rotation_elements
from shared.annotation.parse import parse_xml
from shared.annotation.reader import read_annotation
from shared.annotation.voc import Annotation, VocObject
from shared.audit.findings import AuditFinding, PhotoBox, spelled
from shared.picture.header import ImageHeader
from shared.placement import clip_box
from shared.specs.data import JobSpec
from shared.text import class_name

# A finding's box differs from the file's only by clipping and by the rounding on its way through the shards.
_LEAST_IOU: Final = 0.8
# No label that an audit saw overlaps this much with one that it calls missing (`HIT_IOU` of the trainer).
_TAKEN_IOU: Final = 0.5
# From this EXIF orientation on a picture is turned by 90 degrees, so that its `<size>` tells how its boxes are meant.
_TURNED: Final = 5
_CORNERS: Final = ("xmin", "ymin", "xmax", "ymax")


@dataclass(frozen=True, slots=True, kw_only=True)
class Corrections:
    """The corrected file, and for each finding what was done, or why nothing was."""

    xml: bytes
    outcomes: tuple[str, ...]
    is_changed: bool


def corrected(
    xml: bytes, findings: Sequence[AuditFinding], header: ImageHeader, spec: JobSpec, *, file: str
) -> Corrections:
    """Correct one file.

    Args:
        xml: The file as it is.
        findings: Accepted findings on its photo; if several are on one object, the first counts.
        header: The header of the photo.
        spec: The options by which labels are read.
        file: The name of the XML file, for errors.

    Raises:
        AnnotationError: The file cannot be read.
    """
    annotation, root = read_annotation(xml, file=file, spec=spec), parse_xml(xml, file=file)
    if not _is_upright(annotation, header, spec):
        line = f"not changed, {_why_not_upright(annotation, header)}"
        return Corrections(xml=xml, outcomes=(line,) * len(findings), is_changed=False)
    elements = _elements(annotation, root.findall("object"))
    left = {each.index: each for each in annotation.objects}
    size = upright_size(header)
    outcomes: list[str] = []
    for finding in findings:
        outcomes.append(_apply(root, elements, left, finding, size, spec))
    content = io.BytesIO()
    root.getroottree().write(content, encoding="utf-8", xml_declaration=False)
    is_changed = any(not outcome.startswith("not changed") for outcome in outcomes)
    return Corrections(xml=content.getvalue() + b"\n", outcomes=tuple(outcomes), is_changed=is_changed)


def _elements(annotation: Annotation, objects: Sequence[Any]) -> dict[int, list[Any]]:
    """The elements of each object that counts, by its index: its own, then its duplicates, which are read as one."""
    found = {each.index: [objects[each.index - 1]] for each in annotation.objects}
    for each in annotation.findings:
        if each.kind == "object_duplicate" and each.object_index is not None:
            first = int(each.found.rpartition(" ")[2])  # `same class and box as object 3`
            found[first].append(objects[each.object_index - 1])
    return found


def _apply(
    root: Any,
    elements: Mapping[int, Sequence[Any]],
    left: dict[int, VocObject],
    finding: AuditFinding,
    size: tuple[int, int],
    spec: JobSpec,
) -> str:
    """Do what a finding proposes; return what was done, for a person. `left` are objects without a finding so far."""
    new = finding.proposed_box
    if new is not None and _is_flat(new) and (finding.box is None or spelled(new) != spelled(finding.box)):
        return f"not changed, the proposed box {spelled(new)} has no area in whole pixels"
    if finding.box is None:
        if finding.proposed_box is None:
            return "not changed, nothing is proposed"
        if (taken := _taken(left, finding.proposed_box, size)) is not None:
            return f"not changed, the file has {taken.name} {spelled(taken.box)} there by now"
        _add_object(root, finding.proposed_class, finding.proposed_box, spec)
        return f"added {finding.proposed_class} {spelled(finding.proposed_box)}"
    met = _met(left, finding.box, finding.class_name, size)
    if met is None:
        return "not changed, the file has no such box any more"
    del left[met.index]
    element, *twins = elements[met.index]
    if finding.proposed_box is None:
        for each in (element, *twins):
            root.remove(each)
        return f"removed {spelled(finding.box)}"
    done = []
    if finding.proposed_class != finding.class_name:
        _set_text(element.find("name"), _written(finding.proposed_class, spec))
        done.append(f"called {finding.proposed_class}")
    if spelled(finding.proposed_box) != spelled(finding.box):
        _set_box(element.find("bndbox"), finding.proposed_box, spec)
        done.append(f"moved from {spelled(finding.box)} to {spelled(finding.proposed_box)}")
    # A person has decided about this box, so it is no longer one that a model drew and nobody looked at.
    scores = [(element, score) for score in element.findall("confidence")]
    for parent, child in [*((root, twin) for twin in twins), *scores] if done else ():
        parent.remove(child)
    return ", ".join(done) or "not changed, it is as proposed already"


def _met(left: dict[int, VocObject], box: PhotoBox, name: str, size: tuple[int, int]) -> VocObject | None:
    """The object of the file that a finding is about."""
    known = class_name(name)  # an older version may have submitted the job
    rated = [(iou(clip_box(each.box, size)[0], box), -index) for index, each in left.items() if each.name == known]
    overlap, index = max(rated, default=(0.0, 0))
    return left[-index] if overlap >= _LEAST_IOU else None


def _taken(left: Mapping[int, VocObject], box: PhotoBox, size: tuple[int, int]) -> VocObject | None:
    """The object that somebody has labelled since the audit at the place of a missing one."""
    return next((each for each in left.values() if iou(clip_box(each.box, size)[0], box) >= _TAKEN_IOU), None)


def iou(one: PhotoBox, other: PhotoBox) -> float:
    """The overlap of two boxes, in [0, 1]: intersection over union. Boxes are xmin, ymin, xmax, ymax."""
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    if width <= 0 or height <= 0:
        return 0.0
    areas = ((box[2] - box[0]) * (box[3] - box[1]) for box in (one, other))
    return width * height / (sum(areas) - width * height)


def _is_upright(annotation: Annotation, header: ImageHeader, spec: JobSpec) -> bool:
    """Whether the boxes are in the upright photo, as those of findings are, and will be read so again."""
    if header.orientation == 1:
        return True
    if upright_size(header) == (header.width, header.height):  # the size cannot tell: workers do as `--exif` says
        return spec.exif == "upright"
    return annotation.size == upright_size(header)


def _why_not_upright(annotation: Annotation, header: ImageHeader) -> str:
    """Why a file whose photo is turned by EXIF cannot be corrected, and what to do."""
    stored, upright = (header.width, header.height), upright_size(header)
    turned = f"its photo is turned by EXIF (orientation {header.orientation})"
    if upright == stored:
        return f"{turned} and, by --exif raw, its boxes are not: correct it by hand"
    if annotation.size == stored:
        by = f"by its <size> {_sides(stored)}, that of the stored pixels"
        return f"{turned} and its boxes are not, {by}: correct it by hand"
    found = "it has no <size>" if annotation.size is None else f"its <size> is {_sides(annotation.size)}"
    return (
        f"{turned} and {found}, expected {_sides(upright)}, where its boxes are of the upright photo, or "
        f"{_sides(stored)}, where they are of the stored pixels: write {_sides(upright)} there if that is so, and "
        "accept again; otherwise correct it by hand"
    )


def _sides(size: tuple[int, int]) -> str:
    return f"{size[0]}x{size[1]}"


def upright_size(header: ImageHeader) -> tuple[int, int]:
    """Width and height of the upright photo."""
    size = header.width, header.height
    return size[::-1] if header.orientation >= _TURNED else size


def _is_flat(box: PhotoBox) -> bool:
    """Whether a box has no area in whole pixels, so that the next read would drop it."""
    xmin, ymin, xmax, ymax = map(round, box)
    return xmin >= xmax or ymin >= ymax


def _written(name: str, spec: JobSpec) -> str:
    """What to write for a class of the job: its name or, if `--rename` changes that, a name that is renamed to it."""
    before = (old for old, new in spec.rename.items() if new == name and old not in spec.ignore_classes)
    return name if name not in spec.rename else next(before, name)


def _add_object(root: Any, name: str, box: PhotoBox, spec: JobSpec) -> None:
    element = _add(root, "object")
    _add(element, "name").text = _written(name, spec)
    for flag, text in (("pose", "Unspecified"), ("truncated", "0"), ("difficult", "0")):
        _add(element, flag).text = text
    bounds = _add(element, "bndbox")
    for corner in _CORNERS:
        _add(bounds, corner)
    _set_box(bounds, box, spec)


def _add(parent: Any, name: str) -> Any:
    """Add a child made by its parent, so that this module need not know the parser's library."""
    child = parent.makeelement(name)
    parent.append(child)
    return child


def _set_box(bounds: Any, box: PhotoBox, spec: JobSpec) -> None:
    """Write the corners in whole pixels, from 0 or 1 as in the file; remove CVAT's rotation, which they include."""
    for turn in rotation_elements(bounds.getparent()):
        turn.getparent().remove(turn)
    first = 1 if spec.voc_coords == "voc1" else 0
    for corner, value, moved in zip(_CORNERS, box, (first, first, 0, 0), strict=True):
        # If there are several with one name, the last counts, as in `read_annotation`.
        _set_text(bounds.findall(corner)[-1], str(round(value) + moved))


def _set_text(element: Any, text: str) -> None:
    """Replace an element's text, including any text after a comment inside it."""
    del element[:]
    element.text = text
