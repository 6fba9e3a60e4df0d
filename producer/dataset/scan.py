"""A folder -> its pictures and XML files, folder by folder, in an order that does not depend on the file system.

One walk: no file is opened or asked for its size. Links are followed only to what lies in the data root; what is
refused is named in a `Finding`.
"""

import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from producer.dataset.other_formats import MOST_SAMPLES, SAMPLED_EXTENSIONS
from producer.photos import Entry, Photos, photos_in
from shared.errors import LintError
from shared.image_formats import IMAGE_EXTENSIONS
from shared.jobs.findings import Finding
from shared.storage import DataFolder
from shared.text import counted, printable

ANNOTATION_EXTENSION: Final = ".xml"

# Folders in which no pictures are looked for: masks have the stems of the photos and would make every stem ambiguous,
# photos with their labels drawn in would be trained on as background, and macOS adds a second file for each in a ZIP.
_MASKS: Final = "masks of the VOC devkit, not photos"
_DRAWN: Final = "copies with the labels drawn into them, as labelme writes them, not photos"
_UNWANTED_FOLDERS: Final = {
    **dict.fromkeys(
        ("segmentationclass", "segmentationobject", "segmentationclasspng", "segmentationobjectpng"), _MASKS
    ),
    **dict.fromkeys(
        ("annotationsvisualization", "segmentationclassvisualization", "segmentationobjectvisualization"), _DRAWN
    ),
    "__macosx": "what macOS adds to ZIP files, not photos",
}

# The folders that are left out of a store of jobs and models.
_OF_A_STORE: Final = frozenset({"jobs", "runs", "logs", "weights"})

