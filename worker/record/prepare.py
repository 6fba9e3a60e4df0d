"""One path pair -> one record, or the reason why there is none.

It reads the two files, passes them through annotation, header, frame, image and example, and turns every `InputError`
into a quarantine. Reading the two files (`input_files`, `fetched_files`) is its only side effect.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from shared.annotation.reader import read_annotation
from shared.annotation.voc import EMPTY, Annotation, Box, VocObject
from shared.errors import AnnotationError, ImageError, InputError, PairChanged
from shared.faults import open_picture
from shared.image_formats import format_of
from shared.jobs.findings import Finding, Rank, of_emptied_photo
from shared.jobs.fingerprint import fingerprint_pair, sample_content
from shared.jobs.job import Job, PathPair
from shared.jobs.labels import LabelMap
from shared.picture import cut_short
from shared.picture.header import ImageHeader, read_header
from shared.picture.orientation import FrameChoice, choose_frame, turn_box
from shared.placement import MIN_REMAINING, clip_box, place
from shared.specs.data import JobSpec
from worker.picture.encode import StoredImage, check_image, store_image
from worker.record.example import StoredObject, fractions, serialize_example
from worker.record.input_files import Inputs, read_file

# A picture with fewer shades shows next to nothing: 12-bit samples in 16 bits have 16 shades.
_FEW_SHADES: Final = 32

# Returns the bytes of a file of the data set, given its path and error class; raises as `read_file` does.
Read = Callable[[str, type[AnnotationError | ImageError]], bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What is the same for every pair of a job: how its files are read, understood and written."""

    read: Read
    spec: JobSpec
    labels: LabelMap


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedExample:
    """A pair that will be written: its serialized record (empty in a dry job), objects, findings, perceptual hash."""

    pair: PathPair
    record: bytes
    hash: str
    size: int
    objects: tuple[StoredObject, ...]
    objects_read: int
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantine:
    """A pair that will not be written, and the one finding that says why."""

    pair: PathPair
    finding: Finding


Outcome = PreparedExample | Quarantine


def recipe_of(job: Job, data_root: Path, *, is_repeated: bool = False) -> Recipe:
    """The recipe of a job in a folder below `data_root`; `is_repeated` says that an earlier attempt failed."""
    inputs = Inputs(data_root=data_root, folder=data_root / job.folder, is_repeated=is_repeated)
    return recipe_by(job, partial(read_file, inputs))


def recipe_by(job: Job, read: Read) -> Recipe:
    """The recipe of a job whose files come from `read`."""
    return Recipe(read=read, spec=job.spec, labels=LabelMap(job.labels))


def quarantine(pair: PathPair, *, file: str, kind: str, reason: str) -> Quarantine:
    """The quarantine of `pair`, because of what was found in `file`."""
    finding = Finding(file=file, rank="quarantined", kind=kind, found=reason[:500], done="pair quarantined")
    return Quarantine(pair=pair, finding=finding)


def prepare_example(pair: PathPair, *, recipe: Recipe) -> Outcome:
    """Read a pair and make its record, or a quarantine if the pair will never succeed as it is.

    Raises:
        StorageError: The data set's folder is absent, or a system error prevents reading a file.
    """
    open_picture(pair.image)
    file = pair.annotation or pair.image
    try:
        xml, annotation = b"", EMPTY
        if pair.annotation is not None:
            xml = recipe.read(pair.annotation, AnnotationError)
            annotation = read_annotation(xml, file=pair.annotation, spec=recipe.spec)
        file = pair.image
        content = recipe.read(pair.image, ImageError)
        check_unchanged(pair, xml, content)
        return make_example(pair, annotation, content, recipe)
    except InputError as error:
        return quarantine(pair, file=file, kind=error.kind, reason=str(error).removeprefix(f"{file}: "))


def check_unchanged(pair: PathPair, xml: bytes, content: bytes) -> None:
    """Compare both files of a pair with their common fingerprint in the plan.

    Raises:
        PairChanged: Either file has changed since the submit.
    """
    if fingerprint_pair(xml, sample_content(content).digest).hex() != pair.fingerprint:
        files = "the picture" if pair.annotation is None else f"the picture or its XML ({pair.annotation})"
        raise PairChanged(
            f"{pair.image}: {files} has changed since the submit; to use it as it is now, submit again under another "
            "--job, unchanged shards are reused"
        )


