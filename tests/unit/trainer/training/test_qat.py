"""Quantization-aware fine-tuning: the rounded copy sees what the network sees, learns, and converts to all int8."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from numpy.typing import NDArray

from shared.errors import TrainingError
from shared.leasing.guard import Unguarded
from shared.specs.augmentation import Augmentation
from tests.unit.trainer.exported import SIZE, Exported, as_batch
from tests.unit.trainer.pictures import coco_truth, drawn_examples
from trainer.data.batches import batches_from_memory
from trainer.data.examples import Examples
from trainer.data.training_set import TrainingSet
from trainer.inference.detector import Detector
from trainer.network.detector import build_model
from trainer.tflite.convert import export_forms
from trainer.tflite.gate import check_files
from trainer.tflite.layer_error import layer_errors
from trainer.tflite.output_graph import LOGIT_LIFT
from trainer.training.qat import fine_tune, observed_ranges, with_rounding
from trainer.training.strategy import make_strategy


class Recorder(Unguarded):
    def __init__(self) -> None:
        self.steps: list[Any] = []

    def advance(self, **progress: float | int | str) -> None:
        self.steps.append(progress["step"])


def training_set(validation: Examples | None = None) -> TrainingSet:
    examples = drawn_examples(12, side=SIZE)
    recipe = Augmentation()
    return TrainingSet(
        labels=("square", "disc"),
        image_size=SIZE,
        pictures=len(examples),
        fingerprint="drawn",
        batches=lambda step: batches_from_memory(examples, batch=4, recipe=recipe, seed=0, first_step=step),
        names=lambda rows: [examples.filenames[row] for row in rows],
        validation=validation,
        truth=coco_truth(validation) if validation else {},
    )


@pytest.fixture(scope="module")
def rounded(exported: Exported) -> keras.Model:
    network = exported.model.keras_model
    return with_rounding(network, observed_ranges(network, [pixels(exported)]))


@pytest.fixture(scope="module")
def int8(exported: Exported, rounded: keras.Model) -> bytes:
    def calibration() -> Iterator[NDArray[np.uint8]]:
        raise AssertionError("a fine-tuned network is not calibrated")

    model = replace(exported.model, fine_tuned=rounded)
    return export_forms(model, calibration, lambda _: None, ["int8"])["int8"]


def pixels(exported: Exported) -> NDArray[np.uint8]:
    return np.stack([picture.rgb for picture in exported.pictures])


def test_rounded_copy_repeats_the_network(exported: Exported, rounded: keras.Model) -> None:
    for picture in exported.pictures:
        exact, seen = (network(as_batch(picture.rgb)) for network in (exported.model.keras_model, rounded))
        # Cut below -6, rounded above: a twentieth of the range is many steps of int8.
        lifted = np.maximum(exact["scores"], -LOGIT_LIFT)
        assert np.abs(lifted - seen["scores"]).mean() < 0.05 * np.ptp(lifted)
        assert np.abs(exact["boxes"] - seen["boxes"]).mean() < 0.05 * np.ptp(exact["boxes"])
        assert len(np.unique(seen["scores"])) <= 256


def test_converted_network_computes_in_int8_alone(int8: bytes) -> None:
    interpreter: Any = Interpreter(
        model_content=int8, experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    )
    interpreter.allocate_tensors()
    types = {detail["index"]: detail["dtype"] for detail in interpreter.get_tensor_details()}
    scales = {d["index"]: d["quantization_parameters"]["scales"] for d in interpreter.get_tensor_details()}
    ops = interpreter._get_ops_details()
    computing = [op for op in ops if op["op_name"] in {"CONV_2D", "ADD", "CONCATENATION", "RESIZE_NEAREST_NEIGHBOR"}]
    assert {types[index] for op in computing for index in op["outputs"]} == {np.int8}
    for op in (op for op in ops if op["op_name"] == "CONV_2D"):
        kernel = op["inputs"][1]
        assert types[kernel] == np.int8
        assert len(scales[kernel]) > 1, "one scale a channel"


def test_layers_are_compared_with_those_of_the_float_form(exported: Exported, int8: bytes) -> None:
    errors = layer_errors(exported.forms["float32"], int8, [exported.pictures[0].rgb])
    calibrated = layer_errors(exported.forms["float32"], exported.forms["int8"], [exported.pictures[0].rgb])
    assert {entry.tensor for entry in errors} == {entry.tensor for entry in calibrated}
    assert len(errors) > 20
    assert all(0 < entry.error < 0.5 for entry in errors)


def test_converted_network_passes_the_checks_of_files(exported: Exported, int8: bytes) -> None:
    variables = exported.model.keras_model.variables
    kernels = sum(int(np.prod(variable.shape)) for variable in variables if len(variable.shape) > 1)
    checks = check_files({"int8": int8}, kernels, exported.model.description)
    assert [check.name for check in checks if not check.is_ok] == []


def test_converted_network_sees_what_its_keras_original_sees(
    exported: Exported, rounded: keras.Model, int8: bytes
) -> None:
    detector = Detector(int8)
    for picture in exported.pictures:
        best = float(np.max(rounded(as_batch(picture.rgb))["scores"]))
        seen = float(detector.detect_stored(picture.rgb).scores[0])
        assert seen == pytest.approx(1 / (1 + np.exp(-best)), abs=0.03)


def test_fine_tuning_learns_in_a_copy_and_tells_each_step() -> None:
    keras.utils.set_random_seed(1)
    network = build_model(2, SIZE, "nano")
    before = [value.copy() for value in network.get_weights()]
    guard = Recorder()
    settled = fine_tune(network, training_set(), strategy=make_strategy(1), guard=guard, steps=3, peak_rate=1e-3)
    assert guard.steps == [1, 2, 3]
    for old, new in zip(before, network.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)
    fresh = with_rounding(network, observed_ranges(network, [np.zeros((1, SIZE, SIZE, 3), np.uint8)]))
    assert np.abs(settled.get_layer("stem").kernel - fresh.get_layer("stem").kernel).max() > 1e-4
    assert float(settled.get_layer("image_rounded").low) == -1


def test_steps_that_gain_nothing_on_the_validation_split_are_not_kept() -> None:
    keras.utils.set_random_seed(1)
    network = build_model(2, SIZE, "nano")
    data = training_set(drawn_examples(4, side=SIZE, seed=2))
    settled = fine_tune(network, data, strategy=make_strategy(1), guard=Recorder(), steps=2, peak_rate=0.5)
    start = with_rounding(network, observed_ranges(network, [np.zeros((1, SIZE, SIZE, 3), np.uint8)]))
    np.testing.assert_array_equal(settled.get_layer("stem").kernel, start.get_layer("stem").kernel)


@pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy keyword")
def test_saved_and_loaded_it_is_the_same(exported: Exported, rounded: keras.Model, tmp_path: Path) -> None:
    rounded.save(tmp_path / "model_qat.keras")
    loaded = keras.models.load_model(tmp_path / "model_qat.keras", compile=False)
    picture = as_batch(exported.pictures[0].rgb)
    np.testing.assert_array_equal(rounded(picture)["scores"], loaded(picture)["scores"])


def test_published_backbone_is_refused() -> None:
    network = build_model(2, SIZE, "nano", backbone="mobilenet_v2")
    with pytest.raises(TrainingError, match="--backbone conv"):
        with_rounding(network, {})
