"""A `.tflite` -> where its time and memory go: milliseconds by kind of operator, arena, loading.

Times come from LiteRT's own profiler (`trainer/tflite/profiler.py`). If it cannot be used, each operator becomes a
model of its own, with the same inputs as in the whole model, and is timed by itself; the sum then misses what XNNPACK
gains by running them in one piece.
"""

import copy
import statistics
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from numpy.typing import NDArray

from trainer.pixels import as_input
from trainer.tflite.flatbuffer import serialize
from trainer.tflite.interpreter import InspectedModel
from trainer.tflite.profiler import NoProfilerError, profile
from trainer.tflite.raw_graph import drop_unused

# Rounds per operator; in each it runs several times in a row, so that cold caches in the first run matter less.
_ROUNDS: Final = 5
_IN_A_ROW: Final = 5
_LOADS: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Details:
    """Where a model's time and memory go, on one thread.

    `operators`: kind -> (how many, milliseconds of all of them), most expensive first; from the profiler, with its
    names, or timed by themselves for the reason in `no_profiler`. `arena_bytes` is the memory of all activations in a
    run without XNNPACK; `load_ms` is from the bytes to an interpreter with its memory allocated, `run_ms` is for one
    picture.
    """

    operators: Mapping[str, tuple[int, float]]
    no_profiler: str | None
    arena_bytes: int
    load_ms: float
    run_ms: float


def details(model: bytes, picture: NDArray[np.uint8]) -> Details:
    """Measure a model on one picture, uint8 [H, W, 3], RGB, of its size."""
    given = as_input(picture, InspectedModel(model).input["dtype"])
    no_profiler = None
    try:
        operators = profiled(model, picture)
    except NoProfilerError as error:
        operators, no_profiler = by_themselves(model, picture), str(error)
    loads = [_load_ms(model) for _ in range(_LOADS)]
    return Details(
        operators=operators,
        no_profiler=no_profiler,
        arena_bytes=arena_bytes(model),
        load_ms=statistics.median(loads),
        run_ms=_timed(model, [given]),
    )


def profiled(model: bytes, picture: NDArray[np.uint8]) -> dict[str, tuple[int, float]]:
    """Kind -> (how many, milliseconds of all) by LiteRT's profiler, most expensive first.

    Raises:
        NoProfilerError: The profiler cannot be used.
    """
    given = as_input(picture, InspectedModel(model).input["dtype"])
    steps = profile(model, given)
    kinds = dict.fromkeys(step.kind for step in steps)
    alike = {kind: [step for step in steps if step.kind == kind] for kind in kinds}
    return _costly_first(
        {kind: (sum(step.calls for step in found), sum(step.ms for step in found)) for kind, found in alike.items()}
    )


def by_themselves(model: bytes, picture: NDArray[np.uint8]) -> dict[str, tuple[int, float]]:
    """Kind -> (how many, milliseconds of all), each operator timed as its own model; most expensive first."""
    whole = InspectedModel(model)
    whole.run(as_input(picture, whole.input["dtype"]))
    tree = schema.ModelT.InitFromPackedBuf(model, 0)
    found: dict[str, list[float]] = defaultdict(list)
    for place, operator in enumerate(tree.subgraphs[0].operators):
        inputs = _given(tree, operator)
        alone = _timed(_alone(tree, place, inputs), [whole.stored(index) for index in inputs])
        found[whole.operators[place]["op_name"]].append(alone)
    return _costly_first({kind: (len(times), sum(times)) for kind, times in found.items()})


def _costly_first(operators: Mapping[str, tuple[int, float]]) -> dict[str, tuple[int, float]]:
    return dict(sorted(operators.items(), key=lambda row: -row[1][1]))


def arena_bytes(model: bytes) -> int:
    """How many bytes of memory all activations together take, as LiteRT plans it without a delegate."""
    interpreter = Interpreter(
        model_content=model, experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    )
    interpreter.allocate_tensors()
    tree = schema.ModelT.InitFromPackedBuf(model, 0)
    spans = []
    for index, tensor in enumerate(tree.subgraphs[0].tensors):
        if not _is_constant(tree, tensor):
            view = interpreter.tensor(index)()
            begin = view.__array_interface__["data"][0]
            spans.append((begin, begin + view.nbytes))
    covered, reached = 0, 0
    for begin, end in sorted(spans):
        covered += max(0, end - max(begin, reached))
        reached = max(reached, end)
    return covered


def _is_constant(tree: schema.ModelT, tensor: schema.TensorT) -> bool:
    content = tree.buffers[tensor.buffer].data
    return content is not None and len(content) > 0


def _given(tree: schema.ModelT, operator: schema.OperatorT) -> list[int]:
    """The inputs of an operator that come from other operators or are the picture, without constants."""
    tensors = tree.subgraphs[0].tensors
    given = dict.fromkeys(int(index) for index in operator.inputs if index >= 0)
    return [index for index in given if not _is_constant(tree, tensors[index])]


def _alone(tree: schema.ModelT, place: int, inputs: list[int]) -> bytes:
    """The operator at `place` as a model of its own."""
    lone = copy.copy(tree)
    graph = copy.copy(tree.subgraphs[0])
    operator = copy.copy(graph.operators[place])
    graph.operators = [operator]
    graph.tensors = [copy.copy(tensor) for tensor in graph.tensors]
    graph.inputs, graph.outputs = np.asarray(inputs, np.int32), np.asarray(operator.outputs, np.int32)
    lone.subgraphs, lone.signatureDefs = [graph], []
    drop_unused(lone)
    return serialize(lone)


def _timed(model: bytes, values: list[NDArray[Any]]) -> float:
    """Median milliseconds of a model on some inputs."""
    interpreter = Interpreter(model_content=model, num_threads=1)
    interpreter.allocate_tensors()
    for detail, value in zip(interpreter.get_input_details(), values, strict=True):
        interpreter.set_tensor(detail["index"], value)
    interpreter.invoke()
    times = []
    for _ in range(_ROUNDS):
        start = time.perf_counter()
        for _ in range(_IN_A_ROW):
            interpreter.invoke()
        times.append((time.perf_counter() - start) * 1000 / _IN_A_ROW)
    return statistics.median(times)


def _load_ms(model: bytes) -> float:
    start = time.perf_counter()
    Interpreter(model_content=model, num_threads=1).allocate_tensors()
    return (time.perf_counter() - start) * 1000
