"""`.tflite` -> a model whose every tensor can be read after a run, and the Keras layers that the tensors come from."""

from typing import Any

import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from numpy.typing import NDArray

Values = NDArray[np.float64]


class InspectedModel:
    """A model with its operators and its tensors' details by index; runs without delegates, which hide activations."""

    def __init__(self, model: bytes) -> None:
        self._interpreter = Interpreter(
            model_content=model,
            experimental_preserve_all_tensors=True,
            experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
        )
        self._interpreter.allocate_tensors()
        self.operators: list[dict[str, Any]] = self._interpreter._get_ops_details()  # no public call lists them
        self.tensors = {detail["index"]: detail for detail in self._interpreter.get_tensor_details()}
        self.input: dict[str, Any] = self._interpreter.get_input_details()[0]

    def run(self, batch: NDArray[Any]) -> None:
        """Run on one picture [1, H, W, 3] in the input's own type."""
        self._interpreter.set_tensor(self.input["index"], batch)
        self._interpreter.invoke()

    def stored(self, index: int) -> NDArray[Any]:
        """A tensor as it is stored."""
        return np.asarray(self._interpreter.get_tensor(index))

    def scales(self, index: int) -> Values:
        """A tensor's quantization scales, one or one per channel; empty if it is not quantized."""
        return np.asarray(self.tensors[index]["quantization_parameters"]["scales"], np.float64)

    def values(self, index: int) -> Values:
        """A tensor as numbers, dequantized if it is quantized."""
        values: Values = self.stored(index).astype(np.float64)
        scales, parameters = self.scales(index), self.tensors[index]["quantization_parameters"]
        if not scales.size:
            return values
        channels = [1] * values.ndim
        channels[parameters["quantized_dimension"]] = -1
        return np.asarray((values - parameters["zero_points"].reshape(channels)) * scales.reshape(channels))


def layer_of(tensor: str) -> str:
    """`stem_relu_1/Relu6;stem_norm_1/add_1;…` -> `stem_relu`, the last of the layers that the converter fused."""
    return tensor.split(";")[0].split("/")[0].removesuffix("_1")
