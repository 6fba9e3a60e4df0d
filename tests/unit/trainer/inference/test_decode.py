"""A file without suppression, decoded in numpy, sees what the file with suppression inside sees."""

from dataclasses import replace

import numpy as np
import pytest

from shared.model.description import Decoding
from tests.unit.trainer.exported import SIZE, Exported
from trainer.detections import Floats, iou_matrix, suppress
from trainer.inference.decode import decode
from trainer.inference.detector import Detector
from trainer.tflite.convert import DECODING, FORMS

# What two ways of rounding the same formula may differ by.
SCORE, PIXELS = 1e-3, 0.5
STEP_OF_INT8 = 1 / 256


@pytest.mark.parametrize("form", FORMS)
def test_both_forms_of_a_file_see_the_same(form: str, exported: Exported) -> None:
    inside, outside = Detector(exported.forms[form]), Detector(exported.raw[form])
    for picture in exported.pictures:
        wanted, found = inside.detect_stored(picture.rgb), outside.detect_stored(picture.rgb)
        assert wanted.scores.size == found.scores.size > 10
        np.testing.assert_allclose(found.scores, wanted.scores, atol=STEP_OF_INT8 if form == "int8" else SCORE)
        # Equal scores, of which int8 has many, may come in another order.
        near = np.abs(found.boxes[:, None] - wanted.boxes[None]).max(axis=2) <= PIXELS
        near &= found.class_ids[:, None] == wanted.class_ids[None]
        assert near.any(axis=0).all()
        assert near.any(axis=1).all()


def test_both_forms_see_the_same_in_a_photo_of_another_size(exported: Exported) -> None:
    photo = np.repeat(np.repeat(exported.pictures[0].rgb, 3, axis=0), 2, axis=1)
    wanted, found = (Detector(forms["int8"]).detect(photo) for forms in (exported.forms, exported.raw))
    np.testing.assert_allclose(found.boxes, wanted.boxes, atol=3 * PIXELS)


def one_box(place: int, encoded: tuple[float, ...], logit: float) -> tuple[Floats, Floats]:
    """The outputs of a model of two classes at 64 px that sees one object, of the second class, at one cell."""
    boxes, scores = np.zeros((84, 4), np.float32), np.zeros((84, 2), np.float32)
    boxes[place], scores[place, 1] = encoded, logit + DECODING.score_lift
    return boxes, scores


def test_a_box_lies_where_the_formula_says() -> None:
    # Cell 10 of stride 8 is column 2 of row 1; its prior is a square of 32 px around (20, 12).
    seen = decode(*one_box(10, (5.0, -2.5, 0.0, 5 * float(np.log(0.5))), 0.0), DECODING, SIZE)
    assert seen.class_ids.tolist() == [2]
    np.testing.assert_allclose(seen.scores, [0.5], atol=1e-6)
    np.testing.assert_allclose(seen.boxes, [[12 - 8, 28 - 16, 12 + 8, 28 + 16]], atol=1e-4)


def test_the_coarsest_level_comes_last() -> None:
    (box,) = decode(*one_box(83, (0.0,) * 4, 1.0), DECODING, SIZE).boxes
    assert box.tolist() == [0, 0, 64, 64], "a prior of 128 px around (48, 48), cut at the picture"


def test_a_score_below_the_least_is_left_out_and_at_it_is_kept() -> None:
    least = float(np.log(DECODING.least_score / (1 - DECODING.least_score)))
    assert decode(*one_box(0, (0.0,) * 4, least - 0.01), DECODING, SIZE).scores.size == 0
    assert decode(*one_box(0, (0.0,) * 4, least + 0.01), DECODING, SIZE).scores.size == 1


def test_a_size_beyond_all_bounds_is_the_whole_picture() -> None:
    with np.errstate(all="raise"):
        seen = decode(*one_box(0, (0.0, 0.0, 1e4, 1e4), 2.0), DECODING, SIZE)
    assert seen.boxes.tolist() == [[0, 0, 64, 64]]


def test_of_boxes_that_overlap_the_best_is_kept_whatever_their_classes() -> None:
    boxes, scores = np.zeros((84, 4), np.float32), np.zeros((84, 2), np.float32)
    scores[9, 0], scores[10, 1] = 8.0, 7.0  # neighbours: priors that overlap by 0.6
    assert decode(boxes, scores, DECODING, SIZE).class_ids.tolist() == [1]
    assert decode(boxes, scores, replace(DECODING, nms_iou=0.7), SIZE).class_ids.tolist() == [1, 2]


def test_no_more_are_kept_than_asked(exported: Exported) -> None:
    raw = Detector(exported.raw["float32"]).network.run(exported.pictures[0].rgb)
    few: Decoding = replace(DECODING, most_detections=3)
    assert decode(raw["boxes"][0], raw["scores"][0], few, SIZE).scores.size == 3


def test_suppression_keeps_what_the_definition_keeps() -> None:
    rng = np.random.default_rng(5)
    corner = rng.uniform(0, 80, (300, 2))
    boxes = np.concatenate([corner, corner + rng.uniform(5, 40, (300, 2))], axis=1).astype(np.float32)
    kept = suppress(boxes, 0.4, 300)
    overlap = iou_matrix(boxes, boxes)
    for place in range(len(boxes)):
        better = [other for other in kept if other < place]
        assert (place in kept) == (not (overlap[place, better] > 0.4).any())
    assert suppress(boxes, 0.4, 7).tolist() == kept[:7].tolist()
