"""What a person looks at while a run trains: training pictures, detections on validation pictures, and curves.

All files are below `runs/<run>`: `results.csv` and `results.png`, `plots/train_batches.jpg`, `plots/validation.jpg`,
and the same for TensorBoard.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from shared.drawing import caption, grid
from shared.jobs.paths import RunPaths
from shared.storage import Storage
from trainer.data.examples import Examples
from trainer.detections import DetectionsById
from trainer.inference.draw import draw_detections, draw_truth
from trainer.pixels import Picture
from trainer.reporting.plots import jpeg_sheet, training_curves
from trainer.training.board import Board
from trainer.training.checkpoint import EpochRow
from trainer.training.epoch_log import results_csv

# How many batches are shown: enough to see every kind of change.
SHOWN_BATCHES: Final = 2

# `results.png` is drawn at every validation, and every so many epochs in case there is none (`--final`).
DRAWN_EPOCHS: Final = 10

# How many validation pictures are shown, spread evenly over the split, and the least score that is drawn: detections
# below it are not meant to be looked at.
SHOWN_PICTURES: Final = 8
LEAST_SHOWN_SCORE: Final = 0.3


class TrainingMonitor:
    """Writes what a person looks at while a run trains.

    Args:
        storage: Where the run lies.
        run: Its name.
        labels: Class names by class.
    """

    def __init__(self, storage: Storage, run: str, labels: Sequence[str]) -> None:
        self._storage, self._labels = storage, labels
        self._root = RunPaths(run).root
        self._board = Board(storage, f"{self._root}/tensorboard")

    def show_batches(self, batches: tf.data.Dataset) -> None:
        """Write the first training batches, with their boxes, to `plots/train_batches.jpg`."""
        first = list(batches.take(SHOWN_BATCHES).as_numpy_iterator())
        self._show("train_batches", batch_sheet(first, self._labels), step=0)

    def show_validation(self, examples: Examples, found: DetectionsById, step: int) -> None:
        """Write some validation pictures, the truth beside what is seen, to `plots/validation.jpg`."""
        self._show("validation", validation_sheet(examples, found, self._labels), step=step)

    def note_epoch(self, rows: Sequence[EpochRow], *, is_last: bool = False) -> None:
        """Write all epochs to `results.csv`, the last one to TensorBoard and, now and then and at the end, the plot."""
        self._storage.write(f"{self._root}/results.csv", results_csv(rows))
        # Drawing takes 0.3 s, as long as a step.
        is_shown = is_last or rows[-1].val_map is not None or rows[-1].epoch % DRAWN_EPOCHS == 0
        if is_shown:
            curves = training_curves([row.model_dump() for row in rows])
            self._storage.write(f"{self._root}/results.png", curves)
        facts = rows[-1].model_dump(exclude={"epoch", "step"}, exclude_none=True)
        self._board.add_figures(facts, rows[-1].step)
        if is_shown:
            self._board.publish()

    def _show(self, name: str, jpeg: bytes, step: int) -> None:
        self._storage.write(f"{self._root}/plots/{name}.jpg", jpeg)
        self._board.add_picture(name, jpeg, step)


def batch_sheet(batches: Sequence[Mapping[str, Any]], labels: Sequence[str]) -> bytes:
    """Training batches with their boxes, as JPEG.

    Args:
        batches: numpy batches as `trainer.data.examples` describes them.
        labels: Class names by class.

    Returns:
        A grid of eight columns for each batch, one below the other.
    """
    rows = []
    for batch in batches:
        shown = [
            _with_truth(picture, boxes, classes, labels)
            for picture, boxes, classes in zip(batch["pictures"], batch["boxes"], batch["labels"], strict=True)
        ]
        rows.append(grid(shown, columns=8))
    return jpeg_sheet(rows)


def validation_sheet(examples: Examples, found: DetectionsById, labels: Sequence[str]) -> bytes:
    """`SHOWN_PICTURES` pictures spread evenly over the split, each as annotated and as seen, as JPEG.

    Args:
        examples: The split.
        found: The detections in each of its pictures.
        labels: Class names by class.
    """
    chosen = np.unique(np.linspace(0, len(examples) - 1, SHOWN_PICTURES).astype(int))
    pairs = []
    for row in chosen:
        picture, seen = examples.pictures[row], found[int(examples.source_ids[row])].above(LEAST_SHOWN_SCORE)
        truth = _with_truth(picture, examples.boxes[row], examples.labels[row], labels)
        drawn = draw_detections(picture[..., ::-1], seen, labels)
        texts = (f"annotated: {(examples.labels[row] >= 0).sum()}", f"seen: {len(seen.scores)}")
        pairs.append(grid([caption(truth, texts[0]), caption(drawn, texts[1])], columns=2))
    return jpeg_sheet([grid(pairs, columns=2)])


def _with_truth(picture: Picture, boxes: NDArray[Any], classes: NDArray[Any], labels: Sequence[str]) -> Picture:
    """`picture` (RGB) with its objects except ignored ones, as BGR; boxes are (ymin, xmin, ymax, xmax) fractions."""
    is_class = classes >= 0
    corners = boxes[is_class][:, [1, 0, 3, 2]] * picture.shape[0]
    return draw_truth(picture[..., ::-1], corners, [int(label) + 1 for label in classes[is_class]], labels)
