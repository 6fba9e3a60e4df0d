"""Decoded pictures and boxes -> randomly changed ones of the same size. Pure numpy and OpenCV, seeded.

Stands inside the dataset's batching. Each picture is moved by one affine map (flips, quarter turns, rotation, zoom,
aspect, translation in one resampling) and one affine map of its colours, both of OpenCV: TensorFlow's
ImageProjectiveTransformV3 takes about 20 times as long on a CPU. A mosaic is four such moves into four tiles.
"""

from typing import Final

import cv2
import numpy as np
from numpy.typing import NDArray

from shared.job import Augmentation
from trainer.dataset import Examples, pad_boxes

# What the empty parts of a moved picture hold: the gray that letterboxing pads with.
FILL: Final = (114, 114, 114)

# Luma of BT.601, the axis around which saturation is changed.
LUMA: Final = np.array([0.299, 0.587, 0.114])

Boxes = NDArray[np.float32]
Labels = NDArray[np.int32]
Matrix = NDArray[np.float64]


# Share of a box's area that must stay in the picture, and the shortest side that is still a box.
MIN_VISIBLE: Final = 0.3
MIN_SIDE_PX: Final = 3.0

UNCHANGED: Final = Augmentation(
    flip_horizontal=0, zoom=0, aspect=0, translate=0, brightness=0, contrast=0, saturation=0, hue_deg=0
)


def augment_batch(
    examples: Examples, rows: NDArray[np.int64], *, recipe: Augmentation, rng: np.random.Generator
) -> tuple[NDArray[np.uint8], Boxes, Labels]:
    """Draw a random change of each of the pictures `rows` of `examples`.

    Args:
        examples: The pool; mosaics take their other tiles from all of it.
        rows: int64 [B].
        recipe: How strongly.
        rng: All randomness comes from it.

    Returns:
        Pictures uint8 [B, H, W, 3] RGB; boxes float32 [B, N, 4], (ymin, xmin, ymax, xmax) fractions; labels int32
        [B, N], -1 in padding.
    """
    pictures = np.empty((len(rows), *examples.pictures.shape[1:]), np.uint8)
    boxes, labels = [], []
    for place, row in enumerate(rows):
        change = mosaic if rng.random() < recipe.mosaic else move
        corners, classes = change(examples, int(row), pictures[place], recipe, rng)
        change_colors(pictures[place], random_colors(recipe, rng))
        boxes.append(corners)
        labels.append(classes)
    return pictures, *pad_boxes(boxes, labels)


def move(
    examples: Examples, row: int, out: NDArray[np.uint8], recipe: Augmentation, rng: np.random.Generator
) -> tuple[Boxes, Labels]:
    """Write a moved picture `row` into `out` [H, W, 3]; returns its boxes and labels."""
    side = out.shape[0]
    matrix = random_move(recipe, rng, side)
    warp(examples.pictures[row], matrix, out)
    return move_boxes(examples.boxes[row], examples.labels[row], matrix, (0, 0, side, side), side)


def mosaic(
    examples: Examples, row: int, out: NDArray[np.uint8], recipe: Augmentation, rng: np.random.Generator
) -> tuple[Boxes, Labels]:
    """Write four moved pictures, `row` first, into the four tiles around a random point of `out` [H, W, 3].

    A tile shows a part of its picture at a random zoom of at most its own scale; a box belongs to its tile.
    """
    side = out.shape[0]
    center_y, center_x = (int(side * rng.uniform(0.3, 0.7)) for _ in range(2))
    rows = [row, *rng.integers(0, len(examples), 3)]
    tiles = [
        (0, 0, center_y, center_x),
        (0, center_x, center_y, side),
        (center_y, 0, side, center_x),
        (center_y, center_x, side, side),
    ]
    moved = []
    for tile_row, tile in zip(rows, rng.permutation(tiles), strict=True):
        matrix = _tile_move(recipe, rng, side, tile)
        top, left, bottom, right = tile
        shifted = matrix - np.array([[0, 0, left], [0, 0, top]])
        warp(examples.pictures[tile_row], shifted, out[top:bottom, left:right])
        moved.append(move_boxes(examples.boxes[tile_row], examples.labels[tile_row], matrix, tuple(tile), side))
    return np.concatenate([boxes for boxes, _ in moved]), np.concatenate([labels for _, labels in moved])


def _tile_move(recipe: Augmentation, rng: np.random.Generator, side: int, tile: NDArray[np.int64]) -> Matrix:
    """A random move whose picture covers the tile as far as it can: scaled by 0.5 to 1, at a random place over it."""
    top, left, bottom, right = tile
    scale = rng.uniform(0.5, 1.0) ** np.array([1.0, 1.0])
    scale *= np.exp(rng.uniform(-1, 1) * np.log1p(recipe.aspect) * np.array([0.5, -0.5]))
    size = scale * side
    # Where the picture is longer than the tile, any window of it; where shorter, anywhere inside.
    x = rng.uniform(min(left, right - size[0]), max(left, right - size[0]))
    y = rng.uniform(min(top, bottom - size[1]), max(top, bottom - size[1]))
    return np.array([[scale[0], 0, x], [0, scale[1], y]]) @ _affine(random_flip(recipe, rng, side))