# `ImageSets/Main/<name>.txt` of the VOC devkit and what tools write for it: file -> what it lists. Files like
# `aeroplane_train.txt` list classes, not splits.
LIST_NAMES: Final = MappingProxyType(
    {
        **dict.fromkeys(("train.txt", "training.txt"), "train"),
        **dict.fromkeys(("val.txt", "valid.txt", "validation.txt"), "val"),
        **dict.fromkeys(("test.txt", "testing.txt"), "test"),
        "trainval.txt": "trainval",
    }
)
_LIST_FOLDERS: Final = ("/imagesets", "/imagesets/main")
# Files that other tools write to say what belongs to which split.
_OTHER_LIST: Final = re.compile(
    r"(.+[_-])?splits?\.(json|csv|txt|ya?ml|mat)|(train|val|trainval|test)_list\.(txt|csv|json|mat)", re.IGNORECASE
)
_CLASS_LIST: Final = re.compile(r".+_(train|val|trainval|test)\.txt", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScannedFolder:
    """The files directly in one folder: sorted names; `path` is relative to the scanned root ("" is the root).

    `class_lists` are the devkit's lists for single classes, such as `cat_train.txt`: they decide nothing.
    """

    path: str
    images: list[str]
    annotations: list[str]
    lists: list[str]
    class_lists: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Walk:
    """One walk of `root`; iterate once, then read `findings` (what was refused), `counts`, and `others`.

    `others` counts the other files by their extension, and `samples` has a few of their names by extension and folder,
    to say what a folder without XML has instead. `unused_lists` are files that look like lists of splits, but are none
    that are read: path -> why. Links may lead anywhere in `data_root`, and nowhere else.
    """

    root: DataFolder
    data_root: DataFolder
    findings: list[Finding] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    others: Counter[str] = field(default_factory=Counter)
    samples: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    unused_lists: dict[str, str] = field(default_factory=dict)
    _entered: list[str] = field(default_factory=list)
    photos: Photos = field(init=False)

    def __post_init__(self) -> None:
        self.photos = photos_in(self.root)

    def __iter__(self) -> Iterator[ScannedFolder]:
        """Folders in depth-first order of their sorted names.

        Raises:
            LintError: A folder cannot be listed.
        """
        pending = [""]
        while pending:
            folder, subfolders = self._list(pending.pop())
            yield folder
            pending.extend(reversed(subfolders))

    def _list(self, path: str) -> tuple[ScannedFolder, list[str]]:
        """The wanted files of one folder, and its subfolders as paths relative to the root, sorted."""
        folder = ScannedFolder(path=path, images=[], annotations=[], lists=[])
        subfolders: list[str] = []
        try:
            with self.photos.entries(path) as entries:
                links = [entry for entry in entries if self._take(entry, folder, subfolders)]
        except OSError as error:
            raise LintError(
                f"{self.root / path}: expected a folder that can be listed: {error.strerror or error}"
            ) from error
        # Sorted, so that which of two links to one folder is followed does not depend on the file system's order.
        for link in sorted(links, key=lambda entry: entry.name):
            self._take_link(link, folder, subfolders)
        if self._is_store(path, subfolders):
            subfolders = [each for each in subfolders if each.rpartition("/")[2] not in _OF_A_STORE]
            found = "jobs and models that this program has made, not photos"
            self.findings.append(
                Finding(file=path or ".", rank="info", kind="folder_left_out", found=found, done="left out")
            )
        for names in (folder.images, folder.annotations, folder.lists, folder.class_lists):
            names.sort()
        if folder.class_lists and not folder.lists:  # VoTT writes only lists of single classes
            why = f"{counted(len(folder.class_lists), 'list')} here, each of a single class, and none of a whole split"
            self.findings.append(list_not_read(_join(path, folder.class_lists[0]), why))
        self.counts["folders"] += 1
        return folder, sorted(subfolders)

    def _take(self, entry: Entry, folder: ScannedFolder, subfolders: list[str]) -> bool:
        """Put one entry where it belongs, or note why not; True for a link, which is left to `_take_link`.

        This costs no system call for a plain entry, because `scandir` gives its type.
        """
        name = entry.name
        if name.startswith("."):
            self.counts["hidden"] += 1
            self._note_hidden(_join(folder.path, name))
        elif printable(name) != name:
            self._refuse_name(_join(folder.path, name))
        elif entry.is_symlink():
            return True
        elif entry.is_file(follow_symlinks=False):
            self._sort_in(name, folder)
        elif not entry.is_dir(follow_symlinks=False):
            self._refuse(_join(folder.path, name), "not_a_file", "neither a file nor a folder")
        elif self._is_wanted(_join(folder.path, name), name):
            subfolders.append(_join(folder.path, name))
        return False

    def _note_hidden(self, path: str) -> None:
        """Add a finding for a photo whose name begins with a dot, but not for the `._a.jpg` that macOS adds."""
        name = path.rpartition("/")[2]
        if not name.startswith("._") and os.path.splitext(name[1:])[1].lower() in IMAGE_EXTENSIONS:  # noqa: PTH122
            found, done = "a name that begins with a dot, as hidden files have", "left out; rename it"
            shown = printable(_escaped(path))
            self.findings.append(Finding(file=shown, rank="info", kind="photo_hidden", found=found, done=done))

    def _refuse_name(self, path: str) -> None:
        """Refuse a name that would break lists with one name per line, or that cannot be written in UTF-8."""
        try:
            path.encode()
        except UnicodeEncodeError:  # Python keeps bytes that are not UTF-8 as lone surrogates
            self._refuse(printable(_escaped(path)), "name_not_utf8", "a name that is not UTF-8")
        else:
            self._refuse(printable(path), "name_control_character", "a name with a control character or line break")

    def _sort_in(self, name: str, folder: ScannedFolder) -> None:
        """Put a file's name into the list for its extension, whose case is ignored."""
        self.counts["files"] += 1
        extension = os.path.splitext(name)[1].lower()  # noqa: PTH122 (pathlib is 10x slower, 100,000 files)
        if extension in IMAGE_EXTENSIONS:
            folder.images.append(name)
        elif extension == ANNOTATION_EXTENSION:
            folder.annotations.append(name)
        elif name.lower() in LIST_NAMES and f"/{folder.path.casefold()}".endswith(_LIST_FOLDERS):
            folder.lists.append(name)
        else:
            if _CLASS_LIST.fullmatch(name) and f"/{folder.path.casefold()}".endswith(_LIST_FOLDERS):
                folder.class_lists.append(name)
            if name.lower() in LIST_NAMES:
                self._note_list_outside(_join(folder.path, name))
            elif _OTHER_LIST.fullmatch(name):
                self.unused_lists[_join(folder.path, name)] = "its form is not read"
            self.counts["other_files"] += 1
            self.others[extension] += 1
            if (
                extension in SAMPLED_EXTENSIONS
                and len(names := self.samples.setdefault((extension, folder.path), [])) < MOST_SAMPLES
            ):
                names.append(name)

    def _note_list_outside(self, path: str) -> None:
        """Note a list outside of `ImageSets/Main`; those of the devkit in folders beside `Main` are for other tasks."""
        why = "it lies outside of ImageSets/Main"
        if "/imagesets/" in f"/{path.casefold()}":
            self.unused_lists[path] = why
        else:
            self.findings.append(list_not_read(path, why))

    def _is_store(self, path: str, subfolders: list[str]) -> bool:
        """Whether a folder is a store, whose report pictures are not photos. Few folders pass the first check."""
        if not {_join(path, "jobs"), _join(path, "runs")} <= set(subfolders):
            return False
        for name in _names(self.photos, _join(path, "jobs")):
            if "job.json" in _names(self.photos, f"{_join(path, 'jobs')}/{name}"):
                return True
        return False

    def _is_wanted(self, path: str, folder_name: str) -> bool:
        found = _UNWANTED_FOLDERS.get(folder_name.casefold())
        if found is not None:
            self.findings.append(Finding(file=path, rank="info", kind="folder_left_out", found=found, done="left out"))
        return found is None

    def _take_link(self, entry: Entry, folder: ScannedFolder, subfolders: list[str]) -> None:
        """Follow a link inside the data root only; each folder outside the scanned root is entered once."""
        path = _join(folder.path, entry.name)
        try:
            target = os.path.realpath(entry.path, strict=True)
            self._entered = self._entered or [os.path.realpath(str(self.root))]
        except OSError as error:
            self._refuse(path, "link_broken", error.strerror or "a link that leads nowhere")
            return
        if not _is_below(target, os.path.realpath(str(self.data_root))):
            self._refuse(path, "link_outside", "a link that leaves the data root")
        elif os.path.isfile(target):  # noqa: PTH113 (see above)
            self._sort_in(entry.name, folder)
        elif not os.path.isdir(target):  # noqa: PTH112
            self._refuse(path, "not_a_file", "a link to neither a file nor a folder")
        # Files inside the scanned folder are found by their own path, and a link to a folder above leads in a circle.
        elif any(_is_below(target, entered) or _is_below(entered, target) for entered in self._entered):
            self._refuse(path, "link_repeats", "a link to a folder that is scanned by another way")
        elif self._is_wanted(path, entry.name):
            self._entered.append(target)
            subfolders.append(path)

    def _refuse(self, path: str, kind: str, found: str) -> None:
        self.findings.append(Finding(file=path, rank="quarantined", kind=kind, found=found, done="refused"))


def list_not_read(path: str, why: str) -> Finding:
    """The finding about a file that has the name of a split list but is not used."""
    return Finding(file=path, rank="info", kind="list_not_read", found=f"a list of a split? {why}", done="not read")


def _escaped(path: str) -> str:
    """A path with bytes that are not UTF-8 shown as backslash escapes."""
    return path.encode(errors="surrogateescape").decode(errors="backslashreplace")


def _names(photos: Photos, folder: str) -> list[str]:
    try:
        with photos.entries(folder) as entries:
            return [entry.name for entry in entries]
    except OSError:
        return []


def _join(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def _is_below(path: str, folder: str) -> bool:
    """Whether `path` is `folder` or lies in it; both resolved."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")
