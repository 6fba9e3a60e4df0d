"""Pairs -> what their XML says and a fingerprint of each: classes, counts, findings.

Pictures are not decoded: of each only the size in bytes, the first and the last 4 KiB are read, enough to notice that
a file was replaced and to find candidates for equal pictures.
"""

import os
from array import array
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.util import find_spec
from multiprocessing import get_context
from typing import Final

from producer.dataset.box_sizes import BoxAreas, BoxSizes, are_normalized
from producer.dataset.findings import Findings
from producer.dataset.pairing import image_stem, stem_of
from producer.photos import PairFiles, Photos, photos_in
from producer.progress import Progress
from shared.annotation.reader import read_annotation
from shared.annotation.voc import EMPTY, Annotation, VocObject
from shared.errors import AnnotationError, ImageError, ImageFormatUnknown
from shared.jobs.findings import Finding
from shared.jobs.fingerprint import END_BYTES, fingerprint_pair, hash_parts
from shared.picture.header import read_header
from shared.picture.heif import is_heif
from shared.placement import MIN_REMAINING, clip_box
from shared.specs.data import JobSpec
from shared.storage import DataFolder
from shared.text import composed, counted

# Picture path and XML path (None: background without XML), relative to the data set's folder.
Pair = tuple[str, str | None]

_CHUNK_PAIRS: Final = 512
# The entries of `counts` about objects and their boxes, not about pairs.
_OF_OBJECTS: Final = ("objects_read", "objects_kept", "emptied")
# A corner less than this beyond the picture is a rounding error and no finding: 480.00024 in a picture of 480.
_ROUNDING_PX: Final = 0.5

# A pool takes 0.7 s to start (spawn, import of lxml and pydantic), as long as one process takes for about 5,000 pairs.
_POOL_FROM_PAIRS: Final = 20_000
_POOL_PROCESSES_MOST: Final = 16


@dataclass(slots=True, kw_only=True)
class PairsRead:
    """What was read: `fingerprints` and `pictures` have one entry per pair, in order; the rest are sums.

    `fingerprints` hash the XML and `pictures`; `pictures` hash size and sample of the picture file. 64 bits each.
    `class_counts` counts the objects kept, by class name; `written` counts all objects by the name in their file, also
    those of pairs that are left out.
    """

    fingerprints: "array[int]" = field(default_factory=lambda: array("Q"))
    pictures: "array[int]" = field(default_factory=lambda: array("Q"))
    counts: Counter[str] = field(default_factory=Counter)
    class_counts: Counter[str] = field(default_factory=Counter)
    written: Counter[str] = field(default_factory=Counter)
    boxes: BoxSizes = field(default_factory=BoxSizes)
    areas: BoxAreas = field(default_factory=BoxAreas)
    findings: Findings = field(default_factory=Findings)

    def merge(self, other: "PairsRead") -> None:
        """Append what was read from the pairs that follow."""
        self.areas.merge(other.areas, len(self.fingerprints))
        self.fingerprints.extend(other.fingerprints)
        self.pictures.extend(other.pictures)
        self.counts.update(other.counts)
        self.class_counts.update(other.class_counts)
        self.written.update(other.written)
        self.boxes.merge(other.boxes)
        self.findings.extend(other.findings)

    def leave_out(self, unused: "PairsRead") -> None:
        """Subtract the objects of pairs that are in no split from the sums: nothing is learned from them.

        The pairs themselves are in the folder, so they stay counted.
        """
        self.counts.subtract({name: unused.counts[name] for name in _OF_OBJECTS})
        self.class_counts = self.class_counts - unused.class_counts
        self.boxes.leave_out(unused.boxes)


def read_pairs(
    folder: DataFolder, pairs: Sequence[Pair], spec: JobSpec, progress: Progress, *, processes: int | None = None
) -> PairsRead:
    """Read every XML of `pairs`, whose paths are relative to `folder`, in their order.

    A pair that cannot be read is in the result too, with a finding. By default `processes` is 1, or one per core (at
    most 16) from 20,000 pairs on.
    """
    read = PairsRead()
    chunks = (pairs[start : start + _CHUNK_PAIRS] for start in range(0, len(pairs), _CHUNK_PAIRS))
    work = partial(_read_chunk, folder, spec)
    if processes is None:
        processes = min(_processors(), _POOL_PROCESSES_MOST) if len(pairs) >= _POOL_FROM_PAIRS else 1
    for part in map(work, chunks) if processes == 1 else _in_pool(work, chunks, processes):
        read.merge(part)
        progress("reading", len(read.fingerprints), len(pairs))
    read.findings.extend(_percent(read.boxes))
    return read


