"""`lint --pixels`: what names and XML say, then what workers find in the pictures."""

import csv
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import cv2

from tests.cluster import Cluster


def test_pictures_are_opened_by_workers_and_the_folder_is_read_once(
    cluster: Cluster, copied_voc: Callable[[], Path]
) -> None:
    folder = copied_voc()
    damaged = sorted(folder.rglob("*.jpg"))[3]
    damaged.write_bytes(damaged.read_bytes()[:200])
    cluster.data_root = folder.parent
    cluster.worker()
    ended = cluster.producer("lint", str(folder), "--pixels", "--json", "--csv", str(folder.parent / "lint.csv"))
    found = {entry["kind"]: entry for entry in json.loads(ended.stdout)["findings"]}
    assert found["image_unreadable"]["first"]["file"] == damaged.relative_to(folder).as_posix()
    assert damaged.name in (folder.parent / "lint.csv").read_text()
    said = ended.stderr.splitlines()
    assert [line for line in said if line.startswith("scanning: ") and "/" in line] == ["scanning: 83/83"]
    assert [line for line in said if line.startswith("reading: ")] == ["reading: 40/40"]
    assert not list((cluster.store / "jobs").iterdir())  # the dry job is gone


def _found(cluster: Cluster, folder: Path, *options: str) -> dict[str, list[dict[str, str]]]:
    """Kind -> rows of `--csv`, of `lint --pixels` by a worker of the cluster."""
    target = folder.parent / "lint.csv"
    cluster.producer("lint", str(folder), "--pixels", "--csv", str(target), *options)
    rows: dict[str, list[dict[str, str]]] = {}
    with target.open(newline="") as file:
        for row in csv.DictReader(file):
            rows.setdefault(row["kind"], []).append(row)
    return rows


def test_a_photo_cut_by_a_few_bytes_is_kept_and_one_cut_in_half_is_not(
    cluster: Cluster, copied_voc: Callable[[], Path]
) -> None:
    folder = copied_voc()
    few, half, *_ = sorted(folder.rglob("*.jpg"))
    few.write_bytes(few.read_bytes()[:-20])
    half.write_bytes(half.read_bytes()[: half.stat().st_size // 2])
    cluster.data_root = folder.parent
    cluster.worker()
    kept, dropped = _found(cluster, folder), _found(cluster, folder, "--damaged", "drop")
    [row] = kept["image_cut_short"]
    assert row["file"] == few.relative_to(folder).as_posix()
    assert re.fullmatch(r"cut short: 99(\.\d)? % of its rows can be decoded", row["found"])
    assert [Path(row["file"]).name for row in kept["image_unreadable"]] == [half.name]
    assert "image_cut_short" not in dropped
    assert [Path(row["file"]).name for row in dropped["image_unreadable"]] == [few.name, half.name]


def test_a_photo_that_loses_its_only_box_to_clipping_counts_as_one_without_objects(
    cluster: Cluster, copied_voc: Callable[[], Path]
) -> None:
    folder = copied_voc()
    xml, outside = sorted(folder.rglob("*.xml"))[0], "<xmin>900</xmin><ymin>900</ymin><xmax>950</xmax><ymax>950</ymax>"
    box = f"<object><name>circle</name><bndbox>{outside}</bndbox></object>"
    xml.write_text(re.sub(r"<object>.*</object>", box, xml.read_text(), flags=re.DOTALL))
    cluster.data_root = folder.parent
    cluster.worker()
    told, opened = (
        json.loads(cluster.producer("lint", str(folder), "--json", *options).stdout) for options in ((), ("--pixels",))
    )
    assert (told["counts"]["emptied"], opened["counts"]["emptied"]) == (1, 0)
    assert opened["counts"]["background"] == told["counts"]["background"] + 1
    assert opened["class_counts"]["circle"] == told["class_counts"]["circle"] - 1
    assert "1 with no box inside the picture" in told["summary"]
    ended = cluster.producer("submit", str(folder), "--job", "job", "--no-train")
    assert "1 photo with no box inside the picture" in ended.stderr


def test_a_photo_saved_again_into_another_split_is_named(cluster: Cluster, copied_voc: Callable[[], Path]) -> None:
    voc = copied_voc()
    folder = voc.parent / "by-split"
    for split, names in {"train": slice(0, 20), "valid": slice(20, 30), "test": slice(30, 40)}.items():
        for image in sorted(voc.rglob("*.jpg"))[names]:
            (folder / split).mkdir(parents=True, exist_ok=True)
            shutil.copy(image, folder / split)
            shutil.copy(voc / "Annotations" / f"{image.stem}.xml", folder / split)
    first = sorted((folder / "train").glob("*.jpg"))[0]
    pixels = cv2.imread(str(first))
    assert pixels is not None
    cv2.imwrite(
        str(folder / "test/again.jpg"), cv2.resize(pixels, None, fx=0.7, fy=0.7), [cv2.IMWRITE_JPEG_QUALITY, 60]
    )
    shutil.copy(first.with_suffix(".xml"), folder / "test/again.xml")
    cluster.data_root = folder.parent
    cluster.worker()
    [row] = _found(cluster, folder)["near_duplicate_across_splits"]
    assert row["file"] == "test/again.jpg"
    assert row["found"] == f"in test, nearly the same picture as train/{first.name} in train"