def random_move(recipe: Augmentation, rng: np.random.Generator, side: int) -> Matrix:
    """Matrix [2, 3] from picture to changed picture, in pixels (x, y) with corners at whole numbers."""
    zoom = np.exp(rng.uniform(-1, 1) * np.log1p(recipe.zoom))
    aspect = np.exp(rng.uniform(-0.5, 0.5) * np.log1p(recipe.aspect))
    angle = np.deg2rad(rng.uniform(-1, 1) * recipe.rotate_deg)
    cos, sin = np.cos(angle), np.sin(angle)
    linear = zoom * np.array([[cos * aspect, -sin / aspect], [sin * aspect, cos / aspect]])
    center = np.full(2, side / 2)
    offset = center - linear @ center + rng.uniform(-1, 1, 2) * recipe.translate * side
    return np.concatenate([linear, offset[:, None]], axis=1) @ _affine(random_flip(recipe, rng, side))


def random_flip(recipe: Augmentation, rng: np.random.Generator, side: int) -> Matrix:
    """Matrix [2, 3] of a random flip and quarter turn of a square of `side` pixels."""
    matrix = np.array([[1.0, 0, 0], [0, 1.0, 0]])
    if rng.random() < recipe.flip_horizontal:
        matrix = np.array([[-1.0, 0, side], [0, 1.0, 0]])
    if rng.random() < recipe.flip_vertical:
        matrix = np.array([[1.0, 0, 0], [0, -1.0, side]]) @ _affine(matrix)
    if rng.random() < recipe.quarter_turn:
        matrix = np.array([[0.0, 1.0, 0], [1.0, 0, 0]]) @ _affine(matrix)
    return matrix


def warp(picture: NDArray[np.uint8], matrix: Matrix, out: NDArray[np.uint8]) -> None:
    """Write `picture` moved by `matrix` [2, 3] (pixel corners at whole numbers) into `out`, gray around it."""
    # OpenCV puts pixel centres at whole numbers, half a pixel from ours.
    centers = matrix.copy()
    centers[:, 2] += matrix[:, :2] @ np.full(2, 0.5) - 0.5
    height, width = out.shape[:2]
    out[:] = cv2.warpAffine(picture, centers, (width, height), flags=cv2.INTER_LINEAR, borderValue=FILL)


def move_boxes(boxes: Boxes, labels: Labels, matrix: Matrix, tile: tuple[int, ...], side: int) -> tuple[Boxes, Labels]:
    """Fit boxes around their moved corners, clip them to a tile, drop those hardly visible.

    Args:
        boxes: float32 [n, 4], (ymin, xmin, ymax, xmax) fractions of the picture.
        labels: int32 [n].
        matrix: [2, 3], pixels (x, y) to pixels.
        tile: (ymin, xmin, ymax, xmax) in pixels.
        side: Of the picture in pixels.

    Returns:
        The boxes that stay, in the same form and order, and their labels.
    """
    ymin, xmin, ymax, xmax = (boxes.astype(np.float64) * side).T
    corners = np.stack([np.stack([xmin, ymin]), np.stack([xmax, ymin]), np.stack([xmin, ymax]), np.stack([xmax, ymax])])
    moved = np.einsum("ij,kjn->kin", matrix[:, :2], corners) + matrix[:, 2:]
    low, high = moved.min(axis=0)[::-1].T, moved.max(axis=0)[::-1].T
    clipped_low = np.clip(low, tile[:2], tile[2:])
    clipped_high = np.clip(high, tile[:2], tile[2:])
    visible = np.prod(clipped_high - clipped_low, axis=1) / np.maximum(np.prod(high - low, axis=1), 1e-9)
    # A set of tiny objects keeps them: a box may become half as short as it was.
    least = np.minimum(MIN_SIDE_PX, np.minimum(ymax - ymin, xmax - xmin) / 2)
    keep = (visible >= MIN_VISIBLE) & (np.min(clipped_high - clipped_low, axis=1) >= least)
    fitted = np.concatenate([clipped_low, clipped_high], axis=1) / side
    return fitted[keep].astype(np.float32), labels[keep]


def random_colors(recipe: Augmentation, rng: np.random.Generator) -> Matrix:
    """Affine map [3, 4] of RGB in [0, 255]: hue and saturation around the gray axis, then contrast, then brightness."""
    contrast = np.exp(rng.uniform(-1, 1) * np.log1p(recipe.contrast))
    saturation = np.exp(rng.uniform(-1, 1) * np.log1p(recipe.saturation))
    turn = _hue_turn(np.deg2rad(rng.uniform(-1, 1) * recipe.hue_deg))
    gray = np.tile(LUMA, (3, 1))
    linear = contrast * (gray + saturation * (turn - gray @ turn))
    offset = 127.5 * (1 - contrast) + 255 * rng.uniform(-1, 1) * recipe.brightness
    return np.concatenate([linear, np.full((3, 1), offset)], axis=1)


def _hue_turn(angle: float) -> Matrix:
    """Rotation [3, 3] of RGB around the gray axis (Rodrigues' formula)."""
    axis = np.full(3, 1 / np.sqrt(3))
    cross = np.array([[0, -axis[2], axis[1]], [axis[2], 0, -axis[0]], [-axis[1], axis[0], 0]])
    turn: Matrix = np.eye(3) * np.cos(angle) + np.sin(angle) * cross + (1 - np.cos(angle)) * np.outer(axis, axis)
    return turn


def change_colors(picture: NDArray[np.uint8], matrix: Matrix) -> None:
    """Apply an affine map [3, 4] to the colours of `picture` [H, W, 3], in place, saturating."""
    cv2.transform(picture, matrix, dst=picture)


def _affine(matrix: Matrix) -> Matrix:
    """[2, 3] -> [3, 3]."""
    return np.concatenate([matrix, [[0.0, 0.0, 1.0]]])
