"""Paired pictures → train, val or test. Pure: lists, duplicates and the seed come in as arguments.

The first rule that applies: `ImageSets/Main` lists as they are; `train/ valid/ test/` folders; else by the hash of a
group's name, so that an added picture moves no other one unless it joins two groups.
"""

import hashlib
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from producer.findings import Findings
from producer.lists import SplitLists, read_lists
from shared.job import SPLITS, Split
from shared.manifest import Finding

# Roboflow's exports and the usual hand-made trees.
SPLIT_FOLDERS: Final[Mapping[str, Split]] = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "valid", "validation"), "val"),
    **dict.fromkeys(("test", "testing"), "test"),
}

# Roboflow names its augmented copies `photo_jpg.rf.<hash>`: copies of one photo must not straddle a split.
_COPY_MARK: Final = re.compile(r"(?:_(?:jpe?g|png|bmp|webp|tiff?))?\.rf\.[0-9A-Za-z]+$", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitAssignment:
    """`splits[i]` is the split of picture i, None where it is left out; `rule` is `lists`, `folders` or `seeded`."""

    splits: Sequence[Split | None]
    rule: str
    findings: Findings


def assign_splits(
    images: Sequence[str],
    *,
    lists: Sequence[SplitLists],
    duplicates: Sequence[Sequence[int]],
    shares: tuple[int, int, int],
    seed: int,
) -> SplitAssignment:
    """Give each picture its split.

    Args:
        images: Relative paths, sorted.
        lists: The `ImageSets/Main` lists found, for the folder each belongs to.
        duplicates: Groups of indices into `images` whose files hold the same bytes.
        shares: Percent of train, val and test; used by the seeded rule only.
        seed: Of the seeded rule.

    Returns:
        The splits, and findings of rank `error` where lists contradict each other.
    """
    findings = Findings()
    if lists:
        splits = read_lists(images, lists, findings)
        rule = "lists"
    elif len(set(by_folder := [_folder_split(image) for image in images]) - {None}) > 1:
        splits, rule = by_folder, "folders"
        findings.extend(_left_out(images, splits, "outside_split_folders", "in no train, valid or test folder"))
    else:
        splits, rule = _by_group(images, duplicates, shares, seed, findings), "seeded"
    if rule != "seeded":
        findings.extend(_straddling(images, duplicates, splits))
    return SplitAssignment(splits=splits, rule=rule, findings=findings)


def source_stem(image: str) -> str:
    """The stem of the photo that `image` was made from: `a/photo_jpg.rf.0f3c.jpg` gives `photo`."""
    stem = image[image.rfind("/") + 1 :].rpartition(".")[0]
    return _COPY_MARK.sub("", stem)


def seeded_fraction(seed: int, text: str) -> float:
    """A number in [0, 1), uniform over texts: 53 of the first 64 bits of BLAKE2b, as many as a float holds."""
    digest = hashlib.blake2b(text.encode(), digest_size=8, key=seed.to_bytes(8, "big")).digest()
    return (int.from_bytes(digest, "big") >> 11) / 2**53


def _folder_split(image: str) -> Split | None:
    """The split that the outermost folder of that name gives."""
    for part in image.split("/")[:-1]:
        if part.casefold() in SPLIT_FOLDERS:
            return SPLIT_FOLDERS[part.casefold()]
    return None


def _by_group(
    images: Sequence[str],
    duplicates: Sequence[Sequence[int]],
    shares: tuple[int, int, int],
    seed: int,
    findings: Findings,
) -> list[Split | None]:
    """The seeded rule: pictures of one source stem or of the same bytes go together."""
    named = {source_stem(images[index]): images[index] for group in duplicates for index in reversed(group)}
    joined = _join_stems([sorted({source_stem(images[index]) for index in group}) for group in duplicates])
    chosen: dict[str, Split] = {}

    def split_of(stem: str) -> Split:
        if stem not in chosen:
            chosen[stem] = _split_at(seeded_fraction(seed, stem) * 100, shares)
        return chosen[stem]

    for stem, smallest in sorted(joined.items()):
        if split_of(stem) != split_of(smallest):
            findings.append(
                Finding(
                    file=named[stem],
                    rank="info",
                    kind="group_joined",
                    found=f"pictures of {stem} hold the same bytes as pictures of {smallest}",
                    done=f"all go to {split_of(smallest)} instead of {split_of(stem)}",
                )
            )
    stems = (source_stem(image) for image in images)
    return [split_of(joined.get(stem, stem)) for stem in stems]


def _join_stems(groups: Sequence[Sequence[str]]) -> dict[str, str]:
    """For stems that share a group, directly or through others: stem → the smallest stem that it is joined with."""
    parent: dict[str, str] = {}

    def root(stem: str) -> str:
        while parent.setdefault(stem, stem) != stem:
            parent[stem] = parent[parent[stem]]
            stem = parent[stem]
        return stem

    for group in groups:
        for stem in group[1:]:
            low, high = sorted((root(group[0]), root(stem)))
            parent[high] = low
    return {stem: root(stem) for stem in list(parent) if root(stem) != stem}


def _split_at(percent: float, shares: tuple[int, int, int]) -> Split:
    if percent < shares[0]:
        return "train"
    return "val" if percent < shares[0] + shares[1] else "test"


def _left_out(images: Sequence[str], splits: Sequence[Split | None], kind: str, found: str) -> list[Finding]:
    return [
        Finding(file=image, rank="dropped", kind=kind, found=found, done="left out")
        for image, split in zip(images, splits, strict=True)
        if split is None
    ]


def _straddling(
    images: Sequence[str], duplicates: Sequence[Sequence[int]], splits: Sequence[Split | None]
) -> list[Finding]:
    """Name the same bytes in two splits: lists and folders are obeyed, but the figures of that test are flattered."""
    findings: list[Finding] = []
    for group in duplicates:
        by_split: dict[Split | None, list[str]] = defaultdict(list)
        for index in group:
            by_split[splits[index]].append(images[index])
        by_split.pop(None, None)
        present = [split for split in SPLITS if split in by_split]
        for split in present[1:]:
            twin = by_split[present[0]][0]
            findings.extend(
                Finding(
                    file=image,
                    rank="info",
                    kind="duplicate_across_splits",
                    found=f"in {split}, the same bytes as {twin} in {present[0]}",
                    done="kept as listed",
                )
                for image in by_split[split]
            )
    return findings
