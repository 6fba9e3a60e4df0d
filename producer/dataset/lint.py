"""A folder -> all that its file names and XML tell: pairs, splits, classes, findings. No broker, no pixels.

The first step of `submit`, and all of `lint` without --pixels.
"""

import codecs
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from producer.dataset.box_sizes import BoxSizes
from producer.dataset.class_names import require_known_names
from producer.dataset.duplicates import Duplicates, equal_pictures
from producer.dataset.findings import Findings
from producer.dataset.imagesets import SplitLists
from producer.dataset.other_formats import without_command
from producer.dataset.pairing import folded_stem, pair_files
from producer.dataset.read_pairs import NamesInXml, Pair, PairsRead, read_pairs
from producer.dataset.scan import ANNOTATION_EXTENSION, LIST_NAMES, ScannedFolder, Walk, list_not_read
from producer.dataset.set_checks import NOTHING_TO_LEARN, FolderFacts, check_set, photos_dealt
from producer.dataset.split import assign_splits
from producer.photos import photos_in
from producer.progress import Progress, no_progress
from shared.command import hint
from shared.errors import LintError
from shared.jobs.job import SPLITS, Split
from shared.jobs.labels import LabelMap, label_map
from shared.specs.data import JobSpec
from shared.storage import DataFolder
from shared.text import counted

