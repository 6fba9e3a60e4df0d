"""Paired pictures -> train, val or test. Pure: lists, duplicates and the seed come in as arguments.

The first rule that applies decides: `ImageSets/Main` lists as they are; `train/ valid/ test/` folders; the hash of a
group's name, so that an added picture moves no other one unless it joins two groups.
"""

import hashlib
import math
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from producer.dataset.findings import Findings
from producer.dataset.imagesets import SplitLists, read_lists
from producer.dataset.pairing import folder_words, grouped, stem_of
from shared.errors import OptionError
from shared.jobs.findings import Finding
from shared.jobs.job import SPLITS, Split
from shared.scenes import group_of, is_copy, source_stem
from shared.text import counted

# Roboflow's exports and the usual hand-made trees.
SPLIT_FOLDERS: Final[Mapping[str, Split]] = {
    **dict.fromkeys(("train", "training", "trainval"), "train"),
    **dict.fromkeys(("val", "valid", "validation"), "val"),
    **dict.fromkeys(("test", "testing"), "test"),
}

# What a folder's name may say besides its split: `train_images`, `test_set`, `JPEGImages-test`.
_BESIDE_SPLIT: Final = frozenset(
    (
        *("", "image", "images", "jpegimages", "img", "imgs", "photo", "photos", "picture", "pictures"),
        *("data", "dataset", "set", "zip"),
    )
)

# Numbers at the end of words, or alone: `train2017`, `test_1`.
_NUMBER: Final = re.compile(r"\d+$")

# How many seeds are tried to find one that leaves no split empty when there are few groups.
_SEEDS_TRIED: Final = 100

