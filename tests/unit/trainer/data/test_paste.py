from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.trainer.pictures import UNCHANGED, drawn_examples
from trainer.data.augment import augment_batch
from trainer.data.examples import Examples
from trainer.data.parts import Parts
from trainer.data.paste import with_pasted
from trainer.tensors import IGNORED

SIDE = 64
WHITE_BOX = (np.array([[16, 24, 40, 56]]) / SIDE).astype(np.float32)


def black_and_white() -> Examples:
    """Picture 0 is black and empty; picture 1 has one white object of class 2 on gray."""
    pictures = np.zeros((2, SIDE, SIDE, 3), np.uint8)
    pictures[1] = 90
    pictures[1, 16:40, 24:56] = 255
    none = np.zeros((0, 4), np.float32)
    return replace(
        drawn_examples(2, side=SIDE),
        pictures=pictures,
        boxes=(none, WHITE_BOX),
        labels=(np.zeros(0, np.int32), np.full(1, 2, np.int32)),
    )


@pytest.fixture
def squares() -> Examples:
    return black_and_white()


def plain(rows: list[int]) -> Parts:
    """Pictures as they are."""
    count = len(rows)
    return Parts(
        places=np.arange(count),
        rows=np.array(rows),
        matrices=np.tile(np.eye(3)[:2], (count, 1, 1)),
        tiles=np.tile(np.array([0, 0, SIDE, SIDE]), (count, 1)),
    )


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000))
def test_a_pasted_object_is_where_its_box_is_and_nothing_else_changes(seed: int) -> None:
    recipe = UNCHANGED.model_copy(update={"paste": 1.0, "flip_horizontal": 0.0})
    made, boxes, labels = augment_batch(
        black_and_white(), np.array([0]), recipe=recipe, rng=np.random.default_rng(seed)
    )
    white = np.zeros((SIDE, SIDE), bool)
    for ymin, xmin, ymax, xmax in np.rint(boxes[0][labels[0] == 2] * SIDE).astype(int).tolist():
        white[ymin:ymax, xmin:xmax] = True
    # At the edge of an object that is made smaller a pixel may be mixed with the gray around it.
    np.testing.assert_array_equal(made[0, ..., 0] > 0, white)
    assert not white.any() or made[0, ..., 0][white].mean() > 200


def test_the_share_the_number_and_the_order(squares: Examples) -> None:
    rows = [0] * 400
    parts = with_pasted(plain(rows), squares, 400, paste=0.5, flip=0.0, rng=np.random.default_rng(0))
    counts = np.bincount(parts.places, minlength=400)
    assert set(counts.tolist()) <= {1, 2, 3}
    # Half of the pictures are chosen; a draw of the empty picture pastes nothing.
    assert 0.2 < (counts > 1).mean() < 0.45
    assert (np.diff(parts.places) >= 0).all(), "the parts of a picture follow each other"
    first = np.flatnonzero(np.diff(parts.places, prepend=-1))
    assert (parts.tiles[first] == [0, 0, SIDE, SIDE]).all(), "its own picture lies below"
    sides = (parts.tiles[:, 2:] - parts.tiles[:, :2])[counts[parts.places] > 1]
    assert sides.min() >= 8


def test_nothing_is_put_on_what_is_there_and_a_full_picture_stays_as_it_is(squares: Examples) -> None:
    both = with_pasted(plain([1] * 200), squares, 200, paste=1.0, flip=0.5, rng=np.random.default_rng(1))
    pasted = both.tiles[(both.tiles != [0, 0, SIDE, SIDE]).any(axis=1)]
    assert len(pasted)
    low, high = np.maximum(pasted[:, :2], [16, 24]), np.minimum(pasted[:, 2:], [40, 56])
    assert (np.prod(np.maximum(high - low, 0), axis=1) < 0.1 * 24 * 32).all()
    full = replace(squares, boxes=(squares.boxes[0], np.array([[0, 0, 1, 1]], np.float32)))
    same = with_pasted(plain([1, 1]), full, 2, paste=1.0, flip=0.5, rng=np.random.default_rng(2))
    assert len(same.rows) == 2


