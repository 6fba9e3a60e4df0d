import numpy as np
import pytest

from tests.unit.trainer.pictures import coco_truth, drawn_examples
from trainer.dataset import Examples
from trainer.evaluate import Detections, average_precision, decode, detect_all, suppress
from trainer.model import priors


def perfect(examples: Examples) -> list[Detections]:
    return [
        Detections(
            boxes=boxes, classes=labels.astype(np.int64), scores=np.linspace(0.9, 0.8, len(labels), dtype=np.float32)
        )
        for boxes, labels in zip(examples.boxes, examples.labels, strict=True)
    ]


def nothing() -> Detections:
    return Detections(boxes=np.zeros((0, 4), np.float32), classes=np.zeros(0, np.int64), scores=np.zeros(0, np.float32))


def ids(examples: Examples) -> list[int]:
    return [int(number) for number in examples.source_ids]


def test_perfect_detections_have_a_precision_of_1() -> None:
    examples = drawn_examples(6)
    found = average_precision(coco_truth(examples), perfect(examples), ids(examples))
    assert found.map50 == pytest.approx(1)
    assert found.map == pytest.approx(1)
    assert found.per_class_ap50 == {"square": pytest.approx(1), "disc": pytest.approx(1)}


def test_no_detections_have_a_precision_of_0() -> None:
    examples = drawn_examples(3)
    found = average_precision(coco_truth(examples), [nothing()] * 3, ids(examples))
    assert (found.map50, found.map) == (0, 0)
    assert found.per_class_ap50 == {"square": 0, "disc": 0}


def test_wrong_classes_find_nothing() -> None:
    examples = drawn_examples(4)
    swapped = [Detections(boxes=d.boxes, classes=1 - d.classes, scores=d.scores) for d in perfect(examples)]
    assert average_precision(coco_truth(examples), swapped, ids(examples)).map50 < 0.2


def test_a_missed_difficult_object_does_not_count() -> None:
    examples = drawn_examples(4)
    truth = coco_truth(examples)
    truth["annotations"][0]["ignore"] = 1
    missing = perfect(examples)
    missing[0] = Detections(boxes=missing[0].boxes[1:], classes=missing[0].classes[1:], scores=missing[0].scores[1:])
    assert average_precision(truth, missing, ids(examples)).map50 == pytest.approx(1)
    assert average_precision(truth, perfect(examples), ids(examples)).map50 == pytest.approx(1)
    assert average_precision(coco_truth(examples), missing, ids(examples)).map50 < 1


def test_every_picture_is_seen_once_and_padding_is_dropped() -> None:
    examples = drawn_examples(5)
    batches = []

    def detect(pictures: np.ndarray) -> list[Detections]:
        batches.append(pictures)
        return [
            Detections(
                boxes=np.zeros((1, 4), np.float32), classes=np.zeros(1, np.int64), scores=np.array([picture.mean()])
            )
            for picture in pictures
        ]

    found = detect_all(detect, examples, batch=4)
    assert [len(batch) for batch in batches] == [4, 4]
    np.testing.assert_allclose([d.scores[0] for d in found], examples.pictures.mean((1, 2, 3)))


def test_suppression_keeps_the_best_of_overlapping_boxes() -> None:
    boxes = np.array([[0, 0, 1, 1], [0, 0, 0.9, 1], [0, 0, 0.4, 1]], np.float32)
    assert suppress(boxes, 0.5).tolist() == [0, 2]
    assert suppress(np.zeros((0, 4), np.float32), 0.5).tolist() == []


def test_decoding_gives_each_cell_its_best_class_best_first() -> None:
    anchors = priors(64)
    logits = np.full((len(anchors), 2), -9.0, np.float32)
    logits[0, 0], logits[0, 1], logits[5, 1] = 1.0, 2.0, 0.5
    found = decode(np.zeros((len(anchors), 4), np.float32), logits, anchors)
    assert found.classes.tolist() == [1, 1]
    assert (np.diff(found.scores) <= 0).all()
    assert found.boxes.min() >= 0
    assert found.boxes.max() <= 1
