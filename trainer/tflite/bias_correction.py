"""`.tflite` with rounded weights -> the same with biases that compensate for the rounding, which the converter omits.

Rounding a kernel shifts the mean of each output channel by (rounded - exact kernel) x mean input, equally in every
picture and place, and all later layers inherit that. If inputs are far from zero, as pixels are, this is most of int8's
error (docs/decisions/0046). Source: Nagel et al., "Data-Free Quantization Through Weight Equalization and Bias
Correction", 2019, section 4.2, with means measured on pictures instead of taken from batch normalization.
"""

import copy
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from ai_edge_litert import schema_py_generated as schema
from numpy.typing import NDArray

from shared.errors import ExportError
from trainer.tflite.flatbuffer import add_buffer, serialize
from trainer.tflite.interpreter import InspectedModel, Values, layer_of

logger = logging.getLogger(__name__)

_DEPTHWISE: Final = "DEPTHWISE_CONV_2D"
_CONVOLUTIONS: Final = frozenset({"CONV_2D", _DEPTHWISE})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Convolution:
    """An operator's place in the graph, its kind, and its tensors' indices."""

    operator: int
    kind: str
    input: int
    kernel: int
    bias: int


def correct_biases(rounded: bytes, float32: bytes, samples: Iterable[list[NDArray[np.float32]]]) -> bytes:
    """Correct the biases of a model by the mean error from the rounding of its kernels.

    Args:
        rounded: A `.tflite` with int8 kernels, one scale per channel; full int8 or dynamic range.
        float32: The float `.tflite` of the same network; layers are matched by name and kernel shape.
        samples: Inputs of the float model, each [float32 [1, H, W, 3], RGB in [-1, 1]]; a few dozen are enough.

    Returns:
        The `.tflite` with corrected biases and nothing else changed.

    Raises:
        ExportError: There are no samples.
    """
    exact, other = _Graph(float32), _Graph(rounded)
    means = exact.mean_inputs(samples)
    tree = schema.ModelT.InitFromPackedBuf(rounded, 0)
    moved = 0
    for name, own in other.convolutions.items():
        twin = exact.convolutions.get(name)
        if twin is None:
            continue
        kernels = exact.values(twin.kernel), other.values(own.kernel)
        is_grouped = own.kind != _DEPTHWISE and kernels[0].shape[-1] != len(means[name])
        if kernels[0].shape == kernels[1].shape and not is_grouped:
            lost = _mean_shift(own.kind, kernels[0] - kernels[1], means[name])
            _set_bias(tree, own, other.moved(own.bias, lost))
            moved += 1
    # If fewer were corrected, another version of the converter may name its tensors differently.
    level = logging.INFO if moved == len(other.convolutions) else logging.WARNING
    logger.log(level, "biases_corrected", extra={"convolutions": moved, "of": len(other.convolutions)})
    return serialize(tree)


def _set_bias(tree: schema.ModelT, own: _Convolution, bias: NDArray[Any]) -> None:
    """Give an operator its own bias: the converter lets equal ones, such as zeros, share a tensor or a buffer."""
    graph = tree.subgraphs[0]
    tensor = copy.copy(graph.tensors[own.bias])
    if sum(other.buffer == tensor.buffer for other in graph.tensors) == 1:
        tree.buffers[tensor.buffer].data = np.frombuffer(bias.tobytes(), np.uint8)
    else:
        tensor.buffer = add_buffer(tree, bias.tobytes())
    if sum(own.bias in operator.inputs for operator in graph.operators) == 1:
        graph.tensors[own.bias] = tensor
    else:
        graph.tensors.append(tensor)
        operator = graph.operators[own.operator]
        operator.inputs = np.array([*operator.inputs[:2], len(graph.tensors) - 1], np.int32)


def _mean_shift(kind: str, lost: Values, mean: Values) -> Values:
    """The output, [O], of a kernel's part `lost`, [O, kh, kw, I] or depthwise [1, kh, kw, O], on the mean input [I]."""
    if kind == _DEPTHWISE:
        taps = lost.sum(axis=(0, 1, 2))
        return np.asarray(taps * np.repeat(mean, len(taps) // len(mean)))
    return np.asarray(lost.sum(axis=(1, 2)) @ mean)


class _Graph(InspectedModel):
    """A model and its convolutions, by the layer that each comes from."""

    def __init__(self, model: bytes) -> None:
        super().__init__(model)
        found: dict[str, list[_Convolution]] = {}
        for place, op in enumerate(self.operators):
            if op["op_name"] in _CONVOLUTIONS and len(op["inputs"]) == 3:
                name = layer_of(self.tensors[op["outputs"][0]]["name"])
                tensors = dict(zip(("input", "kernel", "bias"), map(int, op["inputs"]), strict=True))
                found.setdefault(name, []).append(_Convolution(operator=place, kind=op["op_name"], **tensors))
        self.convolutions = {name: ops[0] for name, ops in found.items() if len(ops) == 1}

    def mean_inputs(self, samples: Iterable[list[NDArray[np.float32]]]) -> dict[str, Values]:
        """The mean input of each convolution by channel, [I], over all samples and places."""
        sums = dict.fromkeys(self.convolutions, np.zeros(1))
        count = 0
        for (sample,) in samples:
            self.run(sample)
            count += 1
            for name, op in self.convolutions.items():
                sums[name] = sums[name] + self.stored(op.input).mean(axis=(0, 1, 2), dtype=np.float64)
        if not count:
            raise ExportError("no pictures to correct biases by: the training split is empty")
        return {name: total / count for name, total in sums.items()}

    def moved(self, index: int, shift: Values) -> NDArray[Any]:
        """The bias plus `shift` [O], in the bias's own form: float32, or steps in int32."""
        bias = self.stored(index)
        if bias.dtype == np.float32:
            return np.asarray(bias + shift, np.float32)
        return np.asarray(bias + np.round(shift / self.scales(index)), bias.dtype)
