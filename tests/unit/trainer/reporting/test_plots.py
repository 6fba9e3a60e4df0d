"""Plots: every corner in which a plot could fall over, and the same figures are the same bytes."""

import cv2
import numpy as np
import pytest

from shared.colours import colour_of
from tests.unit.trainer.evaluation.test_curves import detections, truth
from tests.unit.trainer.reporting.looked import look
from trainer.evaluation.curves import curve
from trainer.inference.draw import draw_detections
from trainer.reporting import plots
from trainer.reporting.figures import draw_plots


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


def test_names_of_any_length_and_sign_are_drawn() -> None:
    labels = [f"a class of a very long name indeed {at}" for at in range(20)] + ["$x_$", "$\\frac$"]
    rows = [{"category_id": at, "bbox": [0, 0, 10, 20]} for at in range(1, 23)]
    assert image(plots.label_histograms({"annotations": rows}, labels, "train")).shape[0] > 600
    assert image(plots.confusion_matrix(np.eye(23, dtype=np.int64), labels, "title")).size
    some = curve({1: detections((0, 0, 9, 9, 1, 0.9))}, {1: truth((0, 0, 9, 9, 1))}, 1)
    assert image(plots.precision_recall(dict.fromkeys(labels[-3:], some), "title")).size


def test_histograms_without_objects() -> None:
    assert image(plots.label_histograms({"annotations": []}, ["box"], "train")).size


def test_same_figures_are_the_same_bytes() -> None:
    rows = [{"category_id": 1, "bbox": [0, 0, 10, 20]}, {"category_id": 2, "bbox": [0, 0, 30, 20]}]
    first, second = (plots.label_histograms({"annotations": rows}, ["a", "b"], "train") for _ in range(2))
    assert first == second


def test_detections_are_boxes_in_the_colour_of_their_class() -> None:
    picture = np.full((200, 200, 3), 128, np.uint8)
    drawn = draw_detections(picture, detections((20, 60, 180, 180, 2, 0.9)), ["a", "b"])
    np.testing.assert_allclose(drawn[120, 20], colour_of(2), atol=12)  # anti-aliased
    assert tuple(drawn[120, 100]) == (128, 128, 128)


def test_a_sheet_has_two_pairs_in_a_row_and_is_small_enough_for_a_readme() -> None:
    files = draw_plots(look([([(0, 1)], [(0, 1, 0.9)])] * 12))
    sheet = files["detections.jpg"]
    assert image(sheet).shape[1] >= 4 * 320
    assert len(sheet) < 300_000
    assert image(files["best.jpg"]).shape[0] == image(sheet).shape[0]
    assert set(files) == {"detections.jpg", "best.jpg", "precision_recall.png", "confusion.png", "labels.png"}


@pytest.mark.parametrize("classes", [1, 8, 20])
def test_precision_recall_of_many_classes_names_the_best_and_the_worst(classes: int) -> None:
    some = curve({1: detections((0, 0, 9, 9, 1, 0.9))}, {1: truth((0, 0, 9, 9, 1))}, 1)
    drawn = image(plots.precision_recall({f"class {at}": some for at in range(classes)}, "title"))
    assert drawn.shape[1] > 900
