"""What one VOC file says: its objects, their boxes in image pixels, and the findings of its reader."""

from dataclasses import dataclass
from typing import Final

from shared.jobs.findings import Finding, Rank

# xmin, ymin, xmax, ymax: 0-based corners in pixels of the picture.
Box = tuple[float, float, float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class VocObject:
    """One labelled object.

    `box` is (xmin, ymin, xmax, ymax) in pixels of the picture as 0-based corners (xmax = width touches the right edge).
    It is finite and has an area above zero, but may lie outside the picture. `index` counts the direct `object`
    children of the file from 1.
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
    """What one VOC file says; `size` is (width, height) in pixels, or None unless both are whole numbers above zero.

    `filename`, `path` and `folder` are "" if absent. `objects_read` counts all direct `object` children; `objects` are
    those that were kept. `written` has the class name of each object that has one, before any option changed it.
    `predicted` counts the objects with a `<confidence>`: a model drew those.
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


class FileFindings:
    """The findings of one file, in the order of its objects, and the class names written in it."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.found: list[Finding] = []
        self.written: list[str] = []

    def add(self, rank: Rank, kind: str, index: int | None, found: str, done: str, name: str = "") -> None:
        """Add a finding; `name` is the object's class."""
        # Cut to 200 characters, so that a hostile file cannot blow up the receipt.
        about = {"file": self.file, "object_index": index, "class_name": name[:200]}
        self.found.append(Finding(**about, rank=rank, kind=kind, found=found[:200], done=done[:200]))

    def drop(self, kind: str, index: int, found: str, name: str = "") -> None:
        """Add a finding that an object is left out."""
        self.add("dropped", kind, index, found, "object dropped", name)
