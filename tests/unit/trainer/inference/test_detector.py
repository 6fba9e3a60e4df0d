"""The detector in original pixels, and `predict`'s sources, pictures and JSON."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image

from shared.errors import ImageError
from shared.placement import PADDING_GRAY
from tests.unit.trainer.exported import LABELS, SIZE, Exported
from trainer.detections import Detections, to_coco
from trainer.inference.detector import Detector, fit
from trainer.inference.outputs import DetectionWriter
from trainer.inference.sources import Frame, frames
from trainer.tflite.metadata import with_best_score


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


def test_letterbox_borders_are_gray() -> None:
    square = fit(np.zeros((100, 200, 3), np.uint8), 64, "letterbox")
    assert square.shape == (64, 64, 3)
    assert (square[:16] == PADDING_GRAY).all()
    assert (square[16:48] == 0).all()
    assert (square[48:] == PADDING_GRAY).all()


def test_coco_boxes_are_corner_and_size() -> None:
    (record,) = to_coco(seen((10, 20, 40, 80)), 7)
    assert record == {"image_id": 7, "category_id": 1, "bbox": [10, 20, 30, 60], "score": pytest.approx(0.9)}


def test_folder_gives_its_pictures_sorted_and_skips_what_is_none(tmp_path: Path) -> None:
    for name in ("b.png", "a.jpg"):
        cv2.imwrite(str(tmp_path / name), picture(20, 30))
    (tmp_path / "notes.txt").write_text("no picture")
    (tmp_path / "empty.jpg").write_bytes(b"")
    assert [frame.name for frame in frames(str(tmp_path))] == ["a.jpg", "b.png"]


def test_a_folder_of_folders_says_that_they_are_to_be_named(tmp_path: Path) -> None:
    (tmp_path / "day1").mkdir()
    cv2.imwrite(str(tmp_path / "day1/a.jpg"), picture(20, 30))
    told: list[str] = []
    assert list(frames(str(tmp_path), tell=told.append)) == []
    (line,) = told
    assert line == (
        f"{tmp_path}: no picture directly in it; not looked at: 1 folder ({tmp_path}/day1); a folder or video is "
        "looked at where it is named itself"
    )


def test_what_lies_beside_pictures_and_is_not_looked_at_is_told_in_one_line(tmp_path: Path) -> None:
    cv2.imwrite(str(tmp_path / "a.jpg"), picture(20, 30))
    told: list[str] = []
    (tmp_path / ".cache").mkdir()
    (tmp_path / "whole.jpg").symlink_to(tmp_path / "a.jpg")
    assert [frame.name for frame in frames(str(tmp_path), tell=told.append)] == ["a.jpg", "whole.jpg"]
    assert told == [], "nothing is left out"
    (tmp_path / "gone.jpg").symlink_to("nowhere")
    list(frames(str(tmp_path), tell=told.append))
    assert told == [f"{tmp_path}: not looked at: 1 broken link ({tmp_path}/gone.jpg)"]
    for name in ("day1", "day2"):
        (tmp_path / name).mkdir()
    clip(tmp_path / "clip.avi", 1)
    list(frames(str(tmp_path), tell=told.append))
    assert told[1:] == [
        f"{tmp_path}: not looked at: 2 folders ({tmp_path}/day1 …), 1 video ({tmp_path}/clip.avi), 1 broken link "
        f"({tmp_path}/gone.jpg); a folder or video is looked at where it is named itself"
    ]


@pytest.mark.parametrize("extension", [".png", ".webp", ".tiff"])
def test_what_is_transparent_lies_on_white_as_in_the_shards(tmp_path: Path, extension: str) -> None:
    path = tmp_path / f"logo{extension}"
    cut_out = np.zeros((40, 60, 4), np.uint8)
    cut_out[10:20, 30:50] = (10, 20, 200, 255)
    path.write_bytes(cv2.imencode(extension, cut_out, [cv2.IMWRITE_WEBP_QUALITY, 101])[1].tobytes())
    (frame,) = frames(str(path))
    assert frame.pixels.shape == (40, 60, 3)
    assert frame.pixels[0, 0].tolist() == [255, 255, 255]
    assert frame.pixels[15, 40].tolist() == [10, 20, 200]


@pytest.mark.parametrize("file_format", ["PNG", "WEBP", "TIFF"])
def test_a_transparent_picture_that_lies_on_its_side_is_turned(tmp_path: Path, file_format: str) -> None:
    pixels = np.zeros((40, 60, 4), np.uint8)
    pixels[:10, :20] = (10, 20, 200, 255)  # at the top left of what is stored: at the top right when it is upright
    stored = Image.fromarray(pixels)
    exif = stored.getexif()
    exif[0x112] = 6
    stored.save(tmp_path / "logo", file_format, exif=exif, lossless=True)
    (frame,) = frames(str(tmp_path / "logo"))
    assert frame.pixels.shape == (60, 40, 3)
    assert frame.pixels[5, 35].tolist() == [200, 20, 10]
    assert frame.pixels[5, 5].tolist() == frame.pixels[55, 35].tolist() == [255, 255, 255]


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
    writer = DetectionWriter(labels=LABELS, folder=tmp_path / "seen")
    for name in ("a.jpg", "a.png"):
        frame = Frame(name=name, pixels=picture(50, 60))
        writer.add(frame, seen((1, 2, 30, 40), (5, 5, 20, 20)), frame.pixels)
    writer.finish()
    coco = json.loads((tmp_path / "seen" / "detections.json").read_text(encoding="utf-8"))
    assert [image["file_name"] for image in coco["images"]] == ["a.jpg", "a.png"]
    assert [row["id"] for row in coco["annotations"]] == [1, 2, 3, 4]
    assert coco["categories"][0] == {"id": 1, "name": "Ähre"}
    assert sorted(path.name for path in (tmp_path / "seen").glob("*.jpg")) == ["a.jpg", "a_2.jpg"]


def named(sources: list[Path], out: Path) -> list[str]:
    """What the pictures of some sources are called in COCO form."""
    writer = DetectionWriter(labels=LABELS, folder=out)
    for frame in (frame for source in sources for frame in frames(str(source))):
        writer.add(frame, seen(), frame.pixels)
    writer.finish()
    written = json.loads((out / "detections.json").read_text(encoding="utf-8"))
    assert written == writer.coco()
    return [image["file_name"] for image in written["images"]]


def test_pictures_of_one_name_from_two_folders_are_told_apart_by_their_folders(tmp_path: Path) -> None:
    for name in ("first/x.jpg", "second/x.jpg", "second/deep/y.jpg"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        cv2.imwrite(str(tmp_path / name), picture(20, 30))
    folders = [tmp_path / name for name in ("first", "second", "second/deep")]
    assert named(folders, tmp_path / "all") == ["first/x.jpg", "second/x.jpg", "second/deep/y.jpg"]
    assert named(folders[1:], tmp_path / "some") == ["x.jpg", "y.jpg"], "no name clashes: as they are called"
    assert sorted(path.name for path in (tmp_path / "all").glob("*.jpg")) == ["x.jpg", "x_2.jpg", "y.jpg"]
    file = folders[0] / "x.jpg"
    assert named([file, file], tmp_path / "twice") == ["x.jpg", "x.jpg"], "the same picture"


def test_frames_of_videos_of_one_name_are_told_apart_by_their_folders(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    clips = [clip(tmp_path / "clip.avi", 1), clip(tmp_path / "other/clip.avi", 1)]
    assert named(clips, tmp_path / "seen") == ["clip_000000.jpg", "other/clip_000000.jpg"]


def test_frames_of_videos_of_one_stem_in_one_folder_have_the_whole_name_of_their_file(tmp_path: Path) -> None:
    clips = [clip(tmp_path / "clip.avi", 2), clip(tmp_path / "CLIP.avi", 1), clip(tmp_path / "clip.mkv", 1)]
    videos = [clips[0], clips[2]]
    frames_of_both = ["clip.avi_000000.jpg", "clip.avi_000001.jpg", "clip.mkv_000000.jpg"]
    assert named(videos, tmp_path / "seen") == frames_of_both
    assert sorted(path.name for path in (tmp_path / "seen").glob("*.mp4")) == ["clip.mp4", "clip_2.mp4"]
    cv2.imwrite(str(tmp_path / "clip_000000.jpg"), picture(20, 30))
    beside = named([clips[0], tmp_path / "clip_000000.jpg"], tmp_path / "beside")
    assert beside == [*frames_of_both[:2], "clip_000000.jpg"]
    named(clips[:2], tmp_path / "cases")  # on a disk that knows no case they would be one file
    assert sorted(path.name for path in (tmp_path / "cases").glob("*.mp4")) == ["CLIP_2.mp4", "clip.mp4"]


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


def test_a_picture_whose_own_name_is_the_next_one_of_another_is_written_too(tmp_path: Path) -> None:
    writer = DetectionWriter(labels=LABELS, folder=tmp_path)
    for brightness, name in ((50, "a.jpg"), (100, "a.png"), (150, "a_2.jpg"), (200, "a.jpg")):
        frame = Frame(name=name, pixels=np.full((20, 30, 3), brightness, np.uint8))
        writer.add(frame, seen(), frame.pixels)
    written = {path.name: round(float(np.asarray(cv2.imread(str(path))).mean())) for path in tmp_path.glob("*.jpg")}
    assert written == {"a.jpg": 50, "a_2.jpg": 100, "a_2_2.jpg": 150, "a_3.jpg": 200}


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
        f"what was drawn and detections.json are in {tmp_path / 'seen'}",
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


def clip(path: Path, frames_shown: int = 7, fps: float = 12.5) -> Path:
    video = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*"MJPG"), fps, (64, 48))
    for _ in range(frames_shown):
        video.write(picture(48, 64))
    video.release()
    return path


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
