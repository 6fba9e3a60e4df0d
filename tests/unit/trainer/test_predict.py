"""The detector in original pixels, and `predict`'s sources, pictures and JSON."""

import json
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.errors import ImageError
from tests.unit.trainer.exported import LABELS, SIZE, Exported
from trainer.detections import Detections, to_coco
from trainer.predict import BORDER_GRAY, Detector, fit, place
from trainer.sources import Frame, SeenWriter, frames


@pytest.fixture(scope="module")
def detector(exported: Exported) -> Detector:
    return Detector(exported.forms["int8"])


@pytest.fixture(scope="module")
def model_path(exported: Exported, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "model_int8.tflite"
    path.write_bytes(exported.forms["int8"])
    return path


def picture(height: int, width: int) -> np.ndarray:
    rng = np.random.default_rng(height * width)
    return cv2.resize(rng.integers(0, 255, (6, 8, 3), np.uint8), (width, height), interpolation=cv2.INTER_CUBIC)


def seen(*boxes: tuple[float, float, float, float]) -> Detections:
    count = len(boxes)
    return Detections(
        boxes=np.asarray(boxes, np.float32).reshape(-1, 4),
        class_ids=np.arange(1, count + 1),
        scores=np.linspace(0.9, 0.5, count, dtype=np.float32),
    )


def test_detector_knows_labels_size_and_resize(detector: Detector) -> None:
    assert detector.labels == LABELS
    assert (detector.description.image_size, detector.description.resize) == (SIZE, "letterbox")


def test_picture_of_the_models_size_gives_the_stored_boxes(detector: Detector, exported: Exported) -> None:
    rgb = exported.pictures[0].rgb
    stored, original = detector.detect_stored(rgb), detector.detect(rgb[..., ::-1])
    np.testing.assert_allclose(original.boxes, stored.boxes, atol=1e-4)
    np.testing.assert_array_equal(original.class_ids, stored.class_ids)


def test_boxes_are_in_original_pixels_and_inside_the_picture(detector: Detector) -> None:
    found = detector.detect(picture(240, 400))
    assert found.boxes.shape[0] > 0
    assert found.boxes.min() >= 0
    assert (found.boxes[:, [0, 2]] <= 400).all()
    assert (found.boxes[:, [1, 3]] <= 240).all()
    assert found.boxes[:, 2].max() > 100
    assert set(found.class_ids) <= {1, 2, 3}


def test_any_number_of_threads_sees_the_same(exported: Exported) -> None:
    # With regular NMS, LiteRT's op forgets class 2 under 2 threads (tensorflow#56058).
    one, two, three, four = (Detector(exported.forms["int8"], threads) for threads in (1, 2, 3, 4))
    for picture in exported.pictures:
        expected = one.detect_stored(picture.rgb)
        for detector in (two, three, four):
            np.testing.assert_array_equal(detector.detect_stored(picture.rgb).class_ids, expected.class_ids)
            np.testing.assert_allclose(detector.detect_stored(picture.rgb).boxes, expected.boxes, atol=1e-4)


@given(st.integers(1, 5000), st.integers(1, 5000), st.sampled_from(["stretch", "letterbox"]))
def test_picture_lies_inside_the_square_and_touches_two_sides(width: int, height: int, resize: str) -> None:
    placed = place(width, height, 320, resize)
    assert max(placed.width, placed.height) == 320
    assert 0 <= placed.left <= 320 - placed.width
    assert abs(320 - placed.width - 2 * placed.left) <= 1
    assert abs(320 - placed.height - 2 * placed.top) <= 1


def test_letterbox_borders_are_gray() -> None:
    square = fit(np.zeros((100, 200, 3), np.uint8), 64, "letterbox")
    assert square.shape == (64, 64, 3)
    assert (square[:16] == BORDER_GRAY).all()
    assert (square[16:48] == 0).all()
    assert (square[48:] == BORDER_GRAY).all()


def test_coco_boxes_are_corner_and_size() -> None:
    (record,) = to_coco(seen((10, 20, 40, 80)), 7)
    assert record == {"image_id": 7, "category_id": 1, "bbox": [10, 20, 30, 60], "score": pytest.approx(0.9)}


def test_folder_gives_its_pictures_sorted_and_skips_what_is_none(tmp_path: Path) -> None:
    for name in ("b.png", "a.jpg"):
        cv2.imwrite(str(tmp_path / name), picture(20, 30))
    (tmp_path / "notes.txt").write_text("no picture")
    (tmp_path / "empty.jpg").write_bytes(b"")
    assert [frame.name for frame in frames(str(tmp_path))] == ["a.jpg", "b.png"]


def test_what_is_neither_picture_nor_video_is_named(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match=r"nosuch\.jpg"):
        list(frames("nosuch.jpg"))
    (tmp_path / "notes.txt").write_text("no picture")
    with pytest.raises(ImageError, match=r"notes\.txt"):
        list(frames(str(tmp_path / "notes.txt")))


def test_video_gives_its_frames_up_to_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "clip.avi"
    video = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*"MJPG"), 5, (64, 48))
    for _ in range(5):
        video.write(picture(48, 64))
    video.release()
    assert [frame.name for frame in frames(str(path), 3)] == [f"clip_{index:06d}.jpg" for index in range(3)]
    assert len(list(frames(str(path)))) == 5