@dataclass(slots=True, kw_only=True)
class NamesInXml:
    """Reads the names that XML files give to their pictures: the XML's own stem (`a.jpg.xml`), `<filename>`, `<path>`.

    `unreadable` maps the path of each XML that could not be read to the reason.
    """

    photos: Photos
    spec: JobSpec
    unreadable: dict[str, str] = field(default_factory=dict)

    def __call__(self, paths: Sequence[str]) -> Iterator[Sequence[str]]:
        """The names in each XML, best first."""
        for path, xml in zip(paths, self.photos.xmls(paths), strict=True):
            yield self._names(path, xml)

    def _names(self, path: str, xml: bytes | OSError) -> Sequence[str]:
        try:
            annotation = read_annotation(_read(xml), file=path, spec=self.spec)
        except (AnnotationError, OSError) as error:
            self.unreadable[path] = _reason(path, error)
            return (stem_of(path),)
        return (stem_of(path), *filter(None, (annotation.filename, annotation.path)))


def _read_chunk(folder: DataFolder, spec: JobSpec, pairs: Sequence[Pair]) -> PairsRead:
    read = PairsRead()
    for (image, path), files in zip(pairs, photos_in(folder).pairs(pairs), strict=True):
        _read_pair(files, spec, image, path, read)
    return read


def _read_pair(files: PairFiles, spec: JobSpec, image: str, path: str | None, read: PairsRead) -> None:
    """Add one pair; each is in exactly one of the counters `annotated`, `background` and `unreadable`."""
    xml, annotation, outcome = b"", EMPTY, "background"
    try:
        if path is not None:
            xml = _read(files.xml)
            annotation = read_annotation(xml, file=path, spec=spec)
            outcome = "annotated" if annotation.objects else "background"
    except (AnnotationError, OSError) as error:
        outcome = "unreadable"
        read.findings.append(_unreadable(str(path), error))
    picture = b""
    if isinstance(files.sample, OSError):
        read.findings.append(_unreadable(image, files.sample, ImageError.kind))
    else:
        picture = files.sample.digest
        read.findings.extend(_empty(files.sample.head, image))
        read.findings.extend(_heic(files.sample.head, image))
        annotation = _sized(annotation, files.sample.head, image, spec, read.findings)
    read.pictures.append(int.from_bytes(picture or hash_parts(image.encode()), "big"))
    read.fingerprints.append(int.from_bytes(fingerprint_pair(xml, picture), "big"))
    read.counts[outcome] += 1
    _add_annotation(annotation, image, str(path), spec, read)


def _add_annotation(annotation: Annotation, image: str, path: str, spec: JobSpec, read: PairsRead) -> None:
    read.counts["objects_read"] += annotation.objects_read
    read.counts["objects_kept"] += len(annotation.objects)
    read.counts["emptied"] += _is_emptied(annotation)
    read.class_counts.update([voc_object.name for voc_object in annotation.objects])
    read.written.update(annotation.written)
    read.findings.extend(annotation.findings)
    read.findings.extend(_normalized(annotation, path))
    read.findings.extend(_beyond_size(annotation, path))
    read.findings.extend(_of_two_classes(annotation, path))
    read.findings.extend(_predicted(annotation, path))
    read.findings.extend(_other_filename(annotation, image, path))
    read.boxes.add(annotation, spec.image_size, spec.resize)
    read.areas.add(annotation, len(read.fingerprints) - 1)


def _is_emptied(annotation: Annotation) -> bool:
    """Whether the picture loses every box to clipping, as far as `<size>` tells."""
    if annotation.size is None or not annotation.objects:
        return False
    return all(clip_box(each.box, annotation.size)[1] < MIN_REMAINING for each in annotation.objects)


def _normalized(annotation: Annotation, file: str) -> Iterator[Finding]:
    """Boxes that are fractions of the picture, where pixels are expected."""
    if are_normalized(annotation):
        corners = "xmin {:g}, ymin {:g}, xmax {:g}, ymax {:g}".format(*annotation.objects[0].box)
        found = f"all boxes lie between 0 and 1 ({corners}): they look normalized, expected pixels"
        yield Finding(
            file=file, rank="info", kind="boxes_normalized", found=found, done="taken as pixels, so of no use"
        )


def _percent(boxes: BoxSizes) -> Iterator[Finding]:
    """Boxes that are percent where pixels are expected; told by the whole set, as one file may have small objects."""
    if boxes.are_percent:
        files = f"the boxes of all {boxes.sized_files:,} files"
        found = f"{files} lie between 0 and 100: they look like percent, as Label Studio has them, expected pixels"
        done = "taken as pixels; if they are percent, multiply x by width / 100 and y by height / 100 of the picture"
        yield Finding(file=".", rank="info", kind="boxes_percent", found=found, done=done)


def _beyond_size(annotation: Annotation, file: str) -> Iterator[Finding]:
    """Boxes beyond the picture, as far as `<size>` tells; the workers clip them to the picture's true size."""
    if annotation.size is None:
        return
    width, height = annotation.size
    for voc_object in annotation.objects:
        xmin, ymin, xmax, ymax = voc_object.box
        if min(xmin, ymin, width - xmax, height - ymax) <= -_ROUNDING_PX:
            corners = "xmin {:g}, ymin {:g}, xmax {:g}, ymax {:g}".format(*voc_object.box)
            found = f"{corners} in a picture of {width}x{height}"
            done = "clipped by the picture's true size, dropped where under 25 % remains"
            about = {"file": file, "object_index": voc_object.index, "class_name": voc_object.name[:200]}
            yield Finding(**about, rank="info", kind="box_beyond_size", found=found, done=done)


