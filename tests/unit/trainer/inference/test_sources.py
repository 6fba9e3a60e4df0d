"""What `predict` looks at, and the pictures and the JSON that it writes."""

import json
from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image

from shared.errors import ImageError
from tests.unit.trainer.exported import LABELS
from tests.unit.trainer.inference.made import clip, picture, seen
from trainer.inference.outputs import DetectionWriter
from trainer.inference.sources import Frame, frames


def named(sources: list[Path], out: Path) -> list[str]:
    """What the pictures of some sources are called in COCO form."""
    writer = DetectionWriter(labels=LABELS, folder=out)
    for frame in (frame for source in sources for frame in frames(str(source))):
        writer.add(frame, seen(), frame.pixels)
    writer.finish()
    written = json.loads((out / "detections.json").read_text(encoding="utf-8"))
    assert written == writer.coco()
    return [image["file_name"] for image in written["images"]]


def test_folder_gives_its_pictures_sorted_and_skips_what_is_none(tmp_path: Path) -> None:
    for name in ("b.png", "a.jpg", ".hidden.jpg"):
        cv2.imwrite(str(tmp_path / name), picture(20, 30))
    (tmp_path / "notes.txt").write_text("no picture")
    (tmp_path / "empty.jpg").write_bytes(b"")
    (tmp_path / "._a.jpg").write_bytes(b"what macOS leaves beside a picture")
    with (tmp_path / "larger_than_the_memory.mp4").open("wb") as video:
        video.truncate(2**37)
    told: list[str] = []
    assert [frame.name for frame in frames(str(tmp_path), tell=told.append)] == ["a.jpg", "b.png"]
    assert [line.rpartition(": ")[0].rpartition("/")[2] for line in told] == [
        "empty.jpg",
        tmp_path.name + ": not looked at",
    ]


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


def test_a_video_that_was_cut_says_how_many_of_its_frames_are_read(tmp_path: Path) -> None:
    path, told = clip(tmp_path / "clip.avi", 20), list[str]()
    content = path.read_bytes()
    assert len(list(frames(str(path), tell=told.append))) == 20
    path.write_bytes(content[: len(content) // 2])
    list(frames(str(path), 3, told.append))
    assert told == [], "nobody asked for more"
    read = len(list(frames(str(path), tell=told.append)))
    assert 0 < read < 20
    [line] = told
    assert line.startswith(f"{path}: {read} of the 20 frames that its header promises can be read; if ")


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


def test_a_picture_whose_own_name_is_the_next_one_of_another_is_written_too(tmp_path: Path) -> None:
    writer = DetectionWriter(labels=LABELS, folder=tmp_path)
    for brightness, name in ((50, "a.jpg"), (100, "a.png"), (150, "a_2.jpg"), (200, "a.jpg")):
        frame = Frame(name=name, pixels=np.full((20, 30, 3), brightness, np.uint8))
        writer.add(frame, seen(), frame.pixels)
    written = {path.name: round(float(np.asarray(cv2.imread(str(path))).mean())) for path in tmp_path.glob("*.jpg")}
    assert written == {"a.jpg": 50, "a_2.jpg": 100, "a_2_2.jpg": 150, "a_3.jpg": 200}


def test_a_folder_that_cannot_be_made_is_the_reason_and_not_what_would_lie_in_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    writer = DetectionWriter(labels=LABELS, folder=tmp_path / "file/seen")
    frame = Frame(name="a.jpg", pixels=picture(20, 30))
    with pytest.raises(NotADirectoryError) as caught:
        writer.add(frame, seen(), frame.pixels)
    assert caught.value.filename == str(tmp_path / "file/seen")
    writer.finish()
