"""The four outputs of a converted `.tflite`: put in their order, and cleared where nothing was detected.

`TFLite_Detection_PostProcess` leaves the places past its count as they were in memory (its fast suppression does, the
regular one would not; D-nms): clients that ignore the count see ghosts, and MediaPipe's score calibration stops at
class ids such as -2147483648. Three selections behind the op put zeros there. They are added to the converted file, not
to the network: there the int8 converter would quantize them, and a class tensor in steps of .00363 cannot say 2.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from ai_edge_litert import schema_py_generated as schema
from numpy.typing import NDArray

from shared.errors import ExportError

POSTPROCESS_OP: Final = b"TFLite_Detection_PostProcess"
OUTPUT_ORDER: Final = ("boxes", "classes", "scores", "count")

_SELECT: Final = schema.BuiltinOperator.SELECT_V2
_LESS: Final = schema.BuiltinOperator.LESS


def postprocess_outputs(tree: Any) -> list[int]:
    """Tensor indices of the op's outputs: boxes, classes, scores, count.

    Raises:
        ExportError: The model has not exactly one such op in one subgraph.
    """
    if len(tree.subgraphs) != 1:
        raise ExportError(f"the converter made {len(tree.subgraphs)} subgraphs; clients load one")
    codes = [code.customCode for code in tree.operatorCodes]
    ops = [op for op in tree.subgraphs[0].operators if codes[op.opcodeIndex] == POSTPROCESS_OP]
    if len(ops) != 1 or len(ops[0].outputs) != len(OUTPUT_ORDER):
        raise ExportError(f"the model holds {len(ops)} {POSTPROCESS_OP.decode()} ops, expected one with four outputs")
    return [int(index) for index in ops[0].outputs]


def settle_outputs(tree: Any) -> None:
    """Order the subgraph's outputs as the op's, each but the count behind its selection; names follow.

    Clients that index by position rely on the order, and converters change it.
    """
    made = postprocess_outputs(tree)
    graph = tree.subgraphs[0]
    settled = [*_cleared(tree, made), made[3]]
    moved = dict(zip(made, settled, strict=True))
    graph.outputs = np.asarray(settled, np.int32)
    for entry in tree.signatureDefs[0].outputs:
        entry.tensorIndex = moved[int(entry.tensorIndex)]


def sources_of_outputs(tree: Any) -> dict[int, int]:
    """Of each of the subgraph's outputs, the tensor that its selection selects from; itself where it has none."""
    codes = [max(code.builtinCode, code.deprecatedBuiltinCode) for code in tree.operatorCodes]
    graph = tree.subgraphs[0]
    selected = {int(op.outputs[0]): int(op.inputs[1]) for op in graph.operators if codes[op.opcodeIndex] == _SELECT}
    return {int(index): selected.get(int(index), int(index)) for index in graph.outputs}


def _cleared(tree: Any, made: Sequence[int]) -> list[int]:
    """Boxes, classes and scores where the place is below the count, else zero; the new tensors' indices."""
    boxes, _, _, count = made
    places = np.arange(tree.subgraphs[0].tensors[boxes].shape[1], dtype=np.float32)
    zero = _constant(tree, "nothing", np.zeros((), np.float32))
    cleared: list[int] = []
    for index, shape in zip(made[:3], ((1, -1, 1), (1, -1), (1, -1)), strict=True):
        name = f"{OUTPUT_ORDER[len(cleared)]}_there"
        place = _constant(tree, f"{name}_places", places.reshape(shape))
        is_there = _tensor(tree, name, _shape_of(tree, place), schema.TensorType.BOOL)
        _operate(tree, _LESS, [place, count], is_there)
        kept = _tensor(tree, f"{name}_kept", _shape_of(tree, index), schema.TensorType.FLOAT32)
        _operate(tree, _SELECT, [is_there, index, zero], kept)
        cleared.append(kept)
    return cleared


def _constant(tree: Any, name: str, values: NDArray[np.float32]) -> int:
    buffer = schema.BufferT()
    buffer.data = np.frombuffer(values.tobytes(), np.uint8)
    tree.buffers.append(buffer)
    index = _tensor(tree, name, list(values.shape), schema.TensorType.FLOAT32)
    tree.subgraphs[0].tensors[index].buffer = len(tree.buffers) - 1
    return index


def _tensor(tree: Any, name: str, shape: Sequence[int], kind: int) -> int:
    tensor = schema.TensorT()
    # Buffer 0 is the empty one: the interpreter gives the tensor its memory.
    tensor.name, tensor.shape, tensor.type, tensor.buffer = name.encode(), np.asarray(shape, np.int32), kind, 0
    tensors = tree.subgraphs[0].tensors
    tensors.append(tensor)
    return len(tensors) - 1


def _operate(tree: Any, kind: int, inputs: Sequence[int], output: int) -> None:
    operator = schema.OperatorT()
    operator.opcodeIndex = _code(tree, kind)
    operator.inputs, operator.outputs = np.asarray(inputs, np.int32), np.asarray([output], np.int32)
    if kind == _LESS:
        operator.builtinOptionsType, operator.builtinOptions = schema.BuiltinOptions.LessOptions, schema.LessOptionsT()
    else:
        operator.builtinOptionsType = schema.BuiltinOptions.SelectV2Options
        operator.builtinOptions = schema.SelectV2OptionsT()
    tree.subgraphs[0].operators.append(operator)


def _code(tree: Any, kind: int) -> int:
    for index, code in enumerate(tree.operatorCodes):
        if max(code.builtinCode, code.deprecatedBuiltinCode) == kind:
            return index
    code = schema.OperatorCodeT()
    # Both fields: readers from before 2020 know the byte only.
    code.builtinCode = code.deprecatedBuiltinCode = kind
    code.version = 1
    tree.operatorCodes.append(code)
    return len(tree.operatorCodes) - 1


def _shape_of(tree: Any, index: int) -> list[int]:
    return [int(side) for side in tree.subgraphs[0].tensors[index].shape]
