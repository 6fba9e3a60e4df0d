"""A folder labelled in another format -> the command of a converter that makes Pascal-VOC XML of it.

The converter is globox (docs/decisions/0069). Only a few files are opened to tell the format.
"""

import json
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

# How many files of a folder are looked at: many may be lists, read-me files or empty labels. Fewer JSON files, because
# they may be large.
MOST_SAMPLES: Final = 100
_MOST_JSON: Final = 5
# The text just before the command, by which a page finds the command to show it on its own line.
TO_CONVERT: Final = "to convert it, "
SAMPLED_EXTENSIONS: Final = frozenset({".txt", ".json", ""})

_MOST_JSON_BYTES: Final = 256 * 2**20
_YOLO_LINE: Final = re.compile(r"\d+(\s+[01]?\.?\d+(e-?\d+)?){4}\s*", re.IGNORECASE)
_NAMES: Final = "classes.names"
_CLASS_LISTS: Final = (_NAMES, "classes.txt", "obj.names", "labels.names", "labels.txt", "_darknet.labels")
# `names: [cat, dog]`, which may span several lines, or one line for each name: `- cat`, `0: cat`.
_YAML_NAMES: Final = re.compile(r"^names:\s*(\[[^]]*\]|\{[^}]*\}|(?:\n\s*(?:-|\d+\s*:).*)+)", re.MULTILINE)


def converter(root: Path, samples: Mapping[tuple[str, str], Sequence[str]]) -> str | None:
    """How to convert the data set in `root`; None if no format is recognised.

    `samples` are names of files by (extension, folder below `root`).
    """
    first: dict[str, None] = {}  # a dict, so that each is there once: folders share a list of class names
    commands: list[str] = []
    is_named = True

    def add(command: str, target: Path) -> None:
        if not target.parent.is_dir():  # globox makes only the last folder of a path
            first[shlex.join(["mkdir", "-p", str(target.parent)])] = None
        commands.append(command)

    for (extension, folder), names in sorted(samples.items()):
        for name in names[:_MOST_JSON] if extension == ".json" else names:
            format_name = _format_of(root / folder / name)
            if format_name == "coco":
                target = _coco_target(root, root / folder, name)
                add(_convert(root / folder / name, target, "coco"), target)
            elif format_name == "labelme":
                commands.append(_convert(root / folder, root / folder / "xml", "labelme"))
                break
            elif format_name == "yolo":
                classes, written = _yolo_classes(root, root / folder)
                is_named = is_named and bool(classes.is_file() or written)
                first.update(dict.fromkeys([*written, *_set_aside(root / folder, names)]))
                target = _beside(root, root / folder, "xml") or root / folder / "xml"
                add(_convert_yolo(root, root / folder, target, classes), target)
                break
    if not commands:
        return None
    asked = "" if is_named else f"write the class names into {root / _NAMES}, one a line in their order; "
    return f"{TO_CONVERT}{asked}`{' && '.join(['pip install globox', *first, *commands])}`"


def without_extension(root: Path, samples: Mapping[tuple[str, str], Sequence[str]]) -> str | None:
    """What to do about VOC files without an extension, as those of Stanford Dogs; None if there are none."""
    found = [
        root / folder / name
        for (extension, folder), names in sorted(samples.items())
        for name in names
        if not extension and _is_voc(root / folder / name)
    ]
    if not found:
        return None
    folder = os.path.commonpath([path.parent for path in found])
    command = shlex.join(["find", folder, "-type", "f", "!", "-name", "*.*", "-exec", "mv", "{}", "{}.xml", ";"])
    first = min(found).relative_to(root)
    return f"such as {first}, are Pascal VOC; expected .xml behind their names; {TO_CONVERT}`{command}`"


def _is_voc(path: Path) -> bool:
    with suppress(OSError), path.open("rb") as file:
        return b"<annotation" in file.read(200)
    return False


def _set_aside(folder: Path, names: Sequence[str]) -> list[str]:
    """The commands that rename files without labels, such as a read-me, because globox would fail on them."""
    texts = [folder / name for name in names if name not in _CLASS_LISTS]
    others = [path for path in texts if path.stat().st_size and _format_of(path) is None]
    return [shlex.join(["mv", str(path), f"{path}.other"]) for path in others]


