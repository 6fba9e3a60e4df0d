"""Findings about a folder as a whole: files without a partner, class names, whether anything can be learned. Pure."""

import shlex
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Final

from producer.dataset.box_sizes import ClassAreas
from producer.dataset.class_names import name_findings, proposed_renames
from producer.dataset.duplicates import Duplicates
from producer.dataset.findings import Findings
from producer.dataset.other_formats import converter, without_extension
from producer.dataset.pairing import Pairing, folded_stem
from producer.dataset.read_pairs import Pair, PairsRead
from producer.dataset.scan import ANNOTATION_EXTENSION, Walk, list_not_read
from producer.dataset.split import SplitAssignment
from shared.command import hint
from shared.image_formats import IMAGE_EXTENSIONS
from shared.jobs.findings import Finding, Rank
from shared.jobs.job import SPLITS, Split
from shared.jobs.labels import LabelMap
from shared.specs.data import JobSpec
from shared.storage import BucketFolder, DataFolder
from shared.text import counted

# Extension -> the labelling format that it may be, for a person who takes it for VOC.
_OTHER_FORMATS: Final = {
    **{".txt": "YOLO", ".json": "COCO, labelme or Vott", ".csv": "a table", ".tfrecord": "shards"},
    **{".mat": "MATLAB", ".odgt": "CrowdHuman", ".parquet": "a table"},
}

# Pictures of formats that this program does not read.
_UNREAD_PICTURES: Final = frozenset(
    (".avif", ".jxl", ".jp2", ".psd", ".svg", ".tga", ".pgm", ".ppm", ".dng", ".cr2", ".cr3", ".nef", ".arw")
)

# Archives that may lie in a folder or archive instead of photos.
_ARCHIVES: Final = (".zip", ".tar", ".gz", ".tgz", ".bz2", ".xz", ".rar", ".7z")

# What decides which pictures are in train, val and test, and what a person can do about it.
_RULES: Final = {
    "seeded": "dealt by --split and --seed",
    "folders": "the folders train, val and test decide",
    "lists": "the lists in ImageSets/Main decide",
}
_TO_FILL: Final = {
    "seeded": "--split or --seed deals anew",
    "folders": "move photos between these folders, each with its XML",
    "lists": "change the lists, or delete them for --split to deal",
}

# What to do about boxes that are fractions of the picture.
TO_PIXELS: Final = "multiply x by the picture's width and y by its height, or export them anew as Pascal VOC"

# The kind of the finding that prevents training, but nothing else.
NOTHING_TO_LEARN: Final = "nothing_to_learn"

# Where the other half of the pairs usually is.
_XML_FOLDERS: Final = ("Annotations", "annotations", "annots", "labels", "xml", "xmls")
_PHOTO_FOLDERS: Final = ("JPEGImages", "images", "imgs", "img", "photos")

# With fewer photos, or fewer objects of a class, there is too little to learn from or to measure on.
_PHOTOS_LEAST: Final = 20
_OBJECTS_LEAST: Final = 10

# If there are at least this many classes, and most have a single object, the names are taken for texts.
_TEXTS_LEAST: Final = 20
# How many small classes are named: if texts were written as class names, there may be one for each photo.
_NAMES_SHOWN: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderFacts:
    """What scanning, pairing, reading and splitting found.

    `refused_xml` are the folded stems of XML files that the walk refused; `unreadable_orphans` are XML files without a
    picture: path -> reason.
    """

    spec: JobSpec
    pairs: Sequence[Pair]
    duplicates: Duplicates
    walk: Walk
    pairing: Pairing
    refused_xml: Collection[str]
    unreadable_orphans: Mapping[str, str]
    read: PairsRead
    assignment: SplitAssignment
    labels: LabelMap


