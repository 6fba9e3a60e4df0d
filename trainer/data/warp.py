"""Matrices -> moved pictures, boxes and changed colours. Only numpy and OpenCV; nothing is random here.

`trainer.data.augment` draws the matrices. A move without rotation is a resized rectangle, which takes OpenCV a third of
the time of an affine resampling; other moves are resampled with a fourth channel, for which it has faster code
(docs/decisions/0035).
"""

from typing import Final

import cv2
import numpy as np
from numpy.typing import NDArray

from shared.placement import PADDING_GRAY
from trainer.pixels import Picture

_BORDER: Final = (PADDING_GRAY, PADDING_GRAY, PADDING_GRAY, 255)

# An affine map of colours this close to the identity changes no byte.
SAME_COLOR: Final = 1e-6

Matrix = NDArray[np.float64]


def is_upright(matrix: Matrix) -> bool:
    """Whether a matrix [2, 3] keeps the axes: it only scales, flips and shifts."""
    return bool(matrix[0, 1] == 0 and matrix[1, 0] == 0)


def whole_pixels(matrix: Matrix, tile: tuple[int, int, int, int], side: int) -> Matrix:
    """The closest matrix that moves whole pixels to whole pixels, if `matrix` is upright; otherwise `matrix` itself.

    Args:
        matrix: [2, 3], pixels (x, y) to pixels, corners at whole numbers.
        tile: (ymin, xmin, ymax, xmax) in pixels, the part of the result that is visible.
        side: The side of the picture in pixels.
    """
    if not is_upright(matrix):
        return matrix
    snapped = np.zeros((2, 3))
    for axis in (0, 1):
        scale, shift = float(matrix[axis, axis]), float(matrix[axis, 2])
        first, last, low, high = _interval(scale, shift, (tile[1 - axis], tile[3 - axis]), side)
        if low >= high:
            return matrix
        length = (high - low) / (last - first) * (1 if scale > 0 else -1)
        snapped[axis, axis], snapped[axis, 2] = length, (low if scale > 0 else high) - length * first
    return snapped


def _interval(scale: float, shift: float, seen: tuple[int, int], side: int) -> tuple[int, int, int, int]:
    """Pixels [first, last) of a picture's axis, and the pixels [low, high) of the visible part that they fill."""
    ends = sorted((shift, shift + scale * side))
    low, high = round(max(ends[0], seen[0])), round(min(ends[1], seen[1]))
    sources = sorted(((max(ends[0], seen[0]) - shift) / scale, (min(ends[1], seen[1]) - shift) / scale))
    first = min(max(round(sources[0]), 0), side - 1)
    return first, min(max(round(sources[1]), first + 1), side), low, high


def warp(picture: Picture, matrix: Matrix, out: Picture) -> None:
    """Write `picture` [H, H, 3] moved by `matrix` [2, 3] (pixel corners at whole numbers) into `out`, gray around it.

    An upright matrix is first rounded as by `whole_pixels`.
    """
    if is_upright(matrix):
        _stretch(picture, matrix, out)
    else:
        _resample(picture, matrix, out)


def _stretch(picture: Picture, matrix: Matrix, out: Picture) -> None:
    height, width = out.shape[:2]
    (scale_x, _, shift_x), (_, scale_y, shift_y) = matrix.tolist()
    left, right, low_x, high_x = _interval(scale_x, shift_x, (0, width), picture.shape[1])
    top, bottom, low_y, high_y = _interval(scale_y, shift_y, (0, height), picture.shape[0])
    if (low_y, low_x, high_y, high_x) != (0, 0, height, width):
        # One number, because filling in a tuple of three is fifty times slower.
        out[:] = PADDING_GRAY
    if low_x >= high_x or low_y >= high_y:
        return
    source, target = picture[top:bottom, left:right], out[low_y:high_y, low_x:high_x]
    cv2.resize(source, (high_x - low_x, high_y - low_y), dst=target, interpolation=cv2.INTER_LINEAR)
    flips = (scale_y < 0, scale_x < 0)
    if any(flips):
        cv2.flip(target, {(True, False): 0, (False, True): 1, (True, True): -1}[flips], dst=target)


def _resample(picture: Picture, matrix: Matrix, out: Picture) -> None:
    # OpenCV puts pixel centres at whole numbers, half a pixel from ours.
    centers = matrix.copy()
    centers[:, 2] += matrix[:, :2] @ np.full(2, 0.5) - 0.5
    height, width = out.shape[:2]
    four = cv2.cvtColor(picture, cv2.COLOR_RGB2RGBA)
    moved = cv2.warpAffine(four, centers, (width, height), flags=cv2.INTER_LINEAR, borderValue=_BORDER)
    cv2.cvtColor(moved, cv2.COLOR_RGBA2RGB, dst=out)


def move_boxes(
    boxes: NDArray[np.float32], matrices: Matrix, tiles: NDArray[np.int64], side: int
) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    """Fit boxes around their moved corners and clip each to its tile.

    Args:
        boxes: float32 [N, 4], (ymin, xmin, ymax, xmax) fractions of the picture.
        matrices: [N, 2, 3], pixels (x, y) to pixels.
        tiles: int64 [N, 4], (ymin, xmin, ymax, xmax) in pixels.
        side: The side of the picture in pixels.

    Returns:
        The clipped boxes in the same form and order, and the share of each one's area that its tile shows, [N].
    """
    ymin, xmin, ymax, xmax = (boxes.astype(np.float64) * side).T
    corners = np.stack([np.stack([xmin, xmax, xmin, xmax], 1), np.stack([ymin, ymin, ymax, ymax], 1)], 1)
    moved = matrices[:, :, :2] @ corners + matrices[:, :, 2:]
    low, high = moved.min(axis=2)[:, ::-1], moved.max(axis=2)[:, ::-1]
    clipped_low, clipped_high = (np.clip(ends, tiles[:, :2], tiles[:, 2:]) for ends in (low, high))
    visible = np.prod(clipped_high - clipped_low, axis=1) / np.maximum(np.prod(high - low, axis=1), 1e-9)
    return (np.concatenate([clipped_low, clipped_high], axis=1) / side).astype(np.float32), visible


def change_colors(pictures: NDArray[np.uint8], matrices: Matrix) -> None:
    """Apply to each of `pictures`, [B, H, W, 3], its affine colour map, [B, 3, 4], in place, saturating."""
    for place in np.flatnonzero(np.abs(matrices - np.eye(3, 4)).max(axis=(1, 2)) > SAME_COLOR):
        cv2.transform(pictures[place], matrices[place], dst=pictures[place])
