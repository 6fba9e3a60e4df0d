"""What speaks of a folder as a whole: files without a partner, class names, whether anything can be learned. Pure.

The last of the rules that lint applies, when everything else is known.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from producer.pairs import Pairing
from producer.reading import PairsRead
from producer.scan import Walk
from producer.split import SplitAssignment
from shared.job import SPLITS, JobSpec
from shared.labels import LabelMap
from shared.manifest import Finding

# What other labelling formats leave in a folder, for a person who takes them for VOC.
_OTHER_FORMATS: Final[Mapping[str, str]] = {
    ".txt": "YOLO",
    ".json": "COCO, labelme or Vott",
    ".csv": "a table",
    ".tfrecord": "shards",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What the doors before this one said. `unreadable_orphans` are XML files without a picture: path → reason."""

    spec: JobSpec
    walk: Walk
    pairing: Pairing
    unreadable_orphans: Mapping[str, str]
    read: PairsRead
    assignment: SplitAssignment
    labels: LabelMap


def about_the_set(seen: Seen) -> Iterator[Finding]:
    """The findings that need more than one file."""
    yield from _orphans(seen)
    yield from _class_names(seen)
    reason = _why_unusable(seen)
    if reason is not None:
        yield Finding(file=".", rank="error", kind="no_usable_pair", found=reason, done="the submit is stopped")
    else:
        yield from _empty_splits(seen)


def _orphans(seen: Seen) -> Iterator[Finding]:
    kept = (
        "left out; --background orphans keeps it" if seen.spec.background == "none" else "kept as a background example"
    )
    for image in seen.pairing.images:
        yield Finding(file=image, rank="info", kind="image_without_annotation", found="no XML belongs to it", done=kept)
    for path in seen.pairing.annotations:
        reason = seen.unreadable_orphans.get(path)
        found = "no picture belongs to it" + (f"; {reason}" if reason else "")
        yield Finding(file=path, rank="info", kind="annotation_without_image", found=found, done="left out")


def _class_names(seen: Seen) -> Iterator[Finding]:
    """Names that differ only in case, and asked classes that no object has."""
    for _, group in groupby(sorted(seen.labels.names, key=str.casefold), key=str.casefold):
        names = list(group)
        if len(names) > 1:
            found = "class names differ only in case: " + ", ".join(f"{name!r}" for name in names)
            done = "kept apart; --rename joins them"
            yield Finding(file=".", rank="info", kind="class_case", found=found, done=done)
    for name in seen.spec.classes or ():
        if not seen.read.class_counts[name]:
            found = f"no object of class {name!r}"
            yield Finding(file=".", rank="info", kind="class_unseen", found=found, done="kept in the label map")


def _why_unusable(seen: Seen) -> str | None:
    """Why nothing can be learned from the set; None where something can."""
    counts = seen.read.counts
    if not counts["annotated"] + counts["background"]:
        return f"no picture with a readable XML; {_held(seen)}"
    if not seen.labels.names or not sum(seen.read.class_counts.values()):
        return "no object of any class that is asked for"
    if "train" not in seen.assignment.splits:
        return f"no picture in train (splits by {seen.assignment.rule})"
    return None


def _held(seen: Seen) -> str:
    """What the folder holds instead of pairs, for a person who took it for VOC."""
    pairing = seen.pairing
    images = len(pairing.images) + len(pairing.pairs)
    held = [f"found {images} images", f"{len(pairing.annotations) + len(pairing.pairs)} XML files"]
    others = [
        f"{count} {extension} ({_OTHER_FORMATS[extension]}?)"
        for extension, count in seen.walk.others.most_common()
        if extension in _OTHER_FORMATS
    ]
    convert = ["only Pascal-VOC XML is read: convert or export it as that"] if others else []
    return ", ".join([*held, *others, *convert])


def _empty_splits(seen: Seen) -> Iterator[Finding]:
    pictures, rule = Counter(seen.assignment.splits), seen.assignment.rule
    empty = [
        split
        for split, share in zip(SPLITS, seen.spec.split, strict=True)
        if not pictures[split] and (share > 0 or rule != "seeded")
    ]
    if empty:
        found = f"no picture in {' and '.join(empty)} (splits by {rule})"
        yield Finding(file=".", rank="info", kind="split_empty", found=found, done="the job goes on without")