def check_set(facts: FolderFacts) -> Iterator[Finding]:
    """The findings that need to know more than one file."""
    yield from _orphans(facts)
    yield from _unread_pictures(facts)
    if facts.assignment.rule == "seeded":  # otherwise other lists, or folders, say how the set is meant to be split
        yield from (list_not_read(path, why) for path, why in sorted(facts.walk.unused_lists.items()))
    yield from name_findings(facts.read.class_counts, partial(_objects_of, facts))
    yield from _unseen_classes(facts)
    yield from facts.duplicates.findings(facts.assignment.splits)
    yield from _far_larger_boxes(facts)
    kind, reason, done = "no_usable_pair", _why_unusable(facts), "the submit is stopped"
    if reason is None:
        kind, reason, done = NOTHING_TO_LEARN, _why_untaught(facts), f"{done}, unless it is --no-train"
    if reason is not None:
        yield Finding(file=".", rank="error", kind=kind, found=reason, done=done)
    else:
        yield from _empty_splits(facts)
        yield from _untaught_classes(facts)
        yield from _difficult_classes(facts)
        yield from _unused_options(facts)
        yield from _too_few(facts)


def photos_dealt(facts: FolderFacts) -> Counter[Split | None]:
    """The number of photos in each split, with those left out under None; not those that a finding sets aside."""
    aside = {finding.file for finding in facts.read.findings.of_rank("quarantined")}
    dealt = zip(facts.pairs, facts.assignment.splits, strict=True)
    return Counter(split for pair, split in dealt if split is None or aside.isdisjoint(pair))


def _orphans(facts: FolderFacts) -> Iterator[Finding]:
    is_kept = facts.spec.background == "orphans"
    kept = (
        "kept as a background example"
        if is_kept
        else "left out; label it, or teach that it shows nothing: `--background orphans`"
    )
    for image in facts.pairing.images:
        kind, found, done = "image_without_annotation", "no XML belongs to it", kept
        if folded_stem(image) in facts.refused_xml:  # it shows something, so it is no background
            kind, found, done = "annotation_refused", "the XML of its name was refused", "left out"
        yield Finding(file=image, rank="info", kind=kind, found=found, done=done)
    is_any = bool(facts.pairing.annotations)
    partners = {folded_stem(image): (image, xml) for image, xml in facts.pairing.pairs if is_any}
    for path in facts.pairing.annotations:
        reason, found = facts.unreadable_orphans.get(path), "no picture belongs to it"
        if (pair := partners.get(folded_stem(path))) is not None:  # a photo has two XML: this one may be the newer
            found = f"{pair[0]}, of the same name, goes with {pair[1]}"
        found += f"; {reason}" if reason else ""
        yield Finding(file=path, rank="info", kind="annotation_without_image", found=found, done="left out")


def _unread_pictures(facts: FolderFacts) -> Iterator[Finding]:
    for extension, count in sorted(facts.walk.others.items()):
        if extension in _UNREAD_PICTURES:
            found = counted(count, f"{extension} file")
            done = "left out; convert them to JPEG, under the same names"
            yield Finding(file=".", rank="info", kind="picture_of_other_format", found=found, done=done)


def _unseen_classes(facts: FolderFacts) -> Iterator[Finding]:
    """Classes that some file or option names, but of which no object can be used."""
    spec, done = facts.spec, "kept in the label map"
    names: Collection[str] = spec.classes or ()
    if spec.classes is None:
        renamed = {old: spec.rename.get(old, old) for old in facts.read.written}
        names = sorted({new for old, new in renamed.items() if not {old, new} & {*spec.ignore_classes}})
        done = "not in the label map: the model will not know it"
    for name in names:
        if not facts.read.class_counts[name]:
            about = {"file": ".", "class_name": name[:200], "found": f"no object of class {name!r} can be used"}
            yield Finding(**about, rank="info", kind="class_unseen", done=done)


def _objects_of(facts: FolderFacts, name: str) -> list[tuple[str, int]]:
    """The objects of a class that are used, each as its file and its number in that file."""
    boxes, splits = facts.read.areas.by_class.get(name, ClassAreas()), facts.assignment.splits
    used = [(pair, index) for pair, index in zip(boxes.pairs, boxes.objects, strict=True) if splits[pair] is not None]
    return [(facts.pairs[pair][1] or facts.pairs[pair][0], index) for pair, index in used]


