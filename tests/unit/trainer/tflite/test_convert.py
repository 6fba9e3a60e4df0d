"""The four forms: what is in the files, and that they see what Keras sees."""

import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from ai_edge_litert.schema_py_generated import BuiltinOperator as Op

from tests.unit.trainer.exported import SIZE, Exported, as_batch, lively_network
from trainer.evaluation.measure import detect_all
from trainer.inference.detector import Detector
from trainer.network.postprocess import keras_detector
from trainer.tflite.convert import CALIBRATION_IMAGES, FORMS, export_forms, representative, save_frozen
from trainer.tflite.flatbuffer import operator_kinds, serialize
from trainer.tflite.runtimes import partitions


def test_every_form_is_made_and_lossy_ones_are_smaller(exported: Exported) -> None:
    sizes = {form: len(content) for form, content in exported.forms.items()}
    assert tuple(sizes) == FORMS
    assert sizes["float16"] < 0.55 * sizes["float32"]
    assert max(sizes["dynamic"], sizes["int8"]) < 0.35 * sizes["float32"]


def test_batch_normalization_and_activation_are_folded_into_convolutions(exported: Exported) -> None:
    interpreter = Interpreter(model_content=exported.forms["float32"])
    names = [op["op_name"] for op in interpreter._get_ops_details()]
    assert {"MUL", "RELU", "RELU6", "VAR_HANDLE", "TILE"}.isdisjoint(names)
    assert names.count("TFLite_Detection_PostProcess") == 1


def test_float32_repeats_keras(exported: Exported) -> None:
    detector = Detector(exported.forms["float32"])
    reference = list(
        detect_all(keras_detector(exported.model.keras_model, exported.model.priors), exported.pictures[:2]).values()
    )
    for picture, expected in zip(exported.pictures, reference, strict=False):
        seen = detector.detect_stored(picture.rgb)
        assert seen.scores == pytest.approx(expected.scores, abs=1e-4)
        np.testing.assert_array_equal(seen.class_ids, expected.class_ids)
        np.testing.assert_allclose(seen.boxes, expected.boxes, atol=0.02)


def test_a_file_is_the_same_whatever_is_made_beside_it(exported: Exported) -> None:
    alone = export_forms(exported.model, lambda: (each.rgb for each in exported.pictures), lambda _: None, ("int8",))
    assert alone == {"int8": exported.forms["int8"]}


def test_saved_model_gives_the_same_four_outputs(exported: Exported, tmp_path: Path) -> None:
    save_frozen(exported.model, tmp_path)
    picture = exported.pictures[0].rgb
    outputs = tf.saved_model.load(str(tmp_path)).signatures["serving_default"](tf.constant(as_batch(picture)))
    lite = Detector(exported.forms["float32"]).network.run(picture)
    assert set(outputs) == set(lite)
    count = int(lite["count"][0])
    assert int(outputs["count"][0]) == count
    np.testing.assert_allclose(outputs["scores"].numpy()[0, :count], lite["scores"][0, :count], atol=1e-4)
    np.testing.assert_allclose(outputs["boxes"].numpy()[0, :count], lite["boxes"][0, :count], atol=1e-3)


def test_int8_takes_raw_bytes(exported: Exported) -> None:
    details = Interpreter(model_content=exported.forms["int8"]).get_input_details()[0]
    scale, zero = details["quantization"]
    assert details["dtype"] == np.uint8
    assert scale == pytest.approx(1 / 127.5, rel=1e-4)
    assert zero in (127, 128)


def test_int8_weights_have_a_scale_each_channel(exported: Exported) -> None:
    graph = schema.ModelT.InitFromPackedBuf(exported.forms["int8"], 0).subgraphs[0]
    kernels = [tensor for tensor in graph.tensors if tensor.shape is not None and len(tensor.shape) == 4]
    scales = [len(tensor.quantization.scale) for tensor in kernels if tensor.type == schema.TensorType.INT8]
    assert max(scales) > 32


def test_only_the_post_processing_is_float_in_int8(exported: Exported) -> None:
    interpreter = Interpreter(model_content=exported.forms["int8"])
    types = {detail["index"]: detail["dtype"] for detail in interpreter.get_tensor_details()}
    kinds = {"CONV_2D", "ADD", "MAX_POOL_2D", "RESIZE_NEAREST_NEIGHBOR", "CONCATENATION"}
    computing = [op for op in interpreter._get_ops_details() if op["op_name"] in kinds]
    assert {op["op_name"] for op in computing} == kinds
    for op in computing:
        assert {types[index] for index in op["outputs"]} == {np.int8}, op["op_name"]


