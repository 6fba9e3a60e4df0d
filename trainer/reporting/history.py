"""`results.csv` of a run -> its rows, and in words which weights were exported and what ended the training early."""

import csv
import io
from collections import Counter
from collections.abc import Mapping, Sequence

from shared.jobs.paths import RunPaths
from shared.specs.run import RunSpec
from shared.storage import Storage
from shared.text import counted


def read_history(storage: Storage, run: str) -> list[dict[str, float]]:
    """`results.csv` of a run, one row per epoch with the values that were measured; empty if there is no file."""
    text = storage.read_or_none(f"{RunPaths(run).root}/results.csv")
    rows = csv.DictReader(io.StringIO("" if text is None else text.decode()))
    return [{name: float(value) for name, value in row.items() if value} for row in rows]


def exported_epoch(history: Sequence[Mapping[str, float | None]], best_epoch: int, objects: int | None) -> str:
    """`epoch 31 of 54 was exported: the best of 25 validations on 4 objects`; "" if it was the last validation.

    Args:
        history: From `read_history`.
        best_epoch: The epoch whose weights are exported; 0 if none was validated.
        objects: How many objects validations were made on; None if not known.
    """
    validated = [row["epoch"] for row in history if row.get("val_map") is not None]
    if best_epoch == 0 or not validated or validated[-1] == best_epoch:
        return ""
    on = "" if objects is None else f" on {counted(objects, 'object')}"
    best = f"the best of {counted(len(validated), 'validation')}{on}"
    return f"epoch {best_epoch} of {history[-1]['epoch']:.0f} was exported: {best}"


def exported_mean(history: Sequence[Mapping[str, float | None]], best_epoch: int) -> str:
    """`the mean of 3 branches was exported, ...`, or the first; "" without branches, or if a single epoch was exported.

    Args:
        history: From `read_history`.
        best_epoch: The epoch whose weights are exported; 0 if none was validated.
    """
    epochs = Counter(round(row.get("branch") or 0) for row in history)
    before, first = epochs.pop(0, 0), epochs[1]
    # The last branch is incomplete if there was no time for it.
    whole = sum(count == first for count in epochs.values()) if first else 0
    if len(epochs) < 2 or best_epoch not in (0, before + whole * first):
        return ""
    if whole == 1:
        return "the first branch was exported: no other was finished"
    return f"the mean of {whole} branches was exported, each learned from the same start"


def ended_early(spec: RunSpec, history: Sequence[Mapping[str, float | None]]) -> str:
    """`--patience 20 ended the training after epoch 54`, or `--stop-at-map`; "" if it went on to its planned end."""
    figures = [(figure, row["epoch"] or 0.0) for row in history if (figure := row.get("val_map")) is not None]
    if not figures:
        return ""
    best = max(figure for figure, _ in figures)
    last, epoch = figures[-1]
    since = epoch - next(first for figure, first in figures if figure == best)
    if spec.stop_at_map is not None and last >= spec.stop_at_map:
        return f"--stop-at-map {spec.stop_at_map:g} ended the training after epoch {epoch:.0f}"
    if spec.patience is not None and since >= spec.patience:
        return f"--patience {spec.patience} ended the training after epoch {epoch:.0f}"
    return ""
