"""What a person looks at while a run trains: its first batches as they are fed, and TensorBoard's curves."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import tensorflow as tf

from shared.manifest import RunPaths
from shared.storage import Storage
from trainer.checkpoint import EpochRow
from trainer.draw import draw_truth, grid
from trainer.plots import jpeg_sheet

# Batches shown: enough to see every kind of change.
SHOWN_BATCHES: Final = 2

_FOLDER: Final = "tensorboard"


def batch_sheet(batches: Sequence[Mapping[str, Any]], labels: Sequence[str]) -> bytes:
    """Training batches with their boxes, as JPEG.

    Args:
        batches: numpy batches as `trainer.dataset` describes them.
        labels: Class names by label.

    Returns:
        One row of pictures a batch.
    """
    return jpeg_sheet([grid(_drawn(batch, labels), columns=8) for batch in batches])


def _drawn(batch: Mapping[str, Any], labels: Sequence[str]) -> list[Any]:
    drawn = []
    for picture, boxes, classes in zip(batch["pictures"], batch["boxes"], batch["labels"], strict=True):
        shown = classes >= 0
        # (ymin, xmin, ymax, xmax) fractions, RGB -> (xmin, ymin, xmax, ymax) px, BGR.
        corners = boxes[shown][:, [1, 0, 3, 2]] * picture.shape[0]
        names = [labels[label] for label in classes[shown]]
        drawn.append(draw_truth(np.ascontiguousarray(picture[..., ::-1]), corners, names))
    return drawn


def show_batches(storage: Storage, run: str, batches: tf.data.Dataset, labels: Sequence[str]) -> None:
    """Write the first training batches of a run to `plots/train_batches.jpg`."""
    first = list(batches.take(SHOWN_BATCHES).as_numpy_iterator())
    storage.write(f"{RunPaths(run).root}/plots/train_batches.jpg", batch_sheet(first, labels))


class Scalars:
    """TensorBoard's curves of one run, below `runs/<run>/tensorboard`; on an object store there are none."""

    def __init__(self, storage: Storage, run: str) -> None:
        self._writer = None
        if storage.is_local:
            folder: Path = storage.local_path(f"{RunPaths(run).root}/{_FOLDER}")
            self._writer = tf.summary.create_file_writer(str(folder))

    def add(self, row: EpochRow) -> None:
        """Note an epoch's line at its step."""
        if self._writer is None:
            return
        with self._writer.as_default(step=row.step):
            for name, value in row.model_dump().items():
                if value is not None and name not in ("epoch", "step"):
                    tf.summary.scalar(name, value)
        self._writer.flush()
