"""Pairs → what their XML says and a fingerprint of each: classes, counts, findings. The only door that opens the files.

Pictures are not decoded: of each only the size in bytes, the first and the last 4 KiB are read, enough to notice that
a file was replaced and to find candidates for equal pictures.
"""

import hashlib
import os
from array import array
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Final

from producer.boxsizes import BoxSizes
from producer.findings import Findings
from producer.pairs import image_stem
from shared.annotation import EMPTY, MAX_XML_BYTES, Annotation, read_annotation
from shared.errors import AnnotationError
from shared.job import JobSpec
from shared.manifest import Finding

# (stage, done, total; total 0 while it is not known)
Progress = Callable[[str, int, int], None]

# Picture path and XML path (None: background without XML), relative to the data set's folder.
Pair = tuple[str, str | None]

_SAMPLE_BYTES: Final = 4096
_CHUNK_PAIRS: Final = 512

# A pool takes 0.7 s to start (spawn, import of lxml and pydantic), as long as one process takes for about 5,000 pairs.
_POOL_FROM_PAIRS: Final = 20_000
_POOL_PROCESSES_MOST: Final = 16


@dataclass(slots=True, kw_only=True)
class PairsRead:
    """What was read, pair by pair in their order (`fingerprints`, `pictures`) and in sum.

    `fingerprints` hash the XML and `pictures`; `pictures` hash size and sample of the picture file. 64 bits each.
    `class_counts` are of the objects kept, by class name.
    """

    fingerprints: "array[int]" = field(default_factory=lambda: array("Q"))
    pictures: "array[int]" = field(default_factory=lambda: array("Q"))
    counts: Counter[str] = field(default_factory=Counter)
    class_counts: Counter[str] = field(default_factory=Counter)
    boxes: BoxSizes = field(default_factory=BoxSizes)
    findings: Findings = field(default_factory=Findings)

    def merge(self, other: "PairsRead") -> None:
        """Append what was read of the pairs that follow."""
        self.fingerprints.extend(other.fingerprints)
        self.pictures.extend(other.pictures)
        self.counts.update(other.counts)
        self.class_counts.update(other.class_counts)
        self.boxes.merge(other.boxes)
        self.findings.extend(other.findings)


def read_pairs(
    folder: Path, pairs: Sequence[Pair], spec: JobSpec, progress: Progress, *, processes: int | None = None
) -> PairsRead:
    """Read every XML of `pairs`, in several processes where there are many.

    Args:
        folder: What the paths are relative to.
        pairs: In the order that the result has.
        spec: The reading options.
        progress: Told after each chunk.
        processes: By default one a core where there are enough pairs for it to be worth it.

    Returns:
        What was read; a pair that cannot be read is in it too, with a finding.
    """
    read = PairsRead()
    chunks = (pairs[start : start + _CHUNK_PAIRS] for start in range(0, len(pairs), _CHUNK_PAIRS))
    work = partial(_read_chunk, folder, spec)
    if processes is None:
        processes = min(_processors(), _POOL_PROCESSES_MOST) if len(pairs) >= _POOL_FROM_PAIRS else 1
    for part in map(work, chunks) if processes == 1 else _in_pool(work, chunks, processes):
        read.merge(part)
        progress("reading", len(read.fingerprints), len(pairs))
    return read


def equal_pictures(folder: Path, pairs: Sequence[Pair], pictures: Sequence[int]) -> list[list[int]]:
    """Groups of indices into `pairs` whose picture files hold the same bytes.

    Only files of equal size and equal sample (`pictures`) are read whole. A file that cannot be read equals no other.
    """
    candidates: dict[int, list[int]] = defaultdict(list)
    repeated = {key for key, count in Counter(pictures).items() if count > 1}
    for index, key in enumerate(pictures):
        if key in repeated:
            candidates[key].append(index)
    groups: list[list[int]] = []
    for indices in candidates.values():
        by_digest: dict[bytes, list[int]] = defaultdict(list)
        for index in indices:
            digest = _digest_of_file(folder / pairs[index][0])
            if digest is not None:
                by_digest[digest].append(index)
        groups.extend(group for group in by_digest.values() if len(group) > 1)
    return sorted(groups)


@dataclass(slots=True, kw_only=True)
class NamesInXml:
    """What `pairs.pair_files` asks: the names that an XML gives to its picture, `<filename>` before `<path>`.

    `unreadable` has those that could not be read, with the reason: they stay orphans, and are named as such.
    """

    folder: Path
    spec: JobSpec
    unreadable: dict[str, str] = field(default_factory=dict)

    def __call__(self, path: str) -> Sequence[str]:
        """The names in the XML at `path`, best first."""
        try:
            annotation = read_annotation(_read_xml(f"{self.folder}/{path}"), file=path, spec=self.spec)
        except (AnnotationError, OSError) as error:
            self.unreadable[path] = _reason(path, error)
            return ()
        return tuple(filter(None, (annotation.filename, annotation.path)))


def _read_chunk(folder: Path, spec: JobSpec, pairs: Sequence[Pair]) -> PairsRead:
    read = PairsRead()
    for image, annotation in pairs:
        _read_pair(folder, spec, image, annotation, read)
    return read


