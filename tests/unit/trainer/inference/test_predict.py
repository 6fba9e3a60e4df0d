"""`predict` as a person runs it."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest

from shared.errors import ImageError
from tests.unit.trainer.exported import Exported
from tests.unit.trainer.inference.made import clip, picture
from trainer.inference.detector import Detector
from trainer.inference.sources import frames
from trainer.tflite.metadata import with_best_score


@pytest.fixture(scope="module")
def model_path(exported: Exported, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "model_int8.tflite"
    path.write_bytes(exported.forms["int8"])
    return path


def predicted(*words: object, code: int = 0) -> "subprocess.CompletedProcess[str]":
    """`predict` as a person calls it, on a machine without a desktop."""
    where = {name: value for name, value in os.environ.items() if name not in ("DISPLAY", "WAYLAND_DISPLAY")}
    command = [sys.executable, "-m", "trainer", "predict", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=where)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def cut(path: Path, less: int) -> Path:
    path.write_bytes(cv2.imencode(".jpg", picture(120, 200))[1].tobytes()[:-less])
    return path


def test_predict_says_which_folder_a_picture_is_of_and_what_is_drawn_under_another_name(
    model_path: Path, tmp_path: Path
) -> None:
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        folder.mkdir()
        cv2.imwrite(str(folder / "a.jpg"), picture(20, 30))
    done = predicted(model_path, *folders, "--out", tmp_path / "seen")
    assert [line.split(": ")[0] for line in done.stdout.splitlines()] == [f"{folder}/a.jpg" for folder in folders]
    said = f"drawn under another name, as theirs was taken: {folders[1]}/a.jpg as a_2.jpg"
    assert done.stderr.splitlines()[-1] == said
    alone = predicted(model_path, folders[0])
    assert alone.stdout.startswith("a.jpg: ")


def test_predict_runs_without_tensorflow(model_path: Path, tmp_path: Path) -> None:
    """In a process where importing TensorFlow, Keras, matplotlib, pycocotools or Celery fails."""
    cv2.imwrite(str(tmp_path / "photo.jpg"), picture(120, 200))
    absent = ["tensorflow", "keras", "matplotlib", "pycocotools", "celery", "obstore", "jinja2", "redis"]
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
    block = "import sys\nsys.modules['obstore'] = None\nfrom trainer.__main__ import main\nmain()"
    command = [sys.executable, "-c", block, "evaluate", "run", "--store", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert "pip install '.[trainer]'" in done.stderr


def test_each_picture_of_a_folder_is_looked_at_or_told(model_path: Path, tmp_path: Path) -> None:
    folder = tmp_path / "photos"
    folder.mkdir()
    cut(folder / "short.jpg", 3)
    (folder / "broken.jpg").write_bytes(b"\xff\xd8\xff\xe0 \0\0 damaged")
    (folder / "page.png").write_text("<html>not found</html>")
    (folder / "broken.heic").write_bytes(b"\0\0\0\x18ftypheic" + b"\0" * 50)
    (folder / "boxes.xml").write_text("<annotation/>")
    pillow_heif = pytest.importorskip("pillow_heif")
    pillow_heif.from_bytes("RGB", (200, 120), picture(120, 200).tobytes()).save(folder / "whole.heic")
    done = predicted(model_path, folder, "--threshold", 0.5, "--out", tmp_path / "seen")
    assert [line.split(":")[0] for line in done.stdout.splitlines()] == ["short.jpg", "whole.heic"]
    assert done.stderr.splitlines() == [
        f"skipped {folder}/broken.heic: truncated or damaged HEIC",
        f"skipped {folder}/broken.jpg: damaged, or no jpeg: it cannot be decoded",
        f"skipped {folder}/page.png: text ('<html>not found</html>'); expected a picture, a folder or a video",
        f"{folder}/short.jpg: cut short: 99 % of its rows can be decoded, and are looked at",
        f"the drawn pictures and detections.json are in {tmp_path / 'seen'}",
    ]


def test_predict_draws_over_its_own_pictures_only(model_path: Path, tmp_path: Path) -> None:
    photo, others, seen = tmp_path / "a.jpg", tmp_path / "others", tmp_path / "seen"
    photo.write_bytes(cv2.imencode(".jpg", picture(120, 200))[1].tobytes())
    others.mkdir()
    (others / "a.jpg").write_bytes(b"somebody's")
    refused = predicted(model_path, photo, "--out", others, code=2)
    assert f"{others}/a.jpg lies there, and what is drawn could replace it" in refused.stderr
    assert [(path.name, path.read_bytes()) for path in others.iterdir()] == [("a.jpg", b"somebody's")]
    for _ in range(2):
        predicted(model_path, photo, "--out", seen)
    assert sorted(path.name for path in seen.iterdir()) == ["a.jpg", "detections.json"]


@pytest.mark.parametrize("extension", [".jpg", ".png"])
def test_a_picture_cut_short_is_looked_at_where_training_keeps_it(
    model_path: Path, tmp_path: Path, extension: str
) -> None:
    content = cv2.imencode(extension, picture(120, 200))[1].tobytes()
    nearly, half = tmp_path / f"nearly{extension}", tmp_path / f"half{extension}"
    nearly.write_bytes(content[:-5])
    half.write_bytes(content[: len(content) // 2])
    done = predicted(model_path, nearly, half, "--threshold", 0.5, code=1)
    assert [line.split(":")[0] for line in done.stdout.splitlines()] == [nearly.name]
    remark, refusal, _ = done.stderr.splitlines()
    assert re.fullmatch(
        rf"{nearly}: cut short: (99(\.\d)?|100) % of its rows can be decoded, and are looked at", remark
    )
    assert re.fullmatch(
        rf"error: {half}: cut short: [45]\d(\.\d)? % of its rows can be decoded, at least 99 % are needed; copy it "
        "anew",
        refusal,
    )


def test_a_picture_that_ends_too_early_is_no_video(model_path: Path, tmp_path: Path) -> None:
    done = predicted(model_path, cut(tmp_path / "IMG_0007.jpg", 3), "--out", tmp_path / "seen")
    assert done.stdout.startswith("IMG_0007.jpg: ")
    assert sorted(path.name for path in (tmp_path / "seen").iterdir()) == ["IMG_0007.jpg", "detections.json"]


def test_one_bad_file_of_several_does_not_end_the_rest(model_path: Path, tmp_path: Path) -> None:
    cv2.imwrite(str(tmp_path / "a.jpg"), picture(120, 200))
    (tmp_path / "notes.txt").write_text("call Ann\n")
    words = (model_path, tmp_path / "notes.txt", tmp_path / "none.jpg", tmp_path / "a.jpg", "--threshold", 0.5)
    done = predicted(*words, code=1)
    assert done.stdout.startswith("a.jpg: ")
    assert done.stderr.splitlines() == [
        f"error: {tmp_path}/notes.txt: text ('call Ann'); expected a picture, a folder or a video",
        f"error: {tmp_path}/none.jpg: no such picture, folder, video or camera",
        f"error: 2 of 3 could not be looked at: {tmp_path}/notes.txt, {tmp_path}/none.jpg",
    ]


def test_a_video_becomes_a_video_of_its_length_and_speed_with_boxes(model_path: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    clips = [clip(tmp_path / "clip.avi"), clip(tmp_path / "other/clip.avi", 3)]
    done = predicted(model_path, *clips, "--out", tmp_path / "seen")
    lines = done.stdout.splitlines()
    assert (len(lines), lines[0].split(":")[0], lines[-1].split(":")[0]) == (
        10,
        f"{tmp_path}/clip.avi, frame 1",
        f"{tmp_path}/other/clip.avi, frame 3",
    )
    assert sorted(path.name for path in (tmp_path / "seen").iterdir()) == ["clip.mp4", "clip_2.mp4", "detections.json"]
    capture = cv2.VideoCapture(str(tmp_path / "seen/clip.mp4"))
    assert capture.get(cv2.CAP_PROP_FPS) == pytest.approx(12.5)
    shown = [pixels for is_read, pixels in (capture.read() for _ in range(8)) if is_read]
    assert (len(shown), shown[0].shape) == (7, (48, 64, 3))
    assert np.abs(shown[0].astype(int) - picture(48, 64)).max() > 60, "no box is drawn"
    coco = json.loads((tmp_path / "seen/detections.json").read_text(encoding="utf-8"))
    assert [image["file_name"] for image in coco["images"]][-1] == "other/clip_000002.jpg"


@pytest.mark.skipif(Path("/dev/video63").exists(), reason="there is such a camera")
def test_an_absent_camera_is_one_line(model_path: Path) -> None:
    (said,) = predicted(model_path, 63, "--threshold", 0.5, code=1).stderr.splitlines()
    assert said.startswith("error: camera 63: it cannot be opened; ")
    assert "plug one in, or name a picture, a folder or a video" in said


def test_a_video_that_is_none_is_one_line(model_path: Path, tmp_path: Path) -> None:
    (tmp_path / "broken.mp4").write_bytes(b"\0\0\0\x18ftypmp42" + b"no video" * 50)
    (said,) = predicted(model_path, tmp_path / "broken.mp4", "--threshold", 0.5, code=1).stderr.splitlines()
    assert said.endswith("broken.mp4: neither a picture nor a video that OpenCV reads")


def test_a_video_without_a_frame_and_a_url_are_named_also_among_others(tmp_path: Path) -> None:
    path = tmp_path / "empty.avi"
    cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*"MJPG"), 5, (64, 48)).release()
    with pytest.raises(ImageError, match=r"empty\.avi: a video without a frame that OpenCV reads"):
        list(frames(str(path)))
    with pytest.raises(ImageError, match="s3://bucket/photos: expected a picture, a folder, a video or a camera here"):
        list(frames("s3://bucket/photos"))


def test_a_window_without_a_desktop_is_one_line_that_says_what_to_do(model_path: Path, tmp_path: Path) -> None:
    cv2.imwrite(str(tmp_path / "photo.jpg"), picture(120, 200))
    (said,) = predicted(model_path, tmp_path / "photo.jpg", "--show", code=1).stderr.splitlines()
    assert said.startswith("error: --show: ")
    assert said.endswith("--out FOLDER writes what would be shown")


def test_the_models_own_threshold_is_the_default(exported: Exported, model_path: Path, tmp_path: Path) -> None:
    cv2.imwrite(str(tmp_path / "photo.png"), exported.pictures[0].rgb[..., ::-1])
    scores = Detector(exported.forms["int8"]).detect_stored(exported.pictures[0].rgb).scores
    for best in (0.05, round(float(np.median(scores)), 2)):
        scored = tmp_path / "scored.tflite"
        scored.write_bytes(with_best_score(exported.forms["int8"], best))
        done = predicted(scored, tmp_path / "photo.png", "--json")
        assert len(json.loads(done.stdout)["annotations"]) == np.count_nonzero(scores >= np.float32(best))
        assert f"scores of at least {best:.2f}, the model's best threshold" in done.stderr
        own = predicted(scored, tmp_path / "photo.png", "--json", "--threshold", 1)
        assert json.loads(own.stdout)["annotations"] == []
        assert "best threshold" not in own.stderr
