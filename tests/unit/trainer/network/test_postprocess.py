import numpy as np
import pytest

from trainer.detections import suppress
from trainer.network.detector import make_priors
from trainer.network.postprocess import decode


def test_suppression_keeps_the_best_of_overlapping_boxes() -> None:
    boxes = np.array([[0, 0, 1, 1], [0, 0, 0.9, 1], [0, 0, 0.4, 1]], np.float32)
    assert suppress(boxes, 0.5, 100).tolist() == [0, 2]
    assert suppress(np.zeros((0, 4), np.float32), 0.5, 100).tolist() == []


def test_decoding_gives_each_cell_its_best_class_best_first() -> None:
    priors = make_priors(64)
    logits = np.full((len(priors), 2), -9.0, np.float32)
    logits[0, 0], logits[0, 1], logits[5, 1] = 1.0, 2.0, 0.5
    found = decode(np.zeros((len(priors), 4), np.float32), logits, priors, 64)
    assert found.class_ids.tolist() == [2, 2]
    assert (np.diff(found.scores) <= 0).all()
    assert found.boxes.min() >= 0
    assert found.boxes.max() <= 64


def test_boxes_are_corners_in_pixels_of_the_picture() -> None:
    priors = make_priors(64)
    logits = np.full((len(priors), 1), -9.0, np.float32)
    logits[3] = 2.0
    encoded = np.zeros((len(priors), 4), np.float32)
    encoded[3] = [0, 0, 5 * np.log(0.5), 5 * np.log(0.25)]
    found = decode(encoded, logits, priors, 64)
    y, x, height, width = priors[3] * 64
    expected = [x - width / 8, y - height / 4, x + width / 8, y + height / 4]
    np.testing.assert_allclose(found.boxes, np.clip([expected], 0, 64), atol=1e-4)


def spread_out(count: int, size: float = 1.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Encoded boxes, logits and priors of a picture of 320 px in which `count` cells see something of `size` px."""
    priors = make_priors(320)
    encoded = np.zeros((len(priors), 4), np.float32)
    encoded[:, 2:] = 5 * np.log(size / 320 / priors[:, 2:])
    logits = np.full((len(priors), 2), -9.0, np.float32)
    logits[np.arange(count), 0] = np.linspace(3, -3, count)
    return encoded, logits, priors


def test_the_hundred_best_are_kept_with_their_scores_and_faint_ones_from_a_hundredth_on() -> None:
    encoded, logits, priors = spread_out(300)
    found = decode(encoded, logits, priors, 320)
    np.testing.assert_allclose(found.scores, 1 / (1 + np.exp(-np.linspace(3, -3, 300)[:100])), rtol=1e-5)
    assert found.class_ids.tolist() == [1] * 100
    logits[:] = -9
    logits[[10, 20, 30], 1] = [-4.5, -4.59, -4.61]  # a score of 0.01 is a logit of -4.595
    assert decode(encoded, logits, priors, 320).scores.tolist() == pytest.approx([0.011, 0.0101], abs=1e-4)


def test_of_boxes_that_overlap_by_more_than_half_the_best_stays_whatever_its_class() -> None:
    encoded, logits, priors = spread_out(0, size=20.0)
    logits[0, 0], logits[1, 1] = 2.0, 1.0  # 8 px apart: 12 of 28 px are shared
    assert decode(encoded, logits, priors, 320).class_ids.tolist() == [1, 2]
    encoded[:, 2:] += 5 * np.log(1.3)  # 26 px: 18 of 34
    assert decode(encoded, logits, priors, 320).class_ids.tolist() == [1]


def test_an_object_that_five_hundred_cells_hide_in_one_place_is_found_in_another() -> None:
    encoded, logits, priors = spread_out(0, size=8.0)
    logits[:500, 0] = 3.0
    encoded[:500, :2] = -priors[:500, :2] / priors[:500, 2:] * 10 + 1  # all in one place
    logits[1000, 1] = 0.0
    assert decode(encoded, logits, priors, 320).class_ids.tolist() == [1, 2]
