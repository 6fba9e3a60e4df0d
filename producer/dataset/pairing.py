"""Scanned folders -> pairs of a picture and its XML, and what has no partner. Pure: it opens no file.

The first rule that applies decides: the same stem in the same folder; the same stem in sibling folders (`Annotations/`
and `JPEGImages/`, then also `train_annots/` and `train_images/`, then any two folders in one); a stem that is unique in
the tree, as it is or else ignoring case and how accents are written; the stem that the XML itself names. Where several
files could be meant, none is chosen: they are quarantined, and the finding names all candidates.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import groupby
from types import MappingProxyType
from typing import Final, TypeVar

from producer.dataset.scan import ScannedFolder
from shared.image_formats import IMAGE_EXTENSIONS, format_of
from shared.jobs.findings import Finding
from shared.text import composed

# Names that tools give to the two halves of a data set: the VOC devkit, LabelImg and CVAT exports, old scripts.
SIBLING_FOLDERS: Final = frozenset(
    (
        *("annotations", "annotation", "annots", "annot", "anno", "xml", "xmls", "labels"),
        *("jpegimages", "images", "image", "imgs", "img", "pictures", "photos"),
    )
)

# What the names of such folders may have besides: `Data/` of ImageNet, `To_PASCAL_XML/`, `outputs/` of Colabeler.
_BESIDE_SIBLINGS: Final = SIBLING_FOLDERS | {"data", "outputs", "pascal", "voc", "to"}
# Between the words of a folder's name: `test set`, `test_set`, `TestSet`.
_BETWEEN_WORDS: Final = re.compile(r"[ _.-]|(?<=[a-z])(?=[A-Z])")

Value = TypeVar("Value")
Key = TypeVar("Key")
NamesInXml = Callable[[Sequence[str]], Iterable[Sequence[str]]]


@dataclass(slots=True)
class Pairing:
    """`pairs` are (picture, XML) paths sorted by picture; `images` and `annotations` those without a partner, sorted.

    `ambiguous` are the files that the `ambiguous_stem` and `heic_left_out` findings set aside.
    """

    pairs: list[tuple[str, str]] = field(default_factory=list)
    images: list[str] = field(default_factory=list)
    annotations: list[str] = field(default_factory=list)
    ambiguous: set[str] = field(default_factory=set)
    findings: list[Finding] = field(default_factory=list)


def pair_files(folders: Iterable[ScannedFolder], names_in_xml: NamesInXml) -> Pairing:
    """Pair the files of all `folders`, each of which comes once.

    `names_in_xml` takes paths of XML and returns, for each, the names that it gives to its picture, best first; it is
    called only for XML whose own file name finds no partner.

    Returns:
        Each picture and each XML in exactly one pair, list of orphans or `ambiguous`.
    """
    result = Pairing()
    siblings: dict[str, tuple[list[str], list[str]]] = defaultdict(lambda: ([], []))
    for folder in folders:
        left = _match(_paths(folder.path, folder.images), _paths(folder.path, folder.annotations), result)
        for kept, files in zip(siblings[_sibling_key(folder.path)], left, strict=True):
            kept.extend(files)
    while siblings:
        left = _match(*siblings.pop(next(iter(siblings))), result)
        result.images.extend(left[0])
        result.annotations.extend(left[1])
    _match_in_groups(result, _relatives_key)
    _match_in_groups(result, _parent, elsewhere=_paired(result, stem_of))
    _match_in_tree(result, stem_of)
    _match_in_tree(result, folded_stem)
    _match_by_name(result, names_in_xml)
    for paths in (result.pairs, result.images, result.annotations):
        paths.sort()
    return result


def image_stem(name: str) -> str:
    """The stem that a name written into an XML means: its last part, split on `/` and back slash, without extension.

    What follows the last dot counts as an extension only if it is one of a picture format: in
    `<filename>frame.0001</filename>` the whole name is the stem.
    """
    last = re.split(r"[/\\]", name.strip())[-1]
    base, dot, extension = last.rpartition(".")
    return base if dot and f".{extension.lower()}" in IMAGE_EXTENSIONS else last


def _paths(folder: str, names: list[str]) -> list[str]:
    return [f"{folder}/{name}" for name in names] if folder else names


def stem_of(path: str) -> str:
    """File name without its last extension; paths here always have one (that is how they were found)."""
    return path[path.rfind("/") + 1 : path.rfind(".")]


def folded_stem(path: str) -> str:
    """`stem_of`, made equal for stems that differ only in case or in how their accents are written."""
    return composed(stem_of(path).casefold())


def composed_stem(path: str) -> str:
    """`stem_of`, made equal for stems that differ only in how their accents are written."""
    return composed(stem_of(path))


def grouped(values: Iterable[Value], key: Callable[[Value], Key]) -> dict[Key, list[Value]]:
    """The values of each key, in their order."""
    groups: dict[Key, list[Value]] = defaultdict(list)
    for value in values:
        groups[key(value)].append(value)
    return groups


def _sibling_key(folder: str) -> str:
    """A key equal for sibling folders: `VOC/JPEGImages/day1`, `VOC/Annotations/day1` and `VOC/day1` give `VOC/day1`."""
    return "/".join(part for part in folder.split("/") if part.casefold() not in SIBLING_FOLDERS)


@lru_cache(maxsize=1024)
def _relatives_key(folder: str) -> str:
    """A key equal also for folders whose names say more: `a/train_images` and `a/train_annots` give `a/train`."""
    parts = [[word for word in folder_words(part) if word not in _BESIDE_SIBLINGS] for part in folder.split("/")]
    return "/".join(" ".join(words) for words in parts if words)


def folder_words(folder: str) -> list[str]:
    """The words of a folder's name, in lower case: those of `TestSet_1` are test, set and 1."""
    return _BETWEEN_WORDS.sub(" ", folder).casefold().split()


