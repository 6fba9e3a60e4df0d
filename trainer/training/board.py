"""Figures and pictures of a run -> TensorBoard's files, which together stay below 5 MB however long the run trains.

We write pictures ourselves, because `tf.summary.image` stores PNG: 1 MB and more for a sheet, at every validation.
"""

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import cv2
import numpy as np
import tensorflow as tf
from tensorboard.plugins.image.metadata import create_summary_metadata

from shared.storage import Storage

# How many bytes a run's files may take, and how many of these are reserved for figures.
MOST_BYTES: Final = 5_000_000
_FOR_FIGURES: Final = 1_000_000
# The bytes that a figure or picture takes besides its content: record, tag, step, wall time, metadata.
_OVERHEAD: Final = 256

# The longest side in pixels; the full sheets are in `plots/`.
_SIDE: Final = 1024
_QUALITY: Final = 80


class Board:
    """TensorBoard's files in one folder of the store, including those of earlier attempts.

    In a bucket, each `publish` writes this attempt's file again as a whole.
    """

    def __init__(self, storage: Storage, folder: str) -> None:
        self._storage, self._folder = storage, folder
        taken = sum(stamp.size_bytes for stamp in storage.walk(folder).values())
        self._left = MOST_BYTES - taken - 4 * _OVERHEAD
        self._shown: dict[str, int] = {}
        self._scratch = None if storage.is_local else TemporaryDirectory(prefix="voc-board-")
        here = storage.local_path(folder) if self._scratch is None else Path(self._scratch.name)
        self._here, self._writer = here, tf.summary.create_file_writer(str(here))

    def publish(self) -> None:
        """Copy what was written to the bucket; in a local folder it is already in place."""
        if self._scratch is not None:
            for path in self._here.iterdir():
                self._storage.write(f"{self._folder}/{path.name}", path.read_bytes())

    def add_figures(self, figures: Mapping[str, float], step: int) -> None:
        """Write numbers by name, if there is room."""
        cost = _OVERHEAD * len(figures)
        if cost > self._left:
            return
        self._left -= cost
        with self._writer.as_default(step=step):
            for name, value in figures.items():
                tf.summary.scalar(name, value)
        self._writer.flush()

    def add_picture(self, name: str, jpeg: bytes, step: int) -> None:
        """Write a picture, less and less often: the 1st, 2nd, 3rd, 4th, 6th, 8th, 12th, 16th … with its name."""
        number = self._shown[name] = self._shown.get(name, 0) + 1
        if not _is_shown(number):
            return
        content, height, width = _small(jpeg)
        if len(content) + _OVERHEAD > self._left - _FOR_FIGURES:
            return
        self._left -= len(content) + _OVERHEAD
        metadata = create_summary_metadata(display_name=None, description="")
        with self._writer.as_default(step=step):
            tf.summary.write(name, tf.constant([str(width).encode(), str(height).encode(), content]), metadata=metadata)
        self._writer.flush()


def _is_shown(number: int) -> bool:
    """Whether `number`, from 1, has no more than its two highest bits set."""
    return number & (number - 1) == 0 or number == 3 << (number.bit_length() - 2)


def _small(jpeg: bytes) -> tuple[bytes, int, int]:
    """A JPEG with sides of at most `_SIDE` pixels, and the height and width."""
    picture = cv2.imdecode(np.frombuffer(jpeg, np.uint8), cv2.IMREAD_COLOR)
    if picture is None:
        raise ValueError("expected a JPEG")
    scale = min(1.0, _SIDE / max(picture.shape[:2]))
    if scale < 1:
        picture = cv2.resize(picture, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
    _, content = cv2.imencode(".jpg", picture, [cv2.IMWRITE_JPEG_QUALITY, _QUALITY])
    return content.tobytes(), *picture.shape[:2]
