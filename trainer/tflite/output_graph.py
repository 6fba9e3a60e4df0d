"""The ends of a converted `.tflite`: outputs in order, logits turned into scores, places without a detection cleared.

`TFLite_Detection_PostProcess` leaves the places past its count as they were in memory (its fast suppression does, the
regular one would not; docs/decisions/0019): clients that ignore the count see ghosts, and MediaPipe's score calibration
fails on class ids such as -2147483648. Three selections after the operator put zeros there. Boxes are also clipped to
the picture, because MediaPipe drops those that reach far beyond it. All this is added to the converted file, not to the
network, where the int8 converter would quantize it: class ids in steps of 0.00363 are not whole numbers.

int8's uint8 input is converted to int8 by way of float, because XNNPACK does not support QUANTIZE from uint8
(docs/decisions/0101).
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.schema_py_generated import BuiltinOperator as Op
from numpy.typing import NDArray

from shared.errors import ExportError
from trainer.tflite.flatbuffer import add_buffer, operator_kinds

POSTPROCESS_OP: Final = b"TFLite_Detection_PostProcess"
OUTPUT_ORDER: Final = ("boxes", "classes", "scores", "count")

# Logits are raised by this in the operator (`trainer/tflite/convert.py`); sigmoid(-6) = 0.0025 is below any threshold.
LOGIT_LIFT: Final = 6.0
# The name of the layer that raises them; a network that was fine-tuned for int8 has it before it is exported.
LIFTED: Final = "lifted"

# Our own operators: the type and the value of their options, and which of their inputs becomes the output.
_OPTIONS: Final[dict[int, tuple[int, Callable[[], Any]]]] = {
    Op.SUB: (schema.BuiltinOptions.SubOptions, schema.SubOptionsT),
    Op.LOGISTIC: (schema.BuiltinOptions.NONE, lambda: None),
    Op.LESS: (schema.BuiltinOptions.LessOptions, schema.LessOptionsT),
    Op.SELECT_V2: (schema.BuiltinOptions.SelectV2Options, schema.SelectV2OptionsT),
    Op.MAXIMUM: (schema.BuiltinOptions.MaximumMinimumOptions, schema.MaximumMinimumOptionsT),
    Op.MINIMUM: (schema.BuiltinOptions.MaximumMinimumOptions, schema.MaximumMinimumOptionsT),
    Op.DEQUANTIZE: (schema.BuiltinOptions.DequantizeOptions, schema.DequantizeOptionsT),
}
_GOES_ON: Final = {Op.SUB: 0, Op.LOGISTIC: 0, Op.SELECT_V2: 1, Op.MAXIMUM: 0, Op.MINIMUM: 0}


def postprocess_outputs(tree: schema.ModelT) -> list[int]:
    """Tensor indices of the operator's outputs: boxes, classes, scores, count.

    Raises:
        ExportError: The model does not have exactly one such operator in one subgraph.
    """
    return [int(index) for index in _postprocess(tree).outputs]


def postprocess_inputs(tree: schema.ModelT) -> list[int]:
    """Tensor indices of the operator's encoded boxes and its logits with background; raises as the function above."""
    return [int(index) for index in _postprocess(tree).inputs[:2]]


def _postprocess(tree: schema.ModelT) -> schema.OperatorT:
    if len(tree.subgraphs) != 1:
        raise ExportError(f"the converter made {len(tree.subgraphs)} subgraphs; clients load one")
    codes = [code.customCode for code in tree.operatorCodes]
    ops = [op for op in tree.subgraphs[0].operators if codes[op.opcodeIndex] == POSTPROCESS_OP]
    if len(ops) != 1 or len(ops[0].outputs) != len(OUTPUT_ORDER):
        raise ExportError(f"the model holds {len(ops)} {POSTPROCESS_OP.decode()} ops, expected one with four outputs")
    return ops[0]


def finish_outputs(tree: schema.ModelT) -> None:
    """Put the subgraph's outputs into the operator's order, cleared and clipped, with their names.

    Clients that index by position rely on the order, which converters change.
    """
    made = postprocess_outputs(tree)
    graph = tree.subgraphs[0]
    boxes, classes, lifted, _ = made
    logits, scores = (new_tensor(tree, name, _shape_of(tree, lifted)) for name in ("logits", "scores"))
    _operate(tree, Op.SUB, [lifted, _constant(tree, "lift", np.asarray(LOGIT_LIFT, np.float32))], logits)
    _operate(tree, Op.LOGISTIC, [logits], scores)
    boxes, classes, scores = _zero_past_count(tree, [boxes, classes, scores, made[3]])
    settled = [_clip(tree, boxes), classes, scores, made[3]]
    moved = dict(zip(made, settled, strict=True))
    graph.outputs = np.asarray(settled, np.int32)
    for entry in tree.signatureDefs[0].outputs:
        entry.tensorIndex = moved[int(entry.tensorIndex)]