def _far_larger_boxes(facts: FolderFacts) -> Iterator[Finding]:
    for name, areas in sorted(facts.read.areas.by_class.items()):
        for pair, index, times in areas.far_larger():
            image, path = facts.pairs[pair]
            found = f"{name}: {times:.0f} times the usual area of the class"
            about = {"file": path or image, "object_index": index, "class_name": name[:200]}
            yield Finding(**about, rank="info", kind="box_far_larger", found=found, done="kept")


def _too_few(facts: FolderFacts) -> Iterator[Finding]:
    """Findings for a set with too few photos, and for classes with too few objects, to learn from."""
    dealt = photos_dealt(facts)
    photos = sum(dealt[split] for split in SPLITS)
    if photos < _PHOTOS_LEAST:
        done = f"kept; label at least {_PHOTOS_LEAST}, better some hundred"
        yield Finding(file=".", rank="info", kind="set_small", found=counted(photos, "photo"), done=done)
    renamed = proposed_renames(facts.read.class_counts)
    classes = {name: count for name, count in facts.read.class_counts.items() if count and name not in renamed}
    few = {name: count for name, count in classes.items() if count < _OBJECTS_LEAST}
    single = sorted(name for name, count in classes.items() if count == 1)
    if len(classes) >= _TEXTS_LEAST and 2 * len(single) > len(classes):
        found = f"{len(classes)} classes, {len(single)} of them of a single object, such as {single[0]!r}"
        done = "kept; if <name> has a text or a number of each object, write there what kind of thing it is"
        yield Finding(file=".", rank="info", kind="class_names_many", found=found, done=done)
    if few:
        found = ", ".join(f"{name} ({count})" for name, count in sorted(few.items())[:_NAMES_SHOWN])
        found += f" and {len(few) - _NAMES_SHOWN} more of {len(few)}" if len(few) > _NAMES_SHOWN else ""
        done = f"kept; label at least {_OBJECTS_LEAST} objects of each"
        if len(few) < len(classes):  # otherwise nothing would be left
            done += f", or leave them out: {_ignoring(sorted(few))}"
        yield Finding(file=".", rank="info", kind="class_small", found=found, done=done)


def _ignoring(names: Sequence[str]) -> str:
    """How to leave classes out; in this option a comma ends a name."""
    if any("," in name for name in names):
        return "--ignore-classes, which takes a name with a comma only by a new name that --rename gave it"
    return f"`--ignore-classes {shlex.quote(','.join(names))}`"


def _why_unusable(facts: FolderFacts) -> str | None:
    """Why the set has nothing to learn from or to evaluate on; None if it has."""
    counts = facts.read.counts
    if not counts["annotated"] + counts["background"]:
        return f"no picture with a readable XML; {_contents(facts)}"
    if not any(facts.assignment.splits):
        return _why_untaught(facts)
    dealt = photos_dealt(facts)
    if not any(dealt[split] for split in SPLITS):
        return f"every photo is set aside; {_others_say(facts, 'quarantined')}"
    if not facts.labels.names or not sum(facts.read.class_counts.values()):
        if not facts.read.counts["objects_read"] and not facts.read.written:
            return "no XML has an object; draw boxes around what is to be found"
        if facts.spec.classes is None and not facts.spec.ignore_classes:
            return f"no object can be used; {_others_say(facts, 'dropped')}"
        return "no object of any class that is asked for"
    normalized = facts.read.findings.kinds()["boxes_normalized"]
    if normalized and normalized == counts["annotated"]:
        return f"the boxes of all {counted(normalized, 'file')} look normalized (0 to 1), expected pixels; {TO_PIXELS}"
    return None


