"""README's figures: several seeds of `--final`, the TFLite files on the test list, mean and range (pycocotools).

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
    asked += ["--backbone", "conv"]
    command = [sys.executable, "-m", "producer", "submit", str(BCCD), *asked, "--final", "--local", "--wait", *more]
    # Not checked: a run that the gate refused has its figures too.
    subprocess.run(command, check=False, cwd=ROOT)


def name(seed: int, minutes: float) -> str:
    return f"final-{minutes:g}m-seed{seed}"


def figures(store: Path, seed: int, minutes: float) -> dict[str, Any] | None:
    """Of the four forms on the test list, and what the training took; None where it is not finished."""
    run = store / "runs" / name(seed, minutes)
    if not (run / "run.json").exists():
        return None
    metrics, facts = (json.loads((run / file).read_text()) for file in ("metrics.json", "run.json"))
    return {"forms": metrics, **facts["training"], **facts["seconds"]}


def print_seeds(found: dict[int, dict[str, Any]]) -> None:
    """A line a seed: steps, time, and the int8 form by class."""
    print("| seed | steps | minutes | int8 mAP50 | mAP | lost to int8, points of mAP50 | mAP50 by class |")
    print("|---|---|---|---|---|---|---|")
    for seed, row in found.items():
        int8 = row["forms"]["int8"]
        classes = " ".join(f"{label} {values['ap50']:.3f}" for label, values in int8["per_class"].items())
        print(
            f"| {seed} | {row['steps']} | {row['train'] / 60:.1f} | {int8['map50']:.4f} | {int8['map']:.4f} "
            f"| {lost(row):.2f} | {classes} |"
        )


def lost(row: dict[str, Any]) -> float:
    """Points of mAP50 that a seed's int8 form has less than its float form."""
    return 100 * float(row["forms"]["float32"]["map50"] - row["forms"]["int8"]["map50"])


def print_forms(found: dict[int, dict[str, Any]]) -> None:
    """Of each form, the mean over the seeds, and the range."""
    print("| form | mAP50 | mAP | bytes |")
    print("|---|---|---|---|")
    for form in next(iter(found.values()))["forms"]:
        rows = [row["forms"][form] for row in found.values()]
        cells = [
            f"{statistics.mean(values):.4f} ({min(values):.4f} to {max(values):.4f})"
            for values in ([row[figure] for row in rows] for figure in ("map50", "map"))
        ]
        print(f"| {form} | {cells[0]} | {cells[1]} | {rows[0]['bytes']:,} |")
    losses = [lost(row) for row in found.values()]
    print(f"\nint8 loses {statistics.mean(losses):.2f} points of mAP50 on average, {max(losses):.2f} at worst.")


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
        print_seeds(found)
        print()
        print_forms(found)
    else:
        print("no seed is finished; --run trains them")


if __name__ == "__main__":
    main()
