"""Paired pictures -> train, val or test. Pure: lists, duplicates and the seed come in as arguments.

The first rule that applies: `ImageSets/Main` lists as they are; `train/ valid/ test/` folders; the hash of a group's
name, so that an added picture moves no other one unless it joins two groups.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

from producer.dataset.findings import Findings
from producer.dataset.imagesets import SplitLists, read_lists
from producer.dataset.pairing import grouped, stem_of
from shared.jobs.findings import Finding
from shared.jobs.job import SPLITS, Split
from shared.text import counted

# Roboflow's exports and the usual hand-made trees.
SPLIT_FOLDERS: Final[Mapping[str, Split]] = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "valid", "validation"), "val"),
    **dict.fromkeys(("test", "testing"), "test"),
}

# Roboflow names its augmented copies `photo_jpg.rf.<hash>`: copies of one photo must not straddle a split.
_COPY_MARK: Final = re.compile(r"(?:_(?:jpe?g|png|bmp|webp|tiff?))?\.rf\.[0-9A-Za-z]+$", re.IGNORECASE)

# COCO's folders: `train2017`, `val2017`.
_YEAR: Final = re.compile(r"(?<=[a-z])20\d\d$")

# Percent of train, val and test.
Shares = tuple[int, int, int]


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
    shares: Shares,
    seed: int,
    unpaired: Sequence[str] = (),
) -> SplitAssignment:
    """Give each picture its split; there are findings of rank `error` where lists contradict each other.

    Args:
        images: Relative paths, sorted.
        lists: The `ImageSets/Main` lists of each folder that has any.
        duplicates: Groups of indices into `images` whose files hold the same bytes.
        shares: Percent of train, val and test, for the seeded rule.
        seed: For the seeded rule.
        unpaired: Pictures that are in no pair, which lists may name too.
    """
    findings = Findings()
    if lists:
        splits = read_lists(images, lists, findings, unpaired)
        rule = "lists"
    elif len(set(by_folder := [_folder_split(image) for image in images]) - {None}) > 1:
        splits, rule = by_folder, "folders"
        found = "in no train, valid or test folder"
        findings.extend(
            Finding(file=image, rank="dropped", kind="outside_split_folders", found=found, done="left out")
            for image, split in zip(images, splits, strict=True)
            if split is None
        )
    else:
        splits, rule = _by_group(images, duplicates, shares, seed, findings), "seeded"
        findings.extend(_of_one_name(images))
    if rule != "seeded":
        findings.extend(_straddling(images, duplicates, splits))
        findings.extend(_copies_straddling(images, splits))
    return SplitAssignment(splits=splits, rule=rule, findings=findings)


def source_stem(image: str) -> str:
    """The stem of the photo that `image` was made from: `a/photo_jpg.rf.0f3c.jpg` gives `photo`."""
    return _COPY_MARK.sub("", stem_of(image))


def seeded_fraction(seed: int, text: str) -> float:
    """A number in [0, 1), uniform over texts: 53 of the first 64 bits of BLAKE2b, as many as a float holds."""
    digest = hashlib.blake2b(text.encode(), digest_size=8, key=seed.to_bytes(8, "big")).digest()
    return (int.from_bytes(digest, "big") >> 11) / 2**53


def _folder_split(image: str) -> Split | None:
    """The split that the outermost folder of that name gives."""
    splits = (SPLIT_FOLDERS.get(_YEAR.sub("", part.casefold())) for part in image.split("/")[:-1])
    return next(filter(None, splits), None)


def _by_group(
    images: Sequence[str], duplicates: Sequence[Sequence[int]], shares: Shares, seed: int, findings: Findings
) -> list[Split | None]:
    """The seeded rule: pictures of one source stem, or of the same bytes, go into the same split."""
    named = {source_stem(images[index]): images[index] for group in duplicates for index in reversed(group)}
    joined = _join_stems([sorted({source_stem(images[index]) for index in group}) for group in duplicates])

    @cache
    def split_of(stem: str) -> Split:
        return _split_at(seeded_fraction(seed, stem) * 100, shares)

    for stem, smallest in sorted(joined.items()):
        if split_of(stem) != split_of(smallest):
            found = f"pictures of {stem} hold the same bytes as pictures of {smallest}"
            done = f"all go to {split_of(smallest)} instead of {split_of(stem)}"
            findings.append(Finding(file=named[stem], rank="info", kind="group_joined", found=found, done=done))
    stems = (source_stem(image) for image in images)
    return [split_of(joined.get(stem, stem)) for stem in stems]


def _join_stems(groups: Sequence[Sequence[str]]) -> dict[str, str]:
    """For stems that share a group, directly or through others: stem -> the smallest stem that it is joined with."""
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


def _split_at(percent: float, shares: Shares) -> Split:
    if percent < shares[0]:
        return "train"
    return "val" if percent < shares[0] + shares[1] else "test"


def _straddling(
    images: Sequence[str], duplicates: Sequence[Sequence[int]], splits: Sequence[Split | None]
) -> Iterator[Finding]:
    """Findings for equal pictures in two splits: lists and folders are obeyed, but such a test flatters the model."""
    kind, done = "duplicate_across_splits", "kept as listed"
    for group in duplicates:
        by_split = grouped(group, splits.__getitem__)
        present = [split for split in SPLITS if split in by_split]
        for split in present[1:]:
            found = f"in {split}, the same bytes as {images[by_split[present[0]][0]]} in {present[0]}"
            for index in by_split[split]:
                yield Finding(file=images[index], rank="info", kind=kind, found=found, done=done)


def _copies_straddling(images: Sequence[str], splits: Sequence[Split | None]) -> Iterator[Finding]:
    """Findings for augmented copies of one photo in two splits: as flattering as equal pictures."""
    copies = [index for index, image in enumerate(images) if splits[index] and source_stem(image) != stem_of(image)]
    for stem, group in grouped(copies, lambda index: source_stem(images[index])).items():
        by_split = grouped(group, splits.__getitem__)
        first, *others = [split for split in SPLITS if split in by_split]
        for split in others:
            found = f"in {split}, made from the same photo {stem} as {images[by_split[first][0]]} in {first}"
            for index in by_split[split]:
                kind, done = "copies_across_splits", "kept as listed"
                yield Finding(file=images[index], rank="info", kind=kind, found=found, done=done)


def _of_one_name(images: Sequence[str]) -> Iterator[Finding]:
    """One finding if cameras gave photos in several folders the same names: those of one name are dealt as one."""
    photos = [image for image in images if source_stem(image) == stem_of(image)]
    alike = [group for group in grouped(photos, stem_of).values() if len(group) > 1]
    if alike:
        found = (
            f"{sum(map(len, alike))} photos have {counted(len(alike), 'name')}, such as {alike[0][0]} and {alike[0][1]}"
        )
        done = "photos of one name go to one split; rename them to deal each by itself"
        yield Finding(file=".", rank="info", kind="names_repeat", found=found, done=done)
