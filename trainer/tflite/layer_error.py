"""Float and int8 forms of one network -> which layers int8 hurts most, for the report if int8 loses accuracy."""

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from trainer.pixels import as_input
from trainer.tflite.interpreter import InspectedModel, layer_of
from trainer.tflite.output_graph import POSTPROCESS_OP

# Operators that compute; the others only move numbers.
_COMPUTING_OPS: Final = frozenset({"CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "ADD", "MUL", "LOGISTIC"})


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerError:
    """The root mean square of int8's deviation from float in an activation, relative to the activation's own."""

    tensor: str
    error: float


def layer_errors(float32: bytes, int8: bytes, pictures: Iterable[NDArray[np.uint8]]) -> list[LayerError]:
    """The deviation of every activation that both forms have, worst first.

    Activations are matched by their Keras layer, because a fine-tuned int8 model has a different graph of the same
    layers.

    Args:
        float32: The float `.tflite`.
        int8: The full int8 `.tflite` of the same network.
        pictures: Stored pictures, each uint8 [H, W, 3], RGB; a handful is enough.

    Returns:
        One entry per tensor. Errors add up along the network, so look for jumps.
    """
    exact, rounded = InspectedModel(float32), InspectedModel(int8)
    places = [_layers(model) for model in (exact, rounded)]
    sums = {name: np.zeros(2) for name in places[0] if name in places[1]}
    for picture in pictures:
        for model in (exact, rounded):
            model.run(as_input(picture, model.input["dtype"]))
        for name, total in sums.items():
            wanted, found = exact.values(places[0][name]), rounded.values(places[1][name])
            if wanted.shape == found.shape:
                total += [np.square(wanted - found).sum(), np.square(wanted).sum()]
    errors = [
        LayerError(tensor=name, error=float(np.sqrt(deviation / power)))
        for name, (deviation, power) in sums.items()
        if power > 0
    ]
    return sorted(errors, key=lambda entry: -entry.error)


def _layers(model: InspectedModel) -> dict[str, int]:
    """Layer name -> the tensor that it computes."""
    # Tensors after the suppression are in the order of its detections, which may differ between two forms.
    network = itertools.takewhile(lambda op: op["op_name"] != POSTPROCESS_OP.decode(), model.operators)
    computed = {index for op in network if op["op_name"] in _COMPUTING_OPS for index in op["outputs"]}
    return {layer_of(detail["name"]): index for index, detail in model.tensors.items() if index in computed}
