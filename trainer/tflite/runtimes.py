"""Which operators of a file other runtimes would leave to a CPU, according to their own lists; they are not run here.

A person reads a list, and it goes out of date, so each has its source and the month when it was read. XNNPACK is not
among them, because it can be asked itself (`partitions`).
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
    """A runtime's list of operators, as names separated by spaces.

    `is_of_refused`: the list is of operators that it does not support. `is_int8_only`: it runs no other form.
    """

    listed: str
    source: str
    read: str
    is_of_refused: bool = False
    is_int8_only: bool = False

    @property
    def takes(self) -> frozenset[str]:
        """The names of the operators that it supports."""
        listed = frozenset(self.listed.split())
        return frozenset(_NAMES.values()) - listed if self.is_of_refused else listed


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
    # The next three are LiteRT's compilers for NPUs; each also checks the shapes and types of an operator.
    "Qualcomm NPU (LiteRT)": Runtime(
        listed=(
            "ABS ADD ARG_MAX ARG_MIN AVERAGE_POOL_2D BATCH_MATMUL BROADCAST_TO CAST CEIL CONCATENATION CONV_2D CONV_3D "
            "COS CUMSUM DEPTHWISE_CONV_2D DEPTH_TO_SPACE DEQUANTIZE DIV DYNAMIC_UPDATE_SLICE ELU EMBEDDING_LOOKUP "
            "EQUAL EXP FLOOR FLOOR_DIV FULLY_CONNECTED GATHER GATHER_ND GELU GREATER GREATER_EQUAL HARD_SWISH "
            "L2_NORMALIZATION L2_POOL_2D LEAKY_RELU LESS LESS_EQUAL LOG LOGICAL_AND LOGICAL_NOT LOGICAL_OR LOGISTIC "
            "MAXIMUM MAX_POOL_2D MEAN MINIMUM MIRROR_PAD MUL NEG NOT_EQUAL PACK PAD PADV2 POW PRELU QUANTIZE "
            "REDUCE_ALL REDUCE_ANY REDUCE_MAX REDUCE_MIN RELU RELU6 RELU_0_TO_1 RELU_N1_TO_1 RESHAPE RESIZE_BILINEAR "
            "RESIZE_NEAREST_NEIGHBOR REVERSE_V2 ROUND RSQRT SELECT SELECT_V2 SIGN SIN SLICE SOFTMAX SPACE_TO_DEPTH "
            "SPLIT SQRT SQUARE SQUARED_DIFFERENCE STRIDED_SLICE SUB SUM TANH TILE TOPK_V2 TRANSPOSE TRANSPOSE_CONV "
            "UNPACK"
        ),
        source="https://github.com/google-ai-edge/LiteRT, litert/vendors/qualcomm/compiler/Qualcomm_QNN_Compiler.md",
        read="2026-11",
    ),
    "MediaTek NPU (LiteRT)": Runtime(
        listed=(
            "ABS ADD AVERAGE_POOL_2D BATCH_MATMUL CAST CONCATENATION CONV_2D DEPTHWISE_CONV_2D DEQUANTIZE DIV "
            "FULLY_CONNECTED GELU GREATER HARD_SWISH LEAKY_RELU LOGISTIC MAXIMUM MAX_POOL_2D MEAN MINIMUM MUL PAD "
            "PADV2 PRELU QUANTIZE REDUCE_MAX RELU RESHAPE RESIZE_BILINEAR RESIZE_NEAREST_NEIGHBOR RSQRT SLICE SOFTMAX "
            "SPLIT SQRT SQUARED_DIFFERENCE STRIDED_SLICE SUB SUM TANH TRANSPOSE TRANSPOSE_CONV"
        ),
        source="https://github.com/google-ai-edge/LiteRT, litert/vendors/mediatek/compiler/compiler_plugin.cc",
        read="2026-11",
    ),
    "Google Tensor NPU (LiteRT)": Runtime(
        listed=(
            "ASSIGN_VARIABLE BIDIRECTIONAL_SEQUENCE_LSTM BROADCAST_ARGS BUCKETIZE CALL_ONCE COMPLEX_ABS CONV_3D "
            "CONV_3D_TRANSPOSE CUSTOM DENSIFY FAKE_QUANT HASHTABLE HASHTABLE_FIND HASHTABLE_IMPORT HASHTABLE_SIZE "
            "IMAG LOCAL_RESPONSE_NORMALIZATION MATRIX_DIAG MATRIX_SET_DIAG MULTINOMIAL NON_MAX_SUPPRESSION_V4 "
            "NON_MAX_SUPPRESSION_V5 RANDOM_STANDARD_NORMAL RANDOM_UNIFORM RANK READ_VARIABLE REAL REDUCE_PROD "
            "REVERSE_SEQUENCE RFFT2D SEGMENT_SUM SHAPE SPARSE_TO_DENSE SVDF UNIDIRECTIONAL_SEQUENCE_RNN UNIQUE "
            "UNSORTED_SEGMENT_MAX UNSORTED_SEGMENT_MIN UNSORTED_SEGMENT_PROD UNSORTED_SEGMENT_SUM VAR_HANDLE WHERE"
        ),
        source="https://github.com/google-ai-edge/LiteRT, litert/vendors/google_tensor/compiler/compiler_plugin.cc",
        read="2026-11",
        is_of_refused=True,
    ),
}


def operators(model: bytes) -> frozenset[str]:
    """The names of the operators in all subgraphs of a `.tflite`; those of custom operators as written, in quotes."""
    tree = schema.ModelT.InitFromPackedBuf(model, 0)
    kinds = operator_kinds(tree)
    names = [
        quoted((code.customCode or b"").decode(errors="replace")) if kind == schema.BuiltinOperator.CUSTOM else name
        for code, kind, name in zip(tree.operatorCodes, kinds, map(_name, kinds), strict=True)
    ]
    return frozenset(names[op.opcodeIndex] for graph in tree.subgraphs for op in graph.operators)


def left_to_cpu(model: bytes, *, is_int8: bool) -> dict[str, list[str]]:
    """The operators that each runtime's list lacks, sorted; a runtime that supports all of them is left out."""
    found = operators(model)
    asked = {name: runtime for name, runtime in RUNTIMES.items() if is_int8 or not runtime.is_int8_only}
    return {name: sorted(found - runtime.takes) for name, runtime in asked.items() if found - runtime.takes}


def partitions(model: bytes) -> tuple[int, list[str]]:
    """Into how many pieces XNNPACK, LiteRT's delegate for CPUs, splits a model, and which operators it leaves out.

    Read from an interpreter with allocated memory: TensorFlow's analyzer calls even a custom operator compatible. An
    operator counts as left out if it, and no piece, makes a tensor that a piece needs or that is an output.

    Returns:
        (number of pieces, names of the operators next to them that are left out); (0, []) if LiteRT cannot load it.
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
