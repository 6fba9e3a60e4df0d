"""Scanned folders → pairs of a picture and its XML, and what has no partner. Pure: it opens no file.

Rules, first that applies: the same stem in the same folder; in sibling folders (`Annotations/` and `JPEGImages/`);
a stem that is unique in the tree; the stem that the XML itself names. Where several files could be meant nothing is
guessed: they are quarantined and all candidates named.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from types import MappingProxyType
from typing import Final

from producer.scan import IMAGE_EXTENSIONS, ScannedFolder
from shared.manifest import Finding

# Names that tools give to the two halves of a data set: the VOC devkit, LabelImg and CVAT exports, old scripts.
SIBLING_FOLDERS: Final = frozenset(
    {
        *("annotations", "annotation", "annots", "annot", "anno", "xml", "xmls", "labels"),
        *("jpegimages", "images", "image", "imgs", "img", "pictures", "photos"),
    }
)

# For the path of an XML: the names that it gives to its picture, best first (`<filename>`, then `<path>`).
NamesInXml = Callable[[str], Sequence[str]]


@dataclass(slots=True)
class Pairing:
    """Result: `pairs` are (picture, XML) paths sorted by picture; the orphans are sorted paths.

    `ambiguous` are the files that the `ambiguous_stem` findings set aside.
    """

    pairs: list[tuple[str, str]] = field(default_factory=list)
    images: list[str] = field(default_factory=list)
    annotations: list[str] = field(default_factory=list)
    ambiguous: set[str] = field(default_factory=set)
    findings: list[Finding] = field(default_factory=list)


def pair_files(folders: Iterable[ScannedFolder], names_in_xml: NamesInXml) -> Pairing:
    """Pair the files of all `folders`.

    Args:
        folders: Each folder once.
        names_in_xml: Asked only for an XML that its own name does not pair.

    Returns:
        Each picture and each XML in exactly one pair, list of orphans or `ambiguous`.
    """
    result = Pairing()
    siblings: dict[str, tuple[list[str], list[str]]] = defaultdict(lambda: ([], []))
    for folder in folders:
        left = _match(_paths(folder.path, folder.images), _paths(folder.path, folder.annotations), result)
        kept = siblings[_sibling_key(folder.path)]
        kept[0].extend(left[0])
        kept[1].extend(left[1])
    while siblings:
        left = _match(*siblings.pop(next(iter(siblings))), result)
        result.images.extend(left[0])
        result.annotations.extend(left[1])
    _match_in_tree(result)
    _match_by_name(result, names_in_xml)
    result.pairs.sort()
    result.images.sort()
    result.annotations.sort()
    return result


def image_stem(name: str) -> str:
    """The stem that a name written into an XML means: its last part, split on `/` and back slash, without extension.

    A part after the last dot is an extension only if it is a picture's: `<filename>frame.0001</filename>` is a stem.
    """
    last = re.split(r"[/\\]", name.strip())[-1]
    base, dot, extension = last.rpartition(".")
    return base if dot and f".{extension.lower()}" in IMAGE_EXTENSIONS else last


def _paths(folder: str, names: list[str]) -> list[str]:
    return [f"{folder}/{name}" for name in names] if folder else names


def _stem(path: str) -> str:
    """File name without its last extension; paths here always have one (that is how they were found)."""
    return path[path.rfind("/") + 1 : path.rfind(".")]


def _sibling_key(folder: str) -> str:
    """The same for sibling folders: `VOC/JPEGImages/day1`, `VOC/Annotations/day1` and `VOC/day1` give `VOC/day1`."""
    return "/".join(part for part in folder.split("/") if part.casefold() not in SIBLING_FOLDERS)


def _match(
    images: Sequence[str],
    annotations: Sequence[str],
    result: Pairing,
    elsewhere: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> tuple[list[str], list[str]]:
    """Pair by stem among these files only, unless the stem is `elsewhere` too (stem → files).

    Returns:
        The pictures and the XML files that are neither paired nor ambiguous here.
    """
    if not images or not annotations:
        return list(images), list(annotations)
    left: tuple[list[str], list[str]] = ([], [])
    for stem, same_images, same_annotations in _by_common_stem(images, annotations):
        if not same_images or not same_annotations:
            left[0].extend(same_images)
            left[1].extend(same_annotations)
        elif len(same_images) == len(same_annotations) == 1 and stem not in elsewhere:
            result.pairs.append((same_images[0], same_annotations[0]))
        else:
            _quarantine(result, same_images, same_annotations, also=elsewhere.get(stem, ()))
    return left


def _by_common_stem(
    images: Sequence[str], annotations: Sequence[str]
) -> Iterator[tuple[str, Sequence[str], Sequence[str]]]:
    """Each stem with its pictures and its XML files, in order: a merge join, which needs no table of all stems."""
    left, right = (groupby(sorted(paths, key=_stem), _stem) for paths in (images, annotations))
    end = ("", iter(()))
    (one, pictures), (other, files) = next(left, end), next(right, end)
    # A stem is never empty: names that begin with a dot are left out by the walk.
    while one or other:
        if one and (not other or one < other):
            yield one, list(pictures), ()
            one, pictures = next(left, end)
        elif other and (not one or other < one):
            yield other, (), list(files)
            other, files = next(right, end)
        else:
            yield one, list(pictures), list(files)
            (one, pictures), (other, files) = next(left, end), next(right, end)


def _match_in_tree(result: Pairing) -> None:
    """Pair the orphans whose stem is unique in the whole tree, pairs included."""
    paired: dict[str, list[str]] = defaultdict(list)
    if result.pairs:
        fewer = result.images if len(result.images) < len(result.annotations) else result.annotations
        orphans = set(map(_stem, fewer))
        for pair in result.pairs:
            if _stem(pair[0]) in orphans:
                paired[_stem(pair[0])].extend(pair)
    result.images, result.annotations = _match(result.images, result.annotations, result, paired)


def _match_by_name(result: Pairing, names_in_xml: NamesInXml) -> None:
    """Pair the XML files still without a picture by the stem that they name themselves."""
    if not result.images or not result.annotations:
        return
    orphans = _by_stem(result.images)
    paired = _by_stem(image for image, _ in result.pairs if _stem(image) in orphans)
    candidates: dict[str, list[str]] = {}
    for annotation in result.annotations:
        stem = next((stem for name in names_in_xml(annotation) if (stem := image_stem(name)) in orphans), None)
        if stem is not None:
            candidates[annotation] = _nearest(annotation, orphans[stem], paired.get(stem, []))
    claims: dict[str, list[str]] = defaultdict(list)
    for annotation, images in candidates.items():
        for image in images:
            claims[image].append(annotation)
    settled: set[str] = set()
    for annotation, images in candidates.items():
        settled.add(annotation)
        if len(images) == 1 and len(claims[images[0]]) == 1:
            result.pairs.append((images[0], annotation))
            settled.add(images[0])
    contested = [image for image in result.images if image in claims and image not in settled]
    for image in contested:
        rivals = {rival for annotation in claims[image] for rival in candidates[annotation]} - {image}
        _quarantine(result, [image], claims[image], also=sorted(rivals))
    settled.update(contested)
    result.images = [path for path in result.images if path not in settled]
    result.annotations = [path for path in result.annotations if path not in settled]


def _by_stem(paths: Iterable[str]) -> dict[str, list[str]]:
    by_stem: dict[str, list[str]] = defaultdict(list)
    for path in paths:
        by_stem[_stem(path)].append(path)
    return by_stem


def _nearest(annotation: str, orphans: list[str], paired: list[str]) -> list[str]:
    """The pictures of one stem that an XML can mean: in its own folder, else in its siblings, else any in the tree."""
    folder = annotation.rpartition("/")[0]
    same = [path for path in orphans if path.rpartition("/")[0] == folder]
    key = _sibling_key(folder)
    near = same or [path for path in orphans if _sibling_key(path.rpartition("/")[0]) == key]
    return near or [*orphans, *paired]


def _quarantine(result: Pairing, images: Sequence[str], annotations: Sequence[str], also: Sequence[str] = ()) -> None:
    """Name every candidate of an ambiguous stem: one finding a picture."""
    candidates = ", ".join(sorted({*images, *annotations, *also}))
    result.ambiguous.update(images, annotations)
    result.findings.extend(
        Finding(
            file=path,
            rank="quarantined",
            kind="ambiguous_stem",
            found=f"several files could be meant: {candidates}",
            done="left out",
        )
        for path in sorted(images)
    )
