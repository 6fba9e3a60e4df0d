"""What the pictures of a batch are put together from, and the resulting boxes. numpy only."""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trainer.data.examples import Examples, pad_boxes
from trainer.data.warp import Matrix, move_boxes
from trainer.tensors import IGNORED

Boxes = NDArray[np.float32]
Labels = NDArray[np.int32]
Places = NDArray[np.int64]

# The share of a box's area that must stay visible, and the least length of a box's shorter side.
MIN_VISIBLE: Final = 0.3
MIN_SIDE_PX: Final = 3.0


class Parts(NamedTuple):
    """What a batch is put together from: one part per picture, four per mosaic; a picture's parts are adjacent.

    `places` int64 [P] is the picture in the batch, `rows` int64 [P] that in the pool; `matrices` [P, 2, 3] map pixels
    (x, y) of the pool's picture to pixels of the batch's; `tiles` int64 [P, 4] are (ymin, xmin, ymax, xmax) in pixels
    of the batch's picture.
    """

    places: Places
    rows: Places
    matrices: Matrix
    tiles: NDArray[np.int64]


def boxes_of_parts(parts: Parts, examples: Examples, count: int) -> tuple[Boxes, Labels]:
    """The moved boxes and labels of a batch of `count` pictures, padded, without those that are hardly visible.

    Returns:
        float32 [count, N, 4], (ymin, xmin, ymax, xmax) fractions, and int32 [count, N], as in `trainer.data.examples`.
    """
    side = examples.pictures.shape[1]
    counts = np.array([len(examples.labels[row]) for row in parts.rows])
    part = np.repeat(np.arange(len(parts.rows)), counts)
    whole = np.concatenate([examples.boxes[row] for row in parts.rows])
    boxes, visible = move_boxes(whole, parts.matrices[part], parts.tiles[part], side)
    labels = np.concatenate([examples.labels[row] for row in parts.rows])
    # Data sets of tiny objects must keep them: a box may always shrink to half of its shortest side.
    least = np.minimum(MIN_SIDE_PX, _shortest_px(whole, side) / 2)
    # An ignored box is kept however little of it is visible: otherwise the rest would be punished as background.
    least_visible = np.where(labels == IGNORED, 0.0, MIN_VISIBLE)
    keep = (visible >= least_visible) & (_shortest_px(boxes, side) >= least)
    return pad_boxes(boxes[keep], labels[keep], parts.places[part][keep], count)


def _shortest_px(boxes: Boxes, side: int) -> NDArray[np.float32]:
    shortest: NDArray[np.float32] = (boxes[:, 2:] - boxes[:, :2]).min(axis=1, initial=1.0) * side
    return shortest
