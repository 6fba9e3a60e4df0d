"""Files without suppression: what accelerators take passes, each thing that would stop them is found and named."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter
from ai_edge_litert.schema_py_generated import BuiltinOperator as Op

from shared.errors import ExportError
from shared.model.description import description_archive, read_description
from tests.unit.trainer.exported import LABELS, SIZE, Exported
from trainer.inference.detector import Detector
from trainer.tflite.convert import DECODING, FORMS, RAW
from trainer.tflite.flatbuffer import operator_kinds, serialize
from trainer.tflite.gate import GateCheck
from trainer.tflite.raw_gate import check_raw_figures, check_raw_files
from trainer.tflite.raw_graph import cut_suppression
from trainer.tflite.runtimes import RUNTIMES, left_to_cpu, operators, partitions


def failures(checks: Sequence[GateCheck]) -> list[str]:
    return [check.name.split(": ")[1] for check in checks if not check.is_ok]


def file_failures(exported: Exported, form: str, content: bytes) -> list[str]:
    return failures(check_raw_files({f"{form}{RAW}": content}, exported.model.description, DECODING))


def changed(content: bytes, change: Callable[[Any], None]) -> bytes:
    """A `.tflite` with its flatbuffer changed and its description as before."""
    tree = schema.ModelT.InitFromPackedBuf(content, 0)
    change(tree)
    model = serialize(tree)
    return model + description_archive(len(model), read_description(content))


@pytest.mark.parametrize("form", FORMS)
def test_what_the_export_makes_passes(form: str, exported: Exported) -> None:
    checks = check_raw_files({f"{form}{RAW}": exported.raw[form]}, exported.model.description, DECODING)
    assert failures(checks) == []
    assert len(checks) == (4 if form == "dynamic" else 6)


def test_int8_is_int8_from_end_to_end_with_a_scale_for_each_output(exported: Exported) -> None:
    interpreter = Interpreter(model_content=exported.raw["int8"])
    ends = [*interpreter.get_input_details(), *interpreter.get_output_details()]
    assert {detail["dtype"] for detail in ends} == {np.int8}
    scales = [detail["quantization"][0] for detail in ends]
    assert scales[0] == pytest.approx(1 / 127.5)
    assert scales[1] != scales[2]
    assert [detail["shape"].tolist() for detail in ends] == [[1, SIZE, SIZE, 3], [1, 84, 4], [1, 84, len(LABELS)]]


def test_the_file_with_suppression_is_what_the_table_was_made_for(exported: Exported) -> None:
    inside = exported.forms["int8"]
    left = left_to_cpu(inside, is_int8=True)
    assert set(left) == set(RUNTIMES)
    assert all("'TFLite_Detection_PostProcess'" in missing for missing in left.values())
    assert "TFLite_Detection_PostProcess" in partitions(inside)[1]
    assert "RESIZE_NEAREST_NEIGHBOR" in operators(inside)
    found = file_failures(exported, "int8", inside)
    assert {"built-in operators only", "static shapes", "labels and how to decode"} <= set(found)
    assert {"every operator on the lists of accelerators", "XNNPACK takes it in one piece"} <= set(found)


def test_cutting_keeps_every_weight_and_no_other_buffer(exported: Exported) -> None:
    whole, cut = (schema.ModelT.InitFromPackedBuf(forms["int8"], 0) for forms in (exported.forms, exported.raw))
    kernels = [
        [
            bytes(tree.buffers[tree.subgraphs[0].tensors[op.inputs[1]].buffer].data)
            for op in tree.subgraphs[0].operators
            if operator_kinds(tree)[op.opcodeIndex] == Op.CONV_2D
        ]
        for tree in (whole, cut)
    ]
    assert kernels[0] == kernels[1]
    used = {tensor.buffer for tensor in cut.subgraphs[0].tensors}
    spare = set(range(1, len(cut.buffers))) - used - {entry.buffer for entry in cut.metadata}
    assert spare == set()


def test_a_network_that_has_no_suppression_cannot_be_cut(exported: Exported) -> None:
    tree = schema.ModelT.InitFromPackedBuf(exported.raw["int8"], 0)
    with pytest.raises(ExportError, match="holds 0 TFLite_Detection_PostProcess ops"):
        cut_suppression(tree)


def test_a_logit_without_the_background_column_cannot_be_cut(exported: Exported) -> None:
    tree = schema.ModelT.InitFromPackedBuf(exported.forms["float32"], 0)
    graph, kinds = tree.subgraphs[0], operator_kinds(tree)
    last = [op for op in graph.operators if kinds[op.opcodeIndex] == Op.CONCATENATION][-1]
    last.inputs = last.inputs[1:]
    with pytest.raises(ExportError, match="background column"):
        cut_suppression(tree)


def test_a_map_that_is_not_doubled_is_named(exported: Exported) -> None:
    tree = schema.ModelT.InitFromPackedBuf(exported.forms["float32"], 0)
    graph, kinds = tree.subgraphs[0], operator_kinds(tree)
    resize = next(op for op in graph.operators if kinds[op.opcodeIndex] == Op.RESIZE_NEAREST_NEIGHBOR)
    graph.tensors[resize.outputs[0]].shape = np.array([1, 6, 6, 32], np.int32)
    with pytest.raises(ExportError, match=r"2x2 is resized to \[1, 6, 6, 32\]; only doubling is known"):
        cut_suppression(tree)


def moving_input(tree: Any) -> None:
    tree.subgraphs[0].tensors[tree.subgraphs[0].inputs[0]].shapeSignature = np.array([-1, SIZE, SIZE, 3], np.int32)


def swapped_outputs(tree: Any) -> None:
    tree.subgraphs[0].outputs = tree.subgraphs[0].outputs[::-1]


def other_scale(tree: Any) -> None:
    tree.subgraphs[0].tensors[tree.subgraphs[0].inputs[0]].quantization.scale = np.array([0.00627], np.float32)


def without_scale(tree: Any) -> None:
    tree.subgraphs[0].tensors[tree.subgraphs[0].outputs[0]].quantization = None


def other_zero(tree: Any) -> None:
    tree.subgraphs[0].tensors[tree.subgraphs[0].inputs[0]].quantization.zeroPoint = np.array([-32])


def swapped_names(tree: Any) -> None:
    first, second = tree.signatureDefs[0].outputs
    first.name, second.name = second.name, first.name


def rounded_output(tree: Any) -> None:
    tree.subgraphs[0].tensors[tree.subgraphs[0].outputs[1]].type = schema.TensorType.INT8


def one_class_less(tree: Any) -> None:
    tree.subgraphs[0].tensors[tree.subgraphs[0].outputs[1]].shape = np.array([1, 84, len(LABELS) - 1], np.int32)


def foreign(tree: Any) -> None:
    code = next(code for code in tree.operatorCodes if code.builtinCode == Op.MAX_POOL_2D)
    code.builtinCode = code.deprecatedBuiltinCode = Op.CUSTOM
    code.customCode = b"FlexMaxPool"


@pytest.mark.parametrize(
    ("change", "question"),
    [
        (moving_input, "static shapes"),
        (swapped_outputs, "input and outputs as decoders want them"),
        (other_scale, "input and outputs as decoders want them"),
        (without_scale, "input and outputs as decoders want them"),
        (other_zero, "input and outputs as decoders want them"),
    ],
)
def test_what_would_stop_a_decoder_is_refused(change: Callable[[Any], None], question: str, exported: Exported) -> None:
    assert question in file_failures(exported, "int8", changed(exported.raw["int8"], change))


@pytest.mark.parametrize("change", [swapped_names, rounded_output, one_class_less])
def test_other_outputs_than_decoders_want_are_refused(change: Callable[[Any], None], exported: Exported) -> None:
    # Of this form LiteRT is not asked: it may not survive such files.
    content = changed(exported.raw["dynamic"], change)
    assert file_failures(exported, "dynamic", content) == ["input and outputs as decoders want them"]


def test_an_operator_of_tensorflow_is_named(exported: Exported) -> None:
    content = changed(exported.raw["int8"], foreign)
    assert "'FlexMaxPool'" in operators(content)
    assert "built-in operators only" in file_failures(exported, "int8", content)
    left = left_to_cpu(content, is_int8=True)
    assert left == {name: ["'FlexMaxPool'"] for name in RUNTIMES}


def pooling_as(kind: int) -> Callable[[Any], None]:
    """A change of a model: its poolings are called operators of another kind."""

    def change(tree: Any) -> None:
        code = next(code for code in tree.operatorCodes if code.builtinCode == Op.MAX_POOL_2D)
        code.deprecatedBuiltinCode, code.builtinCode = min(kind, 127), kind

    return change


@pytest.mark.parametrize("kind", [Op.IF, Op.WHILE, Op.CALL_ONCE, Op.VAR_HANDLE, Op.READ_VARIABLE, Op.ASSIGN_VARIABLE])
def test_control_flow_and_variables_are_refused(kind: int, exported: Exported) -> None:
    content = changed(exported.raw["dynamic"], pooling_as(kind))
    assert file_failures(exported, "dynamic", content) == ["built-in operators only"]


def test_a_second_subgraph_is_refused(exported: Exported) -> None:
    content = changed(exported.raw["dynamic"], lambda tree: tree.subgraphs.append(tree.subgraphs[0]))
    assert file_failures(exported, "dynamic", content) == ["built-in operators only"]


def test_an_operator_that_no_list_has_is_named_by_each_runtime(exported: Exported) -> None:
    left = left_to_cpu(changed(exported.raw["float32"], pooling_as(Op.UNIQUE)), is_int8=False)
    assert left == {name: ["UNIQUE"] for name, runtime in RUNTIMES.items() if not runtime.is_int8_only}


def test_an_operator_is_named_by_those_alone_whose_list_lacks_or_refuses_it(exported: Exported) -> None:
    left = left_to_cpu(changed(exported.raw["float32"], pooling_as(Op.DEPTH_TO_SPACE)), is_int8=False)
    assert set(left) == {"LiteRT GPU delegate", "Arm NN delegate", "MediaTek NPU (LiteRT)"}
    left = left_to_cpu(changed(exported.raw["float32"], pooling_as(Op.CONV_3D)), is_int8=False)
    assert "Google Tensor NPU (LiteRT)" in left
    assert "Qualcomm NPU (LiteRT)" not in left


def test_every_list_has_its_source_and_the_month_it_was_read() -> None:
    for runtime in RUNTIMES.values():
        assert runtime.source.startswith("https://")
        assert len(runtime.read) == len("2026-11")
        assert {"CONV_2D", "CONCATENATION", "RESHAPE", "MAX_POOL_2D", "ADD"} <= runtime.takes
        assert set(runtime.listed.split()) <= set(vars(schema.BuiltinOperator))
        assert sorted(set(runtime.listed.split())) == sorted(runtime.listed.split())


def test_another_decoding_than_was_meant_is_refused(exported: Exported) -> None:
    told = read_description(exported.raw["int8"])
    bare = exported.raw["int8"][: exported.raw["int8"].rindex(b"PK\x03\x04")]
    bare = bare[: bare.index(b"PK\x03\x04")]
    other = replace(told, decoding=replace(DECODING, center_scale=9.0))
    assert file_failures(exported, "int8", bare + description_archive(len(bare), other)) == ["labels and how to decode"]
    assert file_failures(exported, "int8", bare) == ["labels and how to decode"]


@pytest.mark.parametrize("changed", [{"resize": "stretch"}, {"labels": ("box", "Ähre", "cross")}])
def test_other_labels_or_another_way_of_resizing_are_refused(exported: Exported, changed: dict[str, Any]) -> None:
    expected = replace(exported.model.description, **changed)
    checks = check_raw_files({f"dynamic{RAW}": exported.raw["dynamic"]}, expected, DECODING)
    assert failures(checks) == ["labels and how to decode"]


def test_a_difference_in_accuracy_is_refused_from_a_third_of_a_point_on() -> None:
    rows = {"int8": {"map50": 0.8, "map": 0.5}, f"int8{RAW}": {"map50": 0.8, "map": 0.5029}}
    assert failures(check_raw_figures(rows, RAW)) == []
    for better_or_worse in (0.4969, 0.5031):
        rows[f"int8{RAW}"] = {"map50": 0.8, "map": better_or_worse}
        assert failures(check_raw_figures(rows, RAW)) == ["as accurate as with suppression inside"]
    rows[f"int8{RAW}"] = {"map50": 0.796, "map": 0.5}
    (check,) = check_raw_figures(rows, RAW)
    assert not check.is_ok
    assert check.found == "map50 -0.40 points, map +0.00 points against int8, 0.3 allowed"


def test_the_description_says_how_to_decode_and_survives_the_file(exported: Exported) -> None:
    for form in FORMS:
        told = read_description(exported.raw[form])
        assert told.decoding == DECODING
        assert told.form == f"{form}{RAW}"
        assert read_description(exported.forms[form]).decoding is None
    assert b"decoding" not in exported.forms["int8"]
    assert Detector(exported.raw["int8"]).network.is_raw
