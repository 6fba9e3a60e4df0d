from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.specs.augmentation import Augmentation
from tests.unit.trainer.pictures import UNCHANGED, drawn_examples
from trainer.data.augment import augment_batch, draw_parts, random_colors, random_flips, random_moves
from trainer.data.batches import batches_from_memory
from trainer.data.examples import draw_rows
from trainer.data.parts import MIN_SIDE_PX, MIN_VISIBLE, Parts, boxes_of_parts
from trainer.data.warp import change_colors, move_boxes, warp, whole_pixels
from trainer.tensors import IGNORED, PADDING

SIDE = 64
EVERYTHING = Augmentation(flip_vertical=0.5, quarter_turn=0.5, rotate_deg=15, mosaic=0.5)


def seeded(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def changed(**fields: Any) -> Augmentation:
    """No change but these."""
    return UNCHANGED.model_copy(update=fields)


def moved(box: list[float], matrix: np.ndarray) -> np.ndarray:
    """The moved box, if it stays."""
    boxes, visible = move_boxes(np.array([box], np.float32), matrix[None], np.array([[0, 0, SIDE, SIDE]]), SIDE)
    return boxes[visible >= MIN_VISIBLE]


def test_unchanged_leaves_pictures_and_boxes_as_they_are() -> None:
    examples = drawn_examples(3)
    pictures, boxes, labels = augment_batch(examples, np.array([2, 0]), recipe=UNCHANGED, rng=seeded(0))
    np.testing.assert_array_equal(pictures, examples.pictures[[2, 0]])
    np.testing.assert_allclose(boxes[0, : len(examples.boxes[2])], examples.boxes[2], atol=1e-6)
    assert (labels[0] >= 0).sum() == len(examples.labels[2])


def test_the_last_rest_of_an_ignored_object_is_kept() -> None:
    """What is left of it in the picture would be punished as background."""
    examples = drawn_examples(1, most=1)
    tile = np.array([[0, 0, SIDE, SIDE]])
    far = np.array([[[1.0, 0, SIDE - 10 - examples.boxes[0][0, 1] * SIDE], [0, 1, 0]]])
    parts = Parts(places=np.zeros(1, int), rows=np.zeros(1, int), matrices=far, tiles=tile)
    wide = replace(examples, boxes=(examples.boxes[0] * [[1, 1, 1, 0]] + [[0, 0, 0, examples.boxes[0][0, 1] + 0.6]],))
    for label, kept in ((1, 0), (IGNORED, 1)):
        boxes, labels = boxes_of_parts(parts, replace(wide, labels=(np.array([label], np.int32),)), 1)
        assert (labels != PADDING).sum() == kept
        assert not kept or boxes[0, 0, 3] == 1


@pytest.mark.parametrize(
    ("recipe", "expected"),
    [
        (changed(flip_horizontal=1), [0.1, 0.5, 0.4, 0.8]),
        (changed(flip_vertical=1), [0.6, 0.2, 0.9, 0.5]),
        (changed(quarter_turn=1), [0.2, 0.1, 0.5, 0.4]),
    ],
)
def test_flips_move_a_box_exactly(recipe: Augmentation, expected: list[float]) -> None:
    matrix = random_flips(recipe, seeded(0), SIDE, 1)[0]
    np.testing.assert_allclose(moved([0.1, 0.2, 0.4, 0.5], matrix), [expected], atol=1e-6)


@pytest.mark.parametrize("name", ["flip_horizontal", "flip_vertical", "quarter_turn"])
def test_a_flip_twice_is_no_flip(name: str) -> None:
    recipe = changed(**{name: 1.0})
    picture = drawn_examples(1).pictures[0]
    matrix = random_flips(recipe, seeded(0), SIDE, 1)[0]
    once, twice = np.empty_like(picture), np.empty_like(picture)
    warp(picture, matrix, once)
    warp(once, matrix, twice)
    np.testing.assert_array_equal(twice, picture)
    assert (once != picture).any()
    np.testing.assert_allclose(
        moved(moved([0.1, 0.2, 0.4, 0.5], matrix)[0].tolist(), matrix), [[0.1, 0.2, 0.4, 0.5]], atol=1e-6
    )


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000))
def test_moved_boxes_stay_ordered_and_inside_the_picture(seed: int) -> None:
    examples = drawn_examples(4, seed=seed % 7)
    _, boxes, labels = augment_batch(examples, np.arange(4), recipe=EVERYTHING, rng=seeded(seed))
    real = boxes[labels >= 0]
    assert real.min(initial=0) >= 0
    assert real.max(initial=1) <= 1
    sides = (real[:, 2:] - real[:, :2]) * SIDE
    assert (sides >= MIN_SIDE_PX - 1e-3).all()


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000))
def test_a_moved_box_is_where_the_moved_object_is(seed: int) -> None:
    """A white rectangle on black: what is white afterwards fills the moved box."""
    picture = np.zeros((SIDE, SIDE, 3), np.uint8)
    picture[16:40, 12:48] = 255
    recipe = changed(flip_horizontal=0.5, flip_vertical=0.5, quarter_turn=0.5, zoom=0.5, translate=0.2)
    matrix = random_moves(recipe, seeded(seed), SIDE, 1)[0]
    out = np.empty_like(picture)
    warp(picture, matrix, out)
    boxes = moved([16 / SIDE, 12 / SIDE, 40 / SIDE, 48 / SIDE], matrix)
    if len(boxes) == 0:
        return
    ymin, xmin, ymax, xmax = boxes[0] * SIDE
    rows, columns = np.flatnonzero((out[..., 0] > 127).any(axis=1)), np.flatnonzero((out[..., 0] > 127).any(axis=0))
    assert abs(rows[0] - ymin) <= 1.01
    assert abs(rows[-1] + 1 - ymax) <= 1.01
    assert abs(columns[0] - xmin) <= 1.01
    assert abs(columns[-1] + 1 - xmax) <= 1.01


