"""`metrics.json` of finished runs -> how int8 stands against float in each, and over all (seeds, sizes, recipes)."""

import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from shared.command import hint
from shared.errors import ExportError
from shared.jobs.identity import read_note, read_request
from shared.jobs.paths import RunPaths
from shared.storage import Storage
from shared.text import counted

# What a table of 80 columns leaves for the name of a run.
_NAME_COLUMNS: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """Int8 against float32 of one run: points of mAP50 and mAP, shares of bytes and of one thread's milliseconds.

    `interval` is that of int8's mAP50 (95 %), `objects` how many it is of; None in runs of 0.2.0.
    """

    run: str
    split: str
    float_map50: float
    int8_map50: float
    float_map: float
    int8_map: float
    bytes_share: float
    time_share: float
    interval: tuple[float, float] | None = None
    objects: int | None = None

    @property
    def drop(self) -> float:
        """Points of mAP50 that int8 loses; below 0 it gains."""
        return self.float_map50 - self.int8_map50


def compare_runs(runs: Sequence[str], storage: Storage) -> list[Compared]:
    """Read the figures of `runs`.

    Raises:
        ExportError: A run has none.
    """
    return [_compared(run, storage) for run in runs]


def _compared(run: str, storage: Storage) -> Compared:
    key = f"{RunPaths(run).root}/metrics.json"
    content = storage.read_or_none(key)
    if content is None:
        if not storage.exists(RunPaths(run).request):
            names = ", ".join(storage.list_names("runs")) or "none"
            raise ExportError(f"{storage.root} holds no run {run!r} (there are: {names})")
        raise _not_finished(run, storage)
    metrics = json.loads(content)
    exact, rounded = metrics["float32"], metrics["int8"]
    interval = rounded.get("map50_interval")
    return Compared(
        run=run,
        # Runs released before the figures named their split were measured on test where there was one.
        split=exact.get("split", "test"),
        float_map50=100 * exact["map50"],
        int8_map50=100 * rounded["map50"],
        float_map=100 * exact["map"],
        int8_map=100 * rounded["map"],
        bytes_share=rounded["bytes"] / exact["bytes"],
        time_share=rounded["median_ms"] / exact["median_ms"],
        interval=None if interval is None else (100 * interval[0], 100 * interval[1]),
        objects=rounded.get("objects"),
    )


def _not_finished(run: str, storage: Storage) -> ExportError:
    """Why a run has no figures, and what to type."""
    asked = read_request(storage, run)
    if asked is None:
        return ExportError(f"run {run!r} has no figures, and its request cannot be read")
    notes = {"was cancelled": RunPaths(run).cancelled, "failed": RunPaths(run).failed}
    ended = next((how for how, note in notes.items() if read_note(storage, note, asked.incarnation)), None)
    words = [asked.job, *([] if run == asked.job else ["--run", run])]
    command = hint("retry" if ended else "status", *words, store=storage)
    goes_on = "goes on with it" if ended else "says where it is"
    return ExportError(f"run {run!r} {ended or 'is not finished'} and has no figures: `{command}` {goes_on}")


def comparison_table(rows: Sequence[Compared]) -> str:
    """A table of at most 80 columns, then the mean and the worst of what was promised; a long name has its own line."""
    width = min(_NAME_COLUMNS, max(len("run"), *(len(row.run) for row in rows)))
    lines = [
        f"{'run':{width}} {'split':>5} {'object':>6} {'mAP50':>5} {'mAP50 of int8':>18} {'lost,':>5} {'mAP':>5} "
        f"{'mAP':>5} {'size':>5} {'time':>5}",
        f"{'':{width}} {'':>5} {'count':>6} {'float':>5} {'% (95 %)':>18} {'pts':>5} {'float':>5} {'int8':>5} "
        f"{'ratio':>5} {'ratio':>5}",
        *(_line(row, width) for row in rows),
    ]
    drops = [row.drop for row in rows]
    mean = statistics.mean(drops)
    spread = f", spread {statistics.stdev(drops):.2f}" if len(drops) > 1 else ""
    lines += [
        f"int8 {'gains' if mean < 0 else 'loses'} {abs(mean):.2f} points of mAP50 on average "
        f"({counted(len(rows), 'run')}{spread}), {max(drops):.2f} at worst",
        f"size ratio at most {max(row.bytes_share for row in rows):.2f}, time ratio at most "
        f"{max(row.time_share for row in rows):.2f} (int8 / float32)",
    ]
    return "\n".join(lines)


def _line(row: Compared, width: int) -> str:
    name = f"{row.run}\n{'':{width}}" if len(row.run) > width else f"{row.run:{width}}"
    objects = "-" if row.objects is None else row.objects
    sure = "" if row.interval is None else f" ({row.interval[0]:.0f} to {row.interval[1]:.0f})"
    return (
        f"{name} {row.split:>5} {objects:>6} {row.float_map50:5.1f} {f'{row.int8_map50:.1f}{sure}':>18} "
        f"{row.drop:5.2f} {row.float_map:5.1f} {row.int8_map:5.1f} {row.bytes_share:5.2f} {row.time_share:5.2f}"
    )
