"""Which detection meets which object: hand-made pictures with known answers."""

import numpy as np
import pytest

from trainer.detections import Detections
from trainer.evaluation.curves import TruthBoxes, confusion, curve, partners, truth_by_image


def detections(*rows: tuple[float, float, float, float, int, float]) -> Detections:
    table = np.asarray(rows, np.float64).reshape(-1, 6)
    return Detections(
        boxes=table[:, :4].astype(np.float32), class_ids=table[:, 4].astype(int), scores=table[:, 5].astype(np.float32)
    )


def truth(*rows: tuple[float, float, float, float, int], ignored: tuple[int, ...] = ()) -> TruthBoxes:
    table = np.asarray(rows, np.float64).reshape(-1, 5)
    return TruthBoxes(
        boxes=table[:, :4].astype(np.float32),
        class_ids=table[:, 4].astype(int),
        is_ignored=np.isin(np.arange(len(table)), ignored),
    )


def test_object_is_met_once_and_by_the_better_detection() -> None:
    seen = detections((0, 0, 10, 10, 1, 0.9), (0, 0, 10, 9, 1, 0.8))
    assert partners(seen, truth((0, 0, 10, 10, 1))).tolist() == [0, -1]


def test_same_class_goes_before_overlap() -> None:
    seen = detections((0, 0, 10, 10, 2, 0.9), (0, 0, 10, 10, 1, 0.8))
    assert partners(seen, truth((0, 0, 10, 10, 1), (0, 0, 10, 8, 2))).tolist() == [1, 0]


def test_overlap_below_half_is_no_hit() -> None:
    assert partners(detections((0, 0, 10, 10, 1, 0.9)), truth((6, 0, 16, 10, 1))).tolist() == [-1]


def test_overlap_just_below_half_is_no_hit() -> None:
    assert partners(detections((0, 0, 10, 4.9, 1, 0.9)), truth((0, 0, 10, 10, 1))).tolist() == [-1]


def test_overlap_of_exactly_half_is_a_hit() -> None:
    assert partners(detections((0, 0, 10, 5, 1, 0.9)), truth((0, 0, 10, 10, 1))).tolist() == [0]


def test_curve_of_two_hits_and_a_miss() -> None:
    seen = {1: detections((0, 0, 10, 10, 1, 0.9), (50, 50, 60, 60, 1, 0.8), (20, 0, 30, 10, 1, 0.7))}
    found = curve(seen, {1: truth((0, 0, 10, 10, 1), (20, 0, 30, 10, 1))}, 1)
    assert found.recall.tolist() == [0.5, 0.5, 1]
    assert found.precision == pytest.approx([1, 0.5, 2 / 3])
    assert found.best_f1 == pytest.approx(0.8)
    assert found.best_score == pytest.approx(0.7)


def test_ignored_objects_count_neither_way() -> None:
    there = {1: truth((0, 0, 10, 10, 1), (20, 0, 30, 10, 1), ignored=(1,))}
    seen = {1: detections((0, 0, 10, 10, 1, 0.9), (20, 0, 30, 10, 1, 0.8))}
    found = curve(seen, there, 1)
    assert (found.precision.tolist(), found.recall.tolist(), found.best_f1) == ([1], [1], 1)
    assert confusion(seen, there, 1, 0.5).tolist() == [[1, 0], [0, 0]]


def test_an_ignored_object_that_is_missed_or_the_first_counts_neither_way() -> None:
    there = {1: truth((0, 0, 10, 10, 1), (20, 0, 30, 10, 1), ignored=(0,))}
    seen = {1: detections((0, 0, 10, 10, 1, 0.9), (20, 0, 30, 10, 1, 0.8))}
    assert curve(seen, there, 1).precision.tolist() == [1]
    assert confusion({1: detections()}, there, 1, 0.5).tolist() == [[0, 1], [0, 0]]


def test_class_without_objects_has_no_curve() -> None:
    assert curve({1: detections()}, {1: truth()}, 1).best_f1 == 0


def test_confusion_counts_each_object_and_detection_once() -> None:
    there = {1: truth((0, 0, 10, 10, 1), (20, 0, 30, 10, 2), (40, 0, 50, 10, 1))}
    seen = {1: detections((0, 0, 10, 10, 1, 0.9), (20, 0, 30, 10, 1, 0.8), (70, 0, 80, 10, 2, 0.7))}
    assert confusion(seen, there, 2, 0.5).tolist() == [[1, 0, 1], [1, 0, 0], [0, 1, 0]]


def test_truth_is_read_from_coco() -> None:
    coco = {
        "images": [{"id": 4}, {"id": 5}],
        "annotations": [{"image_id": 4, "category_id": 2, "bbox": [1, 2, 3, 4], "ignore": 1}],
    }
    by_image = truth_by_image(coco)
    assert by_image[4].boxes.tolist() == [[1, 2, 4, 6]]
    assert by_image[4].is_ignored.tolist() == [True]
    assert by_image[5].boxes.shape == (0, 4)