def test_a_rotated_box_is_fitted_around_its_corners() -> None:
    turn = np.deg2rad(45)
    center = SIDE / 2
    linear = np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
    matrix = np.concatenate([linear, (np.full(2, center) - linear @ np.full(2, center))[:, None]], axis=1)
    half = 0.25 * np.sqrt(2)
    np.testing.assert_allclose(
        moved([0.25, 0.25, 0.75, 0.75], matrix), [[0.5 - half, 0.5 - half, 0.5 + half, 0.5 + half]], atol=1e-6
    )


def test_a_box_hardly_in_the_picture_is_dropped_and_others_are_clipped() -> None:
    shift = np.array([[1.0, 0, -0.5 * SIDE], [0, 1.0, 0]])
    assert len(moved([0.1, 0.1, 0.3, 0.55], shift)) == 0
    np.testing.assert_allclose(moved([0.1, 0.3, 0.3, 0.9], shift), [[0.1, 0, 0.3, 0.4]], atol=1e-6)


def test_colors_keep_the_shape_and_unchanged_colors_are_the_identity() -> None:
    picture = drawn_examples(1).pictures[0]
    same = picture.copy()
    change_colors(same[None], random_colors(UNCHANGED, seeded(0), 1))
    np.testing.assert_allclose(same.astype(int), picture.astype(int), atol=1)
    changed = picture.copy()
    change_colors(changed[None], random_colors(Augmentation(), seeded(1), 1))
    assert changed.dtype == np.uint8
    assert (changed != picture).any()


def test_gray_stays_gray_under_hue_and_saturation() -> None:
    gray = np.full((4, 4, 3), 90, np.uint8)
    change_colors(gray[None], random_colors(changed(saturation=0.5, hue_deg=30), seeded(3), 1))
    np.testing.assert_allclose(gray, 90, atol=1)


def test_a_mosaic_holds_parts_of_several_pictures_and_only_their_boxes() -> None:
    examples = drawn_examples(8)
    pictures, boxes, labels = augment_batch(examples, np.arange(8), recipe=Augmentation(mosaic=1), rng=seeded(0))
    assert pictures.shape == (8, SIDE, SIDE, 3)
    assert (labels >= 0).sum(axis=1).max() > 3
    assert boxes[labels < 0].max(initial=0) == 0


