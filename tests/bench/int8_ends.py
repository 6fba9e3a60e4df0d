"""What the ends of an int8 file cost: its picture by QUANTIZE from uint8 (as before) or by way of float, and copies.

Variants of one file of `--model`, fresh weights: the same outputs byte for byte (checked), timed in turns on one
thread. The 5th percentile tells most on a machine that others use. Run: `python tests/bench/int8_ends.py`, a minute.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import numpy as np
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter

from trainer.inference.quiet import quiet_libraries
from trainer.tflite.flatbuffer import serialize
from trainer.tflite.operator_times import arena_bytes
from trainer.tflite.profiler import profile
from trainer.tflite.raw_graph import _plain_doubling, drop_unused
from trainer.tflite.runtimes import partitions

_ROUNDS: Final = 300
_IN_A_ROW: Final = 5
_SIDE: Final = 320


def quantized_at_once(tree: Any) -> None:
    """Take the DEQUANTIZE before the picture's QUANTIZE out."""
    graph = tree.subgraphs[0]
    first, second = graph.operators[:2]
    second.inputs, graph.operators = first.inputs, graph.operators[1:]


def variants(model: bytes) -> dict[str, bytes]:
    """The file as it was before, as it is, and with doubling by copies besides."""
    changes: dict[str, list[Callable[[Any], None]]] = {
        "QUANTIZE from uint8": [quantized_at_once],
        "by way of float": [],
        "QUANTIZE, doubling by copies": [quantized_at_once, _plain_doubling],
        "by way of float, doubling by copies": [_plain_doubling],
    }
    made = {}
    for name, steps in changes.items():
        tree = schema.ModelT.InitFromPackedBuf(model, 0)
        for step in steps:
            step(tree)
        tree.signatureDefs = []
        drop_unused(tree)
        made[name] = serialize(tree)
    return made


def loaded(model: bytes) -> Interpreter:
    """An interpreter of one thread."""
    interpreter = Interpreter(model_content=model, num_threads=1)
    interpreter.allocate_tensors()
    return interpreter


def seen(interpreter: Interpreter, picture: Any) -> list[Any]:
    """All outputs for a picture."""
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], picture)
    interpreter.invoke()
    return [interpreter.get_tensor(detail["index"]) for detail in interpreter.get_output_details()]


def check_same(models: dict[str, Interpreter]) -> None:
    """All see the very same in 20 pictures.

    Raises:
        ValueError: One does not.
    """
    first, *others = models.values()
    for picture in np.random.default_rng(1).integers(0, 256, (20, 1, _SIDE, _SIDE, 3), np.uint8):
        wanted = seen(first, picture)
        for other in others:
            if not all(map(np.array_equal, wanted, seen(other, picture))):
                raise ValueError("the outputs differ")


def times_ms(models: dict[str, Interpreter]) -> dict[str, list[float]]:
    """Milliseconds of each run, in turns."""
    times: dict[str, list[float]] = {name: [] for name in models}
    order = list(models)
    for _ in range(_ROUNDS):
        order.reverse()
        for name in order:
            for _ in range(_IN_A_ROW):
                start = time.perf_counter()
                models[name].invoke()
                times[name].append((time.perf_counter() - start) * 1000)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="small", choices=("nano", "small", "medium"))
    asked = parser.parse_args()
    from trainer.sizes import costs, machine

    with quiet_libraries():
        (cost,) = costs(["conv"], [asked.model], image_size=_SIDE, classes=3)
        files = variants(cost.int8)
        models = {name: loaded(content) for name, content in files.items()}
        check_same(models)
        files["without suppression, int8 in"] = cost.int8_raw
        models["without suppression, int8 in"] = loaded(cost.int8_raw)
        picture = np.random.default_rng(0).integers(0, 256, (1, _SIDE, _SIDE, 3), np.uint8)
        given = {name: picture if name != list(files)[-1] else (picture ^ 128).view(np.int8) for name in files}
        for name, interpreter in models.items():
            seen(interpreter, given[name])
        times = times_ms(models)
        profiled = {name: sum(step.ms for step in profile(files[name], given[name])) for name in files}
    print(f"{asked.model}, {_SIDE} px, int8, one thread; {machine()}")
    print("| variant | pieces | arena kB | 5th percentile, ms | of the first | median | of the first | profiler, ms |")
    print("|---|---|---|---|---|---|---|---|")
    first = np.percentile(times[next(iter(files))], [5, 50])
    for name, content in files.items():
        low, middle = np.percentile(times[name], [5, 50])
        cost_kb, count = arena_bytes(content) / 1e3, partitions(content)[0]
        print(
            f"| {name} | {count} | {cost_kb:,.0f} | {low:.2f} | {low / first[0]:.3f} | {middle:.2f} | "
            f"{middle / first[1]:.3f} | {profiled[name]:.2f} |"
        )


if __name__ == "__main__":
    main()
