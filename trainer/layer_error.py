"""Float and int8 forms of one network → which layers int8 hurts most; named in the report when int8 loses accuracy."""

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from trainer.description import PIXEL_MEAN, PIXEL_STD
from trainer.outputs import POSTPROCESS_OP
from trainer.traced import layer_of, traced

# The others only move numbers.
_COMPUTING_OPS: Final = frozenset({"CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "ADD", "MUL", "LOGISTIC"})


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerError:
    """Root mean square of int8's deviation from float in one activation, as a share of the activation's own."""

    tensor: str
    error: float


def layer_errors(float32: bytes, int8: bytes, pictures: Iterable[NDArray[np.uint8]]) -> list[LayerError]:
    """Deviation of every activation that both forms have, worst first.

    Both are named by the Keras layer they come from: int8 that was fine-tuned is another graph of the same layers.

    Args:
        float32: The float `.tflite`.
        int8: The full int8 `.tflite` of the same network.
        pictures: Stored pictures, each uint8 [H, W, 3], RGB; a handful is enough.

    Returns:
        One entry a tensor. Errors add up along the network: look for where they jump.
    """
    runners = [_Tracer(model) for model in (float32, int8)]
    names = [name for name in runners[0].tensors if name in runners[1].tensors]
    sums = {name: np.zeros(2) for name in names}
    for picture in pictures:
        exact, rounded = (runner.activations(picture, names) for runner in runners)
        for name in names:
            if exact[name].shape == rounded[name].shape:
                sums[name] += [np.square(exact[name] - rounded[name]).sum(), np.square(exact[name]).sum()]
    errors = [
        LayerError(tensor=name, error=float(np.sqrt(deviation / power)))
        for name, (deviation, power) in sums.items()
        if power > 0
    ]
    return sorted(errors, key=lambda entry: -entry.error)


class _Tracer:
    """The activations of a model's computing layers."""

    def __init__(self, model: bytes) -> None:
        self._interpreter = traced(model)
        details = self._interpreter.get_tensor_details()
        ops = self._interpreter._get_ops_details()  # no public call lists them
        # What follows the suppression is in the order of its detections, which two forms need not share.
        network = itertools.takewhile(lambda op: op["op_name"] != POSTPROCESS_OP.decode(), ops)
        made = {index for op in network if op["op_name"] in _COMPUTING_OPS for index in op["outputs"]}
        self.tensors = {layer_of(detail["name"]): detail for detail in details if detail["index"] in made}

    def activations(self, picture: NDArray[np.uint8], names: Iterable[str]) -> dict[str, NDArray[np.float64]]:
        """The named tensors for one picture, dequantized."""
        entry = self._interpreter.get_input_details()[0]
        batch: NDArray[Any] = picture[None]
        if entry["dtype"] != np.uint8:
            batch = ((batch.astype(np.float32) - PIXEL_MEAN) / PIXEL_STD).astype(np.float32)
        self._interpreter.set_tensor(entry["index"], batch)
        self._interpreter.invoke()
        return {name: self._dequantized(self.tensors[name]) for name in names}

    def _dequantized(self, detail: dict[str, Any]) -> NDArray[np.float64]:
        values: NDArray[np.float64] = self._interpreter.get_tensor(detail["index"]).astype(np.float64)
        scale, zero = detail["quantization"]
        return (values - zero) * scale if scale else values