ONE_EACH: dict[str, dict[str, float]] = {
    "horizontal flip": {"flip_horizontal": 1},
    "vertical flip": {"flip_vertical": 1},
    "quarter turn": {"quarter_turn": 1},
    "rotation": {"rotate_deg": 20},
    "zoom, aspect and translation": {"zoom": 0.6, "aspect": 0.2, "translate": 0.2},
    "brightness and contrast": {"brightness": 0.2, "contrast": 0.3},
    "colour": {"saturation": 0.4, "hue_deg": 10},
    "mosaic": {"mosaic": 1},
    "pasted objects": {"paste": 1},
}


@pytest.mark.parametrize("recipe", [*(changed(**one) for one in ONE_EACH.values()), EVERYTHING], ids=[*ONE_EACH, "all"])
def test_eager_and_in_a_graph_of_tf_data_give_the_same(recipe: Augmentation) -> None:
    examples = drawn_examples(6)
    batch = next(iter(batches_from_memory(examples, batch=4, recipe=recipe, seed=5, first_step=3)))
    rows = draw_rows(3, batch=4, count=6, seed=5)
    pictures, boxes, labels = augment_batch(examples, rows, recipe=recipe, rng=np.random.default_rng((5, 1, 3)))
    assert (pictures != examples.pictures[rows]).any()
    np.testing.assert_array_equal(batch["pictures"], pictures)
    np.testing.assert_array_equal(batch["boxes"], boxes)
    np.testing.assert_array_equal(batch["labels"], labels)
    np.testing.assert_array_equal(batch["rows"], rows)
    assert batch["pictures"].dtype == tf.uint8


def test_objects_that_were_tiny_before_stay() -> None:
    examples = drawn_examples(4)
    low = np.array([[0.2, 0.2], [0.5, 0.6]])
    tiny = np.concatenate([low, low + 2 / SIDE], axis=1).astype(np.float32)
    examples = replace(examples, boxes=(tiny,) * 4, labels=(np.zeros(2, np.int32),) * 4)
    _, boxes, labels = augment_batch(examples, np.arange(4), recipe=changed(flip_horizontal=0.5), rng=seeded(0))
    assert (labels >= 0).all()
    np.testing.assert_allclose(boxes[..., 2:] - boxes[..., :2], 2 / SIDE, atol=1e-6)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000))
def test_an_upright_move_is_of_whole_pixels_and_near_the_drawn_one(seed: int) -> None:
    rng = seeded(seed)
    scale, shift = rng.choice([-1, 1], 2) * rng.uniform(0.5, 2, 2), rng.uniform(-10, 10, 2)
    shift += np.where(scale < 0, SIDE, 0)
    drawn = np.array([[scale[0], 0, shift[0]], [0, scale[1], shift[1]]])
    snapped = whole_pixels(drawn, (0, 0, SIDE, SIDE), SIDE)
    np.testing.assert_allclose(whole_pixels(snapped, (0, 0, SIDE, SIDE), SIDE), snapped, atol=1e-9)
    corners = np.array([[0.0, SIDE, SIDE / 2], [0.0, SIDE / 2, SIDE]])
    moved, meant = (np.clip(matrix[:, :2] @ corners + matrix[:, 2:], 0, SIDE) for matrix in (snapped, drawn))
    np.testing.assert_allclose(moved, meant, atol=2.1)


def test_an_upright_move_shows_what_resampling_shows() -> None:
    picture = drawn_examples(1, side=SIDE).pictures[0]
    matrix = whole_pixels(np.array([[-1.3, 0, 70.2], [0, 0.8, 5.7]]), (0, 0, SIDE, SIDE), SIDE)
    nearly = matrix + np.array([[0, 1e-7, 0], [0, 0, 0]])
    stretched, resampled = np.empty_like(picture), np.empty_like(picture)
    warp(picture, matrix, stretched)
    warp(picture, nearly, resampled)
    inside = np.abs(stretched.astype(int) - resampled)[8:-12, 2:-2]
    assert inside.mean() < 1
    assert np.percentile(inside, 99) <= 4