def _read_pair(folder: Path, spec: JobSpec, image: str, path: str | None, read: PairsRead) -> None:
    """Add one pair; each is in exactly one of the counters `annotated`, `background` and `unreadable`."""
    xml = b""
    annotation = EMPTY
    outcome = "background"
    try:
        if path is not None:
            xml = _read_xml(f"{folder}/{path}")
            annotation = read_annotation(xml, file=path, spec=spec)
            outcome = "annotated" if annotation.objects else "background"
    except (AnnotationError, OSError) as error:
        outcome = "unreadable"
        read.findings.append(_unreadable(str(path), error))
    picture = _sample(f"{folder}/{image}")
    if picture is None:
        read.findings.append(_unreadable(image, OSError("the picture's file cannot be read"), "image_unreadable"))
    read.pictures.append(int.from_bytes(picture or _hash(image.encode()), "big"))
    read.fingerprints.append(int.from_bytes(_hash(xml, picture or b""), "big"))
    read.counts[outcome] += 1
    _add_annotation(annotation, image, str(path), spec, read)


def _add_annotation(annotation: Annotation, image: str, path: str, spec: JobSpec, read: PairsRead) -> None:
    read.counts["objects_read"] += annotation.objects_read
    read.counts["objects_kept"] += len(annotation.objects)
    read.class_counts.update([voc_object.name for voc_object in annotation.objects])
    read.findings.extend(annotation.findings)
    read.findings.extend(_beyond_size(annotation, path))
    read.findings.extend(_other_filename(annotation, image, path))
    read.boxes.add(annotation, spec.image_size, spec.resize)


def _beyond_size(annotation: Annotation, file: str) -> Iterator[Finding]:
    """Boxes beyond the picture, as far as `<size>` tells; the workers clip them by the picture itself."""
    width, height = annotation.width, annotation.height
    if width is None or height is None:
        return
    for voc_object in annotation.objects:
        if voc_object.xmin < 0 or voc_object.ymin < 0 or voc_object.xmax > width or voc_object.ymax > height:
            corners = "xmin {:g}, ymin {:g}, xmax {:g}, ymax {:g}".format(*voc_object.box)
            found = f"{corners} in a picture of {width}x{height}"
            yield Finding(
                file=file,
                object_index=voc_object.index,
                rank="info",
                kind="box_beyond_size",
                found=found,
                done="clipped by the picture's true size, dropped where under 25 % remains",
            )


def _other_filename(annotation: Annotation, image: str, file: str) -> Iterator[Finding]:
    """A `<filename>` that is not the picture's: it decided nothing, but may tell that a folder was renamed.

    The extension's case is ignored, and so is a missing one (older versions of LabelImg write none).
    """
    if not annotation.filename:
        return
    written, name = (_last_part(path) for path in (annotation.filename, image))
    if written not in (name, image_stem(name)) and _with_lower_extension(written) != _with_lower_extension(name):
        found = f"<filename> is {annotation.filename[:100]!r}, the picture is {name}"
        yield Finding(
            file=file, rank="info", kind="filename_disagrees", found=found, done="the names of the files count"
        )


def _last_part(path: str) -> str:
    """Of a path, split on `/` and back slash."""
    return path.replace("\\", "/").rpartition("/")[2]


def _with_lower_extension(name: str) -> str:
    stem, dot, extension = name.rpartition(".")
    return stem + dot + extension.lower()


def _unreadable(file: str, error: Exception, kind: str = AnnotationError.kind) -> Finding:
    return Finding(file=file, rank="quarantined", kind=kind, found=_reason(file, error), done="pair quarantined")


def _reason(file: str, error: Exception) -> str:
    """Why `file` could not be read, without its name."""
    reason = (error.strerror or str(error)) if isinstance(error, OSError) else str(error).removeprefix(f"{file}: ")
    return reason[:200]


def _read_xml(path: str) -> bytes:
    """The file, at most one byte over what `read_annotation` accepts."""
    with open(path, "rb") as file:
        return file.read(MAX_XML_BYTES + 1)


def _sample(path: str) -> bytes | None:
    """A hash of a file's size, first and last bytes; None where it cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            size = os.fstat(descriptor).st_size
            head = os.pread(descriptor, _SAMPLE_BYTES, 0)
            tail = os.pread(descriptor, _SAMPLE_BYTES, max(_SAMPLE_BYTES, size - _SAMPLE_BYTES))
        finally:
            os.close(descriptor)
    except OSError:
        return None
    return _hash(size.to_bytes(8, "big"), head, tail)


def _hash(*parts: bytes) -> bytes:
    """64 bits of BLAKE2b over the parts and their lengths."""
    digest = hashlib.blake2b(digest_size=8)
    for part in parts:
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return digest.digest()


def _digest_of_file(path: Path) -> bytes | None:
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").digest()
    except OSError:
        return None


def _processors() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _in_pool(
    work: Callable[[Sequence[Pair]], PairsRead], chunks: Iterable[Sequence[Pair]], processes: int
) -> Iterator[PairsRead]:
    """`map` over processes, in order; few chunks wait at a time, so that a million pairs are not copied at once."""
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        waiting: deque[Future[PairsRead]] = deque()
        for chunk in chunks:
            waiting.append(pool.submit(work, chunk))
            if len(waiting) > 3 * processes:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
