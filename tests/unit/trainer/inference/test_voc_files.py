"""`predict --voc`: one XML a picture, that our own reader and LabelImg's form agree on."""

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import cv2
import numpy as np
import pytest

from shared.annotation.reader import read_annotation
from shared.specs.data import JobSpec
from tests.unit.trainer.exported import LABELS, Exported
from trainer.detections import Detections
from trainer.inference.voc_files import voc_xml


@pytest.fixture
def photos(exported: Exported, tmp_path: Path) -> Path:
    """A folder of pictures that something is seen in, one of nothing among them."""
    folder = tmp_path / "set/JPEGImages"
    folder.mkdir(parents=True)
    for number, picture in enumerate(exported.pictures):
        wide = cv2.resize(picture.rgb[..., ::-1], (300 + number, 200))
        cv2.imwrite(str(folder / f"photo {number} & Äpfel.png"), wide)
    return folder


@pytest.fixture
def model(exported: Exported, tmp_path: Path) -> Path:
    path = tmp_path / "model_int8.tflite"
    path.write_bytes(exported.forms["int8"])
    return path


def predict(model: Path, *words: str | Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "trainer", "predict", str(model), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_our_own_reader_finds_the_same_boxes(model: Path, photos: Path) -> None:
    folder = photos.parent / "Annotations"
    before = {path.name: path.read_bytes() for path in photos.iterdir()}
    done = predict(model, photos, "--voc", folder, "--json", "--threshold", "0.3")
    assert done.returncode == 0, done.stderr
    assert f"{len(before)} XML files are in {folder}" in done.stderr
    coco = json.loads(done.stdout)
    assert coco["annotations"]
    assert {path.stem for path in folder.iterdir()} == {Path(name).stem for name in before}
    for image in coco["images"]:
        xml = (folder / f"{Path(image['file_name']).stem}.xml").read_bytes()
        found = read_annotation(xml, file="x", spec=JobSpec())
        assert (found.findings, found.filename) == ((), image["file_name"])
        assert found.size == (image["width"], image["height"])
        seen = [record for record in coco["annotations"] if record["image_id"] == image["id"]]
        for record in seen:
            x, y, width, height = record["bbox"]
            own = [voc.box for voc in found.objects if voc.name == LABELS[record["category_id"] - 1]]
            assert np.abs(np.array(own) - (x, y, x + width, y + height)).max(axis=1).min() <= 1
        assert len(found.objects) <= len(seen)
        assert all(value == int(value) for voc in found.objects for value in voc.box)
    assert {path.name: path.read_bytes() for path in photos.iterdir()} == before


def test_a_picture_of_nothing_has_an_xml_without_objects(model: Path, photos: Path) -> None:
    folder = photos.parent / "Annotations"
    assert predict(model, photos, "--voc", folder, "--threshold", "1").returncode == 0
    assert {path.stem for path in folder.iterdir()} == {path.stem for path in photos.iterdir()}
    for path in folder.iterdir():
        found = read_annotation(path.read_bytes(), file=path.name, spec=JobSpec())
        assert (found.objects, found.objects_read) == ((), 0)


def test_what_somebody_has_annotated_is_never_overwritten(model: Path, photos: Path) -> None:
    own = photos.parent / "Annotations/mine.xml"
    own.parent.mkdir()
    own.write_text("<annotation/>")
    done = predict(model, photos, "--voc", own.parent)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == (
        f"error: --voc {own.parent}: 1 XML file is there already, as mine.xml; they are never overwritten: name a "
        "new folder"
    )
    assert [path.name for path in own.parent.iterdir()] == ["mine.xml"]
    done = predict(model, photos, "--voc", own)
    assert (done.returncode, "expected a folder, found a file" in done.stderr) == (2, True)


def test_two_pictures_of_one_stem_are_told_apart(model: Path, photos: Path, tmp_path: Path) -> None:
    first = next(photos.iterdir())
    (photos / f"{first.stem}.jpg").write_bytes(first.read_bytes())
    done = predict(model, photos, "--voc", tmp_path / "xml")
    assert done.returncode == 1
    assert f"error: 1 has no XML: {first.stem}.xml is that of " in done.stderr.splitlines()[-1]
    assert len(list((tmp_path / "xml").iterdir())) == len(list(photos.iterdir())) - 1


@pytest.fixture
def clip(exported: Exported, tmp_path: Path) -> Path:
    """Seven frames of pictures that something is seen in."""
    path = tmp_path / "clip.avi"
    video = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*"MJPG"), 5, (160, 120))
    for picture in exported.pictures[:7]:
        video.write(cv2.resize(picture.rgb[..., ::-1], (160, 120)))
    video.release()
    return path


