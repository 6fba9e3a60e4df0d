"""The detector in original pixels."""

import numpy as np
import pytest

from shared.placement import PADDING_GRAY
from tests.unit.trainer.exported import LABELS, SIZE, Exported
from tests.unit.trainer.inference.made import picture, seen
from trainer.detections import to_coco
from trainer.inference.detector import Detector, fit


@pytest.fixture(scope="module")
def detector(exported: Exported) -> Detector:
    return Detector(exported.forms["int8"])


def test_detector_knows_labels_size_and_resize(detector: Detector) -> None:
    assert detector.labels == LABELS
    assert (detector.description.image_size, detector.description.resize) == (SIZE, "letterbox")


def test_picture_of_the_models_size_gives_the_stored_boxes(detector: Detector, exported: Exported) -> None:
    rgb = exported.pictures[0].rgb
    stored, original = detector.detect_stored(rgb), detector.detect(rgb[..., ::-1])
    np.testing.assert_allclose(original.boxes, stored.boxes, atol=1e-4)
    np.testing.assert_array_equal(original.class_ids, stored.class_ids)


def test_boxes_are_in_original_pixels_and_inside_the_picture(detector: Detector) -> None:
    found = detector.detect(picture(240, 400))
    assert found.boxes.shape[0] > 0
    assert found.boxes.min() >= 0
    assert (found.boxes[:, [0, 2]] <= 400).all()
    assert (found.boxes[:, [1, 3]] <= 240).all()
    assert found.boxes[:, 2].max() > 100
    assert set(found.class_ids) <= {1, 2, 3}


def test_any_number_of_threads_sees_the_same(exported: Exported) -> None:
    # With regular NMS, LiteRT's op forgets class 2 under 2 threads (tensorflow#56058).
    one, two, three, four = (Detector(exported.forms["int8"], threads) for threads in (1, 2, 3, 4))
    for each in exported.pictures:
        expected = one.detect_stored(each.rgb)
        for detector in (two, three, four):
            np.testing.assert_array_equal(detector.detect_stored(each.rgb).class_ids, expected.class_ids)
            np.testing.assert_allclose(detector.detect_stored(each.rgb).boxes, expected.boxes, atol=1e-4)


def test_letterbox_borders_are_gray() -> None:
    square = fit(np.zeros((100, 200, 3), np.uint8), 64, "letterbox")
    assert square.shape == (64, 64, 3)
    assert (square[:16] == PADDING_GRAY).all()
    assert (square[16:48] == 0).all()
    assert (square[48:] == PADDING_GRAY).all()


def test_what_is_seen_in_the_gray_beside_a_letterboxed_picture_is_left_out(
    detector: Detector, monkeypatch: pytest.MonkeyPatch
) -> None:
    half = SIZE / 2
    stored = seen((0, 0, SIZE, 8), (8, half - 8, SIZE - 8, SIZE), (0, SIZE - 8, 8, SIZE))
    monkeypatch.setattr(detector, "detect_stored", lambda _: stored)
    # It is half as high as wide: a quarter of the square is gray above it, and one below.
    found = detector.detect(picture(SIZE, 2 * SIZE))
    assert found.boxes.tolist() == [[16, SIZE / 2 - 16, 2 * SIZE - 16, SIZE]]
    assert len(found.scores) == len(found.class_ids) == 1


@pytest.mark.parametrize("axis", [0, 1])
def test_a_side_that_shrinks_is_averaged_beside_one_that_grows(axis: int) -> None:
    """As in the shards: sampled, stripes of a pixel would become black, white or a moire of both."""
    picture = np.zeros((40, 40, 3), np.uint8)
    picture = picture.repeat(16, axis)
    picture[(slice(None),) * axis + (slice(None, None, 2),)] = 255
    square = fit(picture, 64, "stretch").astype(int)
    assert np.abs(square - 128).max() <= 1


def test_coco_boxes_are_corner_and_size() -> None:
    (record,) = to_coco(seen((10, 20, 40, 80)), 7)
    assert record == {"image_id": 7, "category_id": 1, "bbox": [10, 20, 30, 60], "score": pytest.approx(0.9)}
