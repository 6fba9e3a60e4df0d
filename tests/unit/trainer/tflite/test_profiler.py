"""LiteRT's profiler against operators timed by themselves; and what is done where it cannot be asked."""

from importlib import metadata
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.unit.trainer.exported import Exported
from tests.unit.trainer.tflite.test_partitions import converted, sums
from trainer.pixels import as_input
from trainer.tflite import profiler
from trainer.tflite.operator_times import by_themselves, details, profiled
from trainer.tflite.profiler import NoProfilerError, profile, ran_in_pieces


def of_one_kind(operators: dict[str, tuple[int, float]], *kinds: str) -> float:
    """Share of the time of the kinds whose names begin so."""
    chosen = sum(ms for kind, (_, ms) in operators.items() if kind.startswith(kinds))
    return chosen / sum(ms for _, ms in operators.values())


def half_convolved(picture: Any) -> Any:
    """A convolution, and two operators that XNNPACK does not take and that need as long, or a little longer."""
    convolved = tf.nn.conv2d(picture, tf.ones((5, 5, 3, 24)) / 100, 1, "SAME")
    for _ in range(2):
        convolved = tf.cumsum(convolved, axis=1)
    return convolved


def test_the_installed_version_is_one_whose_functions_are_known() -> None:
    assert metadata.version("ai-edge-litert").startswith(profiler.KNOWN_VERSIONS)


def test_the_profiler_agrees_with_operators_timed_by_themselves() -> None:
    traced = tf.function(half_convolved, input_signature=[tf.TensorSpec((1, 256, 256, 3), tf.float32)])
    model = bytes(tf.lite.TFLiteConverter.from_concrete_functions([traced.get_concrete_function()]).convert())
    picture = np.random.default_rng(0).integers(0, 256, (256, 256, 3), np.uint8)
    # Single measurements of a busy machine differ by more: one of five that agrees is enough.
    measured = ((profiled(model, picture), by_themselves(model, picture)) for _ in range(5))
    assert any(agree(together, alone) for together, alone in measured)


def agree(together: dict[str, tuple[int, float]], alone: dict[str, tuple[int, float]]) -> bool:
    """Whether both took about as long, by the share of one kind and in all."""
    assert (together["CUMSUM"][0], alone["CUMSUM"][0]) == (2, 2)
    share = of_one_kind(together, "CUMSUM")
    assert 0.1 < share < 0.9
    totals = [sum(ms for _, ms in times.values()) for times in (together, alone)]
    return share == pytest.approx(of_one_kind(alone, "CUMSUM"), abs=0.15) and totals[0] == pytest.approx(
        totals[1], rel=0.5
    )


def test_every_operator_of_the_file_is_in_the_profile(exported: Exported) -> None:
    found = details(exported.raw["int8"], exported.pictures[0].rgb)
    kinds = found.operators
    assert found.no_profiler is None
    alone = by_themselves(exported.raw["int8"], exported.pictures[0].rgb)
    convolutions = sum(
        count for kind, (count, _) in kinds.items() if kind.startswith(("Convolution", "Fully Connected"))
    )
    assert convolutions == alone["CONV_2D"][0]
    assert list(kinds) == sorted(kinds, key=lambda kind: -kinds[kind][1])
    inside = profiled(exported.forms["int8"], exported.pictures[0].rgb)
    assert {"TFLite_Detection_PostProcess", "RESIZE_NEAREST_NEIGHBOR"} <= set(inside)


def test_forms_without_suppression_run_in_one_piece(exported: Exported) -> None:
    for form in ("float32", "float16", "int8"):
        assert ran_in_pieces(exported.raw[f"{form}"]) == (1, []), form
        count, outside = ran_in_pieces(exported.forms[form])
        assert count > 1
        assert "TFLite_Detection_PostProcess" in outside


def test_a_model_that_does_not_load_and_a_picture_of_another_size_are_told() -> None:
    with pytest.raises(NoProfilerError, match="LiteRtCreateModelFromBuffer failed with status"):
        ran_in_pieces(b"TFL3" * 8)
    with pytest.raises(NoProfilerError, match=r"takes inputs of \[192\] bytes, not one of 108"):
        profile(converted(sums), np.zeros((1, 3, 3, 3), np.float32))


def test_a_report_in_another_form_is_told() -> None:
    with pytest.raises(NoProfilerError, match="in another form"):
        profiler._steps("Run Order\nCONV_2D took 3 ms\n")


def test_another_version_is_not_called_and_operators_are_timed_by_themselves(
    exported: Exported, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profiler, "KNOWN_VERSIONS", ("0.1.",))
    model, picture = exported.raw["int8"], exported.pictures[0].rgb
    found = details(model, picture)
    assert found.no_profiler is not None
    assert "known of 0.1.*" in found.no_profiler
    assert {kind: count for kind, (count, _) in found.operators.items()} == {
        kind: count for kind, (count, _) in by_themselves(model, picture).items()
    }
    with pytest.raises(NoProfilerError):
        profile(model, as_input(picture, np.int8))