def test_written_json_is_coco_and_names_do_not_collide(tmp_path: Path) -> None:
    writer = SeenWriter(labels=LABELS, folder=tmp_path / "seen")
    for name in ("a.jpg", "a.png"):
        writer.add(Frame(name=name, pixels=picture(50, 60), is_moving=False), seen((1, 2, 30, 40), (5, 5, 20, 20)))
    writer.finish()
    coco = json.loads((tmp_path / "seen" / "detections.json").read_text(encoding="utf-8"))
    assert [image["file_name"] for image in coco["images"]] == ["a.jpg", "a.png"]
    assert [row["id"] for row in coco["annotations"]] == [1, 2, 3, 4]
    assert coco["categories"][0] == {"id": 1, "name": "Ähre"}
    assert sorted(path.name for path in (tmp_path / "seen").glob("*.jpg")) == ["a.jpg", "a_2.jpg"]


def test_predict_runs_without_tensorflow(model_path: Path, tmp_path: Path) -> None:
    """In a process where importing TensorFlow, Keras, matplotlib, pycocotools or Celery fails."""
    cv2.imwrite(str(tmp_path / "photo.jpg"), picture(120, 200))
    absent = ["tensorflow", "keras", "matplotlib", "pycocotools", "celery", "fsspec", "jinja2", "redis"]
    block = f"import sys\nsys.modules.update(dict.fromkeys({absent}))\nfrom trainer.__main__ import main\nmain()"
    command = [sys.executable, "-c", block, "predict", str(model_path), str(tmp_path / "photo.jpg"), "--json"]
    done = subprocess.run([*command, "--out", str(tmp_path / "out")], capture_output=True, text=True, check=True)
    coco = json.loads(done.stdout)
    assert coco["images"] == [{"id": 1, "file_name": "photo.jpg", "width": 200, "height": 120}]
    assert coco["annotations"]
    assert min(row["score"] for row in coco["annotations"]) >= 0.4
    drawn = cv2.imread(str(tmp_path / "out" / "photo.jpg"))
    assert drawn is not None
    assert drawn.shape == (120, 200, 3)


def test_predict_without_a_picture_fails(model_path: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "trainer", "predict", str(model_path), str(tmp_path / "none.jpg")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "none.jpg" in done.stderr


def test_command_that_needs_more_than_predict_says_what_to_install(tmp_path: Path) -> None:
    block = "import sys\nsys.modules['fsspec'] = None\nfrom trainer.__main__ import main\nmain()"
    command = [sys.executable, "-c", block, "evaluate", "run", "--store", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert "pip install '.[trainer]'" in done.stderr