def _match(
    images: Sequence[str],
    annotations: Sequence[str],
    result: Pairing,
    elsewhere: Mapping[str, Sequence[str]] = MappingProxyType({}),
    stem_of: Callable[[str], str] = stem_of,
) -> tuple[list[str], list[str]]:
    """Pair by stem among these files only, unless the stem is `elsewhere` too (stem -> files).

    Returns:
        The pictures and the XML files that are neither paired nor ambiguous here.
    """
    if not images or not annotations:
        return list(images), list(annotations)
    left: tuple[list[str], list[str]] = ([], [])
    for stem, same_images, same_annotations in _by_common_stem(images, annotations, stem_of):
        if not same_images or not same_annotations:
            left[0].extend(same_images)
            left[1].extend(same_annotations)
        elif len(same_annotations) == 1 and stem not in elsewhere and (image := _only_picture(same_images, result)):
            result.pairs.append((image, same_annotations[0]))
        else:
            _quarantine(result, same_images, same_annotations, also=elsewhere.get(stem, ()))
    return left


def _only_picture(images: Sequence[str], result: Pairing) -> str | None:
    """The one picture among `images`; a HEIC beside another format is taken for its original and left out."""
    others = [path for path in images if format_of(path) != "heif"] or images
    if len(others) != 1:
        return None
    left_out = sorted({*images} - {*others})
    result.ambiguous.update(left_out)
    found = f"{others[0]} is the same photo in a usual format"
    result.findings.extend(
        Finding(file=path, rank="info", kind="heic_left_out", found=found, done="left out") for path in left_out
    )
    return others[0]


def _by_common_stem(
    images: Sequence[str], annotations: Sequence[str], stem_of: Callable[[str], str]
) -> Iterator[tuple[str, Sequence[str], Sequence[str]]]:
    """Each stem with its pictures and its XML files, in order: a merge join, which needs no table of all stems."""
    left, right = (groupby(sorted(paths, key=stem_of), stem_of) for paths in (images, annotations))
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


def _match_in_groups(
    result: Pairing, key_of: Callable[[str], str], elsewhere: Mapping[str, Sequence[str]] = MappingProxyType({})
) -> None:
    """Pair the orphans of one stem among folders of the same key, unless the stem is `elsewhere` too."""
    groups: dict[str, tuple[list[str], list[str]]] = defaultdict(lambda: ([], []))
    for place, paths in enumerate((result.images, result.annotations)):
        for path in paths:
            groups[key_of(_parent(path))][place].append(path)
    result.images, result.annotations = [], []
    for images, annotations in groups.values():
        left = _match(images, annotations, result, elsewhere)
        result.images.extend(left[0])
        result.annotations.extend(left[1])


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


def _paired(result: Pairing, stem_of: Callable[[str], str]) -> dict[str, list[str]]:
    """The files of the pairs whose stem is also one of an orphan, by stem."""
    fewer = result.images if len(result.images) < len(result.annotations) else result.annotations
    orphans = set(map(stem_of, fewer))
    paired: dict[str, list[str]] = defaultdict(list)
    for pair in result.pairs:
        if orphans and (stem := stem_of(pair[0])) in orphans:
            paired[stem].extend(pair)
    return paired


def _match_in_tree(result: Pairing, stem_of: Callable[[str], str]) -> None:
    """Pair the orphans whose stem is unique in the whole tree, pairs included."""
    elsewhere = _paired(result, stem_of)
    result.images, result.annotations = _match(result.images, result.annotations, result, elsewhere, stem_of)


def _match_by_name(result: Pairing, names_in_xml: NamesInXml) -> None:
    """Pair the XML files still without a picture by the stem that they name themselves."""
    if not result.images or not result.annotations:
        return
    orphans = grouped(result.images, composed_stem)
    paired = grouped((image for image, _ in result.pairs if composed_stem(image) in orphans), composed_stem)
    candidates: dict[str, list[str]] = {}
    for annotation, names in zip(result.annotations, names_in_xml(result.annotations), strict=True):
        stem = next((stem for name in names if (stem := composed(image_stem(name))) in orphans), None)
        if stem is not None:
            candidates[annotation] = _nearest(annotation, orphans[stem], paired.get(stem, []))
    claims: dict[str, list[str]] = defaultdict(list)
    for annotation, images in candidates.items():
        for image in images:
            claims[image].append(annotation)
    settled = set(candidates)
    for annotation, images in candidates.items():
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


def _nearest(annotation: str, orphans: list[str], paired: list[str]) -> list[str]:
    """The pictures of one stem that an XML can mean: those in its folder, else in sibling folders, else in the tree."""
    folder = annotation.rpartition("/")[0]
    same = [path for path in orphans if path.rpartition("/")[0] == folder]
    near = same or [path for path in orphans if _sibling_key(path.rpartition("/")[0]) == _sibling_key(folder)]
    return near or [*orphans, *paired]


def _quarantine(result: Pairing, images: Sequence[str], annotations: Sequence[str], also: Sequence[str] = ()) -> None:
    """Name every candidate of an ambiguous stem, in one finding per picture."""
    found = f"several files could be meant: {', '.join(sorted({*images, *annotations, *also}))}"
    result.ambiguous.update(images, annotations)
    result.findings.extend(
        Finding(file=path, rank="quarantined", kind="ambiguous_stem", found=found, done="left out")
        for path in sorted(images)
    )
