"""Findings -> Pascal-VOC XML of each doubtful photo with the likely findings applied, for a person to review."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Final

from shared.audit.findings import LIKELY, AuditFinding, AuditFindings
from shared.jobs.manifest import Manifest
from trainer.audit.photo_frames import PhotoFrame
from trainer.inference.voc_files import XmlObject, annotation_xml

# The depth of a colour picture; nothing reads it.
_DEPTH: Final = 3


def proposals(
    result: AuditFindings, frames: Mapping[str, PhotoFrame], manifest: Manifest, folder: str
) -> Iterator[tuple[str, bytes]]:
    """Name and content of an XML for each photo with a label more likely wrong than right, named like the photo.

    Proposed objects have their score as `<confidence>`. If two photos differ only in their extension, the name of the
    second's XML keeps it. `folder` is the data set.
    """
    by_file: dict[str, list[AuditFinding]] = {}
    for finding in (each for each in result.findings if each.score >= LIKELY):
        by_file.setdefault(finding.file, []).append(finding)
    taken: set[str] = set()
    for file, findings in sorted(by_file.items()):
        name = str(PurePosixPath(file).with_suffix(".xml"))
        name = f"{file}.xml" if name in taken else name
        taken.add(name)
        frame = frames[file]
        objects = _objects(frame, findings, manifest.labels)
        yield name, annotation_xml(Path(folder, file), (frame.height, frame.width, _DEPTH), objects)


def _objects(frame: PhotoFrame, findings: Sequence[AuditFinding], labels: Sequence[str]) -> Iterator[XmlObject]:
    """The objects of a photo with all proposals applied; of two findings on one object the surer one counts."""
    about: dict[int, AuditFinding] = {}
    for finding in findings:
        if finding.object is not None:
            about.setdefault(finding.object, finding)
    marked = frame.marked
    rows = zip(marked.boxes.tolist(), marked.class_ids.tolist(), marked.is_ignored.tolist(), strict=True)
    for number, (box, class_id, is_difficult) in enumerate(rows, start=1):
        doubt = about.get(number)
        if doubt is None:
            yield XmlObject(name=labels[class_id - 1], box=(*box,), is_difficult=is_difficult)
        elif doubt.proposed_box is not None:
            place, score = doubt.proposed_box, doubt.score
            yield XmlObject(name=doubt.proposed_class, box=place, is_difficult=is_difficult, score=score)
    for finding in findings:
        if finding.object is None and finding.proposed_box is not None:
            yield XmlObject(name=finding.proposed_class, box=finding.proposed_box, score=finding.score)
