"""Objects of other pictures, pasted where a picture has none: more objects per picture, more backgrounds per object.

Based on copy-paste (Dwibedi, Misra & Hebert, 2017; Ghiasi et al., 2021), with boxes instead of masks: the background
inside an object's box comes along.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from trainer.data.examples import Examples
from trainer.data.parts import Parts, boxes_of_parts
from trainer.data.warp import whole_pixels
from trainer.tensors import IGNORED, PADDING

# The most objects that a picture gets; each is scaled by a factor between this least one and 1.
_MOST_OBJECTS: Final = 2
_LEAST_SCALE: Final = 0.35
# With fewer pixels than this nothing can be recognised; a larger share of the picture's side leaves no room.
_LEAST_PX: Final = 8
_MOST_SHARE: Final = 0.8
# The most of an existing object's area that may be covered.
_MOST_COVERED: Final = 0.1
_TRIES: Final = 10


def with_pasted(
    parts: Parts, examples: Examples, count: int, *, paste: float, flip: float, rng: np.random.Generator
) -> Parts:
    """The parts of a batch with objects of other pictures in some of its `count` pictures.

    Args:
        parts: What the batch is put together from.
        examples: The pool that objects are taken from.
        count: The number of pictures in the batch.
        paste: The share of the pictures that get one or two objects, or fewer if there is no room.
        flip: The share of the objects that are mirrored left and right.
        rng: The source of all randomness.
    """
    side = examples.pictures.shape[1]
    boxes, labels = boxes_of_parts(parts, examples, count)
    pasted = [parts]
    for place in np.flatnonzero(rng.random(count) < paste).tolist():
        there = boxes[place][labels[place] != PADDING] * side
        for _ in range(int(rng.integers(1, 1 + _MOST_OBJECTS))):
            one = _pasted(place, there, examples, flip, rng)
            if one is not None:
                pasted.append(one)
                there = np.concatenate([there, one.tiles])
    joined = Parts._make(map(np.concatenate, zip(*pasted, strict=True)))
    # In each picture, pasted parts come last and so lie on top.
    order = np.argsort(joined.places, kind="stable")
    return Parts._make(values[order] for values in joined)


def _pasted(
    place: int, there: NDArray[np.float64], examples: Examples, flip: float, rng: np.random.Generator
) -> Parts | None:
    """One object to paste into picture `place`, clear of its boxes `there`, [N, 4] in pixels; None without room."""
    side = examples.pictures.shape[1]
    row = int(rng.integers(len(examples)))
    learned = np.flatnonzero(examples.labels[row] != IGNORED)
    if not len(learned):
        return None
    chosen = learned[rng.integers(len(learned))]
    ymin, xmin, ymax, xmax = (examples.boxes[row][chosen] * side).tolist()
    scale = float(np.exp(rng.uniform(np.log(_LEAST_SCALE), 0.0)))
    height, width = round((ymax - ymin) * scale), round((xmax - xmin) * scale)
    if min(height, width) < _LEAST_PX or max(height, width) > _MOST_SHARE * side:
        return None
    corner = _free_corner(height, width, there, side, rng)
    if corner is None:
        return None
    top, left = corner
    scale_y, scale_x = height / (ymax - ymin), width / (xmax - xmin)
    matrix = np.array([[scale_x, 0, left - scale_x * xmin], [0, scale_y, top - scale_y * ymin]])
    if rng.random() < flip:
        matrix[0] = [-scale_x, 0, left + scale_x * xmax]
    tile = (top, left, top + height, left + width)
    return Parts(
        places=np.array([place]),
        rows=np.array([row]),
        matrices=whole_pixels(matrix, tile, side)[None],
        tiles=np.array([tile]),
    )


def _free_corner(
    height: int, width: int, there: NDArray[np.float64], side: int, rng: np.random.Generator
) -> tuple[int, int] | None:
    """Top and left of a box of this size that hardly covers the boxes `there`; None if none is found."""
    areas = np.maximum(np.prod(there[:, 2:] - there[:, :2], axis=1), 1.0)
    for _ in range(_TRIES):
        top, left = int(rng.integers(0, side - height + 1)), int(rng.integers(0, side - width + 1))
        new = np.array([top, left, top + height, left + width])
        sides = np.minimum(there[:, 2:], new[2:]) - np.maximum(there[:, :2], new[:2])
        if (np.prod(np.maximum(sides, 0), axis=1) / areas).max(initial=0.0) < _MOST_COVERED:
            return top, left
    return None