def test_places_past_the_count_are_zero(exported: Exported) -> None:
    for content in exported.forms.values():
        outputs = Detector(content).network.run(exported.pictures[0].rgb)
        count = int(outputs["count"][0])
        assert 0 < count < outputs["scores"].shape[1]
        assert not any(outputs[name][0, count:].any() for name in ("boxes", "classes", "scores"))


def test_calibration_samples_hold_both_ends_and_are_bounded() -> None:
    gray = np.full((SIZE, SIZE, 3), 100, np.uint8)
    samples = list(representative(gray for _ in range(CALIBRATION_IMAGES + 5)))
    assert len(samples) == CALIBRATION_IMAGES
    assert samples[0][0].shape == (1, SIZE, SIZE, 3)
    assert (samples[0][0].min(), samples[0][0].max()) == (-1, 1)


def test_a_network_that_sees_nothing_anywhere_converts_into_files_that_load(exported: Exported) -> None:
    """After a very short training, or with very many classes: every lifted logit of the calibration is zero."""
    network = lively_network()
    for layer in network.layers:
        if layer.name.startswith("scores") and layer.name.endswith("_out"):
            kernel, bias = layer.get_weights()
            layer.set_weights([kernel, np.full_like(bias, -20)])
    model = replace(exported.model, keras_model=network)
    made = export_forms(
        model, lambda: (each.rgb for each in exported.pictures), lambda _: None, ("float32", "int8"), is_raw=True
    )
    for form, content in made.items():
        assert len(Detector(content).detect_stored(exported.pictures[0].rgb).scores) == 0, form


def test_the_same_model_is_the_same_bytes(exported: Exported, tmp_path: Path) -> None:
    archives = []
    for content in exported.forms.values():
        path = tmp_path / "model.tflite"
        path.write_bytes(content)
        with zipfile.ZipFile(path) as archive:
            archives.append([(entry.filename, entry.date_time) for entry in archive.infolist()])
    assert archives[0][0][1] == (1980, 1, 1, 0, 0, 0)
    assert all(entries == archives[0] for entries in archives)


def test_int8s_picture_becomes_int8_by_way_of_float_byte_for_byte(exported: Exported) -> None:
    """XNNPACK takes DEQUANTIZE and QUANTIZE, but no QUANTIZE from uint8; neither it nor LiteRT changes a byte by it."""
    tree = schema.ModelT.InitFromPackedBuf(exported.forms["int8"], 0)
    graph, kinds = tree.subgraphs[0], operator_kinds(tree)
    first, second = graph.operators[:2]
    assert [kinds[op.opcodeIndex] for op in (first, second)] == [Op.DEQUANTIZE, Op.QUANTIZE]
    assert list(first.inputs) == list(graph.inputs)
    assert "QUANTIZE" not in partitions(exported.forms["int8"])[1]
    graph.operators, graph.outputs = [first, second], second.outputs
    tree.signatureDefs[0].outputs = [tree.signatureDefs[0].outputs[0]]
    tree.signatureDefs[0].outputs[0].tensorIndex = int(second.outputs[0])
    every_byte = np.resize(np.arange(256, dtype=np.uint8), (1, SIZE, SIZE, 3))
    for kernels in (OpResolverType.AUTO, OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES):
        interpreter = Interpreter(model_content=serialize(tree), experimental_op_resolver_type=kernels)
        interpreter.allocate_tensors()
        interpreter.set_tensor(interpreter.get_input_details()[0]["index"], every_byte)
        interpreter.invoke()
        found = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
        assert np.array_equal(found, (every_byte ^ 128).view(np.int8))


@pytest.mark.parametrize("form", ["float32", "float16", "dynamic"])
def test_a_float_picture_is_taken_as_it_is(form: str, exported: Exported) -> None:
    tree = schema.ModelT.InitFromPackedBuf(exported.forms[form], 0)
    names = [tensor.name for tensor in tree.subgraphs[0].tensors]
    assert b"image_float" not in names
