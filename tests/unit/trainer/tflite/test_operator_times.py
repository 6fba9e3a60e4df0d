"""Where a model's time and memory go: every operator is timed on what it is given, and computes what it does there."""

from collections import Counter

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter

from tests.unit.trainer.exported import Exported
from trainer.pixels import as_input
from trainer.tflite.interpreter import InspectedModel
from trainer.tflite.operator_times import _alone, _given, arena_bytes, by_themselves, details


@pytest.mark.parametrize("form", ["int8", "float32", "dynamic"])
@pytest.mark.parametrize("is_raw", [False, True])
def test_every_kind_of_operator_has_its_share(form: str, is_raw: bool, exported: Exported) -> None:
    model = (exported.raw if is_raw else exported.forms)[form]
    wanted = Counter(op["op_name"] for op in InspectedModel(model).operators)
    alone = by_themselves(model, exported.pictures[0].rgb)
    assert {kind: count for kind, (count, _) in alone.items()} == wanted
    found = details(model, exported.pictures[0].rgb)
    assert found.no_profiler is None
    for times in ([ms for _, ms in operators.values()] for operators in (alone, found.operators)):
        assert times == sorted(times, reverse=True)
        assert min(times) >= 0
        assert sum(times) > 0
    assert found.load_ms > 0
    assert found.run_ms > 0


@pytest.mark.parametrize("form", ["int8", "float32"])
def test_an_operator_by_itself_computes_what_it_computes_in_the_model(form: str, exported: Exported) -> None:
    model = exported.raw[form]
    whole = InspectedModel(model)
    whole.run(as_input(exported.pictures[0].rgb, whole.input["dtype"]))
    tree = schema.ModelT.InitFromPackedBuf(model, 0)
    for place, operator in enumerate(tree.subgraphs[0].operators):
        inputs = _given(tree, operator)
        alone = Interpreter(model_content=_alone(tree, place, inputs))
        alone.allocate_tensors()
        for detail, index in zip(alone.get_input_details(), inputs, strict=True):
            alone.set_tensor(detail["index"], whole.stored(index))
        alone.invoke()
        (output,) = alone.get_output_details()
        wanted = whole.stored(int(operator.outputs[0])).astype(np.float64)
        # XNNPACK here, LiteRT's own kernels there: a step of int8, or a rounding of floats.
        tolerance = 1.0 if form == "int8" else 1e-4
        np.testing.assert_allclose(alone.get_tensor(output["index"]), wanted, atol=tolerance)


def test_the_arena_holds_the_largest_step_and_is_used_again(exported: Exported) -> None:
    for forms in (exported.forms, exported.raw):
        model = forms["int8"]
        whole = InspectedModel(model)
        size_of = {index: int(np.prod(detail["shape"])) for index, detail in whole.tensors.items()}
        tree = schema.ModelT.InitFromPackedBuf(model, 0)
        steps = [[*_given(tree, operator), *map(int, operator.outputs)] for operator in tree.subgraphs[0].operators]
        largest = max(sum(size_of[index] for index in step) for step in steps)
        together = sum(whole.stored(index).nbytes for index in {index for step in steps for index in step})
        assert largest <= arena_bytes(model) < together


def test_without_suppression_the_picture_is_not_converted(exported: Exported) -> None:
    """uint8 to int8 takes an eighth of the time of `small`: no delegate takes it."""
    inside, outside = (
        {op["op_name"] for op in InspectedModel(forms["int8"]).operators} for forms in (exported.forms, exported.raw)
    )
    assert inside - outside >= {"QUANTIZE", "DEQUANTIZE", "TFLite_Detection_PostProcess", "RESIZE_NEAREST_NEIGHBOR"}
