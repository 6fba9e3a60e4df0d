"""`metrics.json` of finished runs → how int8 stands against float in each, and over all (seeds, sizes, recipes)."""

import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from shared.errors import ExportError
from shared.manifest import RunPaths
from shared.storage import Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """Int8 against float32 of one run: points of mAP50 and mAP, shares of bytes and of one thread's milliseconds."""

    run: str
    split: str
    float_map50: float
    int8_map50: float
    float_map: float
    int8_map: float
    bytes_share: float
    time_share: float

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
        raise ExportError(f"{storage.url(key)} is not there: the run is not finished")
    metrics = json.loads(content)
    exact, rounded = metrics["float32"], metrics["int8"]
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
    )


def comparison_table(rows: Sequence[Compared]) -> str:
    """One line a run, then the mean and the worst of what was promised."""
    head = f"{'run':20}{'split':>6}{'mAP50':>9}{'int8':>8}{'drop':>7}{'mAP':>8}{'int8':>8}{'bytes':>8}{'time':>7}"
    lines = [head, *(_line(row) for row in rows)]
    drops = [row.drop for row in rows]
    spread = f", spread {statistics.stdev(drops):.2f}" if len(drops) > 1 else ""
    lines.append(
        f"int8 loses {statistics.mean(drops):.2f} points of mAP50 on average over {len(rows)} runs{spread}, "
        f"{max(drops):.2f} at worst; at most {max(row.bytes_share for row in rows):.2f} of the bytes, "
        f"{max(row.time_share for row in rows):.2f} of the time"
    )
    return "\n".join(lines)


def _line(row: Compared) -> str:
    return (
        f"{row.run:20}{row.split:>6}{row.float_map50:9.2f}{row.int8_map50:8.2f}{row.drop:7.2f}"
        f"{row.float_map:8.2f}{row.int8_map:8.2f}{row.bytes_share:8.2f}{row.time_share:7.2f}"
    )
