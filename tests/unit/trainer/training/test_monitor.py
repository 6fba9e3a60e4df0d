from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import tensorflow as tf
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from shared.colours import colour_of
from shared.drawing import CAPTION_PX
from shared.specs.augmentation import Augmentation
from shared.storage import Storage
from tests.unit.trainer.pictures import drawn_examples
from trainer.data.batches import batches_from_memory
from trainer.data.examples import Examples
from trainer.detections import Detections, DetectionsById
from trainer.tensors import IGNORED
from trainer.training.board import Board
from trainer.training.checkpoint import EpochRow
from trainer.training.monitor import LEAST_SHOWN_SCORE, TrainingMonitor, validation_sheet

LABELS = ("square", "disc")
SIDE = 64
GAP = 6


def seen(score: float) -> Detections:
    return Detections(
        boxes=np.array([[32, 16, 48, 32]], np.float32),
        class_ids=np.array([2]),
        scores=np.array([score], np.float32),
    )


def in_all(examples: Examples, score: float) -> DetectionsById:
    return {int(source_id): seen(score) for source_id in examples.source_ids}


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


@pytest.mark.parametrize("count", [1, 3, 20])
def test_validation_shows_every_chosen_picture_twice(count: int) -> None:
    examples = drawn_examples(count)
    sheet = decoded(validation_sheet(examples, in_all(examples, 0.9), LABELS))
    pairs = min(count, 8)
    assert sheet.shape[1] > SIDE * 2 * min(2, pairs)
    assert sheet.shape[0] > SIDE * -(-pairs // 2)


def test_a_detection_below_the_least_score_is_not_drawn() -> None:
    examples = drawn_examples(1)
    faint, clear = (
        validation_sheet(examples, in_all(examples, score), LABELS) for score in (LEAST_SHOWN_SCORE / 2, 0.9)
    )
    assert (decoded(faint) != decoded(clear)).any()
    below, from_there, nothing = (
        validation_sheet(examples, in_all(examples, score), LABELS) for score in (0.29, 0.31, 0)
    )
    assert below == nothing != from_there


def test_a_detection_equal_to_its_annotation_is_drawn_alike() -> None:
    """Same place, same colour of the class, same photo; only the word at the box has a score."""
    examples = drawn_examples(3, side=320, most=1)
    examples = replace(
        examples,
        source_ids=np.array([70, 50, 60]),
        boxes=(np.array([[0.25, 0.5, 0.75, 0.875]], np.float32),) * 3,
        labels=tuple(np.array([label], np.int32) for label in (1, 0, 1)),
    )
    found = {
        int(source_id): Detections(
            boxes=np.array([[160, 80, 280, 240]], np.float32),
            class_ids=labels.astype(np.int64) + 1,
            scores=np.ones(1, np.float32),
        )
        for source_id, labels in zip(examples.source_ids, examples.labels, strict=True)
    }
    sheet = decoded(validation_sheet(examples, found, LABELS)).astype(int)
    pair_high, pair_wide = 320 + CAPTION_PX + 2 * GAP, 2 * 320 + 3 * GAP
    for at, classes in enumerate(examples.labels):
        top, left = (
            2 + GAP + place * (size + GAP) for place, size in zip(divmod(at, 2), (pair_high, pair_wide), strict=True)
        )
        lower = slice(top + GAP + 120, top + GAP + 300)  # below the words at the box
        annotated, drawn = (sheet[lower, start : start + 320] for start in (left + GAP, left + 2 * GAP + 320))
        assert np.percentile(np.abs(annotated - drawn).max(axis=2), 99) < 40
        side = np.abs(annotated[:100] - colour_of(int(classes[0]) + 1)).sum(axis=2)[:, 156:165].min(axis=1)
        assert np.median(side) < 90, "the left side, in the colour of its class"


def test_ignored_objects_are_not_shown() -> None:
    examples = drawn_examples(1, most=1)
    ignored = replace(examples, labels=(np.array([IGNORED], np.int32),))
    bare = replace(examples, boxes=(np.zeros((0, 4), np.float32),), labels=(np.zeros(0, np.int32),))
    with_one, shown, without = (validation_sheet(each, in_all(each, 0.9), LABELS) for each in (examples, ignored, bare))
    assert shown == without != with_one


def test_a_run_leaves_curves_and_pictures_for_people_and_for_tensorboard(tmp_path: Path) -> None:
    examples, folder = drawn_examples(4), tmp_path / "runs/r"
    watching = TrainingMonitor(Storage(str(tmp_path)), "r", LABELS)
    watching.show_batches(batches_from_memory(examples, batch=4, recipe=Augmentation(), seed=0))
    watching.note_epoch([row(1)])
    assert not (folder / "results.png").exists()
    watching.note_epoch([row(1)], is_last=True)
    assert (folder / "results.png").exists()
    watching.show_validation(examples, in_all(examples, 0.9), step=20)
    watching.note_epoch([row(1), row(2, val_map50=0.5, val_map=0.3)])
    assert decoded((folder / "results.png").read_bytes()).size
    assert (folder / "results.csv").read_text().splitlines()[2].endswith(",0.5,0.3,0")
    assert {path.name for path in (folder / "plots").iterdir()} == {"train_batches.jpg", "validation.jpg"}
    shown = tags(folder / "tensorboard")
    assert {"train_batches", "validation", "loss", "val_map50", "val_map", "learning_rate", "busy"} <= shown


def test_curves_are_drawn_at_a_validation_and_without_one_now_and_then(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    monitor, curves = TrainingMonitor(storage, "r", LABELS), tmp_path / "runs/r/results.png"
    monitor.note_epoch([row(1)])
    assert not curves.exists()
    monitor.note_epoch([row(1), row(2, val_map=0.1, val_map50=0.2)])
    assert curves.exists()
    curves.unlink()
    monitor.note_epoch([row(9)])
    assert not curves.exists()
    monitor.note_epoch([row(10)])
    assert curves.exists()


def test_tensorboards_files_stay_below_5_mb_however_long_a_run_trains(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (1300, 1300, 3), np.uint8)
    jpeg = cv2.imencode(".jpg", noise)[1].tobytes()
    assert len(jpeg) > 1_000_000
    for _attempt in range(2):
        board = Board(Storage(str(tmp_path)), ".")
        for epoch in range(1, 400):
            board.add_figures({"loss": 1.0, "val_map": 0.5}, epoch)
            board.add_picture("validation", jpeg, epoch)
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) <= 5_000_000
    assert tags(tmp_path) == {"loss", "val_map", "validation"}


def test_tensorboard_shows_the_first_pictures_and_then_ever_fewer(tmp_path: Path) -> None:
    jpeg = cv2.imencode(".jpg", np.zeros((32, 48, 3), np.uint8))[1].tobytes()
    board = Board(Storage(str(tmp_path)), ".")
    for epoch in range(1, 50):
        board.add_picture("validation", jpeg, epoch)
    reader = EventAccumulator(str(tmp_path), size_guidance={"tensors": 0}).Reload()
    shown = reader.Tensors("validation")
    assert [event.step for event in shown] == [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48]
    width, height, picture = shown[0].tensor_proto.string_val
    assert (width, height) == (b"48", b"32")
    assert decoded(picture).shape == (32, 48, 3)
