"""A picture in the types that models take, and what a file's description says of its decoding."""

from dataclasses import replace

import numpy as np
import pytest

from shared.errors import ExportError
from shared.model.description import description_archive, read_description
from tests.unit.trainer.exported import SIZE, Exported
from trainer.inference.detector import Detector
from trainer.pixels import as_input
from trainer.tflite.convert import DECODING

EVERY_BYTE = np.arange(256, dtype=np.uint8).repeat(3).reshape(16, 16, 3)


def test_int8_is_the_byte_less_128() -> None:
    given = as_input(EVERY_BYTE, np.int8)
    assert given.dtype == np.int8
    assert given.shape == (1, 16, 16, 3)
    np.testing.assert_array_equal(given[0].astype(int), EVERY_BYTE.astype(int) - 128)


def test_the_three_types_are_the_same_picture() -> None:
    """What the scales of int8 and uint8 make of the bytes is what float models are given, to half a step."""
    floats, raw, signed = (as_input(EVERY_BYTE, dtype)[0].astype(float) for dtype in (np.float32, np.uint8, np.int8))
    np.testing.assert_allclose((raw - 127) / 127.5, floats, atol=0.5 / 127.5 + 1e-6)
    np.testing.assert_allclose((signed + 1) / 127.5, floats, atol=0.5 / 127.5 + 1e-6)


def test_int8_leaves_the_picture_as_it_is() -> None:
    before = EVERY_BYTE.copy()
    as_input(EVERY_BYTE, np.int8)[:] = 0
    np.testing.assert_array_equal(EVERY_BYTE, before)


@pytest.mark.parametrize(("side", "cells"), [(64, 84), (320, 2100), (640, 8400)])
def test_a_decoding_knows_how_many_boxes_there_are(side: int, cells: int) -> None:
    assert DECODING.cells(side) == cells


def test_a_description_with_a_decoding_is_read_back_as_it_was(exported: Exported) -> None:
    told = replace(exported.model.description, form="int8_raw", decoding=DECODING, best_score=0.25)
    assert read_description(bytes(64) + description_archive(64, told)) == told
    assert "to be decoded as voc2tflite.json says" in told.sentence()
    assert "decoded" not in exported.model.description.sentence()


def test_a_description_without_a_decoding_does_not_mention_it(exported: Exported) -> None:
    assert b"decoding" not in description_archive(0, exported.model.description)


def test_a_file_with_suppression_has_nothing_to_decode(exported: Exported) -> None:
    detector = Detector(exported.forms["int8"], file="model.tflite")
    raw = detector.network.run(exported.pictures[0].rgb)
    assert sorted(raw) == ["boxes", "classes", "count", "scores"]
    assert not detector.network.is_raw
    with pytest.raises(ExportError, match=r"model\.tflite: suppression is inside it; expected a model without"):
        detector.decode(raw)


def test_outputs_of_int8_come_as_numbers(exported: Exported) -> None:
    detector = Detector(exported.raw["int8"])
    raw = detector.network.run(exported.pictures[0].rgb)
    assert {name: (values.dtype, values.shape) for name, values in raw.items()} == {
        "boxes": (np.dtype(np.float32), (1, 84, 4)),
        "scores": (np.dtype(np.float32), (1, 84, 3)),
    }
    assert detector.network.raw_shape == (84, 3)
    assert float(raw["scores"].min()) >= 0, "lifted logits are cut at 0"
    exact = Detector(exported.raw["float32"]).network.run(exported.pictures[0].rgb)
    for name, values in exact.items():
        assert float(np.abs(values - raw[name]).mean()) < 0.2, name


@pytest.mark.parametrize("form", ["int8", "float32"])
def test_boxes_stay_within_the_picture(form: str, exported: Exported) -> None:
    seen = Detector(exported.raw[form]).detect_stored(exported.pictures[0].rgb)
    assert seen.scores.size > 0
    assert float(seen.boxes.min()) >= 0
    assert float(seen.boxes.max()) <= SIZE
    assert (np.diff(seen.scores) <= 0).all(), "best first"
