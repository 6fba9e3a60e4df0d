"""Progress on the terminal: bars where there is one, else a line now and then; and the table of results."""

import json
import time
from collections.abc import Mapping
from typing import Any, Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Column, Table

from producer.state import JobStatus
from shared.manifest import RunPaths
from shared.storage import Storage

# Without a terminal, a line this often: enough to see that it goes on, few enough for a log.
LINE_EVERY_S: Final = 10.0
# Columns of a terminal from which bars have room.
WIDE: Final = 120
# The order of the table's rows: as trained first, as shipped last.
FORMS: Final = ("float32", "float16", "dynamic", "int8")


class Screen:
    """Shows scanning, shards and training as they go on; one at a time, on standard error."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._bars: Progress | None = None
        self._tasks: dict[str, TaskID] = {}
        self._lines: dict[str, tuple[float, str]] = {}
        self._epoch: object = None

    def __enter__(self) -> "Screen":
        if self.console.is_terminal:
            self._bars = Progress(
                TextColumn("{task.description:<10}"),
                BarColumn(bar_width=30 if self.console.width >= WIDE else 8),
                # Counts stay whole on a narrow terminal; facts go on in the next line.
                MofNCompleteColumn(table_column=Column(no_wrap=True, min_width=9)),
                TextColumn("{task.fields[facts]}", table_column=Column(ratio=1, overflow="fold")),
                TimeElapsedColumn(),
                console=self.console,
            )
            self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bars is not None:
            self._bars.stop()

    def stage(self, name: str, done: int, total: int, facts: str = "") -> None:
        """Show that `done` of `total` (0: not known) are done in the stage `name`."""
        if self._bars is None:
            self._line(name, f"{name}: {done}{f'/{total}' if total else ''} {facts}".rstrip(), is_last=done == total)
            return
        if name not in self._tasks:
            self._drop_uncounted(self._bars)
            self._tasks[name] = self._bars.add_task(name, total=total or None, facts="")
        self._bars.update(self._tasks[name], completed=done, total=total or None, facts=facts)

    def _drop_uncounted(self, bars: Progress) -> None:
        """Take away the stages without a count: theirs would move on for ever beside the next one's."""
        for task in bars.tasks:
            if task.total is None:
                bars.remove_task(task.id)
                del self._tasks[task.description]

    def job(self, status: JobStatus, workers: Mapping[str, Mapping[str, Any]]) -> None:
        """Show where a job stands."""
        live = sum(facts["slots"] for facts in workers.values() if facts["kind"] == "worker")
        if status.state in ("SUBMITTED", "RUNNING"):
            self.stage("shards", status.images_done, status.images, shard_facts(status, live))
            return
        self.stage("shards", status.images_done, status.images, f"{status.done}/{status.shards} shards")
        if status.run and status.run.get("phase"):
            self._training(status.run)

    def _training(self, run: Mapping[str, Any]) -> None:
        phase = str(run["phase"])
        self.stage(phase, int(run.get("step", 0)), int(run.get("steps", 0)), run_facts(run))
        if phase == "train" and run.get("epoch") != self._epoch and "val_map50" in run:
            self._epoch = run.get("epoch")
            if self._bars is not None:
                self.console.print(f"  {run_facts(run)}", highlight=False)

    def _line(self, name: str, text: str, *, is_last: bool) -> None:
        shown_at, shown = self._lines.get(name, (float("-inf"), ""))
        if text == shown or (time.monotonic() - shown_at < LINE_EVERY_S and not is_last):
            return
        self._lines[name] = (time.monotonic(), text)
        self.console.print(text, highlight=False, soft_wrap=True)


def pace(status: JobStatus) -> str:
    """Pictures a second and remaining time of a job that writes shards; empty where not known."""
    facts = [f"{status.images_per_s:.0f} images/s"] if status.images_per_s else []
    if status.eta_s is not None:
        facts.append(f"ETA {_duration(status.eta_s)}")
    return " · ".join(facts)


def shard_facts(status: JobStatus, slots: int) -> str:
    """Pace, live worker processes and trouble of a job that writes shards, as one line."""
    facts = [pace(status)] if pace(status) else []
    facts.append(f"{slots} worker processes")
    facts.append(f"{status.done}/{status.shards} shards")
    if status.failed:
        facts.append(f"{status.failed} failed")
    if status.last_error:
        facts.append(f"last error: {status.last_error[:80]}")
    return " · ".join(facts)


def run_facts(run: Mapping[str, Any]) -> str:
    """Epoch, loss, validation mAP and remaining time of a run, as one line."""
    facts = []
    if "epoch" in run:
        facts.append(f"epoch {run['epoch']}/{run.get('epochs', '?')}")
    for name, label, form in (
        ("loss", "loss", ".3f"),
        ("val_map50", "val mAP50", ".3f"),
        ("val_map", "mAP", ".3f"),
        ("busy", "busy", ".0%"),
    ):
        if name in run:
            facts.append(f"{label} {format(float(run[name]), form)}")
    if "eta_s" in run:
        facts.append(f"ETA {_duration(float(run['eta_s']))}")
    if "note" in run:
        facts.append(str(run["note"]))
    return " · ".join(facts)


def results_table(metrics: Mapping[str, Mapping[str, Any]]) -> Table:
    """The table of the exported forms: accuracy on the test split, size, latency."""
    table = Table(title="Test split, measured through LiteRT")
    for title in ("form", "mAP50", "mAP", "bytes", "median ms"):
        table.add_column(title, justify="left" if title == "form" else "right")
    for form in FORMS:
        row = metrics[form]
        cells = (f"{row['map50']:.4f}", f"{row['map']:.4f}", f"{row['bytes']:,}", f"{row['median_ms']:.2f}")
        table.add_row(form, *cells)
    return table


def read_metrics(storage: Storage, run: str) -> Any:
    """The `metrics.json` of a finished run."""
    return json.loads(storage.read(RunPaths(run).metrics))


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}" if minutes >= 60 else f"{minutes}:{rest:02d}"
