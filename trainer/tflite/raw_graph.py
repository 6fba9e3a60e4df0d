"""A converted `.tflite` with suppression inside -> the same network without it: the heads' outputs as they are.

The network is cut out of the file with suppression, so that both forms have the same weights, biases and scales, and no
second conversion is needed. What is left is what accelerators support (`trainer/tflite/runtimes.py`): no custom
operator, no control flow, static shapes, int8 from end to end if the form is int8.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.schema_py_generated import BuiltinOperator as Op
from numpy.typing import NDArray

from shared.errors import ExportError
from trainer.inference.lite_model import INPUT, RAW_OUTPUTS
from trainer.tflite.flatbuffer import add_buffer, operator_kinds
from trainer.tflite.output_graph import new_tensor, operator_code, postprocess_inputs


def cut_suppression(tree: schema.ModelT) -> None:
    """Remove the suppression, and what surrounds it for clients on a CPU, from a converted model.

    The outputs become `boxes` [1, A, 4], encoded, and `scores` [1, A, C], lifted logits, each as it comes from the last
    convolutions: for int8, in int8 with its own scale. int8's input becomes int8: the byte minus 128.

    Raises:
        ExportError: The model does not have exactly one suppression, or the graph before it is not the expected one.
    """
    graph = tree.subgraphs[0]
    boxes, scores = (_quantized(tree, index) for index in postprocess_inputs(tree))
    image = _quantized_input(tree)
    ends = {image: INPUT, boxes: RAW_OUTPUTS[0], _without_background(tree, scores): RAW_OUTPUTS[1]}
    graph.inputs, graph.outputs = (np.asarray(list(ends)[at], np.int32) for at in (slice(1), slice(1, None)))
    for index, name in ends.items():
        graph.tensors[index].name = name.encode()
    graph.operators = _needed(graph)
    _plain_doubling(tree)
    drop_unused(tree)
    _sign(tree)


def _maker(tree: schema.ModelT, index: int) -> schema.OperatorT | None:
    """The operator that makes a tensor; None for inputs and constants."""
    made = (op for op in tree.subgraphs[0].operators if index in op.outputs)
    return next(made, None)


def _kind(tree: schema.ModelT, operator: schema.OperatorT | None) -> int | None:
    return None if operator is None else operator_kinds(tree)[operator.opcodeIndex]


def _quantized(tree: schema.ModelT, index: int) -> int:
    """The tensor before it was converted to float for the suppression, or the tensor itself."""
    maker = _maker(tree, index)
    return int(maker.inputs[0]) if maker is not None and _kind(tree, maker) == Op.DEQUANTIZE else index


def _quantized_input(tree: schema.ModelT) -> int:
    """The picture as the first convolution takes it."""
    graph = tree.subgraphs[0]
    (image,) = map(int, graph.inputs)
    takers = [op for op in graph.operators if image in op.inputs]
    if len(takers) == 1 and _kind(tree, takers[0]) == Op.QUANTIZE:
        return int(takers[0].outputs[0])
    return image


def _without_background(tree: schema.ModelT, scores: int) -> int:
    """The logits without the background column that the suppression operator needs before them."""
    maker = _maker(tree, scores)
    if maker is None or _kind(tree, maker) != Op.CONCATENATION or len(maker.inputs) != 2:
        raise ExportError("the converter put the background column before the logits in another way: cannot cut there")
    return int(maker.inputs[1])


def _needed(graph: schema.SubGraphT) -> list[schema.OperatorT]:
    """The operators that the outputs depend on, in their order."""
    wanted, kept = set(map(int, graph.outputs)), []
    for operator in reversed(graph.operators):
        if wanted & set(map(int, operator.outputs)):
            kept.append(operator)
            wanted |= set(map(int, operator.inputs)) - set(map(int, graph.inputs))
    return kept[::-1]


def _plain_doubling(tree: schema.ModelT) -> None:
    """Replace each doubling of a map by concatenated copies, which give exactly the same numbers.

    XNNPACK does not support RESIZE_NEAREST_NEIGHBOR, which split the network into three pieces. Joining a map with
    itself along the channels doubles each cell within its row; joining whole rows with themselves doubles the rows.

    Raises:
        ExportError: A map is resized otherwise than by doubling.
    """
    graph, made = tree.subgraphs[0], []
    for operator in graph.operators:
        if _kind(tree, operator) != Op.RESIZE_NEAREST_NEIGHBOR:
            made.append(operator)
            continue
        source, target = int(operator.inputs[0]), int(operator.outputs[0])
        (_, high, wide, deep), found = (list(map(int, graph.tensors[index].shape)) for index in (source, target))
        if found != [1, 2 * high, 2 * wide, deep]:
            raise ExportError(f"a map of {high}x{wide} is resized to {found}; only doubling is known")
        twice = _like(tree, source, f"doubled_{target}_across", [1, high, wide, 2 * deep])
        rows = _like(tree, source, f"doubled_{target}_rows", [1, high, 1, 2 * wide * deep])
        both = _like(tree, source, f"doubled_{target}_down", [1, high, 2, 2 * wide * deep])
        made += [_join(tree, source, twice, axis=3), _reshape(tree, twice, rows)]
        made += [_join(tree, rows, both, axis=2), _reshape(tree, both, target)]
    graph.operators = made


def _like(tree: schema.ModelT, index: int, name: str, shape: list[int]) -> int:
    """A new tensor with the type and scale of the tensor `index`; returns the new index."""
    graph = tree.subgraphs[0]
    made = new_tensor(tree, name, shape, graph.tensors[index].type)
    graph.tensors[made].quantization = graph.tensors[index].quantization
    return made


def _join(tree: schema.ModelT, source: int, target: int, *, axis: int) -> schema.OperatorT:
    """An operator that makes `target` from `source` twice, joined along `axis`."""
    options = schema.ConcatenationOptionsT()
    options.axis = axis
    return _operator(tree, Op.CONCATENATION, [source, source], target, options)


def _reshape(tree: schema.ModelT, source: int, target: int) -> schema.OperatorT:
    """An operator that makes `target` from `source` in another shape."""
    shape = tree.subgraphs[0].tensors[target].shape
    options = schema.ReshapeOptionsT()
    options.newShape = shape
    wanted = new_tensor(tree, f"shape_of_{target}", [len(shape)], schema.TensorType.INT32)
    tree.subgraphs[0].tensors[wanted].buffer = add_buffer(tree, np.asarray(shape, np.int32).tobytes())
    return _operator(tree, Op.RESHAPE, [source, wanted], target, options)


def _operator(tree: schema.ModelT, kind: int, inputs: list[int], output: int, options: Any) -> schema.OperatorT:
    operator = schema.OperatorT()
    operator.opcodeIndex = operator_code(tree, kind)
    operator.inputs, operator.outputs = np.asarray(inputs, np.int32), np.asarray([output], np.int32)
    operator.builtinOptionsType = getattr(schema.BuiltinOptions, type(options).__name__.removesuffix("T"))
    operator.builtinOptions = options
    return operator


def drop_unused(tree: schema.ModelT) -> None:
    """Remove the tensors, buffers and operator codes that no operator needs any more."""
    graph = tree.subgraphs[0]
    used = {int(index) for op in graph.operators for index in [*op.inputs, *op.outputs] if index >= 0}
    places = {old: new for new, old in enumerate(sorted(used | set(map(int, graph.inputs))))}

    def move(indices: Iterable[int]) -> NDArray[np.int32]:
        return np.asarray([places.get(int(index), -1) for index in indices], np.int32)

    for operator in graph.operators:
        operator.inputs, operator.outputs = move(operator.inputs), move(operator.outputs)
    graph.inputs, graph.outputs = move(graph.inputs), move(graph.outputs)
    graph.tensors = [graph.tensors[old] for old in places]
    # Buffer 0 is the empty one.
    buffers = {old: new for new, old in enumerate(sorted({0, *(tensor.buffer for tensor in graph.tensors)}))}
    for tensor in graph.tensors:
        tensor.buffer = buffers[tensor.buffer]
    tree.buffers, tree.metadata = [tree.buffers[old] for old in buffers], []
    codes = {old: new for new, old in enumerate(sorted({op.opcodeIndex for op in graph.operators}))}
    for operator in graph.operators:
        operator.opcodeIndex = codes[operator.opcodeIndex]
    tree.operatorCodes = [tree.operatorCodes[old] for old in codes]


def _sign(tree: schema.ModelT) -> None:
    """Name the inputs and outputs in the signature."""
    graph, (signature,) = tree.subgraphs[0], tree.signatureDefs
    ends = [zip([INPUT], graph.inputs, strict=True), zip(RAW_OUTPUTS, graph.outputs, strict=True)]
    signature.inputs, signature.outputs = ([_entry(name, index) for name, index in end] for end in ends)


def _entry(name: str, index: int) -> schema.TensorMapT:
    entry = schema.TensorMapT()
    entry.name, entry.tensorIndex = name.encode(), int(index)
    return entry
