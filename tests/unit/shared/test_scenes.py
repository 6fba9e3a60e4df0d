"""The scene of a photo by its name: as splits are dealt."""

import pytest

from shared.scenes import scene_of, source_stem


@pytest.mark.parametrize(
    "image",
    [
        "train/a_jpg.rf.0f3c.jpg",
        "b/a_PNG.rf.0f3cAB.jpg",
        "a.rf.0f3c.webp",
        "a_tiff.rf.1.png",
        "a.jpg",
        "a_jpg.jpg",
        "x/a.b.jpg",
    ],
)
def test_a_copy_is_of_the_photo_that_splits_take_it_for_and_any_other_of_its_own(image: str) -> None:
    stem = image.rpartition("/")[2].rpartition(".")[0]
    assert scene_of(image, None) == (source_stem(image) if source_stem(image) != stem else "")


def test_what_group_by_finds_goes_first_and_a_photo_without_it_is_of_its_own() -> None:
    assert scene_of("day1/clip_001.jpg", "(.*)_") == scene_of("day1/clip_002.jpg", "(.*)_") == "day1/clip"
    assert scene_of("day1/cam2/7.jpg", "(day[0-9])/(cam[0-9])") == "day1/cam2"
    assert scene_of("day1/7.jpg", "night") == ""
    assert scene_of("day1/7_jpg.rf.1a.jpg", "night") == "7"


@pytest.mark.parametrize(
    ("image", "stem"),
    [
        ("a/photo.jpg", "photo"),
        ("photo.rf.0f3c1d.jpg", "photo"),
        ("photo_jpg.rf.0f3c1d.jpg", "photo"),
        ("photo_PNG.rf.0f3c1d.png", "photo"),
        ("photo_jpg.jpg", "photo_jpg"),
        ("my.rf.photo.1.jpg", "my.rf.photo.1"),
    ],
)
def test_source_stem_strips_what_roboflow_adds(image: str, stem: str) -> None:
    assert source_stem(image) == stem
