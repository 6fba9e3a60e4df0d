"""A folder labelled in another format names the command of a converter.

The commands themselves were run with globox 2.9.0 (docs/decisions/0069).
"""

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.producer.folders import write

YOLO = "0 0.5 0.5 0.25 0.5\n1 0.2 0.2 0.1 0.1\n"
COCO = json.dumps({"images": [], "annotations": [], "categories": []})
LABELME = json.dumps({"version": "5.0", "shapes": [], "imagePath": "a.jpg"})


def told(folder: Path, command: str) -> str:
    words = [sys.executable, "-m", "producer", command, str(folder), "--store", str(folder.parent / "out")]
    ended = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == 1
    return ended.stdout + ended.stderr


ULTRALYTICS = "train: images/train\nval: images/val\nnames:\n  0: red cat\n  1: dog  # brown\n"
ROBOFLOW = "train: ../train/images\nnc: 2\nnames: ['red cat', dog]\n"
NAMES = "printf '%s\\n' 'red cat' dog > {0}/classes.names"
# `source target --format …`, with {0} for the folder.
YOLO_OF = "globox convert {0}/%s {0}/%s --format yolov5 --img_folder {0}/%s --mapping {0}/%s --save_fmt pascalvoc"
COCO_OF = "globox convert {0}/%s {0}/%s --format coco --save_fmt pascalvoc"


@pytest.mark.parametrize("command", ["lint", "submit"])
@pytest.mark.parametrize(
    ("files", "commands"),
    [
        (
            {"images/a.jpg": "", "labels/a.txt": YOLO, "classes.txt": "cat\ndog\n"},
            [YOLO_OF % ("labels", "xml", "images", "classes.txt")],
        ),
        (
            {"images/a.jpg": "", "labels/a.txt": YOLO, "labels/classes.txt": "cat\ndog\n"},
            [
                "mv {0}/labels/classes.txt {0}/labels/classes.names",
                YOLO_OF % ("labels", "xml", "images", "labels/classes.names"),
            ],
        ),
        (
            {f"{half}.{end}": text for half in "ab" for end, text in (("jpg", ""), ("txt", YOLO))}
            | {"classes.txt": "cat\ndog\n"},
            [
                "mv {0}/classes.txt {0}/classes.names",
                "globox convert {0} {0}/xml --format yolov5 --img_folder {0} --mapping {0}/classes.names "
                "--save_fmt pascalvoc",
            ],
        ),
        (
            {"images/a.jpg": "", "labels/z.txt": YOLO, "classes.txt": "cat\ndog\n"}
            | {f"labels/a{empty}.txt": "" for empty in range(20)}
            | {"labels/README.txt": "Exported on Monday.\n"},
            [
                "mv {0}/labels/README.txt {0}/labels/README.txt.other",
                YOLO_OF % ("labels", "xml", "images", "classes.txt"),
            ],
        ),
        (
            {f"images/{split}/{split}.jpg": "" for split in ("train", "val")}
            | {f"labels/{split}/{split}.txt": YOLO for split in ("train", "val")}
            | {"data.yaml": ULTRALYTICS},
            [
                NAMES,
                "mkdir -p {0}/xml",
                YOLO_OF % ("labels/train", "xml/train", "images/train", "classes.names"),
                YOLO_OF % ("labels/val", "xml/val", "images/val", "classes.names"),
            ],
        ),
        (
            {f"{split}/images/{split}.jpg": "" for split in ("train", "valid")}
            | {f"{split}/labels/{split}.txt": YOLO for split in ("train", "valid")}
            | {"data.yaml": ROBOFLOW},
            [
                NAMES,
                YOLO_OF % ("train/labels", "train/xml", "train/images", "classes.names"),
                YOLO_OF % ("valid/labels", "valid/xml", "valid/images", "classes.names"),
            ],
        ),
        (
            {f"{split}/{split}.jpg": "" for split in ("train2017", "val2017")}
            | {f"annotations/instances_{split}.json": COCO for split in ("train2017", "val2017")},
            [
                "mkdir -p {0}/xml",
                COCO_OF % ("annotations/instances_train2017.json", "xml/train2017"),
                COCO_OF % ("annotations/instances_val2017.json", "xml/val2017"),
            ],
        ),
        ({"a.jpg": "", "train.json": COCO}, [COCO_OF % ("train.json", "xml")]),
        (
            {"a.jpg": "", "a.json": LABELME, "b.json": LABELME},
            ["globox convert {0} {0}/xml --format labelme --save_fmt pascalvoc"],
        ),
    ],
    ids=["yolo", "classes-beside", "flat", "other-texts", "ultralytics", "roboflow", "coco-splits", "coco", "labelme"],
)
def test_the_converter_is_a_line_of_its_own_told_once(
    tmp_path: Path, command: str, files: dict[str, str], commands: list[str]
) -> None:
    folder = tmp_path / "set"
    for path, content in files.items():
        write(folder, path, content)
    wanted = " && ".join(["pip install globox", *commands]).replace("{0}", str(folder))
    text = told(folder, command)
    assert wanted in text.splitlines()
    assert text.count("pip install globox") == 1


def test_missing_class_names_are_asked_for_once_in_one_file(tmp_path: Path) -> None:
    folder = tmp_path / "my set"
    for split in ("train", "valid"):
        write(folder, f"{split}/images/{split}.jpg")
        write(folder, f"{split}/labels/{split}.txt", YOLO)
    text = told(folder, "submit")
    assert text.count("globox convert") == 2
    assert text.count("write the class names into") == 1
    assert f"write the class names into {folder}/classes.names, one a line in their order" in text
    assert text.count(f"--mapping {shlex.quote(f'{folder}/classes.names')}") == 2


def test_files_of_no_known_format_name_no_converter(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    write(folder, "a.jpg")
    write(folder, "read me.txt", "These photos are mine.")
    write(folder, "deep.json", "[" * 100_000)
    assert "globox" not in told(folder, "submit")
