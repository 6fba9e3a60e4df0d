"""The gate: a sound export passes; each silently wrong one of docs/training-and-export.md is caught, and named."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import flatbuffers
import keras
import numpy as np
import pytest
import tensorflow as tf
from ai_edge_litert import schema_py_generated as schema
from numpy.typing import NDArray

from shared.errors import ExportError
from shared.model.description import description_archive, read_description
from tests.unit.trainer.exported import SIZE, Exported
from trainer.detections import Detections
from trainer.evaluation.measure import detect_all
from trainer.inference.detector import Detector
from trainer.network.detector import build_model
from trainer.network.postprocess import keras_detector
from trainer.tflite.convert import FORMS, export_forms
from trainer.tflite.gate import Evidence, GateCheck, check_detections, check_files, require
from trainer.tflite.layer_error import LayerError


def kernels(exported: Exported) -> int:
    variables = exported.model.keras_model.variables
    return sum(int(np.prod(variable.shape)) for variable in variables if len(variable.shape) > 1)


def failures(checks: Sequence[GateCheck]) -> set[str]:
    return {check.name for check in checks if not check.is_ok}


def file_failures(exported: Exported, form: str, content: bytes) -> set[str]:
    return failures(check_files({form: content}, kernels(exported), exported.model.description))


def rewritten(content: bytes, change: Callable[[Any], None]) -> bytes:
    """A `.tflite` with its flatbuffer changed and its description as before."""
    tree = schema.ModelT.InitFromPackedBuf(content, 0)
    change(tree)
    builder = flatbuffers.Builder(1024)
    builder.Finish(tree.Pack(builder), b"TFL3")
    model = bytes(builder.Output())
    return model + description_archive(len(model), read_description(content))


def live_network() -> Any:
    """A network big enough for its loss to show: 38,592 weights in kernels."""
    layers = [keras.layers.Conv2D(64, 3, activation="relu6", name=f"conv{index}") for index in range(2)]
    return keras.Sequential([keras.Input((SIZE, SIZE, 3)), *layers])


def live_forward(network: Any) -> Any:
    image = tf.TensorSpec((1, SIZE, SIZE, 3), tf.float32)
    forward = tf.function(lambda image: network(image, training=False), input_signature=[image])
    return forward.get_concrete_function()


@pytest.fixture(scope="module")
def evidence(exported: Exported) -> Evidence:
    reference = list(
        detect_all(keras_detector(exported.model.keras_model, exported.model.priors), exported.pictures).values()
    )
    seen = {form: seen_by(content, exported) for form, content in exported.forms.items()}
    return Evidence(
        classes=3,
        reference=reference,
        seen=seen,
        judged={"float32": judged(0.8), "float16": judged(0.8), "dynamic": judged(0.797), "int8": judged(0.795)},
        max_drop=1.0,
    )


def judged(map50: float, low: float = 0.0, high: float = 2.0) -> dict[str, Any]:
    """A row of `metrics.json`, as far as the gate looks at it."""
    return {"split": "val", "map50": map50, "drop_interval": [low, high], "objects": 26, "pictures": 17}


def seen_by(content: bytes, exported: Exported) -> list[Detections]:
    detector = Detector(content)
    return [detector.detect_stored(picture.rgb) for picture in exported.pictures]


def test_sound_export_passes(exported: Exported, evidence: Evidence) -> None:
    checks = check_files(exported.forms, kernels(exported), exported.model.description) + check_detections(evidence)
    require(checks)
    assert len(checks) == 28


def test_live_variables_are_caught(exported: Exported) -> None:
    network = live_network()
    converter = tf.lite.TFLiteConverter.from_concrete_functions([live_forward(network)], network)
    failed = file_failures(exported, "float32", bytes(converter.convert()))
    assert "float32: weights are constants" in failed


def test_network_that_is_gone_is_caught(exported: Exported) -> None:
    # docs/training-and-export.md: 2,772 bytes after convert_variables_to_constants_v2, success reported.
    image = tf.TensorSpec((1, SIZE, SIZE, 3), tf.float32)
    empty = tf.function(lambda image: tf.reduce_mean(image, axis=-1), input_signature=[image])
    content = bytes(tf.lite.TFLiteConverter.from_concrete_functions([empty.get_concrete_function()], empty).convert())
    assert len(content) < 4096
    failed = file_failures(exported, "float32", content)
    # Nor does it hold the op: what a composite that the converter does not recognise looks like.
    assert {"float32: weights are in the file", "float32: outputs are boxes, classes, scores, count"} <= failed


def test_file_smaller_than_its_weights_is_caught(exported: Exported) -> None:
    checks = check_files({"float32": exported.forms["int8"]}, kernels(exported), exported.model.description)
    assert "float32: weights are in the file" in failures(checks)


def test_input_scale_of_calibration_on_photos_alone_is_caught(exported: Exported) -> None:
    def change(tree: Any) -> None:
        tensor = tree.subgraphs[0].tensors[tree.subgraphs[0].inputs[0]]
        tensor.quantization.scale, tensor.quantization.zeroPoint = np.array([0.006275], np.float32), np.array([96])

    failed = file_failures(exported, "int8", rewritten(exported.forms["int8"], change))
    assert failed == {"int8: input takes raw pixels"}


@pytest.mark.parametrize(("scale", "zero"), [(1 / 127.5, 96), (1 / 127.5, 126), (0.006275, 127), (1 / 128.5, 128)])
def test_an_input_of_another_scale_or_zero_alone_is_caught(exported: Exported, scale: float, zero: int) -> None:
    def change(tree: Any) -> None:
        tensor = tree.subgraphs[0].tensors[tree.subgraphs[0].inputs[0]]
        tensor.quantization.scale, tensor.quantization.zeroPoint = np.array([scale], np.float32), np.array([zero])

    failed = file_failures(exported, "int8", rewritten(exported.forms["int8"], change))
    assert failed == {"int8: input takes raw pixels"}


@pytest.mark.parametrize("form", FORMS)
def test_an_input_of_another_type_is_caught(exported: Exported, form: str) -> None:
    def change(tree: Any) -> None:
        tensor = tree.subgraphs[0].tensors[tree.subgraphs[0].inputs[0]]
        tensor.type = schema.TensorType.INT8 if form == "int8" else schema.TensorType.UINT8

    failed = file_failures(exported, form, rewritten(exported.forms[form], change))
    assert failed == {f"{form}: input takes raw pixels"}


@pytest.mark.parametrize("sides", [[1, 32, SIZE, 3], [1, SIZE, SIZE, 1], [2, SIZE, SIZE, 3]])
def test_an_input_of_another_shape_is_caught(exported: Exported, sides: list[int]) -> None:
    def change(tree: Any) -> None:
        tree.subgraphs[0].tensors[tree.subgraphs[0].inputs[0]].shape = np.array(sides, np.int32)

    failed = file_failures(exported, "float32", rewritten(exported.forms["float32"], change))
    assert failed == {"float32: input takes raw pixels"}


@pytest.mark.parametrize("form", FORMS)
def test_a_file_holds_more_than_its_weights_take_at_least(exported: Exported, form: str) -> None:
    content, each = exported.forms[form], {"float32": 4, "float16": 2}.get(form, 1)
    most = (len(content) - 1) // each
    checks = [check_files({form: content}, count, exported.model.description) for count in (most, most + 1)]
    assert [failures(each) for each in checks] == [set(), {f"{form}: weights are in the file"}]


@pytest.mark.parametrize("changed", [{"resize": "stretch"}, {"image_size": 96}])
def test_another_way_of_resizing_or_size_is_caught(exported: Exported, changed: dict[str, Any]) -> None:
    expected = replace(exported.model.description, **changed)
    failed = failures(check_files({"int8": exported.forms["int8"]}, kernels(exported), expected))
    assert "int8: labels and metadata" in failed


@pytest.mark.parametrize("order", [[1, 0, 2, 3], [0, 2, 1, 3], [3, 0, 1, 2]])
def test_swapped_outputs_are_caught(exported: Exported, order: list[int]) -> None:
    def change(tree: Any) -> None:
        tree.subgraphs[0].outputs = tree.subgraphs[0].outputs[order]

    failed = file_failures(exported, "float32", rewritten(exported.forms["float32"], change))
    assert failed == {"float32: outputs are boxes, classes, scores, count"}


def test_swapped_output_names_are_caught(exported: Exported) -> None:
    def change(tree: Any) -> None:
        first, second = tree.signatureDefs[0].outputs[:2]
        first.name, second.name = second.name, first.name

    failed = file_failures(exported, "float32", rewritten(exported.forms["float32"], change))
    assert failed == {"float32: outputs are boxes, classes, scores, count"}


def test_quantized_class_tensor_is_caught(exported: Exported) -> None:
    # The default of ai-edge-quantizer: classes in steps of .00363.
    def change(tree: Any) -> None:
        tensor = tree.subgraphs[0].tensors[tree.subgraphs[0].outputs[1]]
        tensor.type = schema.TensorType.INT8

    failed = file_failures(exported, "int8", rewritten(exported.forms["int8"], change))
    assert failed == {"int8: outputs are boxes, classes, scores, count"}


def test_wrong_labels_in_one_file_are_caught(exported: Exported) -> None:
    content = exported.forms["int8"]
    end = content.index(b"PK\x03\x04")
    stated = replace(exported.model.description, labels=("cross", "box", "Ähre"), form="int8")
    failed = file_failures(exported, "int8", content[:end] + description_archive(end, stated))
    assert failed == {"int8: labels and metadata"}


def test_wrong_labels_are_caught(exported: Exported) -> None:
    expected = replace(exported.model.description, labels=("box", "Ähre", "cross"))
    failed = failures(check_files(exported.forms, kernels(exported), expected))
    assert failed == {f"{form}: labels and metadata" for form in exported.forms}


def test_missing_metadata_is_caught(exported: Exported) -> None:
    content = exported.forms["int8"]
    failed = file_failures(exported, "int8", content[: content.index(b"PK\x03\x04")])
    assert failed == {"int8: labels and metadata"}


def with_rolled_classes(network: Any) -> Any:
    """The network with its class columns moved by one: what an off-by-one in the background column does."""
    copy = build_model(3, SIZE, "nano")
    copy.set_weights(network.get_weights())
    for layer in copy.layers:
        if layer.name.startswith("scores") and layer.name.endswith("_out"):
            layer.set_weights([np.roll(weights, 1, axis=-1) for weights in layer.get_weights()])
    return copy


def test_class_ids_off_by_one_are_caught(exported: Exported, evidence: Evidence) -> None:
    def calibration() -> Iterator[NDArray[np.uint8]]:
        return (picture.rgb for picture in exported.pictures)

    shifted = replace(exported.model, keras_model=with_rolled_classes(exported.model.keras_model))
    forms = export_forms(shifted, calibration, lambda _: None, ["float32"])
    seen = {**evidence.seen, "float32": seen_by(forms["float32"], exported)}
    assert "float32: same detections as Keras" in failures(check_detections(replace(evidence, seen=seen)))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("offset", [-1, 1])
def test_class_ids_off_by_one_are_caught_in_every_form(evidence: Evidence, form: str, offset: int) -> None:
    moved = [replace(seen, class_ids=seen.class_ids + offset) for seen in evidence.seen[form]]
    failed = failures(check_detections(replace(evidence, seen={**evidence.seen, form: moved})))
    assert f"{form}: class ids" in failed


@pytest.mark.parametrize("class_id", [0, 4])
def test_a_class_that_there_is_not_is_caught_beside_those_that_are_right(evidence: Evidence, class_id: int) -> None:
    strange = [replace(seen, class_ids=seen.class_ids.copy()) for seen in evidence.seen["int8"]]
    strange[0].class_ids[0] = class_id
    assert failures(check_detections(replace(evidence, seen={**evidence.seen, "int8": strange}))) == {"int8: class ids"}


def test_class_that_a_form_never_sees_is_caught(evidence: Evidence) -> None:
    # A class tensor quantized by .00363 cannot say "2": every detection is of the first class.
    blind = [replace(seen, class_ids=np.ones_like(seen.class_ids)) for seen in evidence.seen["int8"]]
    failed = failures(check_detections(replace(evidence, seen={**evidence.seen, "int8": blind})))
    assert failed == {"int8: class ids"}


def test_constant_scores_are_caught(evidence: Evidence) -> None:
    flat = [replace(seen, scores=np.full_like(seen.scores, 0.5)) for seen in evidence.seen["float32"]]
    failed = failures(check_detections(replace(evidence, seen={**evidence.seen, "float32": flat})))
    assert failed == {"float32: same detections as Keras"}


PARITY = "float32: same detections as Keras"


def with_float32(evidence: Evidence, change: Callable[[Detections], Detections]) -> set[str]:
    seen = {**evidence.seen, "float32": [change(found) for found in evidence.reference]}
    return failures(check_detections(replace(evidence, seen=seen)))


def test_detections_that_differ_by_rounding_are_the_same(evidence: Evidence) -> None:
    assert (
        with_float32(evidence, lambda found: replace(found, scores=found.scores + 0.005, boxes=found.boxes + 0.01))
        == set()
    )


@pytest.mark.parametrize(
    "change",
    [
        lambda found: replace(found, scores=found.scores - 0.02),
        lambda found: replace(found, boxes=found.boxes + np.array([0, 0, 2, 0], np.float32)),
        lambda found: replace(found, class_ids=found.class_ids % 3 + 1),
        lambda found: found[np.arange(len(found.scores)) % 10 > 0],
        lambda found: Detections(
            boxes=np.concatenate([found.boxes, found.boxes[:9] / 2]),
            class_ids=np.concatenate([found.class_ids, found.class_ids[:9]]),
            scores=np.concatenate([found.scores, found.scores[:9]]),
        ),
    ],
    ids=["score", "box", "class", "missing", "made up"],
)
def test_detections_that_differ_by_more_are_those_of_another_network(
    evidence: Evidence, change: Callable[[Detections], Detections]
) -> None:
    assert with_float32(evidence, change) == {PARITY}


@pytest.mark.parametrize(("lost", "failed"), [(1, set()), (2, {PARITY})])
def test_of_a_hundred_detections_one_may_be_without_its_partner(
    evidence: Evidence, lost: int, failed: set[str]
) -> None:
    at = np.arange(100, dtype=np.float32)[:, None] * 20
    many = Detections(
        boxes=np.concatenate([at, at, at + 10, at + 10], axis=1),
        class_ids=np.arange(100) % 3 + 1,
        scores=at[:, 0] / 4e3 + 0.1,
    )
    # Moved, so that neither has a partner: one of a hundred in both directions.
    moved = replace(many, boxes=many.boxes + np.float32(3) * (np.arange(100) < lost)[:, None].astype(np.float32))
    seen = {form: [many] for form in evidence.seen} | {"float32": [moved]}
    assert failures(check_detections(replace(evidence, reference=[many], seen=seen))) == failed


def test_a_class_that_a_form_sees_with_half_the_score_is_not_gone(evidence: Evidence) -> None:
    def fainter(share: float) -> set[str]:
        dim = [replace(found, scores=np.minimum(found.scores, 0.3) * np.float32(share)) for found in evidence.reference]
        return failures(check_detections(replace(evidence, seen={**evidence.seen, "int8": dim})))

    assert fainter(0.52) == set()
    assert fainter(0.48) == {"int8: class ids"}


def with_int8(evidence: Evidence, row: dict[str, Any], **changes: Any) -> list[GateCheck]:
    return check_detections(replace(evidence, judged={**evidence.judged, "int8": row}, **changes))


def test_loss_that_is_surely_beyond_the_limit_is_refused_with_what_to_try(evidence: Evidence) -> None:
    layers = [LayerError(tensor=f"conv{index}", error=0.3 - index / 100) for index in range(5)]
    checks = with_int8(evidence, judged(0.785, 1.1, 3.2), layers=layers)
    wanted = r"(?s)int8: accuracy kept: mAP50 78\.50 % .* loss of 1\.50 points \(1\.10 to 3\.20 with 95 % confidence"
    with pytest.raises(ExportError, match=wanted) as caught:
        require(checks)
    assert "by 26 objects in 17 pictures), 1 allowed" in str(caught.value)
    assert "Try --quantize qat" in str(caught.value)
    assert "Layers that int8 changes most: conv0 (30.0%), conv1 (29.0%), conv2 (28.0%)" in str(caught.value)


@pytest.mark.parametrize("form", ["float16", "dynamic", "int8"])
def test_every_rounded_form_is_refused_from_a_sure_loss_beyond_the_limit_on(evidence: Evidence, form: str) -> None:
    def checked(low: float) -> list[GateCheck]:
        return check_detections(replace(evidence, judged={**evidence.judged, form: judged(0.78, low, 3.2)}))

    assert failures(checked(1.0)) == set()
    assert failures(checked(1.01)) == {f"{form}: accuracy kept"}
    (warning,) = [check.warning for check in checked(1.0) if check.warning]
    assert warning.endswith(f"use model_{'float32' if form == 'float16' else 'float16'}.tflite where it matters")


def test_a_split_without_an_object_decides_nothing_and_int8_is_warned_of(evidence: Evidence) -> None:
    nothing = judged(0.0, -100.0, 100.0) | {"objects": 0}
    checks = check_detections(replace(evidence, judged=dict.fromkeys(evidence.judged, nothing)))
    require(checks)
    assert [(check.name, check.warning) for check in checks if check.warning] == [
        (
            "int8: accuracy kept",
            "what int8 loses is not known: no val photo has an object that counts. Put photos with objects into val; "
            "until then use model_float16.tflite where it matters",
        )
    ]


def test_loss_beyond_the_limit_by_noise_is_warned_of(evidence: Evidence) -> None:
    checks = with_int8(evidence, judged(0.784, -2.4, 5.1))
    require(checks)
    (warning,) = [check.warning for check in checks if check.warning]
    assert warning.startswith(
        "mAP50 78.40 % against 80.00 % of float32 on val, a loss of 1.60 points where 1 may be lost"
    )
    assert "but -2.40 to 5.10 with 95 % confidence by 26 objects in 17 pictures" in warning
    assert "\n" not in warning
    assert warning.endswith(
        "too few to decide. More val photos would tell; until then use model_float16.tflite where it matters"
    )


def test_loss_within_the_limit_passes_without_a_word(evidence: Evidence) -> None:
    checks = check_detections(replace(evidence, max_drop=0.5 + 1e-9))
    require(checks)
    assert not any(check.warning for check in checks)
    assert any(check.warning for check in check_detections(replace(evidence, max_drop=0.49)))