def finish_input(tree: schema.ModelT) -> None:
    """Put a DEQUANTIZE before the QUANTIZE of a uint8 picture; other models stay as they are.

    The numbers stay exactly the same: both ends have the same scale, and zero points 128 apart.
    """
    graph, kinds = tree.subgraphs[0], operator_kinds(tree)
    (image,) = map(int, graph.inputs)
    takers = [op for op in graph.operators if image in op.inputs]
    if [kinds[op.opcodeIndex] for op in takers] != [Op.QUANTIZE]:
        return
    picture = new_tensor(tree, "image_float", _shape_of(tree, image))
    _operate(tree, Op.DEQUANTIZE, [image], picture)
    takers[0].inputs = np.asarray([picture], np.int32)
    graph.operators.insert(0, graph.operators.pop())


def sources_of_outputs(tree: schema.ModelT) -> dict[int, int]:
    """Each output of the subgraph -> the tensor that `finish_outputs` made it from, or itself."""
    codes = operator_kinds(tree)
    graph = tree.subgraphs[0]
    made_from = {
        int(op.outputs[0]): int(op.inputs[_GOES_ON[codes[op.opcodeIndex]]])
        for op in graph.operators
        if codes[op.opcodeIndex] in _GOES_ON
    }
    sources = {}
    for output in map(int, graph.outputs):
        source = output
        while source in made_from:
            source = made_from[source]
        sources[output] = source
    return sources


def _zero_past_count(tree: schema.ModelT, made: Sequence[int]) -> list[int]:
    """Set boxes, classes and scores to zero in the places past the count; returns the new tensors' indices."""
    boxes, _, _, count = made
    places = np.arange(tree.subgraphs[0].tensors[boxes].shape[1], dtype=np.float32)
    zero = _constant(tree, "nothing", np.zeros((), np.float32))
    cleared: list[int] = []
    for index, shape in zip(made[:3], ((1, -1, 1), (1, -1), (1, -1)), strict=True):
        name = f"{OUTPUT_ORDER[len(cleared)]}_there"
        place = _constant(tree, f"{name}_places", places.reshape(shape))
        is_there = new_tensor(tree, name, _shape_of(tree, place), schema.TensorType.BOOL)
        _operate(tree, Op.LESS, [place, count], is_there)
        kept = new_tensor(tree, f"{name}_kept", _shape_of(tree, index))
        _operate(tree, Op.SELECT_V2, [is_there, index, zero], kept)
        cleared.append(kept)
    return cleared


def _clip(tree: schema.ModelT, boxes: int) -> int:
    """Clip the boxes' corners to 0 and 1; returns the new tensor's index."""
    shape, bounded = _shape_of(tree, boxes), boxes
    for kind, name, bound in ((Op.MAXIMUM, "boxes_from_0", 0.0), (Op.MINIMUM, "boxes_to_1", 1.0)):
        limit = _constant(tree, f"{name}_limit", np.asarray(bound, np.float32))
        source, bounded = bounded, new_tensor(tree, name, shape)
        _operate(tree, kind, [source, limit], bounded)
    return bounded


def _constant(tree: schema.ModelT, name: str, values: NDArray[np.float32]) -> int:
    index = new_tensor(tree, name, list(values.shape))
    tree.subgraphs[0].tensors[index].buffer = add_buffer(tree, values.tobytes())
    return index


def new_tensor(tree: schema.ModelT, name: str, shape: Sequence[int], kind: int = schema.TensorType.FLOAT32) -> int:
    """Add a tensor without content to the subgraph; returns its index."""
    tensor = schema.TensorT()
    # Buffer 0 is the empty one, so the interpreter gives the tensor its memory.
    tensor.name, tensor.shape, tensor.type, tensor.buffer = name.encode(), np.asarray(shape, np.int32), kind, 0
    tensors = tree.subgraphs[0].tensors
    tensors.append(tensor)
    return len(tensors) - 1


def _operate(tree: schema.ModelT, kind: int, inputs: Sequence[int], output: int) -> None:
    operator = schema.OperatorT()
    operator.opcodeIndex = operator_code(tree, kind)
    operator.inputs, operator.outputs = np.asarray(inputs, np.int32), np.asarray([output], np.int32)
    operator.builtinOptionsType, make_options = _OPTIONS[kind]
    operator.builtinOptions = make_options()
    tree.subgraphs[0].operators.append(operator)


def operator_code(tree: schema.ModelT, kind: int) -> int:
    """The place of a builtin operator among the model's operator codes, to which it is added if necessary."""
    kinds = operator_kinds(tree)
    if kind in kinds:
        return kinds.index(kind)
    code = schema.OperatorCodeT()
    # Both fields, because readers from before 2020 know only the byte.
    code.builtinCode = code.deprecatedBuiltinCode = kind
    code.version = 1
    tree.operatorCodes.append(code)
    return len(tree.operatorCodes) - 1


def _shape_of(tree: schema.ModelT, index: int) -> list[int]:
    return [int(side) for side in tree.subgraphs[0].tensors[index].shape]
