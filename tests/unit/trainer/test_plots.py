"""Plots: every corner in which a plot could fall over, and the same figures are the same bytes."""

import cv2
import numpy as np
import pytest

from tests.unit.trainer.test_matching import detections, truth
from trainer import plots
from trainer.draw import caption, colour_of, draw_detections, grid
from trainer.matching import curve


def image(content: bytes) -> np.ndarray:
    decoded = cv2.imdecode(np.frombuffer(content, np.uint8), cv2.IMREAD_COLOR)
    assert decoded is not None
    return decoded


def test_curves_of_a_run_that_never_validated() -> None:
    never, once = ([{"epoch": 1, "loss": 2.0} | more] for more in ({}, {"val_map": 0.5}))
    # No panel that stays empty.
    assert image(plots.training_curves(once)).shape[1] == 2 * image(plots.training_curves(never)).shape[1]


def test_precision_recall_of_a_class_never_seen() -> None:
    empty = curve({1: detections()}, {1: truth((0, 0, 9, 9, 1))}, 1)
    assert image(plots.precision_recall({"box": empty}, "title")).size


@pytest.mark.parametrize("classes", [1, 20])
def test_confusion_of_few_and_many_classes(classes: int) -> None:
    names = [f"class {index}" for index in range(classes)]
    counts = np.arange((classes + 1) ** 2).reshape(classes + 1, classes + 1)
    assert image(plots.confusion_matrix(counts, names, "title")).shape[0] > 250


def test_histograms_without_objects() -> None:
    assert image(plots.label_histograms({"annotations": []}, ["box"], "train")).size


def test_same_figures_are_the_same_bytes() -> None:
    rows = [{"category_id": 1, "bbox": [0, 0, 10, 20]}, {"category_id": 2, "bbox": [0, 0, 30, 20]}]
    first, second = (plots.label_histograms({"annotations": rows}, ["a", "b"], "train") for _ in range(2))
    assert first == second


def test_grid_of_detections_shows_boxes_in_the_colour_of_their_class() -> None:
    picture = np.full((200, 200, 3), 128, np.uint8)
    sheet = image(plots.detection_grid([picture] * 5, [detections((20, 60, 180, 180, 2, 0.9))] * 5, ["a", "b"]))
    assert sheet.shape == (2 * 206 + 6, 4 * 206 + 6, 3)
    drawn = draw_detections(picture, detections((20, 60, 180, 180, 2, 0.9)), ["a", "b"])
    np.testing.assert_allclose(drawn[120, 20], colour_of(2), atol=12)  # anti-aliased
    assert tuple(drawn[120, 100]) == (128, 128, 128)


def test_box_beyond_the_edge_and_name_of_any_script_are_drawn() -> None:
    picture = np.zeros((40, 40, 3), np.uint8)
    drawn = draw_detections(picture, detections((-5, -5, 60, 60, 1, 1.0)), ["Größe 赤血球"])
    assert drawn.any()
    assert not picture.any()


def test_grid_of_one_picture_and_caption() -> None:
    picture = np.zeros((10, 30, 3), np.uint8)
    assert grid([picture], 4).shape == (22, 42, 3)
    assert caption(picture, "text").shape == (32, 30, 3)