# Percent of train, val and test.
Shares = tuple[int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitAssignment:
    """`splits[i]` is the split of picture i, None where it is left out; `rule` is `lists`, `folders` or `seeded`.

    If the seed leaves a split empty, `fuller_seed` is one that leaves none empty, or None if none was found.
    """

    splits: Sequence[Split | None]
    rule: str
    findings: Findings
    fuller_seed: int | None = None


def assign_splits(
    images: Sequence[str],
    *,
    lists: Sequence[SplitLists],
    duplicates: Sequence[Sequence[int]],
    shares: Shares,
    seed: int,
    group_by: str | None = None,
    unpaired: Sequence[str] = (),
) -> SplitAssignment:
    """Give each picture its split; there are findings of rank `error` where lists contradict each other.

    Args:
        images: Relative paths, sorted.
        lists: The `ImageSets/Main` lists of each folder that has any.
        duplicates: Groups of indices into `images` whose files hold the same bytes.
        shares: Percent of train, val and test, for the seeded rule.
        seed: For the seeded rule.
        group_by: Regular expression for the seeded rule (`_groups_by`); other rules name what it finds in two splits.
        unpaired: Pictures that are in no pair, which lists may name too.

    Raises:
        OptionError: `group_by` finds nothing in any picture's path.
    """
    findings = Findings()
    groups = _groups_by(images, group_by, findings) if group_by else [source_stem(image) for image in images]
    if lists:
        splits = read_lists(images, lists, findings, unpaired)
        rule = "lists"
    elif len(set(by_folder := _folder_splits(images)) - {None}) > 1:
        splits, rule = by_folder, "folders"
        findings.extend(_outside(images, splits))
    else:
        findings.extend(_alone(images, by_folder))
        if not group_by:
            findings.extend(_of_one_name(images))
        joined = _join_groups([sorted({groups[index] for index in same}) for same in duplicates])
        findings.extend(_moved(images, groups, duplicates, joined, seed, shares))
        splits, fuller_seed = _dealt([joined.get(group, group) for group in groups], seed, shares)
        return SplitAssignment(splits=splits, rule="seeded", findings=findings, fuller_seed=fuller_seed)
    findings.extend(_straddling(images, duplicates, splits))
    findings.extend(_copies_straddling(images, splits))
    if group_by:
        findings.extend(_groups_straddling(images, groups, splits))
    return SplitAssignment(splits=splits, rule=rule, findings=findings)


def seeded_fraction(seed: int, text: str) -> float:
    """A number in [0, 1), uniform over texts: 53 of the first 64 bits of BLAKE2b, as many as a float holds."""
    digest = hashlib.blake2b(text.encode(), digest_size=8, key=seed.to_bytes(8, "big")).digest()
    return (int.from_bytes(digest, "big") >> 11) / 2**53


def _folder_splits(images: Sequence[str]) -> list[Split | None]:
    """The split of the outermost folder of each picture that is named after one; None if there is none."""
    folders = {image.rpartition("/")[0] for image in images}
    above = {folder: [folder[:end] for end in _ends(folder)] for folder in folders}
    named = _split_folders({path for paths in above.values() for path in paths})
    by_folder: dict[str, Split | None] = {
        folder: next((named[path] for path in paths if path in named), None) for folder, paths in above.items()
    }
    return [by_folder[image.rpartition("/")[0]] for image in images]


def _ends(folder: str) -> list[int]:
    """Where the path of each folder at or above `folder` ends in its path, the outermost first."""
    return [place for place, letter in enumerate(folder) if letter == "/"] + [len(folder)]


def _split_folders(folders: Collection[str]) -> dict[str, Split]:
    """The folders that are named after a split.

    The name of a single one says nothing else: `train`, `val2017`, `test-images`. Of folders beside each other it may
    say more, if two or more say the same: `WIDER_train` and `WIDER_val`. `WIDER_test_easy` beside them is one too.
    """
    parsed = {folder: _split_in(folder.rpartition("/")[2]) for folder in folders}
    places = {folder: (folder.rpartition("/")[0], *found) for folder, found in parsed.items() if found}
    alike = grouped(places.values(), lambda place: (place[0], place[1], place[3]))
    families = {key for key, members in alike.items() if len({split for _, _, split, _ in members}) > 1}
    prefixes = {(parent, before) for parent, before, _ in families if before}
    return {
        folder: split
        for folder, (parent, before, split, after) in places.items()
        if not before + after or (parent, before, after) in families or (parent, before) in prefixes
    }


@lru_cache(maxsize=1024)
def _split_in(folder: str) -> tuple[tuple[str, ...], Split, tuple[str, ...]] | None:
    """The one split that a folder's name says, between the words before and after it; None if it says none or two."""
    words = " ".join(folder_words(folder)).replace("train val", "trainval").split(" ")
    words = [word for each in words if (word := _NUMBER.sub("", each)) not in _BESIDE_SPLIT]
    places = [place for place, word in enumerate(words) if word in SPLIT_FOLDERS]
    if len(places) != 1:
        return None
    return tuple(words[: places[0]]), SPLIT_FOLDERS[words[places[0]]], tuple(words[places[0] + 1 :])


def _outside(images: Sequence[str], splits: Sequence[Split | None]) -> Iterator[Finding]:
    """Findings for pictures outside the folders named after splits."""
    found = "in no train, valid or test folder"
    for image, split in zip(images, splits, strict=True):
        if split is None:
            yield Finding(file=image, rank="dropped", kind="outside_split_folders", found=found, done="left out")


def _alone(images: Sequence[str], splits: Sequence[Split | None]) -> Iterator[Finding]:
    """A finding about photos in folders named after one split, which are dealt like the others outside of them."""
    inside = [image for image, split in zip(images, splits, strict=True) if split]
    outside = [image for image, split in zip(images, splits, strict=True) if not split]
    if inside and outside:
        split = next(filter(None, splits))
        found = f"{counted(len(inside), 'photo')} in folders named after {split}, such as {inside[0]}"
        found += f", and {len(outside)} in none named after a split, such as {outside[0]}"
        done = "all dealt together; to keep them apart, name the folders train, val and test"
        yield Finding(file=".", rank="info", kind="split_folder_alone", found=found, done=done)


def _groups_by(images: Sequence[str], pattern: str, findings: Findings) -> list[str]:
    """What `pattern` finds in each picture's path (`group_of`); the stem of its photo if it finds nothing."""
    texts = [group_of(image, pattern) for image in images]
    without = [image for image, text in zip(images, texts, strict=True) if not text]
    if without:
        photos = f"{len(without):,} of {counted(len(images), 'photo')}"
        found = f"--group-by {pattern}: finds nothing in {photos}, such as {without[0]}"
        if len(without) == len(images):
            raise OptionError(f"{found}; expected what photos of one scene share, such as '(.*)_' for clip1_0001.jpg")
        done = "each is dealt by its own name"
        findings.append(Finding(file=".", rank="info", kind="group_not_found", found=found, done=done))
    return [text or source_stem(image) for image, text in zip(images, texts, strict=True)]


def _dealt(groups: Sequence[str], seed: int, shares: Shares) -> tuple[list[Split | None], int | None]:
    """The split of each picture's group; and, if a split is empty, the seed that comes nearest to the shares."""
    photos = Counter(groups)
    by_group = {group: _split_of(group, seed, shares) for group in photos}
    splits: list[Split | None] = [by_group[group] for group in groups]
    if {split for split, share in zip(SPLITS, shares, strict=True) if share} <= {*splits}:
        return splits, None
    distance, nearest = min((_distance(photos, other, shares), other) for other in range(_SEEDS_TRIED))
    return splits, nearest if distance < math.inf else None


def _distance(photos: Mapping[str, int], seed: int, shares: Shares) -> float:
    """How far the splits that a seed deals are from their shares, in photos; infinite if a split is empty."""
    dealt: Counter[Split] = Counter()
    for group, count in photos.items():
        dealt[_split_of(group, seed, shares)] += count
    asked = {split: share * dealt.total() / 100 for split, share in zip(SPLITS, shares, strict=True) if share}
    return sum(abs(dealt[split] - share) for split, share in asked.items()) if all(map(dealt.get, asked)) else math.inf


def _moved(
    images: Sequence[str],
    groups: Sequence[str],
    duplicates: Sequence[Sequence[int]],
    joined: Mapping[str, str],
    seed: int,
    shares: Shares,
) -> Iterator[Finding]:
    """Findings for groups that change their split because some of their pictures equal those of another group."""
    named = {groups[index]: images[index] for same in duplicates for index in reversed(same)}
    for group, smallest in sorted(joined.items()):
        alone, together = (_split_of(each, seed, shares) for each in (group, smallest))
        if alone != together:
            found = f"pictures of {group} hold the same bytes as pictures of {smallest}"
            done = f"all go to {together} instead of {alone}"
            yield Finding(file=named[group], rank="info", kind="group_joined", found=found, done=done)


def _join_groups(same: Sequence[Sequence[str]]) -> dict[str, str]:
    """For groups that belong together, directly or through others: group -> the joined group that sorts first."""
    parent: dict[str, str] = {}

    def root(group: str) -> str:
        while parent.setdefault(group, group) != group:
            parent[group] = parent[parent[group]]
            group = parent[group]
        return group

    for groups in same:
        for group in groups[1:]:
            low, high = sorted((root(groups[0]), root(group)))
            parent[high] = low
    return {group: root(group) for group in list(parent) if root(group) != group}


def _split_of(group: str, seed: int, shares: Shares) -> Split:
    percent = seeded_fraction(seed, group) * 100
    if percent < shares[0]:
        return "train"
    return "val" if percent < shares[0] + shares[1] else "test"


def _straddling(
    images: Sequence[str], duplicates: Sequence[Sequence[int]], splits: Sequence[Split | None]
) -> Iterator[Finding]:
    """Findings for equal pictures in two splits: lists and folders are obeyed, but the test then flatters the model."""
    kind, done = "duplicate_across_splits", "kept as listed"
    for group in duplicates:
        by_split = grouped(group, splits.__getitem__)
        present = [split for split in SPLITS if split in by_split]
        for split in present[1:]:
            found = f"in {split}, the same bytes as {images[by_split[present[0]][0]]} in {present[0]}"
            for index in by_split[split]:
                yield Finding(file=images[index], rank="info", kind=kind, found=found, done=done)


def _copies_straddling(images: Sequence[str], splits: Sequence[Split | None]) -> Iterator[Finding]:
    """Findings for augmented copies of one photo in two splits: they flatter the model as equal pictures do."""
    copies = [index for index, image in enumerate(images) if splits[index] and is_copy(image)]
    for stem, group in grouped(copies, lambda index: source_stem(images[index])).items():
        by_split = grouped(group, splits.__getitem__)
        first, *others = [split for split in SPLITS if split in by_split]
        for split in others:
            found = f"in {split}, made from the same photo {stem} as {images[by_split[first][0]]} in {first}"
            for index in by_split[split]:
                kind, done = "copies_across_splits", "kept as listed"
                yield Finding(file=images[index], rank="info", kind=kind, found=found, done=done)


def _groups_straddling(
    images: Sequence[str], groups: Sequence[str], splits: Sequence[Split | None]
) -> Iterator[Finding]:
    """A finding for each group of `--group-by` in two or more splits, and for each of its splits but the first."""
    for group, members in grouped([index for index in range(len(images)) if splits[index]], groups.__getitem__).items():
        by_split = grouped(members, splits.__getitem__)
        first, *others = [split for split in SPLITS if split in by_split]
        for split in others:
            photos = counted(len(by_split[split]), "photo")
            found = f"{photos} in {split} of the same group {group} as {images[by_split[first][0]]} in {first}"
            about = {"file": images[by_split[split][0]], "kind": "group_across_splits", "done": "kept as listed"}
            yield Finding(**about, rank="info", found=found)


def _of_one_name(images: Sequence[str]) -> Iterator[Finding]:
    """One finding if photos in several folders have the same name, as from cameras: they all go to one split."""
    photos = [image for image in images if not is_copy(image)]
    alike = [group for group in grouped(photos, stem_of).values() if len(group) > 1]
    if alike:
        found = (
            f"{sum(map(len, alike))} photos have {counted(len(alike), 'name')}, such as {alike[0][0]} and {alike[0][1]}"
        )
        keep = "to keep each folder, such as the frames of a video, together: --group-by '(.*)/'"
        done = f"photos of one name go to one split; {keep}; to deal each by itself: `--group-by '.+'`"
        yield Finding(file=".", rank="info", kind="names_repeat", found=found, done=done)