# In `counts` even when they are 0, because people and tests look them up.
_ALWAYS_COUNTED = (
    "annotated",
    "background",
    "unreadable",
    "objects_read",
    "objects_kept",
    "emptied",
    "filename_disagrees",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LintedFolder:
    """What was found. `pairs` are sorted by picture; `splits` and `fingerprints` (64 bits) belong to them by index.

    `counts` has `images`, `annotated`, `background`, `unreadable`, …, the photos of each split that are not set aside,
    and one entry per kind of finding. It also has `objects_read`, `objects_kept`, `emptied` and one `class:<name>` per
    class (objects kept), which count only photos in a split. `split_rule` is `lists`, `folders` or `seeded`.
    """

    folder: DataFolder
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

    def require_usable(self, *, strict: bool = False, is_learned: bool = True) -> None:
        """Check that the set can be used as asked; with `strict`, that there is no finding at all.

        A finding that only prevents training does not count if nothing is to be trained (`is_learned` is False).

        Raises:
            LintError: The set fails that check; the message names the first findings and counts them all.
        """
        stopping = self.findings if strict else self.findings.of_rank("error")
        if not strict and not is_learned:
            stopping = Findings(each for each in stopping if each.kind != NOTHING_TO_LEARN)
        if stopping:
            count = counted(len(stopping), "finding")
            shown = "; ".join(f"{each.file}: {each.kind}: {each.found}" for each in islice(stopping, 3))
            if {each.kind for each in stopping} <= {"no_usable_pair", NOTHING_TO_LEARN}:  # told in full
                says, remedy = without_command(next(iter(stopping)).found)
                raise LintError(f"{self.folder}: {says}" + (f"\n{remedy}" if remedy else ""))
            listing = hint("lint", self.folder)
            raise LintError(
                f"{self.folder}: the submit is stopped by {count}: {shown}; `{listing}` lists all and says what to do"
            )


def lint_folder(
    folder: DataFolder, *, spec: JobSpec, progress: Progress = no_progress, data_root: DataFolder | None = None
) -> LintedFolder:
    """Scan, pair, read and split a folder; the result may be unusable (`require_usable`).

    Symbolic links may lead anywhere in `data_root`, by default in `folder`, and nowhere else.

    Raises:
        LintError: A folder cannot be listed, or a split list cannot be read.
        OptionError: An option names a class that no object has.
    """
    photos = photos_in(folder)
    walk, names = Walk(folder, data_root or folder), NamesInXml(photos=photos, spec=spec)
    lists_by_root: dict[str, SplitLists] = {}
    pairing = pair_files(_noting_lists(walk, lists_by_root, progress), names)
    progress("scanning", walk.counts["files"], walk.counts["files"])
    refused = _refused_xml(walk)
    orphans = pairing.images if spec.background == "orphans" else []
    background: list[Pair] = [(image, None) for image in orphans if folded_stem(image) not in refused]
    pairs: list[Pair] = sorted([*pairing.pairs, *background])
    read = read_pairs(folder, pairs, spec, progress)
    if read.written:
        require_known_names(spec, read.written, photos.names_before)
    images, duplicates = [image for image, _ in pairs], equal_pictures(photos, pairs, read.pictures)
    unpaired, lists = sorted({*pairing.images, *pairing.ambiguous} - {*images}), list(lists_by_root.values())
    dealt_by: dict[str, Any] = {"lists": lists, "unpaired": unpaired, "shares": spec.split, "seed": spec.seed}
    assignment = assign_splits(images, duplicates=duplicates, group_by=spec.group_by, **dealt_by)
    left_out = [pair for pair, split in zip(pairs, assignment.splits, strict=True) if split is None]
    if left_out:
        read.leave_out(read_pairs(folder, left_out, spec, no_progress))
    facts = FolderFacts(
        pairs=pairs,
        duplicates=Duplicates(photos=photos, pairs=pairs, groups=_of_pictures(duplicates, pairs, read), spec=spec),
        spec=spec,
        walk=walk,
        pairing=pairing,
        refused_xml=refused,
        unreadable_orphans=names.unreadable,
        read=read,
        assignment=assignment,
        labels=label_map(read.class_counts if spec.classes is None else spec.classes),
    )
    return _conclude(folder, pairs, facts)


def _of_pictures(groups: Sequence[Sequence[int]], pairs: Sequence[Pair], read: PairsRead) -> list[Sequence[int]]:
    """The groups of equal files that are pictures; equal files left by failed downloads do not count."""
    set_aside = {finding.file for finding in read.findings.of_rank("quarantined")}
    return [group for group in groups if pairs[group[0]][0] not in set_aside]


def _conclude(folder: DataFolder, pairs: Sequence[Pair], facts: FolderFacts) -> LintedFolder:
    findings = facts.read.findings
    for others in (facts.walk.findings, facts.pairing.findings, facts.assignment.findings, check_set(facts)):
        findings.extend(others)
    findings.sort()
    return LintedFolder(
        folder=folder,
        spec=facts.spec,
        pairs=pairs,
        splits=facts.assignment.splits,
        fingerprints=facts.read.fingerprints,
        labels=facts.labels,
        counts=_count(facts),
        class_counts={name: facts.read.class_counts[name] for name in facts.labels.names},
        boxes=facts.read.boxes,
        findings=findings,
        split_rule=facts.assignment.rule,
    )


def _refused_xml(walk: Walk) -> set[str]:
    """The stems of XML files that the walk refused: a photo with such a stem has labels, though they are unknown."""
    refused = (finding.file for finding in walk.findings if finding.rank == "quarantined")
    return {folded_stem(path) for path in refused if path.lower().endswith(ANNOTATION_EXTENSION)}


def _noting_lists(walk: Walk, lists: dict[str, SplitLists], progress: Progress) -> Iterator[ScannedFolder]:
    """Pass the folders on, and read their split lists into `lists`, keyed by the folder that contains `ImageSets`."""
    for scanned in walk:
        if scanned.lists:
            read = _read_list_files(walk, scanned)
            if read.root in lists:  # from `ImageSets`, which is walked before `ImageSets/Main`
                others = lists[read.root].paths.values()
                walk.findings.extend(list_not_read(path, f"{scanned.path} has lists too") for path in others)
            lists[read.root] = read
        progress("scanning", walk.counts["files"], 0)
        yield scanned


def _read_list_files(walk: Walk, scanned: ScannedFolder) -> SplitLists:
    """The lines of the lists in one folder of lists, stripped, empty ones left out."""
    lines: dict[str, list[str]] = {}
    paths: dict[str, str] = {}
    for file_name in scanned.lists:
        name, path = LIST_NAMES[file_name.lower()], f"{scanned.path}/{file_name}"
        if name in lines:
            walk.findings.append(list_not_read(path, f"{paths[name]} lists {name}"))
            continue
        try:
            text = _list_text(walk.photos.content(path))
        except OSError as error:
            reason = error.strerror or error
            raise LintError(f"{walk.root / path}: expected a list that can be read: {reason}") from error
        if "\0" in text:  # UTF-16 without a byte order mark, UTF-32, or not text
            raise LintError(f"{walk.root / path}: expected a list in UTF-8, found NUL characters: save it as UTF-8")
        # Not with `splitlines`, which also breaks lines at characters other than the usual line ends.
        lines[name] = [line.strip() for line in re.split("\r\n?|\n", text) if line.strip()]
        paths[name] = path
    root = re.sub("(^|/)ImageSets(/Main)?$", "", scanned.path, flags=re.IGNORECASE)
    return SplitLists(root=root, lines=lines, paths=paths)


def _list_text(content: bytes) -> str:
    """A list as text: UTF-8, or UTF-16 if it begins with a byte order mark, as `>` in Windows PowerShell writes it."""
    is_utf16 = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    return content.decode("utf-16" if is_utf16 else "utf-8-sig", errors="replace")


def _count(facts: FolderFacts) -> dict[str, int]:
    pairing, read = facts.pairing, facts.read
    counts = Counter(facts.walk.counts)
    counts.update(dict.fromkeys(_ALWAYS_COUNTED, 0))
    counts["pairs"] = len(read.fingerprints)
    ambiguous_xml = sum(path.lower().endswith(".xml") for path in pairing.ambiguous)
    counts["images"] = len(pairing.pairs) + len(pairing.images) + len(pairing.ambiguous) - ambiguous_xml
    counts["annotations"] = len(pairing.pairs) + len(pairing.annotations) + ambiguous_xml
    counts.update(read.counts)
    pictures = photos_dealt(facts)
    counts.update({split: pictures[split] for split in SPLITS})
    counts["left_out"] = pictures[None]
    counts[f"split_by_{facts.assignment.rule}"] = len(read.fingerprints)  # for the advice of a run
    counts.update(read.findings.kinds())
    counts["orphan_images"], counts["orphan_annotations"] = len(pairing.images), len(pairing.annotations)
    counts.update({f"class:{name}": count for name, count in read.class_counts.items()})
    return dict(sorted(counts.items()))
