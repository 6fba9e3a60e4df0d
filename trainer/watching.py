"""What a person looks at while a run trains: pictures as they are fed and as they are seen, and curves.

All below `runs/<run>`: `results.csv` and `results.png`, `plots/train_batches.jpg`, `plots/validation.jpg`, and the same
for TensorBoard.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import cv2
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from shared.manifest import RunPaths
from shared.storage import Storage
from trainer.checkpoint import EpochRow
from trainer.dataset import Examples
from trainer.detections import Detections
from trainer.draw import Picture, caption, draw_detections, draw_truth, grid
from trainer.epoch import results_csv
from trainer.evaluate import Detections as Seen
from trainer.plots import jpeg_sheet, training_curves

# Batches shown: enough to see every kind of change.
SHOWN_BATCHES: Final = 2

# `results.png` is drawn at every validation, and where there is none (`--final`) every so many epochs.
DRAWN_EPOCHS: Final = 10

# Validation pictures shown, evenly over the split, and the least score drawn: lower ones are not meant to be looked at.
SHOWN_PICTURES: Final = 8
LEAST_SHOWN_SCORE: Final = 0.3


class Watching:
    """Writes what a person looks at of one run; TensorBoard's files only on a local store.

    Args:
        storage: Where the run lies.
        run: Its name.
        labels: Class names by class.
    """

    def __init__(self, storage: Storage, run: str, labels: Sequence[str]) -> None:
        self._storage, self._labels = storage, labels
        self._root = RunPaths(run).root
        self._writer = None
        if storage.is_local:
            folder = storage.local_path(f"{self._root}/tensorboard")
            self._writer = tf.summary.create_file_writer(str(folder))

    def show_batches(self, batches: tf.data.Dataset) -> None:
        """Write the first training batches, with their boxes, to `plots/train_batches.jpg`: a row a batch."""
        first = list(batches.take(SHOWN_BATCHES).as_numpy_iterator())
        self._show("train_batches", batch_sheet(first, self._labels), step=0)

    def show_validation(self, examples: Examples, seen: Sequence[Seen], step: int) -> None:
        """Write some validation pictures, truth beside what is seen, to `plots/validation.jpg`."""
        self._show("validation", validation_sheet(examples, seen, self._labels), step=step)

    def note_epoch(self, rows: Sequence[EpochRow], *, is_last: bool = False) -> None:
        """Write all epochs to `results.csv` and the last to TensorBoard; `results.png` now and then, and at the end."""
        self._storage.write(f"{self._root}/results.csv", results_csv(rows))
        # Drawing takes 0.3 s, as long as a step.
        if is_last or rows[-1].val_map is not None or rows[-1].epoch % DRAWN_EPOCHS == 0:
            history = [{key: value for key, value in row.model_dump().items() if value is not None} for row in rows]
            self._storage.write(f"{self._root}/results.png", training_curves(history))
        if self._writer is None:
            return
        with self._writer.as_default(step=rows[-1].step):
            for name, value in rows[-1].model_dump().items():
                if value is not None and name not in ("epoch", "step"):
                    tf.summary.scalar(name, value)
        self._writer.flush()

    def _show(self, name: str, jpeg: bytes, step: int) -> None:
        self._storage.write(f"{self._root}/plots/{name}.jpg", jpeg)
        if self._writer is not None:
            pixels: NDArray[Any] = np.asarray(cv2.imdecode(np.frombuffer(jpeg, np.uint8), cv2.IMREAD_COLOR_RGB))
            with self._writer.as_default(step=step):
                tf.summary.image(name, pixels[None])
            self._writer.flush()


def batch_sheet(batches: Sequence[Mapping[str, Any]], labels: Sequence[str]) -> bytes:
    """Training batches with their boxes, as JPEG.

    Args:
        batches: numpy batches as `trainer.dataset` describes them.
        labels: Class names by class.

    Returns:
        One row of pictures a batch.
    """
    rows = []
    for batch in batches:
        shown = [
            _with_truth(picture, boxes[classes >= 0], classes[classes >= 0], labels)
            for picture, boxes, classes in zip(batch["pictures"], batch["boxes"], batch["labels"], strict=True)
        ]
        rows.append(grid(shown, columns=8))
    return jpeg_sheet(rows)


def validation_sheet(examples: Examples, seen: Sequence[Seen], labels: Sequence[str]) -> bytes:
    """`SHOWN_PICTURES` pictures evenly over the split, each twice: as annotated and as seen; as JPEG.

    Args:
        examples: The split.
        seen: Detections of each of its pictures.
        labels: Class names by class.
    """
    chosen = np.unique(np.linspace(0, len(examples) - 1, SHOWN_PICTURES).astype(int))
    pairs = []
    for row in chosen:
        picture, found = examples.pictures[row], in_pixels(seen[row], examples.pictures.shape[1])
        found = found.above(LEAST_SHOWN_SCORE)
        truth = _with_truth(picture, examples.boxes[row], examples.labels[row], labels)
        drawn = draw_detections(np.ascontiguousarray(picture[..., ::-1]), found, labels)
        texts = (f"annotated: {len(examples.labels[row])}", f"seen: {len(found.scores)}")
        pairs.append(grid([caption(truth, texts[0]), caption(drawn, texts[1])], columns=2))
    return jpeg_sheet([grid(pairs, columns=2)])


def in_pixels(seen: Seen, side: int) -> Detections:
    """The judge's form, fractions and classes from 0 -> pixels of a picture of `side`, class ids from 1."""
    return Detections(
        boxes=(seen.boxes[:, [1, 0, 3, 2]] * np.float32(side)).astype(np.float32),
        class_ids=seen.classes + 1,
        scores=seen.scores,
    )


def _with_truth(picture: Picture, boxes: NDArray[Any], classes: NDArray[Any], labels: Sequence[str]) -> Picture:
    """`picture` (RGB) with boxes, (ymin, xmin, ymax, xmax) fractions, as BGR."""
    corners = boxes[:, [1, 0, 3, 2]] * picture.shape[0]
    return draw_truth(np.ascontiguousarray(picture[..., ::-1]), corners, [labels[label] for label in classes])
