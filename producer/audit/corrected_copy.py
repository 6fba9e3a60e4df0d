"""A data set and accepted findings -> a copy with corrected labels, and a line on what was done about every finding.

The copy has the folders and names of the original, so that submitting it makes only the shards of changed photos. The
original is not changed, not even by a hard link, which would count as a change of the photo.
"""

import glob
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from producer.audit.copied_tree import copy_tree
from producer.audit.corrected_xml import Corrections, corrected, upright_size
from producer.audit.photo_sizes import OTHER_FILE, head_digest, noted_heads, noted_sizes, other_size
from producer.photos import photos_in
from producer.photos.copied import write_note
from producer.photos.unfinished import make_writable, unfinished_folder
from producer.progress import Progress, no_progress
from shared.audit.findings import AuditFinding
from shared.command import require_local
from shared.errors import AnnotationError, ImageError, OptionError
from shared.jobs.contents import planned_shards
from shared.jobs.job import Job
from shared.picture.header import read_header
from shared.storage import DataFolder, Storage

# With the size of the upright photo, so that the boxes of a photo that EXIF turns are read as upright.
_NEW_XML: Final = (
    "<annotation><folder/><filename/>"
    "<size><width>{width}</width><height>{height}</height><depth>3</depth></size></annotation>"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Audited:
    """A photo as it was audited: upright width and height, and `head_digest`; None if they were not noted."""

    size: tuple[int, int] | None
    head: str | None


def check_free(folder: Path, option: str) -> None:
    """Refuse a folder that is not empty.

    Raises:
        OptionError: It is a URL, a file, or not empty.
    """
    require_local(folder, option)
    if folder.exists() and not folder.is_dir():
        raise OptionError(f"{option} {folder}: expected a folder, found a file")
    if folder.is_dir() and any(folder.iterdir()):
        raise OptionError(f"{option} {folder}: it is not empty, and nothing is overwritten: name a new folder")


def write_corrected(
    job: Job,
    storage: Storage,
    dataset: DataFolder,
    findings: Sequence[AuditFinding],
    target: Path,
    progress: Progress = no_progress,
) -> Iterator[str]:
    """Write the copy, whole or not at all.

    Args:
        job: The job whose labels were audited.
        storage: Holds the job's plan.
        dataset: The job's photos and XML files; they are fetched if in a bucket.
        findings: The accepted findings.
        target: Gets the copy; it does not exist, or is empty.
        progress: Told how far the fetching is.

    Yields:
        A line for each finding: what was changed and why, or why not.

    Raises:
        OptionError: The target is in the data set.
        LintError: A folder of the data set cannot be listed.
        StorageError: A file cannot be copied or fetched.
    """
    if isinstance(dataset, Path) and target.resolve().is_relative_to(dataset.resolve()):
        raise OptionError(f"--out {target}: it is inside the photos' folder {dataset}: name one outside of it")
    by_file = defaultdict[str, list[AuditFinding]](list)
    for finding in findings:
        by_file[finding.file].append(finding)
    annotations = {pair["image"]: pair["annotation"] for _, _, pairs in planned_shards(storage, job) for pair in pairs}
    target.parent.mkdir(parents=True, exist_ok=True)
    with unfinished_folder(target.parent, ".corrected-") as place:
        folder = place / "copy"
        changed = copy_tree(dataset, _data_root(job, dataset), folder, progress)
        make_writable(folder)
        write_note(folder, changed, _names_known(job, dataset))
        sizes, heads = noted_sizes(job, storage), noted_heads(job, storage)
        for file, about in sorted(by_file.items()):
            audited = _Audited(size=sizes.get(file), head=heads.get(file))
            yield from _correct(job, folder, file, annotations, about, audited)
        with suppress(FileNotFoundError):
            target.rmdir()
        folder.rename(target)


def _names_known(job: Job, dataset: DataFolder) -> set[str]:
    """The classes that options name: the job was admitted, so its photos, or the originals of a copy, had them."""
    before = photos_in(dataset).names_before
    return {*before, *job.spec.rename, *(job.spec.classes or ()), *job.spec.ignore_classes}


def _data_root(job: Job, dataset: DataFolder) -> DataFolder:
    """The data root, in which the job's links stayed: as many levels above its photos as `job.folder` has."""
    for _ in PurePosixPath(job.folder).parts:
        dataset = dataset.parent
    return dataset


def _correct(
    job: Job,
    folder: Path,
    file: str,
    annotations: Mapping[str, str | None],
    findings: Sequence[AuditFinding],
    audited: _Audited,
) -> Iterator[str]:
    """Correct the XML of one photo in the copy."""
    photo, annotation = folder / file, annotations.get(file)
    try:
        content = photo.read_bytes()
        header = read_header(content, max_pixels=job.spec.max_pixels)
    except (OSError, ImageError):
        yield from (f"{_about(finding)}: not changed, the photo is gone" for finding in findings)
        return
    width, height = upright_size(header)
    if other := other_size((width, height), audited.size) or _other_photo(content, audited):
        todo = "put that one back, or submit and audit the folder as a new job"
        yield from (f"{_about(finding)}: not changed, {other}: {todo}" for finding in findings)
        return
    path = folder / (annotation or PurePosixPath(file).with_suffix(".xml"))
    if annotation is not None and not path.is_file():
        yield from (f"{_about(finding)}: not changed, {annotation} is gone" for finding in findings)
        return
    if annotation is None and (unread := _unread(folder, file, annotations)) is not None:
        yield from (
            f"{_about(finding)}: not changed, {unread} is there, which the job never read" for finding in findings
        )
        return
    xml = path.read_bytes() if annotation is not None else _NEW_XML.format(width=width, height=height).encode()
    try:
        made: Corrections = corrected(xml, findings, header, job.spec, file=annotation or path.name)
    except AnnotationError as error:
        yield from (f"{_about(finding)}: not changed, {error}" for finding in findings)
        return
    if made.is_changed:
        path.unlink(missing_ok=True)  # a read-only file can be replaced, but not written to
        path.write_bytes(made.xml)
    for finding, outcome in zip(findings, made.outcomes, strict=True):
        yield f"{_about(finding)}: {outcome}; {finding.reason}"


def _unread(folder: Path, file: str, annotations: Mapping[str, str | None]) -> str | None:
    """An XML that somebody may have made since for a photo that had none when the job was submitted."""
    stem = glob.escape(PurePosixPath(file).stem)
    found = sorted(path.relative_to(folder).as_posix() for path in folder.rglob(f"{stem}.xml"))
    return next((path for path in found if path not in annotations.values()), None)


def _other_photo(content: bytes, audited: _Audited) -> str:
    """The message if a photo of the same size is not the file that was audited; else ""."""
    if audited.head is None or audited.head == head_digest(content):
        return ""
    return OTHER_FILE


def _about(finding: AuditFinding) -> str:
    place = "" if finding.object is None else f" object {finding.object} ({finding.class_name})"
    return f"{finding.id} {finding.file}{place}"