def test_a_picture_moved_out_of_sight_leaves_gray() -> None:
    picture = drawn_examples(1, side=SIDE).pictures[0]
    out = np.empty_like(picture)
    warp(picture, np.array([[1.0, 0, 2 * SIDE], [0, 1.0, 0]]), out)
    assert (out == 114).all()


def spread(values: np.ndarray) -> tuple[float, float]:
    return float(values.min()), float(values.max())


def test_turns_sizes_and_shifts_are_as_strong_as_asked_to_both_sides() -> None:
    def moves(**fields: Any) -> np.ndarray:
        return random_moves(changed(**fields), seeded(1), 640, 3000)

    turned = moves(rotate_deg=20)
    assert spread(np.rad2deg(np.arctan2(turned[:, 1, 0], turned[:, 0, 0]))) == pytest.approx((-20, 20), abs=0.1)
    zoomed = moves(zoom=0.5)
    assert spread(zoomed[:, 0, 0]) == pytest.approx((1 / 1.5, 1.5), abs=0.01)
    np.testing.assert_allclose(zoomed[:, 0, 0], zoomed[:, 1, 1], atol=0.01)
    stretched = moves(aspect=0.2)
    assert spread(stretched[:, 0, 0] / stretched[:, 1, 1]) == pytest.approx((1 / 1.2, 1.2), abs=0.01)
    shifted = moves(translate=0.1)
    assert spread(shifted[:, 0, 2]) == pytest.approx((-64, 64), abs=1.01)
    assert spread(shifted[:, 1, 2]) == pytest.approx((-64, 64), abs=1.01)
    # All of them leave the middle of the picture where it is, but for what is shifted.
    for matrices in (turned, zoomed, stretched):
        np.testing.assert_allclose(matrices[:, :, :2] @ [320, 320] + matrices[:, :, 2], 320, atol=1.01)


@pytest.mark.parametrize(("name", "axis"), [("flip_horizontal", 0), ("flip_vertical", 1)])
def test_a_share_of_the_pictures_is_flipped(name: str, axis: int) -> None:
    flips = random_flips(changed(**{name: 0.3}), seeded(0), SIDE, 4000)
    assert (flips[:, axis, axis] < 0).mean() == pytest.approx(0.3, abs=0.03)
    assert (flips[:, 1 - axis, 1 - axis] > 0).all()


def colors(**fields: Any) -> np.ndarray:
    """Maps [3000, 3, 4] of one kind of change."""
    return random_colors(changed(**fields), seeded(2), 3000)


def test_brightness_and_contrast_are_as_strong_as_asked() -> None:
    bright = colors(brightness=0.2)
    np.testing.assert_allclose(bright[:, :, :3], np.tile(np.eye(3), (3000, 1, 1)), atol=1e-9)
    assert spread(bright[:, :, 3]) == pytest.approx((-51, 51), abs=0.2)
    contrasting = colors(contrast=0.5)
    assert spread(contrasting[:, 0, 0]) == pytest.approx((1 / 1.5, 1.5), abs=0.01)
    middle = contrasting[:, :, :3] @ np.full(3, 127.5) + contrasting[:, :, 3]
    np.testing.assert_allclose(middle, 127.5, atol=1e-9)


