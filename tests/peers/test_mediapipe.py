"""MediaPipe Tasks, in an environment of its own, loads every form and sees what our detector sees.

`VOC_PEERS_MEDIAPIPE_ENV` names an environment that has mediapipe (else one is made); `VOC_RUN` a folder `runs/<run>` of
a trained model, for the tests on photographs of the folder `VOC_BCCD` (default `../shared/data/bccd`).
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from tests.peers.environment import python_with
from tests.unit.trainer.exported import Exported, make_exported
from trainer.detections import Detections, iou_matrix
from trainer.evaluation.coco_map import average_precision
from trainer.inference.detector import Detector, fit
from trainer.tflite.convert import FORMS

pytestmark = [pytest.mark.peers, pytest.mark.timeout(1800)]

SCORE_STEP = 0.005
SCRIPT = Path(__file__).with_name("mediapipe_detect.py")
BCCD = Path(os.environ.get("VOC_BCCD", "../shared/data/bccd"))


@pytest.fixture(scope="session")
def mediapipe_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mediapipe")
    return python_with(["mediapipe>=1.2,<1.3"], variable="VOC_PEERS_MEDIAPIPE_ENV", folder=folder)


@pytest.fixture(scope="session", params=["conv", "efficientnet_lite0"])
def exported(request: pytest.FixtureRequest) -> Exported:
    return make_exported(request.param)


@pytest.fixture(scope="session")
def run_folder() -> Path:
    named = os.environ.get("VOC_RUN")
    if not named or not BCCD.is_dir():
        pytest.skip("needs VOC_RUN, a trained run, and the BCCD pictures")
    return Path(named)


def seen_by_mediapipe(python: Path, model: Path, pictures: list[Path], labels: tuple[str, ...]) -> list[Detections]:
    done = subprocess.run(
        [python, SCRIPT, model, *pictures], stdout=subprocess.PIPE, check=True, env={"PATH": os.environ["PATH"]}
    )
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    found = []
    for image_id in range(len(pictures)):
        own = sorted((row for row in rows if row["image_id"] == image_id), key=lambda row: -row["score"])
        corners = [[x, y, x + w, y + h] for x, y, w, h in (row["bbox"] for row in own)]
        found.append(
            Detections(
                boxes=np.asarray(corners, np.float32).reshape(-1, 4),
                class_ids=np.asarray([labels.index(row["label"]) + 1 for row in own], np.int64),
                scores=np.asarray([row["score"] for row in own], np.float32),
            )
        )
    return found


def write(folder: Path, pictures: list[NDArray[np.uint8]]) -> list[Path]:
    paths = [folder / f"{index:04d}.png" for index in range(len(pictures))]
    for path, picture in zip(paths, pictures, strict=True):
        cv2.imwrite(str(path), picture)
    return paths


def matched(first: Detections, second: Detections, score: float, iou: float) -> tuple[int, int]:
    """How many of `first` above `score` have a partner of the same label in `second`, and how many there are."""
    first = first.above(score)
    near = (iou_matrix(first.boxes, second.boxes) >= iou) & (first.class_ids[:, None] == second.class_ids[None])
    return int(near.any(axis=1).sum()), int(first.scores.size)


def assert_same(theirs: Detections, ours: Detections) -> None:
    """The same labels, scores and, within a pixel, boxes: MediaPipe gives whole pixels. Equal scores in any order.

    A score may differ by one step of int8 (1/256): MediaPipe carries its own build of the kernels.
    """
    assert theirs.scores.size == ours.scores.size
    np.testing.assert_allclose(theirs.scores, ours.scores, atol=SCORE_STEP)
    near = np.abs(_corner_and_size(theirs)[:, None] - _corner_and_size(ours)[None]).max(axis=2) <= 1.01
    near &= theirs.class_ids[:, None] == ours.class_ids[None]
    near &= np.abs(theirs.scores[:, None] - ours.scores[None]) <= SCORE_STEP
    assert near.any(axis=0).all()
    assert near.any(axis=1).all()


def _corner_and_size(seen: Detections) -> NDArray[np.float32]:
    """(x, y, width, height): what MediaPipe rounds; the far corner is the sum of two roundings."""
    return np.concatenate([seen.boxes[:, :2], seen.boxes[:, 2:] - seen.boxes[:, :2]], axis=1)


@pytest.mark.parametrize("form", FORMS)
def test_pictures_of_the_models_size_give_the_same_boxes(
    form: str, exported: Exported, mediapipe_python: Path, tmp_path: Path
) -> None:
    model = tmp_path / f"model_{form}.tflite"
    model.write_bytes(exported.forms[form])
    pictures = [picture.rgb[..., ::-1].copy() for picture in exported.pictures]
    detector = Detector(model)
    theirs = seen_by_mediapipe(mediapipe_python, model, write(tmp_path, pictures), detector.labels)
    for picture, their in zip(pictures, theirs, strict=True):
        ours = detector.detect(picture)
        assert_same(their, ours)


@pytest.mark.parametrize("form", ["int8", "float32"])
def test_trained_model_sees_the_same_on_pictures_of_its_size(
    form: str, run_folder: Path, mediapipe_python: Path, tmp_path: Path
) -> None:
    model = run_folder / f"model_{form}.tflite"
    detector = Detector(model)
    size = detector.description.image_size
    photos = [fit(photo, size, "stretch") for _, photo in bccd_photos(24)]
    theirs = seen_by_mediapipe(mediapipe_python, model, write(tmp_path, photos), detector.labels)
    for photo, their in zip(photos, theirs, strict=True):
        assert_same(their, detector.detect(photo))


def test_non_square_photos_give_the_same_labels_and_boxes(run_folder: Path, mediapipe_python: Path) -> None:
    model = run_folder / "model_int8.tflite"
    detector = Detector(model)
    photos = bccd_photos(40)
    theirs = seen_by_mediapipe(mediapipe_python, model, [path for path, _ in photos], detector.labels)
    counts = np.zeros(2, np.int64)
    for (_, photo), their in zip(photos, theirs, strict=True):
        counts += matched(detector.detect(photo), their, 0.4, 0.9)
    sys.stdout.write(f"of {counts[1]} detections above 0.4, {counts[0]} have the same label and IoU >= 0.9\n")
    # Its resize is bilinear, ours averages: the pixels differ, and a few boxes at the edge of a decision with them.
    assert counts[0] / counts[1] > 0.95, counts


def test_map50_on_non_square_photos_is_within_a_point(run_folder: Path, mediapipe_python: Path) -> None:
    model = run_folder / "model_int8.tflite"
    detector = Detector(model)
    photos = bccd_photos(None)
    theirs = seen_by_mediapipe(mediapipe_python, model, [path for path, _ in photos], detector.labels)
    ours = [detector.detect(photo) for _, photo in photos]
    points = [100 * map50_on_bccd(seen, photos, detector.labels) for seen in (ours, theirs)]
    sys.stdout.write(f"mAP50 on BCCD's test photos, 640x480: ours {points[0]:.2f}, MediaPipe {points[1]:.2f}\n")
    assert abs(points[0] - points[1]) <= 1


def bccd_photos(count: int | None) -> list[tuple[Path, NDArray[np.uint8]]]:
    names = (BCCD / "ImageSets" / "Main" / "test.txt").read_text().split()[:count]
    paths = [BCCD / "JPEGImages" / f"{name}.jpg" for name in names]
    photos = [cv2.imread(str(path)) for path in paths]
    return [(path, photo.astype(np.uint8)) for path, photo in zip(paths, photos, strict=True) if photo is not None]


def map50_on_bccd(
    seen: list[Detections], photos: list[tuple[Path, NDArray[np.uint8]]], labels: tuple[str, ...]
) -> float:
    """Against the annotations in original pixels."""
    from shared.annotation.reader import read_annotation
    from shared.specs.data import JobSpec

    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    for image_id, (path, photo) in enumerate(photos, start=1):
        height, width = photo.shape[:2]
        # One side for both axes: detections and truth are compared in the same stretched pixels.
        images.append({"id": image_id, "width": 1000, "height": 1000})
        xml = (BCCD / "Annotations" / f"{path.stem}.xml").read_bytes()
        for voc_object in read_annotation(xml, file=path.stem, spec=JobSpec()).objects:
            xmin, ymin, xmax, ymax = voc_object.box
            x, y = xmin * 1000 / width, ymin * 1000 / height
            w, h = (xmax - xmin) * 1000 / width, (ymax - ymin) * 1000 / height
            row = {"id": len(annotations) + 1, "image_id": image_id, "category_id": labels.index(voc_object.name) + 1}
            annotations.append(row | {"bbox": [x, y, w, h], "area": w * h, "iscrowd": 0, "ignore": 0})
    categories = [{"id": index, "name": name} for index, name in enumerate(labels, start=1)]
    truth = {"images": images, "annotations": annotations, "categories": categories}
    found_by_id = {}
    for image_id, (found, (_, photo)) in enumerate(zip(seen, photos, strict=True), start=1):
        height, width = photo.shape[:2]
        scale = np.asarray([1000 / width, 1000 / height] * 2, np.float32)
        found_by_id[image_id] = Detections(boxes=found.boxes * scale, class_ids=found.class_ids, scores=found.scores)
    return average_precision(truth, found_by_id).map50