def test_frames_of_a_video_become_pictures_beside_their_xml_that_can_be_submitted(
    model: Path, clip: Path, tmp_path: Path
) -> None:
    folder, out = tmp_path / "frames", tmp_path / "drawn"
    done = predict(model, clip, "--voc", folder, "--out", out, "--every", "3", "--threshold", "0.1", "--json")
    assert done.returncode == 0, done.stderr
    assert f"3 XML files, with 3 pictures of frames are in {folder}" in done.stderr
    assert "each frame" not in done.stderr
    stems = [f"clip_{number:06d}" for number in (0, 3, 6)]
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        f"{stem}{e}" for stem in stems for e in (".jpg", ".xml")
    )
    coco = json.loads(done.stdout)
    assert coco["annotations"]
    whole = cv2.VideoCapture(str(clip))
    frames = [whole.read()[1] for _ in range(7)]
    for image in coco["images"]:
        saved = cv2.imread(str(folder / image["file_name"]))
        assert saved is not None
        distances = [np.abs(saved.astype(int) - frame.astype(int)).mean() for frame in frames]
        assert np.argmin(distances) == int(Path(image["file_name"]).stem[-6:])
        assert min(distances) < 5, "a JPEG of it"
        found = read_annotation(
            (folder / image["file_name"]).with_suffix(".xml").read_bytes(), file="x", spec=JobSpec()
        )
        assert (found.filename, found.size, found.findings) == (image["file_name"], (160, 120), ())
        assert bool(found.objects) == any(record["image_id"] == image["id"] for record in coco["annotations"])
    drawn = cv2.VideoCapture(str(out / "clip.mp4"))
    # As long as the video was.
    assert drawn.get(cv2.CAP_PROP_FRAME_COUNT) / drawn.get(cv2.CAP_PROP_FPS) == pytest.approx(3 / (5 / 3), rel=0.01)


def test_a_frame_replaces_no_picture_and_it_is_said_that_each_is_saved(model: Path, clip: Path, tmp_path: Path) -> None:
    folder = tmp_path / "frames"
    folder.mkdir()
    (folder / "clip_000001.jpg").write_bytes(b"somebody's")
    done = predict(model, clip, "--voc", folder)
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert "clip: each frame becomes a picture; --every 5 takes one a second" in lines
    assert f"6 XML files, with 6 pictures of frames are in {folder}" in lines
    assert lines[-1] == (
        f"error: 1 has no XML: {folder}/clip_000001.jpg is there already, and is never overwritten: name a new folder"
    )
    assert (folder / "clip_000001.jpg").read_bytes() == b"somebody's"
    assert not (folder / "clip_000001.xml").exists()


def test_the_form_is_that_of_labelimg(tmp_path: Path) -> None:
    boxes = np.array([[-3, -2, 10.4, 9.6], [29.8, 19.9, 30, 20]], np.float32)
    seen = Detections(boxes=boxes, class_ids=np.array([1, 2]), scores=np.array([0.98765, 0.5], np.float32))
    root = ElementTree.fromstring(voc_xml(tmp_path / "a<b.jpg", (20, 30, 3), seen, ("R&D", "box")))
    assert [child.tag for child in root] == [
        *("folder", "filename", "path", "source", "size", "segmented", "object", "object")
    ]
    assert root.findtext("path") == str(tmp_path / "a<b.jpg")
    found = root.findall("object")
    assert [child.tag for child in found[0]] == ["name", "pose", "truncated", "difficult", "bndbox", "confidence"]
    assert [each.findtext("name") for each in found] == ["R&D", "box"]
    corners = [[int(corner.text or "") for corner in each.iterfind("bndbox/*")] for each in found]
    assert corners == [[0, 0, 10, 10], [29, 19, 30, 20]]
    assert found[0].findtext("confidence") == "0.9876"
