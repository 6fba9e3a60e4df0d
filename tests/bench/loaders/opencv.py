"""What a careful script does for a picture with OpenCV; pool processes import this, and no TensorFlow with it."""

from typing import Any, Final
from xml.etree import ElementTree

import cv2
import numpy as np
from numpy.typing import NDArray

from tests.bench.loaders.photos import CLASSES
from tests.bench.loaders.work import BATCH, Work

# The usual augmentation, the same for every row (usual.py).
ROTATE_DEG: Final = 20.0
ZOOM: Final = 0.2
CONTRAST: Final = 0.2

Batch = tuple[NDArray[Any], Any]


def load_picture(path: str, work: Work, rng: np.random.Generator | None) -> NDArray[np.float32]:
    """Decode, resize, change, scale: float32 [H, W, 3] in [0, 1], as a script with OpenCV does."""
    content = cv2.imread(path)
    assert content is not None
    picture = cv2.resize(cv2.cvtColor(content, cv2.COLOR_BGR2RGB), (work.side, work.side))
    if rng is not None and work.is_augmented:
        picture = change(picture, rng)  # type: ignore[arg-type]  # 8 bit
    return picture.astype(np.float32) * np.float32(1 / 255)


def read_pair(image: str, work: Work, seed: int) -> tuple[NDArray[np.float32], NDArray[np.float32], int]:
    """An image with the box (fractions) and class of its XML; the box is left where it was, as scripts often do."""
    annotation = ElementTree.parse(image.replace("JPEGImages", "Annotations").replace(".jpg", ".xml")).getroot()
    size = [float(annotation.findtext(f"size/{name}") or 0) for name in ("width", "height")]
    corners = [float(annotation.findtext(f"object/bndbox/{name}") or 0) for name in ("xmin", "ymin", "xmax", "ymax")]
    box = (np.array(corners) / np.array([*size, *size])).astype(np.float32)
    label = CLASSES.index(annotation.findtext("object/name") or "")
    return load_picture(image, work, np.random.default_rng(seed)), box, label


def read_pairs(images: list[str], work: Work, seed: int) -> Batch:
    """A batch of pairs, in the pool's process."""
    rows = [read_pair(image, work, seed * BATCH + number) for number, image in enumerate(images)]
    boxes, labels = np.stack([row[1] for row in rows]), np.array([row[2] for row in rows], np.int32)
    return np.stack([row[0] for row in rows]), (boxes, labels)


def change(picture: NDArray[np.uint8], rng: np.random.Generator) -> NDArray[np.uint8]:
    """As a careful script does it with OpenCV, on one picture uint8 [H, W, 3]."""
    side = picture.shape[0]
    angle, zoom = rng.uniform(-ROTATE_DEG, ROTATE_DEG), rng.uniform(1 - ZOOM, 1 + ZOOM)
    matrix = cv2.getRotationMatrix2D((side / 2, side / 2), angle, zoom)
    moved = cv2.warpAffine(picture, matrix, (side, side), flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
    if rng.random() < 0.5:
        moved = cv2.flip(moved, 1)
    if rng.random() < 0.5:
        moved = cv2.flip(moved, 0)
    factor = rng.uniform(1 - CONTRAST, 1 + CONTRAST)
    return cv2.convertScaleAbs(moved, alpha=factor, beta=127.5 * (1 - factor))  # type: ignore[return-value]  # 8 bit