def test_saturation_and_hue_are_as_strong_as_asked_and_keep_the_luma() -> None:
    """The luma of BT.601, as video has it, of RGB."""
    luma, red = np.array([0.299, 0.587, 0.114]), np.array([200.0, 60.0, 90.0])
    for maps in (colors(saturation=0.5), colors(hue_deg=30)):
        np.testing.assert_allclose((maps[:, :, :3] @ red + maps[:, :, 3]) @ luma, red @ luma, atol=1e-9)
    stronger = (colors(saturation=0.5)[:, :, :3] @ red - red @ luma)[:, 0] / (red[0] - red @ luma)
    assert spread(stronger) == pytest.approx((1 / 1.5, 1.5), abs=0.01)
    # What is no gray turns around the gray axis: its part across that axis by as much as asked.
    turned = colors(hue_deg=30)[:, :, :3] @ red
    across = np.concatenate([turned, red[None]])
    across = across - across.mean(axis=1, keepdims=True)
    lengths = np.linalg.norm(across, axis=1)
    angles = np.rad2deg(np.arccos(np.clip(across[:-1] @ across[-1] / lengths[:-1] / lengths[-1], -1, 1)))
    assert spread(angles) == pytest.approx((0, 30), abs=0.3)
    np.testing.assert_allclose(lengths[:-1], lengths[-1])


def test_a_mosaic_is_of_its_own_picture_and_three_of_the_pool_and_covers_the_square() -> None:
    parts = draw_parts(np.arange(100), recipe=changed(mosaic=0.3), rng=seeded(0), pool=1000, side=SIDE)
    counts = np.bincount(parts.places)
    assert set(counts) == {1, 4}
    assert (counts == 4).mean() == pytest.approx(0.3, abs=0.12)
    first = np.flatnonzero(np.diff(parts.places, prepend=-1))
    np.testing.assert_array_equal(parts.rows[first], np.arange(100))
    assert len(set(parts.rows.tolist())) > 100 + 50, "the others are drawn from all of the pool"
    tiles = parts.tiles
    areas = np.bincount(parts.places, np.prod(tiles[:, 2:] - tiles[:, :2], axis=1))
    np.testing.assert_array_equal(areas, SIDE * SIDE)


def test_a_part_of_a_picture_without_objects_and_one_moved_away_has_no_box() -> None:
    examples = drawn_examples(2, most=1)
    away = np.array([[[1.0, 0, 2 * SIDE], [0, 1, 0]]] * 2)
    parts = Parts(places=np.arange(2), rows=np.arange(2), matrices=away, tiles=np.array([[0, 0, SIDE, SIDE]] * 2))
    boxes, labels = boxes_of_parts(parts, examples, 2)
    assert (boxes.shape, labels.tolist()) == ((2, 1, 4), [[PADDING], [PADDING]])


@pytest.mark.parametrize(("visible_px", "is_kept"), [(7, True), (5, False)])
def test_a_box_of_which_three_tenths_are_seen_is_kept(visible_px: int, is_kept: bool) -> None:
    examples = drawn_examples(1, most=1)
    examples = replace(
        examples, boxes=(np.array([[0, 0, 20 / SIDE, 20 / SIDE]], np.float32),), labels=(np.zeros(1, np.int32),)
    )
    shift = np.array([[[1.0, 0, visible_px - 20], [0, 1, 0]]])
    parts = Parts(places=np.zeros(1, int), rows=np.zeros(1, int), matrices=shift, tiles=np.array([[0, 0, SIDE, SIDE]]))
    _, labels = boxes_of_parts(parts, examples, 1)
    assert (labels >= 0).any() == is_kept


@pytest.mark.parametrize(
    ("before_px", "wide_px", "is_kept"), [(20, 3.2, True), (20, 2.8, False), (4, 2.1, True), (4, 1.9, False)]
)
def test_a_box_that_gets_thinner_than_three_pixels_or_half_of_itself_is_dropped(
    before_px: float, wide_px: float, is_kept: bool
) -> None:
    examples = drawn_examples(1, most=1)
    box = np.array([[0, 0, 20 / SIDE, before_px / SIDE]], np.float32)
    examples = replace(examples, boxes=(box,), labels=(np.zeros(1, np.int32),))
    narrow = np.array([[[wide_px / before_px, 0, 0], [0, 1, 0]]])
    parts = Parts(places=np.zeros(1, int), rows=np.zeros(1, int), matrices=narrow, tiles=np.array([[0, 0, SIDE, SIDE]]))
    _, labels = boxes_of_parts(parts, examples, 1)
    assert (labels >= 0).any() == is_kept
