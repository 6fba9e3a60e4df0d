"""One path pair → one record, or the reason why there is none.

The middle of the route: it reads the two files, passes them through the doors (annotation, header, frame, image,
example) and turns every `InputError` into a quarantine. Pure but for the reading of the two files.
"""

import errno
import os
import stat
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from shared.annotation import EMPTY, MAX_XML_BYTES, Annotation, Box, VocObject, read_annotation
from shared.errors import AnnotationError, ImageError, InputError, StorageError
from shared.faults import open_picture
from shared.job import Job, JobSpec, PathPair
from shared.labels import LabelMap
from shared.manifest import Finding, Rank
from worker.example import StoredObject, StoredPicture, fractions, serialize_example
from worker.exif import FrameChoice, choose_frame, turn_box, upright_size
from worker.header import ImageHeader, extension_format, read_header
from worker.image import check_image, place, store_image

# Above the largest camera files; read whole, so it bounds a worker's memory.
MAX_IMAGE_BYTES: Final = 512 * 2**20
# Of a box that reaches beyond its picture, this part must remain for it to show the object.
MIN_REMAINING: Final = 0.25

# What the system says where the path itself is at fault; anything else (I/O error, permission) is the mount's.
_NO_SUCH_FILE: Final = {
    errno.ENOENT: "no such file",
    errno.ENOTDIR: "no such file",
    errno.EISDIR: "a folder",
    errno.ELOOP: "a link to itself",
    errno.ENAMETOOLONG: "a name too long",
    errno.ENXIO: "not a regular file",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What is the same for every pair of a job: where its files lie, and how they are read and written."""

    data_root: Path
    folder: Path
    spec: JobSpec
    labels: LabelMap


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedExample:
    """A pair that will be written: its serialized record (empty in a dry job), its objects, and what was mended."""

    pair: PathPair
    record: bytes
    size: int
    objects: tuple[StoredObject, ...]
    objects_read: int
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantine:
    """A pair that will not be written, and the one finding that says why."""

    pair: PathPair
    finding: Finding


def recipe_of(job: Job, data_root: Path) -> Recipe:
    """The recipe of a job whose data set lies below `data_root`."""
    return Recipe(data_root=data_root, folder=data_root / job.folder, spec=job.spec, labels=LabelMap(job.labels))


def quarantine(pair: PathPair, *, file: str, kind: str, reason: str) -> Quarantine:
    """Set `pair` aside, for what was found in `file`."""
    return Quarantine(
        pair=pair,
        finding=Finding(file=file, rank="quarantined", kind=kind, found=reason[:500], done="pair quarantined"),
    )


def prepare_example(pair: PathPair, *, recipe: Recipe) -> PreparedExample | Quarantine:
    """Read a pair and make its record.

    Args:
        pair: Paths below `recipe.folder`.
        recipe: Of the job.

    Returns:
        The record, or the quarantine of a pair that will never succeed as it is.

    Raises:
        StorageError: The data set's folder itself is absent, or a file cannot be read for a reason of the system.
    """
    open_picture(pair.image)
    file = pair.annotation or pair.image
    try:
        annotation = EMPTY
        if pair.annotation is not None:
            xml = read_input(recipe, pair.annotation, MAX_XML_BYTES, AnnotationError)
            annotation = read_annotation(xml, file=pair.annotation, spec=recipe.spec)
        file = pair.image
        content = read_input(recipe, pair.image, MAX_IMAGE_BYTES, ImageError)
        return make_example(pair, annotation, content, recipe)
    except InputError as error:
        return quarantine(pair, file=file, kind=error.kind, reason=str(error).removeprefix(f"{file}: "))


def read_input(recipe: Recipe, path: str, max_bytes: int, error_class: type[InputError]) -> bytes:
    """The whole of a regular file of the data set.

    Raises:
        InputError: As `error_class`: missing, outside the data root, not a regular file, or above `max_bytes`.
        StorageError: The folder of the data set is absent, or the system refused the read.
    """
    absolute = os.path.join(recipe.folder, path)  # noqa: PTH118  # a Path costs 8 µs a file
    try:
        # A link may lead out of the data root; O_NONBLOCK, so that a pipe does not block the worker for ever.
        if not Path(os.path.realpath(absolute)).is_relative_to(os.path.realpath(recipe.data_root)):
            raise error_class(f"{path}: leads out of the data root; refused")
        descriptor = os.open(absolute, os.O_RDONLY | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as opened:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise error_class(f"{path}: not a regular file")
            if status.st_size > max_bytes:
                raise error_class(f"{path}: {status.st_size} bytes, at most {max_bytes} are read")
            return opened.read()
    except OSError as error:
        if error.errno not in _NO_SUCH_FILE:
            raise StorageError(f"cannot read {absolute}: {error.strerror or error}") from error
        if not recipe.folder.is_dir():
            raise StorageError(f"{recipe.folder}: the folder of the data set is absent") from error
        raise error_class(f"{path}: {_NO_SUCH_FILE[error.errno]}") from error


def make_example(pair: PathPair, annotation: Annotation, content: bytes, recipe: Recipe) -> PreparedExample:
    """Make the record of a pair from an annotation that was read and the bytes of its picture.

    Raises:
        ImageError: The picture cannot be stored.
    """
    spec = recipe.spec
    header = read_header(content, max_pixels=spec.max_pixels)
    findings = _Findings(pair, annotation)
    findings.note_format(header)
    raw_size = (header.width, header.height)
    choice = _choose_frame(annotation, header, spec)
    findings.note_frame(annotation, header, choice)
    size = upright_size(header.orientation, raw_size)
    placement = place(*size, spec)
    objects: list[StoredObject] = []
    for voc_object in annotation.objects:
        box = turn_box(voc_object.box, header.orientation, raw_size) if choice.frame == "raw" else voc_object.box
        inside = findings.clip(voc_object, box, size)
        if inside is not None and findings.is_known(voc_object, recipe.labels):
            stored = _store_object(voc_object, placement.into(inside), recipe)
            if findings.has_area(voc_object, stored, spec.image_size):
                objects.append(stored)
    record = b""
    if spec.dry:
        check_image(content, header)
    else:
        encoded = store_image(content, header, spec)
        picture = StoredPicture(encoded=encoded, size=spec.image_size, filename=pair.image, source_id=pair.source_id)
        record = serialize_example(picture, objects)
    return PreparedExample(
        pair=pair,
        record=record,
        size=spec.image_size,
        objects=tuple(objects),
        objects_read=annotation.objects_read,
        findings=(*annotation.findings, *findings.found),
    )


def _choose_frame(annotation: Annotation, header: ImageHeader, spec: JobSpec) -> FrameChoice:
    labelled = None
    if annotation.width is not None and annotation.height is not None:
        labelled = (annotation.width, annotation.height)
    boxes = [voc_object.box for voc_object in annotation.objects]
    return choose_frame(header.orientation, (header.width, header.height), labelled, boxes, spec.exif)


def _store_object(voc_object: VocObject, box: Box, recipe: Recipe) -> StoredObject:
    return StoredObject(
        class_id=recipe.labels.ids[voc_object.name],
        name=voc_object.name,
        box=box,
        difficult=voc_object.difficult,
        truncated=voc_object.truncated,
        # `ignore` is the crowd flag of COCO: trainers neither learn nor punish what lies there.
        is_crowd=voc_object.difficult and recipe.spec.difficult == "ignore",
        view=voc_object.pose,
    )


def clip_box(box: Box, size: tuple[int, int]) -> tuple[Box, float]:
    """Clip (xmin, ymin, xmax, ymax) to a picture of (width, height) pixels.

    Returns:
        The clipped box and the part of the area that remains, 0 to 1; where it is 0 the box means nothing.
    """
    xmin, ymin, xmax, ymax = box
    width, height = size
    clipped = (max(xmin, 0.0), max(ymin, 0.0), min(xmax, float(width)), min(ymax, float(height)))
    if clipped == box:
        return box, 1.0
    inner_width, inner_height = clipped[2] - clipped[0], clipped[3] - clipped[1]
    if inner_width <= 0 or inner_height <= 0:
        return clipped, 0.0
    # By side, not by area: the product of two huge sides is infinite.
    return clipped, (inner_width / (xmax - xmin)) * (inner_height / (ymax - ymin))


class _Findings:
    """What is found once the picture is known; each method decides one row of the reading rules."""

    def __init__(self, pair: PathPair, annotation: Annotation) -> None:
        self.image = pair.image
        self.file = pair.annotation or pair.image
        self.annotation = annotation
        self.found: list[Finding] = []

    def _add(self, rank: Rank, kind: str, found: str, done: str, *, index: int | None = None) -> None:
        file = self.image if index is None else self.file
        self.found.append(Finding(file=file, object_index=index, rank=rank, kind=kind, found=found[:200], done=done))

    def note_format(self, header: ImageHeader) -> None:
        promised = extension_format(self.image)
        if promised != header.format:
            self._add("mended", "format_differs", f"the bytes are {header.format}", "read by its bytes")

    def note_frame(self, annotation: Annotation, header: ImageHeader, choice: FrameChoice) -> None:
        """The orientation and how it was decided; else a `<size>` that is not the picture's."""
        what = f"orientation {header.orientation}, {header.width}x{header.height} stored"
        if choice.by == "default":
            self._add("mended", "exif_undecided", what, f"boxes taken as {choice.frame}")
        elif choice.by in ("size", "boxes"):
            self._add("mended", f"exif_{choice.frame}", what, f"boxes taken as {choice.frame}, by {choice.by}")
        elif choice.by == "no_boxes":
            self._add("info", "exif_turned", what, "pixels turned upright")
        size = upright_size(header.orientation, (header.width, header.height))
        labelled = (annotation.width, annotation.height)
        if labelled not in (size, (header.width, header.height), (None, None)):
            found = f"<size> {labelled[0]}x{labelled[1]}, the picture is {size[0]}x{size[1]}"
            self._add("mended", "size_differs", found, "the picture's own size is used")

    def clip(self, voc_object: VocObject, box: Box, size: tuple[int, int]) -> Box | None:
        inside, remaining = clip_box(box, size)
        if remaining == 1.0 and inside == box:
            return box
        found = f"{voc_object.name} at {', '.join(f'{corner:g}' for corner in box)} in {size[0]}x{size[1]}"
        if remaining < MIN_REMAINING:
            self._add("dropped", "box_outside", found, "object dropped", index=voc_object.index)
            return None
        self._add("mended", "box_clipped", found, f"clipped, {remaining:.0%} remains", index=voc_object.index)
        return inside

    def is_known(self, voc_object: VocObject, labels: LabelMap) -> bool:
        """A class that came into the file after the job was submitted has no id."""
        if voc_object.name in labels.ids:
            return True
        found = f"class {voc_object.name!r} is not in the job's label map"
        self._add("error", "class_unknown", found, "object dropped", index=voc_object.index)
        return False

    def has_area(self, voc_object: VocObject, stored: StoredObject, size: int) -> bool:
        """Boxes so thin that a float32 fraction cannot tell their sides apart have no area in the record."""
        xmin, ymin, xmax, ymax = fractions(stored.box, size)
        if xmin < xmax and ymin < ymax:
            return True
        self._add("dropped", "box_zero_area", f"{voc_object.box}", "object dropped", index=voc_object.index)
        return False


def count_kinds(findings: list[Finding]) -> dict[str, int]:
    """Findings by kind, sorted by name."""
    return dict(sorted(Counter(finding.kind for finding in findings).items()))
