"""Milliseconds of files with and without suppression, and of decoding what the latter give."""

import numpy as np
import pytest

from shared.errors import ExportError
from tests.unit.trainer.exported import Exported
from trainer.evaluation.latency import decode_ms, latency_ms, median_ms, timing
from trainer.inference.detector import Detector


def test_every_form_is_timed_by_every_number_of_threads(exported: Exported) -> None:
    told: list[None] = []
    models = {"int8": exported.forms["int8"], "int8_raw": exported.raw["int8"]}
    times = latency_ms(models, exported.pictures[0].rgb, lambda: told.append(None), threads=(1, 3))
    assert list(times) == list(models)
    assert [list(by_threads) for by_threads in times.values()] == [["1", "3"], ["1", "3"]]
    assert all(ms > 0 for by_threads in times.values() for ms in by_threads.values())
    assert len(told) > 2, "a guard hears of every round"


def test_the_figure_that_counts_is_that_of_the_first_number() -> None:
    assert timing({"2": 1.5, "1": 2.5}) == {"median_ms": 1.5, "latency_ms": {"2": 1.5, "1": 2.5}}


def test_forms_take_turns_and_none_is_left_out(exported: Exported) -> None:
    detectors = {form: Detector(content, is_ours=True) for form, content in exported.raw.items()}
    times = median_ms(detectors, exported.pictures[0].rgb, rounds=2)
    assert list(times) == list(exported.raw)
    assert min(times.values()) > 0


def test_decoding_is_timed_of_what_the_network_gave(exported: Exported) -> None:
    picture = exported.pictures[0].rgb
    assert decode_ms(Detector(exported.raw["int8"], is_ours=True), picture, rounds=1) > 0
    with pytest.raises(ExportError, match="suppression is inside it"):
        decode_ms(Detector(exported.forms["int8"], is_ours=True), picture, rounds=1)


def test_what_is_timed_is_the_picture_that_was_given(exported: Exported) -> None:
    """A network that was fed keeps its input: `invoke` alone runs on it."""
    network = Detector(exported.raw["float32"], is_ours=True).network
    network.feed(exported.pictures[0].rgb)
    network.invoke()
    first = network.outputs()
    network.invoke()
    for name, values in network.outputs().items():
        np.testing.assert_array_equal(values, first[name])
