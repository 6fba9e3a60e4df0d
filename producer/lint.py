"""A folder → all that names and XML say of it: pairs, splits, classes, findings. No broker, no pixels.

The first step of every submit, and all of `producer lint`.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from producer.boxsizes import BoxSizes
from producer.findings import Findings
from producer.lists import SplitLists
from producer.pairs import Pairing, pair_files
from producer.reading import Pair, PairsRead, Progress, equal_pictures, names_in_xml, read_pairs
from producer.scan import ScannedFolder, Walk
from producer.split import SplitAssignment, assign_splits
from shared.errors import LintError
from shared.job import SPLITS, JobSpec, Split
from shared.labels import LabelMap, label_map
from shared.manifest import Finding

# Named in `counts` even where there are none: what people and tests look up.
_ALWAYS_COUNTED = ("annotated", "background", "unreadable", "objects_read", "objects_kept", "filename_disagrees")


@dataclass(frozen=True, slots=True, kw_only=True)
class LintedFolder:
    """What was found. `pairs` are sorted by picture; `splits` and `fingerprints` (64 bits) belong to them by index.

    `counts` has `images`, `annotated`, `background`, `unreadable`, `objects_read`, …, one entry a kind of finding and
    one `class:<name>` a class (objects kept). `split_rule` is `lists`, `folders` or `seeded`.
    """

    folder: Path
    spec: JobSpec
    pairs: Sequence[Pair]
    splits: Sequence[Split | None]
    fingerprints: Sequence[int]
    labels: LabelMap
    counts: dict[str, int]
    class_counts: dict[str, int]
    boxes: BoxSizes
    findings: Findings
    split_rule: str

    def require_usable(self, *, strict: bool = False) -> None:
        """Stop here if the set cannot be used as asked.

        Args:
            strict: Stop on any finding.

        Raises:
            LintError: Names the first findings, and counts them all.
        """
        stopping = self.findings if strict else self.findings.of_rank("error")
        if stopping:
            shown = [f"{finding.file}: {finding.kind}: {finding.found}" for finding in stopping[:10]]
            more = [f"… and {len(stopping) - 10} more"] if len(stopping) > 10 else []
            raise LintError("\n".join([f"{self.folder}: {len(stopping)} findings stop this submit", *shown, *more]))


def lint_folder(
    folder: Path, *, spec: JobSpec, progress: Progress | None = None, data_root: Path | None = None
) -> LintedFolder:
    """Scan, pair, read and split a folder.

    Args:
        folder: The VOC data set.
        spec: The reading options.
        progress: Told what is being done; see `Progress`.
        data_root: Links may lead anywhere in it; `folder` itself by default.

    Returns:
        All that was found; it may be unusable (`require_usable`).

    Raises:
        LintError: A folder cannot be listed, or a split list cannot be read.
    """
    tell = progress or _silent
    walk = Walk(folder, data_root or folder)
    lists: list[SplitLists] = []
    pairing = pair_files(_noting_lists(walk, lists, tell), names_in_xml(folder, spec))
    tell("scanning", walk.counts["files"], walk.counts["files"])
    pairs = _with_background(pairing, spec)
    read = read_pairs(folder, pairs, spec, tell)
    images = [image for image, _ in pairs]
    duplicates = equal_pictures(folder, pairs, read.pictures)
    assignment = assign_splits(images, lists=lists, duplicates=duplicates, shares=spec.split, seed=spec.seed)
    labels = label_map(read.class_counts if spec.classes is None else spec.classes)
    findings = read.findings
    for others in (walk.findings, pairing.findings, _orphans(pairing, spec), assignment.findings):
        findings.extend(others)
    findings.extend(_about_classes(labels, read, spec) + _about_use(read, assignment, labels, spec))
    findings.sort()
    return LintedFolder(
        folder=folder,
        spec=spec,
        pairs=pairs,
        splits=assignment.splits,
        fingerprints=read.fingerprints,
        labels=labels,
        counts=_count(walk, pairing, read, assignment, findings),
        class_counts={name: read.class_counts[name] for name in labels.names},
        boxes=read.boxes,
        findings=findings,
        split_rule=assignment.rule,
    )


def _silent(_stage: str, _done: int, _total: int) -> None:
    """Progress that nobody watches."""


def _noting_lists(walk: Walk, lists: list[SplitLists], progress: Progress) -> Iterator[ScannedFolder]:
    """Pass the folders on, reading the `ImageSets/Main` lists among them."""
    for scanned in walk:
        if scanned.lists:
            lists.append(_read_list_files(walk.root, scanned))
        progress("scanning", walk.counts["files"], 0)
        yield scanned


def _read_list_files(root: Path, scanned: ScannedFolder) -> SplitLists:
    """The lines of the lists in one `ImageSets/Main` folder, stripped, empty ones left out."""
    lines = {}
    for name in scanned.lists:
        path = root / scanned.path / name
        try:
            text = path.read_text(encoding="utf-8-sig", errors="replace")
        except OSError as error:
            raise LintError(f"{path}: expected a list that can be read: {error.strerror}") from error
        lines[Path(name).stem.lower()] = [line.strip() for line in text.splitlines() if line.strip()]
    return SplitLists(root=scanned.path[: -len("ImageSets/Main")].rstrip("/"), lines=lines)


def _with_background(pairing: Pairing, spec: JobSpec) -> list[Pair]:
    if spec.background == "none":
        return list(pairing.pairs)
    return sorted([*pairing.pairs, *((image, None) for image in pairing.images)])


def _orphans(pairing: Pairing, spec: JobSpec) -> Iterator[Finding]:
    kept = "left out" if spec.background == "none" else "kept as a background example"
    no_xml, no_picture = "no XML belongs to it", "no picture belongs to it"
    for image in pairing.images:
        yield Finding(file=image, rank="info", kind="image_without_annotation", found=no_xml, done=kept)
    for path in pairing.annotations:
        yield Finding(file=path, rank="info", kind="annotation_without_image", found=no_picture, done="left out")


def _about_classes(labels: LabelMap, read: PairsRead, spec: JobSpec) -> list[Finding]:
    """Names that differ only in case, and asked classes that no object has."""
    findings = []
    for _, group in groupby(sorted(labels.names, key=str.casefold), key=str.casefold):
        names = list(group)
        if len(names) > 1:
            found = "class names differ only in case: " + ", ".join(f"{name!r}" for name in names)
            done = "kept apart; --rename joins them"
            findings.append(Finding(file=".", rank="info", kind="class_case", found=found, done=done))
    for name in spec.classes or ():
        if not read.class_counts[name]:
            found = f"no object of class {name!r}"
            findings.append(
                Finding(file=".", rank="info", kind="class_unseen", found=found, done="kept in the label map")
            )
    return findings


def _about_use(read: PairsRead, assignment: SplitAssignment, labels: LabelMap, spec: JobSpec) -> list[Finding]:
    """Whether anything can be learned from it, and splits without pictures."""
    pictures = Counter(assignment.splits)
    reason = None
    if not read.counts["annotated"] + read.counts["background"]:
        reason = "no picture with a readable XML"
    elif not labels.names or not sum(read.class_counts.values()):
        reason = "no object of any class that is asked for"
    elif not pictures["train"]:
        reason = f"no picture in train (splits by {assignment.rule})"
    if reason is not None:
        return [Finding(file=".", rank="error", kind="no_usable_pair", found=reason, done="the submit is stopped")]
    is_asked = {
        split: share > 0 or assignment.rule != "seeded" for split, share in zip(SPLITS, spec.split, strict=True)
    }
    return [
        Finding(file=".", rank="info", kind="split_empty", found=f"no picture in {split}", done="the job goes on")
        for split in SPLITS
        if is_asked[split] and not pictures[split]
    ]


def _count(
    walk: Walk, pairing: Pairing, read: PairsRead, assignment: SplitAssignment, findings: Findings
) -> dict[str, int]:
    counts = Counter(walk.counts)
    counts.update(dict.fromkeys(_ALWAYS_COUNTED, 0))
    counts["pairs"] = len(read.fingerprints)
    ambiguous_xml = sum(path.lower().endswith(".xml") for path in pairing.ambiguous)
    counts["images"] = len(pairing.pairs) + len(pairing.images) + len(pairing.ambiguous) - ambiguous_xml
    counts["annotations"] = len(pairing.pairs) + len(pairing.annotations) + ambiguous_xml
    counts.update(read.counts)
    pictures = Counter(assignment.splits)
    counts.update({split: pictures[split] for split in SPLITS})
    counts["left_out"] = pictures[None]
    counts.update(findings.kinds())
    counts["orphan_images"], counts["orphan_annotations"] = len(pairing.images), len(pairing.annotations)
    counts.update({f"class:{name}": count for name, count in read.class_counts.items()})
    return dict(sorted(counts.items()))