def _why_untaught(facts: FolderFacts) -> str | None:
    """Why nothing can be learned from the set, though there are pairs; None if something can."""
    splits, rule = facts.assignment.splits, facts.assignment.rule
    if "train" not in splits:
        return f"no picture in train ({_RULES[rule]}); {_TO_FILL[rule]}"
    if not photos_dealt(facts)["train"]:
        return f"every photo in train ({_RULES[rule]}) is set aside; the other findings say why"
    classes = facts.read.areas.by_class.values()
    marked = [
        mark
        for each in classes
        for pair, mark in zip(each.pairs, each.difficult, strict=True)
        if splits[pair] == "train"
    ]
    if facts.spec.difficult == "ignore" and marked and all(marked):
        return "every object in train is marked difficult, and --difficult ignore learns none; --difficult keep does"
    return None


def _contents(facts: FolderFacts) -> str:
    """What the folder has instead of pairs, for a person who took it for VOC."""
    pairing, root = facts.pairing, facts.walk.root
    xmls = len(pairing.annotations) + len(pairing.pairs)
    xmls_aside = sum(path.lower().endswith(ANNOTATION_EXTENSION) for path in pairing.ambiguous)
    images = len(pairing.images) + len(pairing.pairs) + len(pairing.ambiguous) - xmls_aside
    found = [f"found {counted(images, 'image')}", f"{counted(xmls + xmls_aside, 'XML file')}"]
    others = [
        f"{count} {extension} ({_OTHER_FORMATS[extension]}?)"
        for extension, count in facts.walk.others.most_common()
        if extension in _OTHER_FORMATS
    ]
    if xmls + xmls_aside and images:
        return f"{', '.join(found)}; {_why_unpaired(facts)}"
    nameless = "" if isinstance(root, BucketFolder) else without_extension(root, facts.walk.samples)
    if nameless:
        return f"{', '.join(found)}; {counted(facts.walk.others[''], 'file')} without an extension, {nameless}"
    unread = sum(facts.walk.others[extension] for extension in _UNREAD_PICTURES)
    if unread and not images:
        return f"{', '.join(found)}, {counted(unread, 'picture')} of a format that is not read; convert them to JPEG"
    archives = sum(facts.walk.others[extension] for extension in _ARCHIVES)
    if not others and (beside := _beside(root, has_xml=bool(xmls))):
        return f"{', '.join(found)}; {beside}"
    if not others and archives:
        return f"{', '.join(found)}, {counted(archives, 'archive')}; unpack what belongs together into one folder"
    if not others:
        say = "label them, for example with LabelImg as Pascal VOC" if images else "is it the right folder?"
        return f"{', '.join(found)}; {say}"
    convert = ["only Pascal-VOC XML is read: convert or export it as that"]
    if isinstance(root, BucketFolder):
        return f"{', '.join([*found, *others, *convert])}; `{hint('lint', 'FOLDER')}` on a copy in a folder says how"
    command = converter(root, facts.walk.samples)
    return ", ".join([*found, *others, *convert]) + (f"; {command}" if command else "")


def _why_unpaired(facts: FolderFacts) -> str:
    """Why photos and XML files do not make a single pair that can be read."""
    if facts.pairing.pairs or facts.pairing.ambiguous:
        return _others_say(facts, "quarantined")
    if len(facts.unreadable_orphans) == len(facts.pairing.annotations):
        path, reason = next(iter(facts.unreadable_orphans.items()))
        return f"no XML file is one of Pascal VOC, such as {path}: {reason}"
    return "none has the name of another, as a photo and its XML do"


def _others_say(facts: FolderFacts, rank: Rank) -> str:
    """Where it is told why the set cannot be used, with the first of those findings, which `submit` does not show."""
    first = next(chain(facts.read.findings.of_rank(rank), Findings(facts.pairing.findings).of_rank(rank)), None)
    return "the other findings say why" + (f", the first: {first.file}: {first.found}" if first else "")