def make_example(pair: PathPair, annotation: Annotation, content: bytes, recipe: Recipe) -> PreparedExample:
    """Make the record of a pair from its parsed annotation and the bytes of its picture.

    Raises:
        ImageError: The picture cannot be stored.
    """
    spec = recipe.spec
    header = read_header(content, max_pixels=spec.max_pixels)
    findings = _Findings(pair)
    findings.note_format(header)
    raw_size = (header.width, header.height)
    boxes = [voc_object.box for voc_object in annotation.objects]
    choice = choose_frame(header.orientation, raw_size, annotation.size, boxes, spec.exif)
    findings.note_frame(annotation, header, choice)
    size = header.upright_size
    placement = place(*size, spec.image_size, spec.resize)
    objects: list[StoredObject] = []
    for voc_object in annotation.objects:
        box = turn_box(voc_object.box, header.orientation, raw_size) if choice.frame == "raw" else voc_object.box
        inside = findings.clip(voc_object, box, size)
        if inside is not None and findings.is_known(voc_object, recipe.labels):
            stored = _store_object(voc_object, placement.into(inside), recipe)
            if findings.has_area(voc_object, stored, spec.image_size):
                objects.append(stored)
    stored_image = (check_image if spec.dry else store_image)(content, header, spec)
    findings.note_cut(stored_image)
    findings.note_shades(stored_image)
    # The findings of the XML stay as they are: the submit has the same ones, made without the picture.
    found = of_emptied_photo(findings.found) if annotation.objects and not objects else findings.found
    return PreparedExample(
        pair=pair,
        record=b"" if spec.dry else serialize_example(stored_image.jpeg, spec.image_size, pair, objects),
        hash=stored_image.hash,
        size=spec.image_size,
        objects=tuple(objects),
        objects_read=annotation.objects_read,
        findings=(*annotation.findings, *found),
    )


def _store_object(voc_object: VocObject, box: Box, recipe: Recipe) -> StoredObject:
    class_id = recipe.labels.by_class_name[voc_object.name]
    return StoredObject(
        class_id=class_id,
        name=recipe.labels.names[class_id - 1],
        box=box,
        difficult=voc_object.difficult,
        truncated=voc_object.truncated,
        # `ignore` becomes COCO's crowd flag: trainers neither learn nor punish detections there.
        is_crowd=voc_object.difficult and recipe.spec.difficult == "ignore",
        view=voc_object.pose,
    )


class _Findings:
    """The findings that need the picture; each method decides one of the reading rules."""

    def __init__(self, pair: PathPair) -> None:
        self.image = pair.image
        self.file = pair.annotation or pair.image
        self.found: list[Finding] = []

    def _add(self, rank: Rank, kind: str, found: str, done: str, *, of: VocObject | None = None) -> None:
        """Add a finding about the picture, or about the object `of` in it."""
        about = {"file": self.image} if of is None else {"file": self.file, "object_index": of.index}
        name = "" if of is None else of.name[:200]
        self.found.append(Finding(**about, rank=rank, kind=kind, found=found[:200], done=done, class_name=name))

    def note_format(self, header: ImageHeader) -> None:
        promised = format_of(self.image)
        if promised != header.format:
            self._add("mended", "format_differs", f"the bytes are {header.format}", "read by its bytes")

    def note_cut(self, image: StoredImage) -> None:
        if image.rows is not None:
            found = cut_short.told(image.rows)
            self._add("mended", "image_cut_short", found, "kept; to leave it out: `--damaged drop`")

    def note_shades(self, image: StoredImage) -> None:
        """Report 16-bit pictures with samples of 10 to 14 bits (microscopes, thermal cameras): nearly one gray."""
        if image.shades is not None and image.shades < _FEW_SHADES:
            found = f"16-bit samples that differ so little that {image.shades} of 256 shades are left"
            self._add("info", "depth_unused", found, "kept; spread them over all 16 bits first, all photos alike")

    def note_frame(self, annotation: Annotation, header: ImageHeader, choice: FrameChoice) -> None:
        """Add findings about the orientation, the choice of frame, and a `<size>` that is not the picture's."""
        what = f"orientation {header.orientation}, {header.width}x{header.height} stored"
        if choice.by == "default":
            self._add("mended", "exif_undecided", what, f"boxes taken as {choice.frame}")
        elif choice.by in ("size", "boxes"):
            self._add("mended", f"exif_{choice.frame}", what, f"boxes taken as {choice.frame}, by {choice.by}")
        elif choice.by == "no_boxes":
            self._add("info", "exif_turned", what, "pixels turned upright")
        if found := header.is_other_than(annotation.size):
            self._add("mended", "size_differs", found, "the picture's own size is used")

    def clip(self, voc_object: VocObject, box: Box, size: tuple[int, int]) -> Box | None:
        inside, remaining = clip_box(box, size)
        if inside == box:
            return box
        found = f"{voc_object.name} at {', '.join(f'{corner:g}' for corner in box)} in {size[0]}x{size[1]}"
        if remaining < MIN_REMAINING:
            self._add("dropped", "box_outside", found, "object dropped", of=voc_object)
            return None
        self._add("mended", "box_clipped", found, f"clipped, {remaining:.0%} remains", of=voc_object)
        return inside

    def is_known(self, voc_object: VocObject, labels: LabelMap) -> bool:
        """Whether the job has an id for the class, which may have been added to the file after the submit."""
        if voc_object.name in labels.by_class_name:
            return True
        found = f"class {voc_object.name!r} is not in the job's label map"
        self._add("error", "class_unknown", found, "object dropped", of=voc_object)
        return False

    def has_area(self, voc_object: VocObject, stored: StoredObject, size: int) -> bool:
        """Whether the box has an area in the record: as float32 fractions, two sides of a thin box may become equal."""
        xmin, ymin, xmax, ymax = fractions(stored.box, size)
        if xmin < xmax and ymin < ymax:
            return True
        self._add("dropped", "box_zero_area", f"{voc_object.box}", "object dropped", of=voc_object)
        return False
