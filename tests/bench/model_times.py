"""How long int8 models of different sizes take for a picture, by turns in one process: `model_times.py FILE FILE …`.

`median_ms` of the product takes one picture for all forms of one model; these may have pictures of different sizes.
"""

import argparse
import statistics
import time
from pathlib import Path
from typing import Any, Final

import numpy as np

ROUNDS: Final = 300


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path, help="Exported .tflite files.")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    asked = parser.parse_args()
    models = [prepared(file) for file in asked.files]
    times_s: list[list[float]] = [[] for _ in models]
    for _ in range(asked.rounds):
        for model, own in zip(models, times_s, strict=True):
            began_s = time.perf_counter()
            model.invoke()
            own.append(time.perf_counter() - began_s)
    first = statistics.median(times_s[0])
    for file, own in zip(asked.files, times_s, strict=True):
        median = statistics.median(own)
        print(f"{file.stat().st_size:>10,} bytes  {1e3 * median:6.2f} ms  {median / first:5.2f} of the first  {file}")


def prepared(file: Path) -> Any:
    """LiteRT's Interpreter of a file, one thread, with a picture of random pixels in it."""
    from ai_edge_litert.interpreter import Interpreter

    model = Interpreter(str(file), num_threads=1)
    model.allocate_tensors()
    (picture,) = model.get_input_details()
    pixels = np.random.default_rng(0).integers(0, 255, picture["shape"])
    model.set_tensor(picture["index"], pixels.astype(picture["dtype"]))
    return model


if __name__ == "__main__":
    main()
