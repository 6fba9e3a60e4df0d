"""Wrong labels, planted on purpose and seeded, in a copy of a VOC folder: what a label audit is measured by."""

import shutil
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Literal

import numpy as np
from lxml import etree

Kind = Literal["missing", "misplaced", "wrong_class", "made_up"]
Corners = tuple[float, float, float, float]

# Boxes move by this share of their side.
_MOVED: Final = (0.15, 0.4)
_TRIES: Final = 50
_NAMES: Final = ("xmin", "ymin", "xmax", "ymax")


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """One wrong label: `box` (xmin, ymin, xmax, ymax) in pixels as it stands now, or as it stood where it is missing.

    `true_box` and `true_class` are what was there before; None where nothing was.
    """

    kind: Kind
    stem: str
    box: Corners
    name: str
    true_box: Corners | None
    true_class: str | None


@dataclass(slots=True)
class _Object:
    stem: str
    element: etree._Element

    @property
    def box(self) -> Corners:
        values = [float(str(self.element.findtext(f"bndbox/{name}"))) for name in _NAMES]
        return values[0], values[1], values[2], values[3]

    @property
    def name(self) -> str:
        return str(self.element.findtext("name"))

    def put(self, box: Sequence[float], name: str) -> None:
        """Give it another box and class."""
        for corner, value in zip(_NAMES, box, strict=True):
            self.element.find(f"bndbox/{corner}").text = f"{value:.0f}"
        self.element.find("name").text = name


def plant(folder: Path, out: Path, *, share: float, seed: int, kinds: Sequence[Kind]) -> list[Planted]:
    """Copy a VOC folder and spoil `share` of its boxes, as many of each kind.

    Args:
        folder: With pictures and XML anywhere below it; each XML has `<size>`.
        out: The copy; absent before.
        share: Of all boxes, in (0, 1).
        seed: The same one spoils the same boxes.
        kinds: `wrong_class` needs two classes.

    Returns:
        What was spoiled.
    """
    shutil.copytree(folder, out)
    trees = {path: etree.parse(str(path)) for path in sorted(out.rglob("*.xml"))}
    objects = [_Object(path.stem, element) for path, tree in trees.items() for element in tree.findall("object")]
    sizes = {path.stem: _size(tree) for path, tree in trees.items()}
    roots = {path.stem: tree.getroot() for path, tree in trees.items()}
    classes = sorted({each.name for each in objects})
    random = np.random.default_rng(seed)
    count = max(1, round(share * len(objects) / len(kinds)))
    drawn = [objects[row] for row in random.permutation(len(objects))]
    planted: list[Planted] = []
    for kind in kinds:
        done = 0
        while done < count and drawn:
            one = drawn.pop()
            spoiled = _spoil(kind, one, objects, sizes, roots, classes, random)
            if spoiled is not None:
                planted.append(spoiled)
                done += 1
    for path, tree in trees.items():
        tree.write(str(path))
    return planted


def _size(tree: etree._ElementTree) -> tuple[float, float]:
    return float(tree.findtext("size/width")), float(tree.findtext("size/height"))


def _spoil(
    kind: Kind,
    one: _Object,
    objects: Sequence[_Object],
    sizes: dict[str, tuple[float, float]],
    roots: dict[str, etree._Element],
    classes: Sequence[str],
    random: np.random.Generator,
) -> Planted | None:
    """Spoil one object, or with `made_up` add one of its size elsewhere; None where it cannot be done."""
    box, name = one.box, one.name
    spoiled = partial(Planted, kind=kind, stem=one.stem, true_box=box, true_class=name)
    if kind == "missing":
        one.element.getparent().remove(one.element)
        return spoiled(box=box, name=name)
    if kind == "wrong_class":
        other = str(random.choice([each for each in classes if each != name]))
        one.put(box, other)
        return spoiled(box=box, name=other)
    if kind == "misplaced":
        moved = _moved(box, sizes[one.stem], random)
        if moved is None:
            return None
        one.put(moved, name)
        return spoiled(box=moved, name=name)
    stem = str(random.choice(sorted(sizes)))
    there = [each.box for each in objects if each.stem == stem and each.element.getparent() is not None]
    placed = _elsewhere(box, sizes[stem], there, random)
    if placed is None:
        return None
    added = _Object(stem, deepcopy(one.element))
    added.put(placed, name)
    roots[stem].append(added.element)
    return Planted(kind=kind, stem=stem, box=placed, name=name, true_box=None, true_class=None)


def _moved(box: Corners, size: tuple[float, float], random: np.random.Generator) -> Corners | None:
    """The box moved along one side or both; None where the picture's edge would take back most of it."""
    sides = np.array([box[2] - box[0], box[3] - box[1]])
    for _ in range(_TRIES):
        along = [(1, 0), (0, 1), (1, 1)][random.integers(3)]
        step = np.round(sides * along * random.uniform(*_MOVED, 2) * random.choice([-1, 1], 2))
        moved = np.array(box) + np.tile(step, 2)
        if moved.min() >= 0 and moved[2] <= size[0] and moved[3] <= size[1] and np.abs(step).max() >= 1:
            return _corners(moved.tolist())
    return None


def _elsewhere(
    box: Corners, size: tuple[float, float], there: Sequence[Corners], random: np.random.Generator
) -> Corners | None:
    """A box as large in a picture of `size`, beside all that is `there`."""
    width, height = box[2] - box[0], box[3] - box[1]
    if width >= size[0] or height >= size[1]:
        return None
    for _ in range(_TRIES):
        left, top = random.uniform(0, size[0] - width), random.uniform(0, size[1] - height)
        placed = _corners([round(left), round(top), round(left + width), round(top + height)])
        if all(_shared(placed, other) < 0.1 for other in there):
            return placed
    return None


def _shared(first: Corners, second: Corners) -> float:
    """Their intersection as a share of the smaller one."""
    width = min(first[2], second[2]) - max(first[0], second[0])
    height = min(first[3], second[3]) - max(first[1], second[1])
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (first, second)]
    return max(0.0, width) * max(0.0, height) / max(min(areas), 1e-9)


def _corners(values: Sequence[float]) -> Corners:
    xmin, ymin, xmax, ymax = (float(value) for value in values)
    return xmin, ymin, xmax, ymax
