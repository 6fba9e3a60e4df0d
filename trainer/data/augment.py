"""Decoded pictures and boxes -> randomly changed ones of the same size. Only numpy and OpenCV, seeded.

Each picture is moved by one affine map (flips, quarter turns, rotation, zoom, aspect, translation together), and its
colours are changed by another; a mosaic is four such moves into four tiles. This module draws the maps, for a whole
batch at once; `trainer.data.paste` adds objects of other pictures, and `trainer.data.warp` applies the maps.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from shared.specs.augmentation import Augmentation
from trainer.data.examples import Examples
from trainer.data.parts import Boxes, Labels, Parts, Places, boxes_of_parts
from trainer.data.paste import with_pasted
from trainer.data.warp import Matrix, change_colors, warp, whole_pixels

# Luma of BT.601, the axis around which saturation is changed.
LUMA: Final = np.array([0.299, 0.587, 0.114])


def augment_batch(
    examples: Examples, rows: Places, *, recipe: Augmentation, rng: np.random.Generator
) -> tuple[NDArray[np.uint8], Boxes, Labels]:
    """Draw a random change of each of the pictures `rows` of `examples`.

    Args:
        examples: The pool; mosaics take their other tiles from all of it.
        rows: int64 [B].
        recipe: How strongly pictures are changed.
        rng: The source of all randomness.

    Returns:
        Pictures uint8 [B, H, W, 3] RGB; boxes float32 [B, N, 4], (ymin, xmin, ymax, xmax) fractions; labels int32
        [B, N], -1 in padding.
    """
    side = examples.pictures.shape[1]
    parts = draw_parts(rows, recipe=recipe, rng=rng, pool=len(examples), side=side)
    if recipe.paste:
        parts = with_pasted(parts, examples, len(rows), paste=recipe.paste, flip=recipe.flip_horizontal, rng=rng)
    pictures = np.empty((len(rows), side, side, 3), np.uint8)
    for place, row, matrix, (top, left, bottom, right) in zip(*parts, strict=True):
        shifted = matrix - np.array([[0, 0, left], [0, 0, top]])
        warp(examples.pictures[row], shifted, pictures[place, top:bottom, left:right])
    change_colors(pictures, random_colors(recipe, rng, len(rows)))
    return pictures, *boxes_of_parts(parts, examples, len(rows))


def draw_parts(rows: Places, *, recipe: Augmentation, rng: np.random.Generator, pool: int, side: int) -> Parts:
    """Draw at random how the pictures of a batch are put together.

    Args:
        rows: int64 [B], the pictures' places in the pool.
        recipe: How strongly pictures are changed.
        rng: The source of all randomness.
        pool: The size of the pool, from which mosaics take their other tiles.
        side: The side of the pictures in pixels.
    """
    count = len(rows)
    plain = Parts(
        places=np.arange(count),
        rows=rows,
        matrices=random_moves(recipe, rng, side, count),
        tiles=np.tile(np.array([0, 0, side, side]), (count, 1)),
    )
    is_mosaic = rng.random(count) < recipe.mosaic
    if not is_mosaic.any():
        return plain
    chosen = [
        _mosaic(plain, place, recipe, rng, pool)
        if is_mosaic[place]
        else Parts._make(values[place : place + 1] for values in plain)
        for place in range(count)
    ]
    return Parts._make(map(np.concatenate, zip(*chosen, strict=True)))


def _mosaic(plain: Parts, place: int, recipe: Augmentation, rng: np.random.Generator, pool: int) -> Parts:
    """Four moved pictures in the four tiles around a random point; the first is the picture at `place` itself.

    A tile shows a part of its picture at a random zoom of at most its own scale; a box belongs to its tile.
    """
    side = int(plain.tiles[place, 3])
    center_y, center_x = (int(side * share) for share in rng.uniform(0.3, 0.7, 2))
    tiles = rng.permutation(
        [
            (0, 0, center_y, center_x),
            (0, center_x, center_y, side),
            (center_y, 0, side, center_x),
            (center_y, center_x, side, side),
        ]
    )
    return Parts(
        places=np.full(4, place),
        rows=np.concatenate([[plain.rows[place]], rng.integers(0, pool, 3)]),
        matrices=_tile_moves(recipe, rng, side, tiles),
        tiles=tiles,
    )


def _tile_moves(recipe: Augmentation, rng: np.random.Generator, side: int, tiles: NDArray[np.int64]) -> Matrix:
    """Moves [T, 2, 3] that scale pictures by 0.5 to 1 and place each at random, covering its tile as far as it can."""
    count = len(tiles)
    lean = np.exp(rng.uniform(-0.5, 0.5, count) * np.log1p(recipe.aspect))
    scale = rng.uniform(0.5, 1.0, count)[:, None] * np.stack([lean, 1 / lean], axis=1)
    size = scale * side
    near, far = tiles[:, [1, 0]], tiles[:, [3, 2]] - size
    # If the picture is longer than the tile, show any window of it; if shorter, place it anywhere inside.
    corner = rng.uniform(np.minimum(near, far), np.maximum(near, far))
    linear = scale[:, :, None] * np.eye(2)
    moves = np.concatenate([linear, corner[:, :, None]], axis=2) @ _affine(random_flips(recipe, rng, side, count))
    return np.stack([whole_pixels(move, tuple(tile), side) for move, tile in zip(moves, tiles.tolist(), strict=True)])


def random_moves(recipe: Augmentation, rng: np.random.Generator, side: int, count: int) -> Matrix:
    """Matrices [count, 2, 3] from picture to changed picture, in pixels (x, y) with corners at whole numbers."""
    draws = rng.uniform(-1, 1, (5, count))
    zoom = np.exp(draws[0] * np.log1p(recipe.zoom))
    aspect = np.exp(draws[1] / 2 * np.log1p(recipe.aspect))
    angle = np.deg2rad(draws[2] * recipe.rotate_deg)
    cos, sin = np.cos(angle), np.sin(angle)
    linear = np.moveaxis(zoom * np.array([[cos * aspect, -sin / aspect], [sin * aspect, cos / aspect]]), 2, 0)
    center = np.full(2, side / 2)
    offset = center - linear @ center + draws[3:].T * recipe.translate * side
    moves = np.concatenate([linear, offset[:, :, None]], axis=2) @ _affine(random_flips(recipe, rng, side, count))
    return np.stack([whole_pixels(move, (0, 0, side, side), side) for move in moves])


def random_flips(recipe: Augmentation, rng: np.random.Generator, side: int, count: int) -> Matrix:
    """Matrices [count, 2, 3] of random flips and quarter turns of a square of `side` pixels."""
    draws = rng.random((3, count))
    flips = np.zeros((count, 2, 3))
    for axis, chance in enumerate((recipe.flip_horizontal, recipe.flip_vertical)):
        is_flipped = draws[axis] < chance
        flips[:, axis, axis] = np.where(is_flipped, -1.0, 1.0)
        flips[:, axis, 2] = np.where(is_flipped, side, 0.0)
    turned: Matrix = np.where((draws[2] < recipe.quarter_turn)[:, None, None], flips[:, ::-1], flips)
    return turned


def random_colors(recipe: Augmentation, rng: np.random.Generator, count: int) -> Matrix:
    """Affine maps [count, 3, 4] of RGB in [0, 255]: hue and saturation around the gray axis, contrast, brightness."""
    draws = rng.uniform(-1, 1, (4, count, 1, 1))
    contrast = np.exp(draws[0] * np.log1p(recipe.contrast))
    saturation = np.exp(draws[1] * np.log1p(recipe.saturation))
    turn = _hue_turns(np.deg2rad(draws[2] * recipe.hue_deg))
    gray = np.tile(LUMA, (3, 1))
    linear = contrast * (gray + saturation * (turn - gray @ turn))
    offset = 127.5 * (1 - contrast) + 255 * draws[3] * recipe.brightness
    return np.concatenate([linear, np.broadcast_to(offset, (count, 3, 1))], axis=2)


def _hue_turns(angles: NDArray[np.float64]) -> Matrix:
    """Rotations [count, 3, 3] of RGB around the gray axis (Rodrigues' formula) by `angles` [count, 1, 1]."""
    axis = np.full(3, 1 / np.sqrt(3))
    cross = np.array([[0, -axis[2], axis[1]], [axis[2], 0, -axis[0]], [-axis[1], axis[0], 0]])
    turns: Matrix = np.eye(3) * np.cos(angles) + np.sin(angles) * cross + (1 - np.cos(angles)) * np.outer(axis, axis)
    return turns


def _affine(matrices: Matrix) -> Matrix:
    """[count, 2, 3] -> [count, 3, 3]."""
    last = np.broadcast_to(np.array([[[0.0, 0.0, 1.0]]]), (len(matrices), 1, 3))
    return np.concatenate([matrices, last], axis=1)
