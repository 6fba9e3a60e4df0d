"""The figures of the README: several seeds of `--final`, int8 TFLite on the test list, mean and range (pycocotools).

Each seed is one `producer submit … --final --local --wait`, from scratch, one after the other; the same command goes on
where it was stopped, and prints at once what is finished. It takes hours, so it does nothing without `--run`.
Run: `python tests/bench/seeds.py --run --minutes 45 --store out/seeds [-- more options of submit]`.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
BCCD: Final = Path(os.environ.get("VOC_BCCD", ROOT.parent / "shared/data/bccd"))


def train(store: Path, seed: int, minutes: float, more: Sequence[str]) -> None:
    """One seed, to its end."""
    asked = ["--job", name(seed, minutes), "--seed", str(seed), "--max-minutes", str(minutes), "--store", str(store)]
    command = [sys.executable, "-m", "producer", "submit", str(BCCD), *asked, "--final", "--local", "--wait", *more]
    # Not checked: a run that the gate refused has its figures too.
    subprocess.run(command, check=False, cwd=ROOT)


def name(seed: int, minutes: float) -> str:
    return f"final-{minutes:g}m-seed{seed}"


def figures(store: Path, seed: int, minutes: float) -> dict[str, Any] | None:
    """Of the int8 and float32 models on the test list, and what the training took; None where it is not finished."""
    run = store / "runs" / name(seed, minutes)
    if not (run / "run.json").exists():
        return None
    metrics, facts = (json.loads((run / file).read_text()) for file in ("metrics.json", "run.json"))
    return {"int8": metrics["int8"], "float32": metrics["float32"], **facts["training"], **facts["seconds"]}


def print_table(found: dict[int, dict[str, Any]]) -> None:
    print(f"{'seed':>4}{'steps':>7}{'train s':>9}{'int8 mAP50':>12}{'mAP':>7}{'float mAP50':>13}{'mAP':>7}  per class")
    for seed, row in found.items():
        classes = " ".join(f"{label} {values['ap50']:.3f}" for label, values in row["int8"]["per_class"].items())
        print(
            f"{seed:4}{row['steps']:7}{row['train']:9.0f}{row['int8']['map50']:12.4f}{row['int8']['map']:7.4f}"
            f"{row['float32']['map50']:13.4f}{row['float32']['map']:7.4f}  {classes}"
        )
    for figure in ("map50", "map"):
        values = [row["int8"][figure] for row in found.values()]
        print(f"int8 {figure:6} mean {statistics.mean(values):.4f}, {min(values):.4f} to {max(values):.4f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", action="store_true", help="Train what is not finished.")
    parser.add_argument("--store", default=Path("out/seeds"), type=Path)
    parser.add_argument("--minutes", default=45.0, type=float)
    parser.add_argument("--seeds", default=[0, 1, 2], type=int, nargs="+")
    parser.add_argument("more", nargs="*", help="After --: more options of `producer submit`.")
    asked = parser.parse_args()
    store = asked.store.absolute()
    for seed in asked.seeds if asked.run else ():
        train(store, seed, asked.minutes, asked.more)
    found = {seed: row for seed in asked.seeds if (row := figures(store, seed, asked.minutes))}
    if found:
        print_table(found)
    else:
        print("no seed is finished; --run trains them")


if __name__ == "__main__":
    main()
