"""`.tflite` → an interpreter that keeps every activation, and the Keras layers that its tensors come from."""

from typing import Any

from ai_edge_litert.interpreter import Interpreter, OpResolverType


def traced(model: bytes) -> Any:
    """An allocated interpreter; without delegates, which would keep activations to themselves."""
    interpreter = Interpreter(
        model_content=model,
        experimental_preserve_all_tensors=True,
        experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
    )
    interpreter.allocate_tensors()
    return interpreter


def layer_of(tensor: str) -> str:
    """`stem_relu_1/Relu6;stem_norm_1/add_1;…` → `stem_relu`: the last of the layers that the converter fused."""
    return tensor.split(";")[0].split("/")[0].removesuffix("_1")
