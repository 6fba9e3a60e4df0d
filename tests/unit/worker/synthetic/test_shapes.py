"""The made-up set stays what it is: frozen by digests of its text and by the look of its pictures."""

import hashlib
from pathlib import Path

import cv2
import numpy as np
import pytest

from worker.synthetic.shapes import (
    CLASSES,
    MAX_OVERLAP,
    MAX_SIDE_PX,
    MIN_CONTRAST,
    MIN_LENGTH,
    MIN_SIDE_PX,
    _overlap,
    draw_scene,
    paint,
    scene_xml,
    synthesize,
)

# Of the annotations of all 480 pictures of the demo. JPEG bytes may differ between builds of OpenCV; these may not.
DEMO_XML_SHA256 = "b0bbcc02e07bfbb3b851006250172793e36ca6bb189a083cf5247f74a0224e89"
# Mean (B, G, R) of pictures 0 to 4 before encoding: a build may round a pixel otherwise, it may not repaint.
DEMO_MEANS = [
    [119.5, 115.3, 137.6],
    [178.5, 102.8, 105.1],
    [139.9, 158.4, 157.1],
    [80.0, 162.0, 88.4],
    [194.6, 116.5, 178.4],
]


def test_demo_annotations_are_frozen() -> None:
    digest = hashlib.sha256()
    for number in range(480):
        digest.update(scene_xml(draw_scene(number, 0)).encode())
    assert digest.hexdigest() == DEMO_XML_SHA256


def test_demo_pictures_are_frozen() -> None:
    means = [paint(draw_scene(number, 0), number, 0).mean(axis=(0, 1)) for number in range(5)]
    np.testing.assert_allclose(means, DEMO_MEANS, atol=0.5)


def test_same_seed_gives_same_files_and_another_seed_others(tmp_path: Path) -> None:
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        synthesize(tmp_path / name, images=3, seed=seed)
    first, same = (
        {path.relative_to(tmp_path / name): path.read_bytes() for path in (tmp_path / name).rglob("*.*")}
        for name in ("a", "b")
    )
    assert len(first) > 2 * 3
    assert first == same
    jpeg = Path("JPEGImages/shapes_00000.jpg")
    assert (tmp_path / "a" / jpeg).read_bytes() != (tmp_path / "c" / jpeg).read_bytes()


def test_layout_is_voc_and_lists_part_the_set(tmp_path: Path) -> None:
    made = synthesize(tmp_path, images=40)
    lists = {
        name: (tmp_path / "ImageSets/Main" / f"{name}.txt").read_text().split() for name in ("train", "val", "test")
    }
    stems = sorted(path.stem for path in (tmp_path / "JPEGImages").iterdir())
    listed = sorted(stem for members in lists.values() for stem in members)
    assert listed == stems == sorted(path.stem for path in (tmp_path / "Annotations").iterdir())
    assert {name: len(members) for name, members in lists.items()} == {"train": 30, "val": 4, "test": 6}
    assert made.images == 40
    for stem in stems[:5]:
        picture = cv2.imread(str(tmp_path / "JPEGImages" / f"{stem}.jpg"))
        assert picture is not None
        scene = draw_scene(int(stem[-5:]), 0)
        assert picture.shape == (scene.height, scene.width, 3)


def test_demo_set_has_what_the_issue_asks() -> None:
    scenes = [draw_scene(number, 0) for number in range(480)]
    assert all(MIN_SIDE_PX <= side <= MAX_SIDE_PX for scene in scenes for side in (scene.width, scene.height))
    assert max(max(scene.width, scene.height) for scene in scenes) > 1500
    assert sum(scene.height > scene.width for scene in scenes) > 60
    assert sum(not scene.shapes for scene in scenes) == 30
    assert {len(scene.shapes) for scene in scenes} == set(range(9))
    overlapping = sum(
        any(_overlap(a.box, b.box) > 0.02 for i, a in enumerate(scene.shapes) for b in scene.shapes[:i])
        for scene in scenes
    )
    assert overlapping > 100
    counts = [sum(shape.name == name for scene in scenes for shape in scene.shapes) for name in CLASSES]
    assert min(counts) > 600


@pytest.mark.parametrize("number", range(0, 480, 40))
def test_boxes_hug_their_shapes_inside_the_picture(number: int) -> None:
    scene = draw_scene(number, 0)
    for shape in scene.shapes:
        xmin, ymin, xmax, ymax = shape.box
        assert 0 <= xmin < xmax <= scene.width
        assert 0 <= ymin < ymax <= scene.height
        assert max(xmax - xmin, ymax - ymin) >= MIN_LENGTH * min(scene.width, scene.height) * 0.8
        inside = np.clip(shape.outline, 0, [scene.width, scene.height])
        assert np.abs(inside.min(axis=0) - [xmin, ymin]).max() <= 1
        assert np.abs(inside.max(axis=0) - [xmax, ymax]).max() <= 1
    for i, shape in enumerate(scene.shapes):
        assert all(_overlap(shape.box, other.box) <= MAX_OVERLAP for other in scene.shapes[:i])


def test_objects_stand_out_from_their_ground() -> None:
    scene = draw_scene(0, 0)
    picture = paint(scene, 0, 0).astype(float)
    for shape in scene.shapes:
        xmin, ymin, xmax, ymax = shape.box
        middle = picture[(ymin + ymax) // 2, (xmin + xmax) // 2]
        corner = picture[ymin, xmin]
        assert np.linalg.norm(middle - corner) > MIN_CONTRAST / 2


def test_number_of_images_is_checked(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="images must be"):
        synthesize(tmp_path, images=0)