def _of_two_classes(annotation: Annotation, file: str) -> Iterator[Finding]:
    """Boxes that are equal to the box of another object: one of the two class names is usually a slip."""
    first = dict[tuple[float, ...], VocObject]()
    for voc_object in annotation.objects:
        other = first.setdefault(voc_object.box, voc_object)
        if other is not voc_object:
            found = f"the box of object {other.index}, which is a {other.name[:80]!r}"
            about = {"file": file, "object_index": voc_object.index, "class_name": voc_object.name[:200]}
            yield Finding(**about, rank="info", kind="box_of_two_classes", found=found, done="both are kept")


def _predicted(annotation: Annotation, file: str) -> Iterator[Finding]:
    """Boxes with a score, so drawn by a model: LabelImg and CVAT drop the score when a person saves the file."""
    if annotation.predicted:
        found = f"{counted(annotation.predicted, 'object')} with a <confidence>, as predict and other models write it"
        done = "taken as labels: look through them first"
        yield Finding(file=file, rank="info", kind="boxes_predicted", found=found, done=done)


def _other_filename(annotation: Annotation, image: str, file: str) -> Iterator[Finding]:
    """A `<filename>` that is not the picture's: it decided nothing, but may show that a folder was renamed.

    The extension's case and the way that accents are written are ignored, and so is a missing extension (older versions
    of LabelImg write none).
    """
    if not annotation.filename:
        return
    written, name = (composed(path.replace("\\", "/").rpartition("/")[2]) for path in (annotation.filename, image))
    if written not in (name, image_stem(name)) and _with_lower_extension(written) != _with_lower_extension(name):
        found = f"<filename> is {annotation.filename[:100]!r}, the picture is {name}"
        done = "the names of the files count"
        yield Finding(file=file, rank="info", kind="filename_disagrees", found=found, done=done)


def _with_lower_extension(name: str) -> str:
    stem, dot, extension = name.rpartition(".")
    return stem + dot + extension.lower()


def _sized(annotation: Annotation, head: bytes, image: str, spec: JobSpec, findings: Findings) -> Annotation:
    """The annotation, with the picture's own size if the picture's header shows that `<size>` is wrong."""
    try:
        header = read_header(head, max_pixels=spec.max_pixels)
    except ImageFormatUnknown as error:
        if head:  # an empty file has its finding from `_empty`
            findings.append(_unreadable(image, error, ImageError.kind))
        return annotation
    except ImageError:  # the header ends beyond `head`, or is damaged: the workers read the whole file
        return annotation
    found = header.is_other_than(annotation.size)
    # PNG and WebP may store their orientation behind the pixels, beyond what was read here.
    may_lie = header.format != "jpeg" and len(head) == END_BYTES and annotation.size == (header.height, header.width)
    if may_lie or not found:
        return annotation
    done = "the picture's own size is used"
    findings.append(Finding(file=image, rank="mended", kind="size_differs", found=found, done=done))
    return replace(annotation, size=header.upright_size)


def _empty(head: bytes, image: str) -> Iterator[Finding]:
    if not head:
        yield _unreadable(image, ImageError("the file is empty"), ImageError.kind)


def _heic(head: bytes, image: str) -> Iterator[Finding]:
    """A HEIC picture, if the library to read it is not installed here; with --local the workers run here too."""
    if is_heif(head) and find_spec("pillow_heif") is None:
        found = "HEIC: convert it to JPEG, or install pillow-heif where the workers run"
        yield Finding(file=image, rank="info", kind="heic", found=found, done="set aside by workers without it")


def _unreadable(file: str, error: Exception, kind: str = AnnotationError.kind) -> Finding:
    return Finding(file=file, rank="quarantined", kind=kind, found=_reason(file, error), done="pair quarantined")


def _reason(file: str, error: Exception) -> str:
    """Why `file` could not be read, without its name."""
    reason = (error.strerror or str(error)) if isinstance(error, OSError) else str(error).removeprefix(f"{file}: ")
    return reason[:200]


def _read(content: bytes | OSError) -> bytes:
    """The content, or raise the error that reading it gave."""
    if isinstance(content, OSError):
        raise content
    return content


def _processors() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _in_pool(
    work: Callable[[Sequence[Pair]], PairsRead], chunks: Iterable[Sequence[Pair]], processes: int
) -> Iterator[PairsRead]:
    """`map` over processes, in order; few chunks are queued at a time, so that not all pairs are copied at once."""
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        waiting: deque[Future[PairsRead]] = deque()
        for chunk in chunks:
            waiting.append(pool.submit(work, chunk))
            if len(waiting) > 3 * processes:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