def test_other_objects_in_the_pasted_part_keep_their_boxes(squares: Examples) -> None:
    """An object on another one comes along, and is not an unmarked one then."""
    inner = (np.array([[20, 30, 36, 50]]) / SIDE).astype(np.float32)
    pool = replace(
        squares,
        boxes=(squares.boxes[0], np.concatenate([WHITE_BOX, inner])),
        labels=(squares.labels[0], np.array([2, 1], np.int32)),
    )
    recipe = UNCHANGED.model_copy(update={"paste": 1.0})
    _, boxes, labels = augment_batch(pool, np.zeros(64, int), recipe=recipe, rng=np.random.default_rng(3))
    large = labels == 2
    assert large.any()
    assert ((labels == 1).sum(axis=1) >= large.sum(axis=1)).all()
    assert (boxes[large][:, 2:] <= 1).all()


@pytest.mark.parametrize("flip", [0.0, 1.0])
def test_a_mirrored_object_shows_its_right_side_on_the_left_and_all_of_it(squares: Examples, flip: float) -> None:
    pictures = squares.pictures.copy()
    pictures[1, 16:40, 24:40], pictures[1, 16:40, 40:56] = (255, 0, 0), (0, 255, 0)
    pool = replace(squares, pictures=pictures)
    recipe = UNCHANGED.model_copy(update={"paste": 1.0, "flip_horizontal": flip})
    made, boxes, labels = augment_batch(pool, np.zeros(64, int), recipe=recipe, rng=np.random.default_rng(5))
    pasted = [
        (picture, box) for picture, row, known in zip(made, boxes, labels, strict=True) for box in row[known == 2]
    ]
    assert len(pasted) > 20
    for picture, box in pasted:
        ymin, xmin, ymax, xmax = np.rint(box * SIDE).astype(int).tolist()
        rows = picture[ymin + 1 : ymax - 1]
        # The median: a corner may be covered by a second one.
        left, right = (np.median(rows[:, at : at + 3], axis=(0, 1)) for at in (xmin + 1, xmax - 4))
        red, green = (right, left) if flip else (left, right)
        np.testing.assert_allclose([red, green], [[255, 0, 0], [0, 255, 0]], atol=12)


def test_pasted_objects_hardly_cover_each_other(squares: Examples) -> None:
    parts = with_pasted(plain([0] * 600), squares, 600, paste=1.0, flip=0.0, rng=np.random.default_rng(6))
    pairs = [parts.tiles[parts.places == place][1:] for place in range(600)]
    pairs = [tiles for tiles in pairs if len(tiles) == 2]
    assert len(pairs) > 50
    for first, second in pairs:
        sides = np.minimum(first[2:], second[2:]) - np.maximum(first[:2], second[:2])
        assert np.prod(np.maximum(sides, 0)) < 0.1 * np.prod(first[2:] - first[:2])


def test_an_object_that_would_be_too_small_to_be_seen_is_not_pasted(squares: Examples) -> None:
    pool = replace(squares, boxes=(squares.boxes[0], (np.array([[16, 24, 28, 36]]) / SIDE).astype(np.float32)))
    parts = with_pasted(plain([0] * 400), pool, 400, paste=1.0, flip=0.0, rng=np.random.default_rng(7))
    tiles = parts.tiles[(parts.tiles != [0, 0, SIDE, SIDE]).any(axis=1)]
    assert len(tiles) > 20
    assert (tiles[:, 2:] - tiles[:, :2]).min() == 8


def test_an_ignored_object_is_not_pasted(squares: Examples) -> None:
    pool = replace(squares, labels=(squares.labels[0], np.full(1, IGNORED, np.int32)))
    parts = with_pasted(plain([0] * 50), pool, 50, paste=1.0, flip=0.0, rng=np.random.default_rng(4))
    assert len(parts.rows) == 50
    both = with_pasted(plain([0] * 50), squares, 50, paste=1.0, flip=0.0, rng=np.random.default_rng(4))
    assert len(both.rows) > 50
