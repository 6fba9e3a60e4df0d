"""What XNNPACK takes of a model, in how many pieces, and who stays outside: on graphs of a few operators.

As LiteRT plans it, and as its profiler sees it run.
"""

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from trainer.tflite.profiler import ran_in_pieces
from trainer.tflite.runtimes import partitions

Graph = Callable[[Any], Any]


def converted(graph: Graph) -> bytes:
    """A .tflite of `graph`, from one [1, 4, 4, 3] picture."""
    traced = tf.function(graph, input_signature=[tf.TensorSpec((1, 4, 4, 3), tf.float32)]).get_concrete_function()
    model: bytes = tf.lite.TFLiteConverter.from_concrete_functions([traced]).convert()
    return model


def convolved(picture: Any) -> Any:
    return tf.nn.conv2d(picture, tf.ones((1, 1, 3, 3)), 1, "SAME")


def sums(picture: Any) -> Any:
    """An operator that XNNPACK does not take."""
    return tf.cumsum(picture, axis=1)


@pytest.mark.parametrize(
    ("graph", "expected"),
    [
        (lambda picture: convolved(convolved(picture)), (1, [])),
        (lambda picture: convolved(sums(convolved(picture))), (2, ["CUMSUM"])),
        (lambda picture: convolved(sums(picture)), (1, ["CUMSUM"])),
        (lambda picture: sums(convolved(picture)), (1, ["CUMSUM"])),
        (lambda picture: sums(picture) + convolved(picture), (2, ["CUMSUM"])),
        (lambda picture: (convolved(picture), sums(picture)), (1, ["CUMSUM"])),
        (sums, (0, ["CUMSUM"])),
    ],
    ids=["all", "between", "before", "after", "beside", "another output", "nothing"],
)
def test_pieces_and_what_stays_outside(graph: Graph, expected: tuple[int, list[str]]) -> None:
    model = converted(graph)
    assert partitions(model) == expected
    assert ran_in_pieces(model) == expected
