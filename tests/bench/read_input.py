"""What a worker's read of a file costs beside a plain open and read, which look at no link: `read_file` in µs a file.

In turns over the same 2 KB files in the kernel's cache, in changing order, medians of the rounds. `name by name` is how
links were looked for before: two `realpath` calls a file. Ends with 1 where `read_file` costs over twice `plain`.

Run: `python tests/bench/read_input.py [--files 2000] [--rounds 12]`.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from shared.errors import ImageError
from worker.record.input_files import Inputs, read_file

FILE_BYTES: Final = 2000
MOST_TIMES_PLAIN: Final = 2.0


def make_files(folder: Path, files: int) -> list[str]:
    """Paths relative to `folder` of new files, as deep as a VOC set's."""
    (folder / "JPEGImages").mkdir(parents=True)
    names = [f"JPEGImages/{number:06d}.jpg" for number in range(files)]
    for name in names:
        (folder / name).write_bytes(bytes(FILE_BYTES))
    return names


def read_plainly(inputs: Inputs, name: str) -> None:
    with open(os.path.join(inputs.folder, name), "rb") as file:  # noqa: PTH118  # as the worker joins them
        file.read()


def read_name_by_name(inputs: Inputs, name: str) -> None:
    if not Path(os.path.realpath(inputs.folder / name)).is_relative_to(os.path.realpath(inputs.data_root)):
        raise SystemExit(f"{name} leads out of {inputs.data_root}")
    read_plainly(inputs, name)


def read_as_worker(inputs: Inputs, name: str) -> None:
    read_file(inputs, name, ImageError)


CONTENDERS: Final[dict[str, Callable[[Inputs, str], None]]] = {
    "plain": read_plainly,
    "read_file": read_as_worker,
    "name by name": read_name_by_name,
}


def measure(inputs: Inputs, names: list[str], rounds: int) -> dict[str, float]:
    """Median microseconds a file, by contender."""
    seconds: dict[str, list[float]] = {who: [] for who in CONTENDERS}
    for number in range(rounds):
        for who in CONTENDERS if number % 2 == 0 else reversed(CONTENDERS):
            start = time.perf_counter()
            for name in names:
                CONTENDERS[who](inputs, name)
            seconds[who].append(time.perf_counter() - start)
    return {who: statistics.median(rows) / len(names) * 1e6 for who, rows in seconds.items()}


def main() -> int:
    """Print the figures; whether the promise does not hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=12)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="vb-") as root:
        inputs = Inputs(data_root=Path(root), folder=Path(root, "data/set"))
        each_us = measure(inputs, make_files(inputs.folder, asked.files), asked.rounds)
    for who, figure in each_us.items():
        print(f"  {who:12}  {figure:6.1f} µs a file   {figure / each_us['plain']:.2f} of plain")
    holds = each_us["read_file"] <= MOST_TIMES_PLAIN * each_us["plain"]
    print(f"{'ok  ' if holds else 'MISS'}\tread_file : plain (most {MOST_TIMES_PLAIN:g})")
    return 0 if holds else 1


if __name__ == "__main__":
    raise SystemExit(main())
