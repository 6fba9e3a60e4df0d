"""What runtimes that were not run here take, by their own lists: which operators of a file they would leave to a CPU.

A list is read by a person and goes stale; each has its source and the month it was read. XNNPACK is not in it: it is
asked itself (`partitions`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter

from shared.model.file import quoted
from trainer.tflite.flatbuffer import operator_kinds

_NAMES: Final[Mapping[int, str]] = {
    value: name for name, value in vars(schema.BuiltinOperator).items() if isinstance(value, int)
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """A runtime's list of operators, their names with a space between; `is_int8_only`: it runs no other form."""

    listed: str
    source: str
    read: str
    is_int8_only: bool = False

    @property
    def takes(self) -> frozenset[str]:
        """Names of the operators that it takes."""
        return frozenset(self.listed.split())


RUNTIMES: Final[Mapping[str, Runtime]] = {
    "LiteRT GPU delegate": Runtime(
        listed=(
            "ADD AVERAGE_POOL_2D CONCATENATION CONV_2D DEPTHWISE_CONV_2D DEQUANTIZE EXP FULLY_CONNECTED LOGICAL_AND "
            "LOGISTIC LSTM MAX_POOL_2D MAXIMUM MINIMUM MUL PAD PRELU RELU RELU6 RESHAPE RESIZE_BILINEAR SOFTMAX "
            "STRIDED_SLICE SUB TRANSPOSE_CONV"
        ),
        source="https://ai.google.dev/edge/litert/performance/gpu (DEQUANTIZE: of float16 weights, by its parser)",
        read="2026-11",
    ),
    "Coral Edge TPU": Runtime(
        listed=(
            "ADD AVERAGE_POOL_2D CONCATENATION CONV_2D DEPTHWISE_CONV_2D EXPAND_DIMS FULLY_CONNECTED L2_NORMALIZATION "
            "LOGISTIC MAXIMUM MAX_POOL_2D MEAN MINIMUM MUL PACK PAD PRELU QUANTIZE RELU RELU6 RESHAPE "
            "RESIZE_BILINEAR RESIZE_NEAREST_NEIGHBOR SLICE SOFTMAX SPACE_TO_DEPTH SPLIT SQUEEZE STRIDED_SLICE SUB "
            "TANH TRANSPOSE TRANSPOSE_CONV"
        ),
        source="https://coral.ai/docs/edgetpu/models-intro/#supported-operations",
        read="2026-11",
        is_int8_only=True,
    ),
    "Arm Ethos-U (Vela)": Runtime(
        listed=(
            "ABS ADD AVERAGE_POOL_2D CONCATENATION CONV_2D DEPTHWISE_CONV_2D EXPAND_DIMS FULLY_CONNECTED HARD_SWISH "
            "LEAKY_RELU LOGISTIC MAXIMUM MAX_POOL_2D MEAN MINIMUM MUL PACK PAD PRELU QUANTIZE RELU RELU6 RELU_N1_TO_1 "
            "RESHAPE RESIZE_BILINEAR RESIZE_NEAREST_NEIGHBOR SHAPE SLICE SOFTMAX SPLIT SPLIT_V SQUEEZE STRIDED_SLICE "
            "SUB TANH TRANSPOSE_CONV UNPACK"
        ),
        source="https://github.com/nxp-imx/ethos-u-vela, SUPPORTED_OPS.md of Vela 3.6.1",
        read="2026-11",
        is_int8_only=True,
    ),
    "Arm NN delegate": Runtime(
        listed=(
            "ABS ADD AVERAGE_POOL_2D CONCATENATION CONV_2D DEPTHWISE_CONV_2D DEQUANTIZE DIV EQUAL EXP FULLY_CONNECTED "
            "GREATER GREATER_EQUAL LESS LESS_EQUAL LOGISTIC LOG_SOFTMAX MAXIMUM MAX_POOL_2D MEAN MINIMUM MUL NEG "
            "NOT_EQUAL QUANTIZE RELU RELU6 RESHAPE RESIZE_BILINEAR RESIZE_NEAREST_NEIGHBOR RSQRT SOFTMAX SUB TANH "
            "TRANSPOSE TRANSPOSE_CONV"
        ),
        source="https://android.googlesource.com/platform/external/armnn, delegate/TensorFlowLiteDelegateSupport.md",
        read="2026-11",
    ),
}


def operators(model: bytes) -> frozenset[str]:
    """Names of the operators in all subgraphs of a `.tflite`; a custom one's as it is written, in quotes."""
    tree = schema.ModelT.InitFromPackedBuf(model, 0)
    kinds = operator_kinds(tree)
    names = [
        quoted((code.customCode or b"").decode(errors="replace")) if kind == schema.BuiltinOperator.CUSTOM else name
        for code, kind, name in zip(tree.operatorCodes, kinds, map(_name, kinds), strict=True)
    ]
    return frozenset(names[op.opcodeIndex] for graph in tree.subgraphs for op in graph.operators)


def left_to_cpu(model: bytes, *, is_int8: bool) -> dict[str, list[str]]:
    """By runtime: the operators that its list lacks, sorted; a runtime that takes all of them is not in it."""
    found = operators(model)
    asked = {name: runtime for name, runtime in RUNTIMES.items() if is_int8 or not runtime.is_int8_only}
    return {name: sorted(found - runtime.takes) for name, runtime in asked.items() if found - runtime.takes}


def partitions(model: bytes) -> tuple[int, list[str]]:
    """Into how many pieces XNNPACK, LiteRT's delegate for CPUs, takes a model, and what it leaves out of them.

    Read from the interpreter that has planned it: TensorFlow's analyzer calls even a custom operator compatible. An
    operator stays outside where a piece, or who asks the model, gets a tensor that an operator makes and no piece.

    Returns:
        (pieces, names of the operators next to them that stay outside); (0, []) where LiteRT cannot load the model.
    """
    interpreter = Interpreter(model_content=model, num_threads=1)
    try:
        interpreter.allocate_tensors()
    except (RuntimeError, ValueError):
        return 0, []
    nodes = interpreter._get_ops_details()  # no public call lists them; those in a piece are listed beside it
    pieces = [node for node in nodes if node["op_name"] == "DELEGATE"]
    makers = {int(at): node["op_name"] for node in nodes if node["op_name"] != "DELEGATE" for at in node["outputs"]}
    given = {int(at) for piece in pieces for at in piece["outputs"]}
    needed = {int(at) for piece in pieces for at in piece["inputs"]}
    needed |= {int(detail["index"]) for detail in interpreter.get_output_details()}
    return len(pieces), sorted({makers[at] for at in needed - given if at in makers})


def _name(kind: int) -> str:
    return _NAMES.get(kind, str(kind))
