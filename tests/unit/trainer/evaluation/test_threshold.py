"""The score from which on detections are shown."""

from typing import Any

import numpy as np
import pytest

from trainer.detections import Detections
from trainer.evaluation.threshold import best_score


def detections(*rows: tuple[int, int, float]) -> Detections:
    """Boxes of 10 px in a row: place, class, score."""
    boxes = [[20.0 * place, 0, 20.0 * place + 10, 10] for place, _, _ in rows]
    return Detections(
        boxes=np.array(boxes, np.float32).reshape(-1, 4),
        class_ids=np.array([class_id for _, class_id, _ in rows], int),
        scores=np.array([score for _, _, score in rows], np.float32),
    )


def truth(*objects: tuple[int, int]) -> dict[str, Any]:
    """One picture with boxes of 10 px: place, class."""
    found = [
        {"image_id": 1, "category_id": class_id, "bbox": [20.0 * place, 0, 10, 10], "id": number}
        for number, (place, class_id) in enumerate(objects)
    ]
    return {"images": [{"id": 1}], "annotations": found}


def test_between_the_weakest_object_and_the_best_mistake_it_is_the_middle() -> None:
    seen = {1: detections((0, 1, 0.9), (1, 1, 0.8), (5, 1, 0.2))}
    assert best_score(seen, truth((0, 1), (1, 1)), 1) == pytest.approx(0.5, abs=0.02)


def test_a_strong_class_does_not_hide_a_weak_one() -> None:
    seen = {1: detections((0, 1, 0.95), (1, 1, 0.9), (2, 2, 0.5), (3, 2, 0.4))}
    assert best_score(seen, truth((0, 1), (1, 1), (2, 2), (3, 2)), 2) < 0.4


def test_a_mistake_that_costs_more_than_an_object_is_kept_out() -> None:
    seen = {1: detections((0, 1, 0.9), (5, 1, 0.6), (6, 1, 0.6), (7, 1, 0.6), (1, 1, 0.3))}
    assert best_score(seen, truth((0, 1), (1, 1)), 1) > 0.6


def test_a_score_that_is_nearly_as_good_is_not_the_best() -> None:
    """Between 0.7 and 0.8 there is no mistake: an F1 of 1 instead of 0.98."""
    objects = [(place, 1) for place in range(25)]
    seen = {1: detections(*[(place, 1, 0.8) for place, _ in objects], (30, 1, 0.7))}
    assert best_score(seen, truth(*objects), 1) == pytest.approx(0.75, abs=0.02)


def test_a_model_that_learnt_nothing_has_the_least_score() -> None:
    assert best_score({1: detections((5, 1, 0.9))}, truth((0, 1)), 1) == 0.1
    assert best_score({1: detections()}, truth((0, 1)), 1) == 0.1


def test_a_model_whose_every_score_is_below_the_least_has_the_least() -> None:
    assert best_score({1: detections((0, 1, 0.06), (1, 1, 0.04))}, truth((0, 1), (1, 1)), 1) == 0.1


def test_a_class_without_objects_has_no_say() -> None:
    seen = {1: detections((0, 1, 0.5), (5, 2, 0.9))}
    assert best_score(seen, truth((0, 1)), 2) < 0.5