def _beside(root: DataFolder, *, has_xml: bool) -> str:
    """Where the other half of the pairs is, if somebody gave one of the two folders of a VOC set instead of both."""
    if isinstance(root, BucketFolder):
        return ""
    whole, what = root.resolve().parent, "photos" if has_xml else "XML files"
    for other in (whole / name for name in (_PHOTO_FOLDERS if has_xml else _XML_FOLDERS)):
        extensions = IMAGE_EXTENSIONS.keys() if has_xml else {ANNOTATION_EXTENSION}
        if other == root.resolve() or not other.is_dir():
            continue
        if any(each.suffix.lower() in extensions for each in other.glob("*")):  # `glob` skips what cannot be listed
            return f"the {what} are in {other}: give {whole}, which has both"
    return ""


def _empty_splits(facts: FolderFacts) -> Iterator[Finding]:
    pictures, rule = Counter(facts.assignment.splits), facts.assignment.rule
    empty = [
        split
        for split, share in zip(SPLITS, facts.spec.split, strict=True)
        if not pictures[split] and (share > 0 or rule != "seeded")
    ]
    if empty:
        found = f"no picture in {' and '.join(empty)} ({_RULES[rule]})"
        done = f"the job goes on without; {_to_fill(facts)}"
        yield Finding(file=".", rank="info", kind="split_empty", found=found, done=done)


def _to_fill(facts: FolderFacts) -> str:
    """What a person can do about a split that has no picture."""
    if facts.assignment.fuller_seed is not None:
        return f"to deal some to each: `--seed {facts.assignment.fuller_seed}`"
    if facts.spec.group_by and facts.assignment.rule == "seeded":
        return f"--group-by {facts.spec.group_by} makes too few groups"
    return _TO_FILL[facts.assignment.rule]


def _untaught_classes(facts: FolderFacts) -> Iterator[Finding]:
    """Classes whose objects are all in photos that are not trained on."""
    rule = facts.assignment.rule
    for name, areas in sorted(facts.read.areas.by_class.items()):
        objects = Counter(facts.assignment.splits[pair] for pair in areas.pairs)
        where = " and ".join(f"{objects[split]} in {split}" for split in SPLITS if objects[split])
        if where and not objects["train"]:
            found = f"no object of class {name!r} in train, {where} ({_RULES[rule]})"
            about = {"file": ".", "class_name": name[:200], "done": f"kept, and never learned; {_TO_FILL[rule]}"}
            yield Finding(**about, rank="info", kind="class_not_in_train", found=found)


def _difficult_classes(facts: FolderFacts) -> Iterator[Finding]:
    """Classes whose objects are all marked difficult: evaluation never counts these, and training may ignore them."""
    splits = facts.assignment.splits
    for name, areas in sorted(facts.read.areas.by_class.items()):
        marks = [(splits[pair], mark) for pair, mark in zip(areas.pairs, areas.difficult, strict=True) if splits[pair]]
        in_train = [mark for split, mark in marks if split == "train"]
        if facts.spec.difficult == "ignore" and in_train and all(in_train):
            where, count = " in train", len(in_train)
            done = "never learned, as --difficult ignore asks; to learn them: `--difficult keep`"
        elif marks and all(mark for _, mark in marks):
            where, count, done = "", len(marks), "learned, and in no figure: evaluation counts no such object"
        else:
            continue
        found = f"{counted(count, 'object')} of class {name!r}{where}, all of them marked difficult"
        about = {"file": ".", "class_name": name[:200], "found": found}
        yield Finding(**about, rank="info", kind="class_difficult", done=done)


def _unused_options(facts: FolderFacts) -> Iterator[Finding]:
    """Options that deal pictures to splits, given though the folder decides the splits."""
    rule, spec = facts.assignment.rule, facts.spec
    if rule != "seeded" and spec.split != JobSpec.model_fields["split"].default:
        found = f"--split is not used: {_RULES[rule]}"
        yield Finding(file=".", rank="info", kind="split_not_used", found=found, done=_TO_FILL[rule])
    if rule != "seeded" and spec.seed != JobSpec.model_fields["seed"].default:
        found, done = f"--seed deals no splits: {_RULES[rule]}", "it decides shards and training only"
        yield Finding(file=".", rank="info", kind="seed_deals_nothing", found=found, done=done)
