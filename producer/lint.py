"""A folder → all that names and XML say of it: pairs, splits, classes, findings. No broker, no pixels.

The first step of every submit, and all of `producer lint`.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from producer.boxsizes import BoxSizes
from producer.findings import Findings
from producer.lists import SplitLists
from producer.pairs import Pairing, pair_files
from producer.reading import NamesInXml, Pair, PairsRead, Progress, equal_pictures, read_pairs
from producer.scan import ScannedFolder, Walk
from producer.split import SplitAssignment, assign_splits
from producer.whole_set import Seen, about_the_set
from shared.errors import LintError
from shared.job import SPLITS, JobSpec, Split
from shared.labels import LabelMap, label_map

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
    walk, names = Walk(folder, data_root or folder), NamesInXml(folder=folder, spec=spec)
    lists: list[SplitLists] = []
    pairing = pair_files(_noting_lists(walk, lists, tell), names)
    tell("scanning", walk.counts["files"], walk.counts["files"])
    pairs = _with_background(pairing, spec)
    read = read_pairs(folder, pairs, spec, tell)
    seen = Seen(
        spec=spec,
        walk=walk,
        pairing=pairing,
        unreadable_orphans=names.unreadable,
        read=read,
        assignment=_assign(folder, pairs, read, lists, spec),
        labels=label_map(read.class_counts if spec.classes is None else spec.classes),
    )
    return _conclude(folder, pairs, seen)


def _assign(
    folder: Path, pairs: Sequence[Pair], read: PairsRead, lists: Sequence[SplitLists], spec: JobSpec
) -> SplitAssignment:
    duplicates = equal_pictures(folder, pairs, read.pictures)
    images = [image for image, _ in pairs]
    return assign_splits(images, lists=lists, duplicates=duplicates, shares=spec.split, seed=spec.seed)


def _conclude(folder: Path, pairs: Sequence[Pair], seen: Seen) -> LintedFolder:
    findings = seen.read.findings
    for others in (seen.walk.findings, seen.pairing.findings, seen.assignment.findings, about_the_set(seen)):
        findings.extend(others)
    findings.sort()
    return LintedFolder(
        folder=folder,
        spec=seen.spec,
        pairs=pairs,
        splits=seen.assignment.splits,
        fingerprints=seen.read.fingerprints,
        labels=seen.labels,
        counts=_count(seen, findings),
        class_counts={name: seen.read.class_counts[name] for name in seen.labels.names},
        boxes=seen.read.boxes,
        findings=findings,
        split_rule=seen.assignment.rule,
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


def _count(seen: Seen, findings: Findings) -> dict[str, int]:
    pairing, read = seen.pairing, seen.read
    counts = Counter(seen.walk.counts)
    counts.update(dict.fromkeys(_ALWAYS_COUNTED, 0))
    counts["pairs"] = len(read.fingerprints)
    ambiguous_xml = sum(path.lower().endswith(".xml") for path in pairing.ambiguous)
    counts["images"] = len(pairing.pairs) + len(pairing.images) + len(pairing.ambiguous) - ambiguous_xml
    counts["annotations"] = len(pairing.pairs) + len(pairing.annotations) + ambiguous_xml
    counts.update(read.counts)
    pictures = Counter(seen.assignment.splits)
    counts.update({split: pictures[split] for split in SPLITS})
    counts["left_out"] = pictures[None]
    counts.update(findings.kinds())
    counts["orphan_images"], counts["orphan_annotations"] = len(pairing.images), len(pairing.annotations)
    counts.update({f"class:{name}": count for name, count in read.class_counts.items()})
    return dict(sorted(counts.items()))
