import numpy as np

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
