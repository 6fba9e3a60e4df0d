"""A `<bndbox>` -> a box in image pixels, and the upright box around a rotated one."""

import math
from typing import Final

from lxml import etree

from shared.annotation.voc import Box, FileFindings
from shared.specs.data import JobSpec

CORNERS: Final = ("xmin", "ymin", "xmax", "ymax")


def parse_number(text: str) -> float:
    """`text` as a float; NaN if it is not a number. Unlike in Python, underscores are not allowed."""
    try:
        return math.nan if "_" in text else float(text)
    except ValueError:
        return math.nan


def read_box(corners: etree._Element, index: int, name: str, spec: JobSpec, findings: FileFindings) -> Box | None:
    """(xmin, ymin, xmax, ymax) in pixels as 0-based corners, min below max; None if there is no usable box."""
    texts = {child.tag: (child.text or "").strip() for child in corners}
    if len(texts) != len(corners):
        _tell_repeated(corners, index, name, findings)
    numbers = [parse_number(texts.get(key, "")) for key in CORNERS]
    if not all(map(math.isfinite, numbers)):
        found = ", ".join(f"{key} {texts.get(key)!r}" for key in CORNERS)
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
        # The devkit counts pixels from 1 and includes the last one, so only xmin and ymin move.
        xmin, ymin = xmin - 1, ymin - 1
    if not (xmax > xmin and ymax > ymin):
        findings.drop("box_zero_area", index, _spell(numbers), name)
        return None
    return xmin, ymin, xmax, ymax


def _without_corners(corners: etree._Element, texts: dict[str, str]) -> str:
    """Which corners a box lacks, and what it has instead; "" if it has all four."""
    missing = [f"<{key}>" for key in CORNERS if key not in texts]
    others = [f"<{tag}>" for tag in texts if tag not in CORNERS]
    others += [f"{name}=" for name in corners.attrib]
    instead = f", but {', '.join(others)}" if others else ""
    return f"<bndbox> without {', '.join(missing)}{instead}" if missing else ""


def _tell_repeated(corners: etree._Element, index: int, name: str, findings: FileFindings) -> None:
    """Report corners that a box gives several times with different values: nobody knows which one was meant."""
    for key in CORNERS:
        texts = [(child.text or "").strip() for child in corners.iterfind(key)]
        if len(set(texts)) > 1:
            found = f"{len(texts)} <{key}> in one box: {', '.join(texts)}"
            findings.add("mended", "box_corner_extra", index, found, f"the last one, {texts[-1]}, is used", name)


def rotation_elements(element: etree._Element) -> list[etree._Element]:
    """The attributes in which CVAT gives the rotation of an object's box around its centre, in degrees."""
    return [each for each in element.iterfind("attributes/attribute") if each.findtext("name") == "rotation"]


def turned(box: Box, element: etree._Element, index: int, name: str, findings: FileFindings) -> Box:
    """The upright box around a rotated one: CVAT's `<bndbox>` is the box before its rotation."""
    degrees = next((parse_number(each.findtext("value") or "") for each in rotation_elements(element)), 0.0)
    if not math.isfinite(degrees) or degrees % 180 == 0:
        return box
    xmin, ymin, xmax, ymax = box
    cos, sin = (abs(turn(math.radians(degrees))) for turn in (math.cos, math.sin))
    width, height = (xmax - xmin) * cos + (ymax - ymin) * sin, (xmax - xmin) * sin + (ymax - ymin) * cos
    x, y = xmin / 2 + xmax / 2, ymin / 2 + ymax / 2
    around = (x - width / 2, y - height / 2, x + width / 2, y + height / 2)
    # With coordinates far beyond any picture, rounding can leave a box without area or infinite.
    if not (-math.inf < around[0] < around[2] < math.inf and -math.inf < around[1] < around[3] < math.inf):
        return box
    findings.add("mended", "box_turned", index, f"rotation {degrees:g}", "the upright box around it is taken", name)
    return around


def _spell(numbers: list[float]) -> str:
    return ", ".join(f"{key} {number:g}" for key, number in zip(CORNERS, numbers, strict=True))
