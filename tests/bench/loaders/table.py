"""What the rounds took → the figures of a row, and the table."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tests.bench.loaders.work import BATCH, ROWS, Took, Work

# Asked of the accelerator's busy share, wherever the cores' rate exceeds the demand by this much.
BUSY: Final = 0.95
ENOUGH_AIR: Final = 1.3


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Medians of a row over its rounds.

    `first` and `later` images/s in epoch 1 and after it; `cpu_s` processor seconds for 1,000 images after epoch 1;
    `busy` the share of the later epochs that the stated steps fill; `total_s` seconds of all epochs asked for,
    preparation included, `is_extrapolated` from fewer; `on_cpu` images/s with the real CPU step.
    """

    first: float
    later: float
    cpu_s: float
    peak_mb: float
    busy: float
    prepare_s: float
    total_s: float
    is_extrapolated: bool
    rounds: int
    pictures: int
    on_cpu: float | None = None
    on_cpu_busy: float | None = None


def figures(took: Sequence[Took], work: Work, *, epochs: int) -> Figures:
    """The medians of the rounds `took`; where they had fewer than `epochs` epochs, the rest as the later ones."""
    had = len(took[0].epochs_s)
    later = [statistics.median(one.epochs_s[1:] or one.epochs_s) for one in took]
    totals = [one.prepare_s + one.fit_s + (epochs - had) * epoch_s for one, epoch_s in zip(took, later, strict=True)]
    cpu = [statistics.median(one.cpu_s[1:] or one.cpu_s) for one in took]
    return Figures(
        first=work.pictures / statistics.median(one.epochs_s[0] for one in took),
        later=work.pictures / statistics.median(later),
        cpu_s=statistics.median(cpu) / work.pictures * 1000,
        peak_mb=max(one.peak_mb for one in took),
        busy=work.steps * work.step_s / statistics.median(later),
        prepare_s=statistics.median(one.prepare_s for one in took),
        total_s=statistics.median(totals),
        is_extrapolated=had < epochs,
        rounds=len(took),
        pictures=took[0].pictures,
    )


def worked_share(took: Took, steps: int) -> float:
    """Share of the time after the first epoch that was spent in steps."""
    later = took.steps[steps:] or took.steps
    return sum(ended - began for _, began, ended in later) / (later[-1][2] - later[0][0])


def table(found: Mapping[str, Figures], epochs: int) -> str:
    """The table, in Markdown."""
    lines = [
        "| loader | images/s, epoch 1 | later | CPU-s / 1,000 | peak MB | busy | prepare s "
        f"| {epochs} epochs s | images/s, CPU step | busy, CPU step |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, row in found.items():
        total = f"{'≈ ' if row.is_extrapolated else ''}{row.total_s:.1f}"
        beside = f"{row.on_cpu:.0f} | {row.on_cpu_busy:.2f}" if row.on_cpu is not None else "- | -"
        lines.append(
            f"| {ROWS[name]} | {row.first:.0f} | {row.later:.0f} | {row.cpu_s:.2f} | {row.peak_mb:.0f} "
            f"| {row.busy:.2f} | {row.prepare_s:.1f} | {total} | {beside} |"
        )
    return "\n".join(lines)


def ratios(found: Mapping[str, Figures]) -> list[tuple[str, float, float]]:
    """(what, found, asked for) of each target whose rows were measured."""
    pairs = [
        ("ImageDataGenerator / ours cached, seconds of all epochs", "imagedatagenerator", "total_s", 8.93),
        ("ours cold / tf.data uncached, images/s in epoch 1", "tfdata-all", "first", 2.0),
        ("ours cold / tf.data uncached, images/s later", "tfdata-all", "later", 2.0),
        ("ours cached / tf.data uncached, images/s later", "tfdata-all", "later", 4.0),
        ("ours cached / tf.data cache(), images/s later", "tfdata-cache", "later", 1.0),
    ]
    rows = []
    for what, other, field, target in pairs:
        mine = "ours-cold" if "cold" in what else "ours-cached"
        if other in found and mine in found:
            theirs, own = getattr(found[other], field), getattr(found[mine], field)
            rows.append((what, theirs / own if field == "total_s" else own / theirs, target))
    return rows


def demand(work: Work) -> float:
    """Images/s that the simulated accelerator takes."""
    return BATCH / work.step_s if work.step_s else float("inf")


def busy_line(name: str, row: Figures, work: Work, cores: int) -> str:
    """A line on the accelerator's busy share, which is asked for only where the cores could keep it busy."""
    air = cores * 1000 / row.cpu_s / demand(work)
    verdict = ("holds" if row.busy >= BUSY else "MISSES") if air >= ENOUGH_AIR else "not asked"
    misses = f", {BUSY - row.busy:.2f} short" if row.busy < BUSY else ""
    return (
        f"{verdict}: {ROWS[name]}, busy with {work.step_s * 1e3:g} ms a batch: {row.busy:.3f}{misses} (asked for: "
        f"{BUSY:g} where cores x rate >= {ENOUGH_AIR:g} x demand; {cores} cores x rate = {air:.2f} x demand)"
    )
