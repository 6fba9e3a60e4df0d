"""`ImageSets/Main/{train,val,test,trainval}.txt` -> the split of each picture below their folder. Pure."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from producer.dataset.findings import Findings
from producer.dataset.pairing import composed_stem, grouped, image_stem
from shared.image_formats import IMAGE_EXTENSIONS
from shared.jobs.findings import Finding, Rank
from shared.jobs.job import SPLITS, Split
from shared.text import composed

# The devkit's class lists end each line with -1, 0 or 1; some tools write train.txt in that form.
_CLASS_FLAG: Final = re.compile(r"^(.*\S)\s+-?[01]$")
# PaddleDetection writes the path of the XML after that of the photo.
_WITH_XML: Final = re.compile(rf"^(.*?(?:{'|'.join(map(re.escape, IMAGE_EXTENSIONS))}))[ \t]+\S.*\.xml$", re.IGNORECASE)
# Datumaro, and so CVAT, quotes names with spaces; some tools list the XML instead of the photo; Oxford-IIIT Pet and
# ImageNet have numbers behind the name, here taken for that from two on: `day 1` may be a name.
_OTHERWISE: Final = tuple(
    map(re.compile, (r'^"([^"]+)"(?:\s+-?[01])?$', r"(?i)^(.+)\.xml$", r"^(\S+)(?:\s+-?\d+){2,}$"))
)
# What a spreadsheet writes around names and between columns: quotes, commas, semicolons, tabs.
_OF_TABLES: Final = re.compile(r"^[\"']|[,;\t]")


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitLists:
    """The lists of one devkit folder: `root` is the folder that contains `ImageSets` ("" for the scanned root itself).

    `lines` has the stripped, non-empty lines of each list that exists, by name (`train`, `val`, `test`, `trainval`);
    `paths` has the path of each list, for messages.
    """

    root: str
    lines: Mapping[str, Sequence[str]]
    paths: Mapping[str, str]


def read_lists(
    images: Sequence[str], lists: Sequence[SplitLists], findings: Findings, unpaired: Iterable[str] = ()
) -> list[Split | None]:
    """The split of each picture by the lists of the innermost folder that has any; None where no list names it.

    Args:
        images: Relative paths, sorted.
        lists: One entry per devkit folder.
        findings: Gets what the lists name wrongly, and the pictures that no list names.
        unpaired: Pictures that are in no pair; a line that means one of them is not matched to another picture.
    """
    splits: list[Split | None] = [None] * len(images)
    without_pair = grouped(unpaired, composed_stem)
    members = _members(images, lists)
    for entry in lists:
        by_stem = grouped(members.get(entry.root, ()), lambda index: composed_stem(images[index]))
        seen: dict[int, str] = {}
        for name, split in _lists_to_read(entry):
            listed = _resolve(images, entry, name, by_stem, without_pair, findings)
            for index in _once(listed, entry.paths[name], images, findings):
                if index not in seen:
                    seen[index], splits[index] = name, split
                elif name != "trainval" or seen[index] == "test":
                    both = f"in {entry.paths[seen[index]]} and {entry.paths[name]}"
                    done = "the submit is stopped"
                    findings.append(
                        Finding(file=images[index], rank="error", kind="listed_in_two", found=both, done=done)
                    )
    findings.extend(
        Finding(
            file=image,
            rank="dropped",
            kind="not_listed",
            found="in no list of train, val, test or trainval",
            done="left out",
        )
        for image, split in zip(images, splits, strict=True)
        if split is None
    )
    return splits


def _lists_to_read(entry: SplitLists) -> list[tuple[str, Split]]:
    """The lists that count. `trainval` does only if train or val is missing: it stands for that one, less the other."""
    chosen: list[tuple[str, Split]] = [(split, split) for split in SPLITS if split in entry.lines]
    if "trainval" in entry.lines and not {"train", "val"} <= entry.lines.keys():
        chosen.append(("trainval", "val" if "train" in entry.lines else "train"))
    return chosen


def _members(images: Sequence[str], lists: Sequence[SplitLists]) -> dict[str | None, list[int]]:
    """Indices of the pictures below each folder that has lists; a picture belongs to the innermost such folder."""
    roots = sorted((entry.root for entry in lists), key=len, reverse=True)

    def innermost(index: int) -> str | None:
        return next((root for root in roots if not root or images[index].startswith(f"{root}/")), None)

    return grouped(range(len(images)), innermost)


def _resolve(
    images: Sequence[str],
    entry: SplitLists,
    name: str,
    by_stem: Mapping[str, list[int]],
    without_pair: Mapping[str, list[str]],
    findings: Findings,
) -> list[int]:
    """The picture that each line of a list means; a line that means none, or several, becomes a finding."""
    found: list[int] = []
    for written in entry.lines[name]:
        line, candidates = _candidates(_WITH_XML.sub(r"\1", written), by_stem, without_pair)
        chosen = _narrowed(images, candidates, line, f"{entry.root}/JPEGImages/".lstrip("/"))
        meant = _unpaired(images, chosen, line, without_pair)
        if len(chosen) == 1 and not meant:
            found.append(chosen[0])
            continue
        names = ", ".join(images[index] for index in chosen)
        no_pair = f"{meant} is in no pair" if meant else _no_pair(line)
        chosen = [] if meant else chosen
        kind, text = ("list_ambiguous", f"could mean {names}") if chosen else ("listed_without_pair", no_pair)
        rank: Rank = "quarantined" if chosen else "info"
        findings.append(
            Finding(file=entry.paths[name], rank=rank, kind=kind, found=f"{written}: {text}", done="line not used")
        )
    return found


def _candidates(
    line: str, by_stem: Mapping[str, list[int]], without_pair: Mapping[str, list[str]]
) -> tuple[str, list[int]]:
    """The pictures whose stem a line names; and the line, without the quotes or numbers that some tools add."""
    for text in (line, *(match[1] for match in (form.match(line) for form in _OTHERWISE) if match)):
        is_other = composed(image_stem(text)) in without_pair
        # `day 1` is not `day` with a flag if there is an unlabelled photo called `day 1`.
        flagged = None if is_other else _CLASS_FLAG.match(text)
        stems = [text, image_stem(text), *([image_stem(flagged[1])] if flagged else [])]
        found = next((by_stem[stem] for stem in map(composed, stems) if stem in by_stem), [])
        if found or is_other:
            return text, found
    return line, []


def _no_pair(line: str) -> str:
    if "\N{REPLACEMENT CHARACTER}" in line:  # it stands for a byte that is not UTF-8
        return "no such pair; the list is not UTF-8, expected UTF-8: save it so"
    if _OF_TABLES.search(line):
        return (
            "no such pair; expected a photo's name and nothing else: save the list without quotes, commas and columns"
        )
    return "no such pair"


def _narrowed(images: Sequence[str], candidates: list[int], line: str, devkit_folder: str) -> list[int]:
    """Of several pictures with one stem, those in the folders that the line names (as CVAT does), or the devkit's."""
    for is_meant in (
        lambda image: _is_spelled(image, line),
        lambda image: _is_spelled(composed(image), composed(line)),
        lambda image: image.startswith(devkit_folder),
    ):
        meant = [index for index in candidates if is_meant(images[index])]
        if len(candidates) > 1 and meant:
            candidates = meant
    return candidates


def _unpaired(images: Sequence[str], chosen: list[int], line: str, without_pair: Mapping[str, list[str]]) -> str:
    """The picture without a pair that the line spells in full, if the chosen pair shares only its stem; "" for none."""
    if not chosen or any(_is_spelled(composed(images[index]), composed(line)) for index in chosen):
        return ""
    alike = without_pair.get(composed_stem(images[chosen[0]]), ())
    return next((image for image in alike if _is_spelled(composed(image), composed(line))), "")


def _is_spelled(image: str, line: str) -> bool:
    """Whether one of the two paths, with or without extension, ends with the other."""
    written = "/" + line.replace("\\", "/").lstrip("/")
    forms = (f"/{image}", f"/{image.rpartition('.')[0]}")
    return any(form.endswith(written) or written.endswith(form) for form in forms)


def _once(listed: Iterable[int], path: str, images: Sequence[str], findings: Findings) -> list[int]:
    """The pictures in order, each once; repetitions become findings."""
    counts = Counter(listed)
    findings.extend(
        Finding(
            file=images[index], rank="mended", kind="listed_twice", found=f"{count} times in {path}", done="taken once"
        )
        for index, count in counts.items()
        if count > 1
    )
    return list(counts)
