"""Every loader of the field on the same pictures and the same step: `make bench-loaders`.

Each row runs in a process of its own; the rounds go through all rows in turns, in both directions; medians count.
"""

import argparse
import json
import os
import shutil
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

import psutil

from tests.bench.loaders import ours, plots, sizing
from tests.bench.loaders.crew import Row, crew
from tests.bench.loaders.photos import make_photos
from tests.bench.loaders.table import Figures, busy_line, figures, ratios, table, worked_share
from tests.bench.loaders.work import BATCH, ROWS, WHOLE, Took, Work

# As many as the usual tutorial of transfer learning trains on (cats_and_dogs_filtered: 2,000), in whole batches.
PICTURES: Final = 2016

# The step at which the accelerator's busy share is shown besides, and the rows: the first waits for no input at all.
BUSY_STEP_S: Final = 0.064
BUSY_ROWS: Final = ("memory", "ours-cold", "ours-cached")


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", default=PICTURES, type=int, help=f"a multiple of {BATCH}")
    parser.add_argument("--epochs", default=10, type=int)
    parser.add_argument("--short-epochs", default=2, type=int, help="of the other rows")
    parser.add_argument(
        "--whole", nargs="*", default=list(WHOLE), choices=list(ROWS), help="rows measured for all epochs"
    )
    parser.add_argument("--rounds", default=2, type=int)
    parser.add_argument("--step-ms", default=16.0, type=float, help=f"simulated accelerator, a batch of {BATCH}")
    parser.add_argument("--size", default=224, type=int)
    parser.add_argument("--augment", default="usual", choices=["usual", "none"])
    parser.add_argument("--rows", nargs="*", default=list(ROWS), choices=list(ROWS))
    parser.add_argument(
        "--cpu-step", nargs="*", default=[], choices=list(ROWS), help="rows also fed to a real CPU step"
    )
    parser.add_argument("--folder", default=Path("out/bench-loaders"), type=Path)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    if asked.images % BATCH:
        parser.error(f"--images must be a multiple of {BATCH}")
    return asked


def measure(rows: dict[str, Row], work: Work, asked: argparse.Namespace) -> dict[str, list[Took]]:
    """All rounds of all rows, in turns; interrupted after the first round, what was measured counts."""
    took: dict[str, list[Took]] = {name: [] for name in rows}
    try:
        for number in range(asked.rounds):
            for name in list(rows) if number % 2 == 0 else list(rows)[::-1]:
                epochs = asked.epochs if name in asked.whole else min(asked.epochs, asked.short_epochs)
                own = replace(work, scratch=work.scratch / name, epochs=epochs)
                took[name].append(rows[name].fit(own, watch=number == 0))
                last = took[name][-1]
                print(f"round {number + 1} {name}: {work.pictures / last.epochs_s[-1]:.0f} images/s", flush=True)
    except KeyboardInterrupt:
        if not all(took.values()):
            raise
        print("interrupted")
    return took


def beside(rows: dict[str, Row], found: dict[str, Figures], work: Work, names: list[str]) -> dict[str, Figures]:
    """The figures with those of a real CPU step, once each, two epochs."""
    for name in names:
        own = replace(work, scratch=work.scratch / name, epochs=2, on_cpu=True)
        took = rows[name].fit(own, watch=False)
        share = worked_share(took, work.steps)
        found[name] = replace(found[name], on_cpu=work.pictures / took.epochs_s[-1], on_cpu_busy=share)
        print(f"CPU step {name}: {found[name].on_cpu:.0f} images/s", flush=True)
    return found


def busy_shares(rows: dict[str, Row], work: Work, cores: int) -> list[str]:
    """A line a row on the accelerator's busy share at the longer step, once each, three epochs."""
    lines = []
    for name in BUSY_ROWS:
        if name in rows:
            own = replace(work, scratch=work.scratch / name, epochs=3, step_s=BUSY_STEP_S)
            lines.append(busy_line(name, figures([rows[name].fit(own, watch=False)], own, epochs=3), own, cores))
    return lines


def report(found: dict[str, Figures], work: Work, epochs: int, cores: int) -> list[str]:
    """The table and what is asked of it, as lines."""
    lines = [table(found, epochs), ""]
    for what, value, target in ratios(found):
        lines.append(f"{'holds' if value >= target else 'MISSES'}: {what}: {value:.2f} (asked for: {target:g})")
    return [
        *lines,
        *(busy_line(name, found[name], work, cores) for name in ("ours-cached", "ours-cold") if name in found),
    ]


def sizes(found: dict[str, Figures], work: Work) -> str:
    """The table of sizes, where our rows were measured."""
    if not {"ours-cold", "ours-cached"} <= set(found):
        return ""
    worker_s = ours.worker_cpu_s(work.scratch / "ours-cold" / "store", work.photos / "voc")
    rates = sizing.Rates(
        worker=1000 / worker_s, cached=1000 / found["ours-cached"].cpu_s, cold=1000 / found["ours-cold"].cpu_s
    )
    return f"{sizing.sizing(rates)}\n\nimages/s of one core: {asdict(rates)}"


def stolen(before: Any) -> float:
    """Share of the processors' time since `before` that this machine wanted and its host gave to others (Linux)."""
    now = psutil.cpu_times()
    taken: float = getattr(now, "steal", 0.0) - getattr(before, "steal", 0.0)
    return taken / float(sum(now) - sum(before))


def main() -> None:
    """Measure and print."""
    asked = arguments()
    folder = asked.folder.resolve()
    shutil.rmtree(folder / "scratch", ignore_errors=True)
    work = Work(
        photos=make_photos(folder / "photos", asked.images),
        scratch=folder / "scratch",
        pictures=asked.images,
        side=asked.size,
        epochs=asked.epochs,
        step_s=asked.step_ms / 1e3,
        is_augmented=asked.augment == "usual",
    )
    load, before = os.getloadavg()[0], psutil.cpu_times()
    with crew(asked.rows, folder / "logs") as rows:
        took = measure(rows, work, asked)
        found = {name: figures(some, work, epochs=asked.epochs) for name, some in took.items()}
        found = beside(rows, found, work, asked.cpu_step)
        cores = len(os.sched_getaffinity(0))
        lines = report(found, work, asked.epochs, cores) + busy_shares(rows, work, cores)
    title = (
        f"{asked.images} pictures 640x480 → {asked.size} px, augmentation: {asked.augment}, step {asked.step_ms:g} ms"
    )
    quiet = f"load before: {load:.2f}; processor time that the host gave to others meanwhile: {stolen(before):.0%}"
    print("\n".join([title, quiet, "", *lines, "", sizes(found, work)]))
    plots.bars(found, title, asked.epochs, folder / "loaders.png")
    if {"tfdata-naive", "ours-cached"} <= set(took):
        plots.lanes(took["tfdata-naive"][0], took["ours-cached"][0], work.steps, folder / "lanes.png")
    if asked.json:
        text = {"work": json.loads(work.to_json()), "rows": {name: asdict(row) for name, row in found.items()}}
        asked.json.write_text(json.dumps(text, indent=1))


if __name__ == "__main__":
    main()