def _convert_yolo(root: Path, folder: Path, target: Path, classes: Path) -> str:
    """The command for YOLO labels; the pictures of `labels/train` are looked for in `images/train` beside it."""
    images = _beside(root, folder, "images")
    is_apart = images is not None and images.is_dir()
    options = ("--img_folder", str(images if is_apart else folder), "--mapping", str(classes))
    return _convert(folder, target, "yolov5", *options)


def _beside(root: Path, folder: Path, name: str) -> Path | None:
    """`folder` with its last part `labels`, at or below `root`, replaced by `name`; None if it has no such part."""
    parts = list(folder.parts)
    for place in range(len(parts) - 1, len(root.parts) - 2, -1):
        if parts[place].casefold() == "labels":
            return Path(*parts[:place], name, *parts[place + 1 :])
    return None


def _yolo_classes(root: Path, folder: Path) -> tuple[Path, list[str]]:
    """The file with the class names for globox, and the commands that make it, if any are needed.

    globox takes each .txt in `folder` for an annotation, so a list of names there needs another extension.
    """
    for place in (folder, *folder.parents):
        for name in _CLASS_LISTS:
            path = place / name
            if path.is_file() and place == folder and path.suffix == ".txt":
                return path.with_suffix(".names"), [shlex.join(["mv", str(path), str(path.with_suffix(".names"))])]
            if path.is_file():
                return path, []
        for yaml in (place / "data.yaml", place / "dataset.yaml"):
            if names := _names_in_yaml(yaml):
                target = place / _NAMES
                written = shlex.join(["printf", "%s\\n", *names])
                return target, [f"{written} > {shlex.quote(str(target))}"]
        if place == root:
            break
    return root / _NAMES, []


def _names_in_yaml(path: Path) -> list[str]:
    """The class names in the description of a YOLO set, in their order, as a list or by number; [] if it has none."""
    with suppress(OSError, ValueError):
        found = _YAML_NAMES.search(path.read_text(encoding="utf-8"))
        entries = re.split(r"[,\n]", found[1].strip().strip("[]{}")) if found else []
        names = [re.sub(r"^\s*(-|\d+\s*:)?\s*", "", entry.partition(" #")[0]).strip().strip("\"'") for entry in entries]
        return [name for name in names if name]
    return []


def _coco_target(root: Path, folder: Path, name: str) -> Path:
    """Where the XML goes: `xml/train2017` for `instances_train2017.json` if `train2017/` exists, to keep the split."""
    split = Path(name).stem.rpartition("_")[2]
    is_split = any((root / images / split).is_dir() for images in ("", "images"))
    return root / "xml" / split if is_split else folder / "xml"


def without_command(found: str) -> tuple[str, str]:
    """What a finding says, and its remedy with the command on a line of its own, to be copied ("" if there is none)."""
    says, to_convert, remedy = found.partition(TO_CONVERT)
    asked, _, command = remedy.partition("`")
    return says.removesuffix("; "), f"{to_convert}{asked}type:\n{command.removesuffix('`')}" if command else ""


def _convert(source: Path, target: Path, format_name: str, *options: str) -> str:
    words = [
        "globox",
        "convert",
        str(source),
        str(target),
        "--format",
        format_name,
        *options,
        "--save_fmt",
        "pascalvoc",
    ]
    return shlex.join(words)


def _format_of(path: Path) -> str | None:
    with suppress(OSError, ValueError, RecursionError):
        if path.suffix.lower() == ".txt":
            with path.open(encoding="utf-8") as file:
                return "yolo" if _YOLO_LINE.fullmatch(file.readline(200)) else None
        if path.stat().st_size <= _MOST_JSON_BYTES:
            content = json.loads(path.read_bytes())
            if isinstance(content, dict) and {"images", "annotations", "categories"} <= content.keys():
                return "coco"
            if isinstance(content, dict) and {"shapes", "imagePath"} <= content.keys():
                return "labelme"
    return None
