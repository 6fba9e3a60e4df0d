from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import tensorflow as tf

from shared.job import Augmentation
from shared.storage import Storage
from tests.unit.trainer.pictures import drawn_examples
from trainer.batches import batches_from_memory
from trainer.checkpoint import EpochRow
from trainer.evaluate import Detections
from trainer.watching import LEAST_SHOWN_SCORE, Watching, in_pixels, validation_sheet

LABELS = ("square", "disc")
SIDE = 64


def seen(score: float) -> Detections:
    return Detections(
        boxes=np.array([[0.25, 0.5, 0.5, 0.75]], np.float32),
        classes=np.array([1]),
        scores=np.array([score], np.float32),
    )


def row(epoch: int, **more: float) -> EpochRow:
    facts: dict[str, Any] = {"loss": 3.0 / epoch, "loss_score": 2.0 / epoch, "loss_box": 1.0, "learning_rate": 1e-3}
    return EpochRow(epoch=epoch, step=10 * epoch, seconds=1, images_per_s=8, busy=0.9, **facts, **more)


def decoded(content: bytes) -> np.ndarray:
    picture: Any = cv2.imdecode(np.frombuffer(content, np.uint8), cv2.IMREAD_COLOR)
    return np.asarray(picture)


def tags(folder: Path) -> set[str]:
    """What TensorBoard would show."""
    found: set[str] = set()
    for file in folder.glob("events.*"):
        for record in tf.data.TFRecordDataset(str(file)).as_numpy_iterator():
            event = tf.compat.v1.Event.FromString(record)
            found |= {value.tag for value in event.summary.value}
    return found


def test_detections_are_shown_in_pixels_and_ids_of_the_report() -> None:
    found = in_pixels(seen(0.5), SIDE)
    np.testing.assert_allclose(found.boxes, [[32, 16, 48, 32]])
    assert found.class_ids.tolist() == [2]


@pytest.mark.parametrize("count", [1, 3, 20])
def test_validation_shows_every_chosen_picture_twice(count: int) -> None:
    examples = drawn_examples(count)
    sheet = decoded(validation_sheet(examples, [seen(0.9)] * count, LABELS))
    pairs = min(count, 8)
    assert sheet.shape[1] > SIDE * 2 * min(2, pairs)
    assert sheet.shape[0] > SIDE * -(-pairs // 2)


def test_a_detection_below_the_least_score_is_not_drawn() -> None:
    examples = drawn_examples(1)
    faint, clear = (validation_sheet(examples, [seen(score)], LABELS) for score in (LEAST_SHOWN_SCORE / 2, 0.9))
    assert (decoded(faint) != decoded(clear)).any()


def test_a_run_leaves_curves_and_pictures_for_people_and_for_tensorboard(tmp_path: Path) -> None:
    examples, folder = drawn_examples(4), tmp_path / "runs/r"
    watching = Watching(Storage(str(tmp_path)), "r", LABELS)
    watching.show_batches(batches_from_memory(examples, batch=4, recipe=Augmentation(), seed=0))
    watching.note_epoch([row(1)])
    assert not (folder / "results.png").exists()
    watching.note_epoch([row(1)], is_last=True)
    assert (folder / "results.png").exists()
    watching.show_validation(examples, [seen(0.9)] * 4, step=20)
    watching.note_epoch([row(1), row(2, val_map50=0.5, val_map=0.3)])
    assert decoded((folder / "results.png").read_bytes()).size
    assert (folder / "results.csv").read_text().splitlines()[2].endswith("0.5,0.3")
    assert {path.name for path in (folder / "plots").iterdir()} == {"train_batches.jpg", "validation.jpg"}
    shown = tags(folder / "tensorboard")
    assert {"train_batches", "validation", "loss", "val_map50", "val_map", "learning_rate", "busy"} <= shown
