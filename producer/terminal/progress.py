"""Progress: bars at a terminal, otherwise a line from time to time; and the table of results."""

import time
from collections.abc import Iterable, Mapping
from typing import Any, Final

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID, TextColumn
from rich.table import Column, Table
from rich.text import Text

from producer.state.status import JobStatus
from producer.state.stored import TERMINAL
from producer.terminal.figures import duration, map_text, percent
from shared.text import counted

# Without a terminal, a line is printed this often: enough to see that work goes on, few enough for a log.
LINE_EVERY_S: Final = 10.0
# A command to go on with is shown once it has been the same for this long: while Redis comes back, services look absent
# for some seconds.
LASTS_S: Final = 10.0
# From this many columns on, a terminal has room for longer bars.
WIDE: Final = 120
# The order of the table's rows: as trained first, as shipped last.
FORMS: Final = ("float32", "float16", "dynamic", "int8")


class _Took(ProgressColumn):
    """How long a stage took: the seconds that it reports over all its attempts, or else those since first watched."""

    def render(self, task: Task) -> Text:
        ended = task.get_time() if task.stop_time is None else task.stop_time
        said = task.fields["seconds"]
        return Text(duration(ended - task.fields["began"] if said is None else said), "progress.elapsed")


class _Bars(Progress):
    """A line for each stage, in at most 80 columns, and below them the facts of the current one."""

    facts = ""

    def get_renderables(self) -> Iterable[RenderableType]:
        yield self.make_tasks_table(self.tasks)
        if self.facts:
            # Not up to the edge: a `^C` that a terminal echoes there would begin a line that rich does not know about.
            yield Padding(Text(self.facts, overflow="fold"), (0, 0, 0, 2), expand=False)


class Screen:
    """Shows scanning, shards and training as they go on; one at a time, on standard error."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._bars: _Bars | None = None
        self._tasks: dict[str, TaskID] = {}
        self._began: dict[str, float] = {}
        self._lines: dict[str, tuple[float, str]] = {}
        self._current: str | None = None
        self._is_sharded = False
        self._validated: object = None
        self._has_run = False
        # The command to go on with, since when it has been the same, and whether it was shown.
        self._way_on: tuple[str | None, float, bool] = (None, 0.0, False)
        self._phase = ""

    def __enter__(self) -> "Screen":
        if self.console.is_terminal:
            self._bars = _Bars(
                TextColumn("{task.description:<10}", markup=False, table_column=Column(no_wrap=True)),
                BarColumn(bar_width=30 if self.console.width >= WIDE else 20),
                TextColumn("{task.fields[count]:>11}", markup=False, table_column=Column(no_wrap=True)),
                _Took(table_column=Column(no_wrap=True, min_width=7)),
                TextColumn("{task.fields[left]}", markup=False, table_column=Column(no_wrap=True)),
                console=self.console,
            )
            self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bars is not None:
            self._bars.stop()

    def stage(
        self,
        name: str,
        done: int,
        total: int,
        facts: str = "",
        *,
        eta_s: float | None = None,
        seconds: float | None = None,
    ) -> None:
        """Show that `done` of `total` (0: not known) are done in the stage `name`.

        `eta_s` is how many seconds are left; `seconds` is how many it took, if that is more than was watched here.
        """
        count = (f"{done}/{total}" if total else str(done)) if done or total else ""
        left = "" if eta_s is None or (total and done >= total) else f"ETA {duration(eta_s)}"
        if self._bars is None:
            told = " ".join(filter(None, (count, " · ".join(filter(None, (facts, left))))))
            self._line(name, f"{name}: {told}" if told else name, is_last=done == total)
            return
        if name != self._current:
            self._begin(self._bars, name)
        self._bars.facts = facts
        task = self._tasks[name]
        self._bars.update(task, completed=done, total=total or None, count=count, left=left, seconds=seconds)

    def _begin(self, bars: Progress, name: str) -> None:
        """Begin the stage `name`, perhaps again, and end the one before.

        The clock of a stage stops when it ends. A stage without a count is removed: its bar would never stop moving.
        """
        for task in bars.tasks:
            if task.total is None or task.description == name:
                bars.remove_task(task.id)
            elif task.description == self._current:
                bars.stop_task(task.id)
                bars.update(task.id, left="")
        self._current = name
        began = self._began.setdefault(name, bars.get_time())
        self._tasks[name] = bars.add_task(name, total=None, count="", left="", seconds=None, began=began)

    def job(self, status: JobStatus, slots: int) -> None:
        """Show where a job stands; `slots` is the number of live worker processes."""
        if status.state in ("SUBMITTED", "RUNNING") and not status.why:
            self.stage("shards", status.images_done, status.images, shard_facts(status, slots), eta_s=status.eta_s)
        elif status.images_done == status.images and not self._is_sharded:
            self._is_sharded = True
            self.stage("shards", status.images_done, status.images, f"{status.done}/{status.shards} shards")
        elif status.run and "phase" in status.run:
            self._training(status.run)
        elif status.why and status.state not in TERMINAL:
            self._waiting(status)

    def _waiting(self, status: JobStatus) -> None:
        """Say why nobody is at work. A command is printed above the bars; among them it would be wrapped."""
        if self._bars is None:
            self.stage("waiting", 0, 0, standing_text(status.why, status.next))
            return
        command, since_s, is_told = self._way_on
        if status.next != command:
            command, since_s, is_told = status.next, time.monotonic(), False
        if command and not is_told and time.monotonic() - since_s >= LASTS_S:
            self.console.print(f"to go on: {command}", highlight=False, soft_wrap=True)
            is_told = True
        self._way_on = (command, since_s, is_told)
        self.stage("waiting", 0, 0, str(status.why))

    def _training(self, run: Mapping[str, Any]) -> None:
        phase = str(run["phase"])
        if "trained" in run and self._phase == "train" != phase:  # its last steps ended between two looks
            self.stage("train", int(run["trained"]), int(run["trained"]), seconds=run.get("seconds"))
        self._phase = phase
        step, steps = int(run.get("step", 0)), int(run.get("steps", 0))
        trained_s = run.get("seconds") if phase == "train" else None
        self.stage(phase, step, steps, run_facts(run), eta_s=run.get("eta_s"), seconds=trained_s)
        validated = run.get("val_epoch")
        if self._bars is not None and self._has_run and validated not in (None, self._validated):
            self.console.print(f"  epoch {validated}: {validation_facts(run)}", highlight=False)
        self._validated, self._has_run = validated or self._validated, True

    def _line(self, name: str, text: str, *, is_last: bool) -> None:
        shown_at, shown = self._lines.get(name, (float("-inf"), ""))
        if text == shown or (time.monotonic() - shown_at < LINE_EVERY_S and not is_last):
            return
        self._lines[name] = (time.monotonic(), text)
        self.console.print(text, highlight=False, soft_wrap=True)


def pace(status: JobStatus) -> str:
    """Pictures per second and remaining time of a job that writes shards; empty if not known or nobody works on it."""
    return "" if status.why else " · ".join(filter(None, (_speed(status), eta_text(status.eta_s))))


def eta_text(eta_s: float | None) -> str:
    """Remaining time; empty if not known."""
    return "" if eta_s is None else f"ETA {duration(eta_s)}"


def _speed(status: JobStatus) -> str:
    return f"{status.images_per_s:.0f} images/s" if status.images_per_s else ""


def shard_facts(status: JobStatus, slots: int) -> str:
    """Speed, live worker processes and failures of a job that writes shards, as one line."""
    at_work = counted(slots, "worker process", "worker processes") if slots else ""
    facts = [_speed(status), at_work, f"{status.done}/{status.shards} shards"]
    facts.append(f"{status.failed} failed" if status.failed else "")
    facts.append(f"last error: {status.last_error[:80]}" if status.last_error else "")
    return " · ".join(filter(None, facts))


def standing_text(why: str | None, command: str | None) -> str:
    """Why nobody is at work, and what to type."""
    return f"{why}: `{command}`" if command else str(why)


def phase_text(run: Mapping[str, Any]) -> str:
    """The phase of a run, its step and the time left; empty if nobody works on it."""
    step = f"step {run['step']}{f'/{steps}' if (steps := run.get('steps')) else ''}" if "step" in run else ""
    return ", ".join(filter(None, (str(run.get("phase", "")), step, eta_text(run.get("eta_s")))))


def run_facts(run: Mapping[str, Any]) -> str:
    """What a run reports of its phase: form, epoch, loss, validation mAP; as one line, without the time left."""
    facts = [str(run.get("form", "")), f"epoch {run['epoch']}" if "epoch" in run else ""]
    facts[1] += f"/{run['epochs']}" if facts[1] and "epochs" in run else ""
    facts += [f"branch {run['branch']}/{run['branches']}" if "branch" in run and "branches" in run else ""]
    facts += [f"loss {float(run['loss']):.3f}" if "loss" in run else "", validation_facts(run)]
    facts += [f"busy {float(run['busy']):.0%}" if "busy" in run else "", str(run.get("note", ""))]
    return " · ".join(filter(None, facts))


def validation_facts(run: Mapping[str, Any]) -> str:
    """What the last validation found; empty before the first."""
    names = {"val mAP50": "val_map50", "mAP": "val_map"}
    return " · ".join(f"{title} {percent(float(run[name]))}" for title, name in names.items() if name in run)


def results_table(metrics: Mapping[str, Mapping[str, Any]]) -> Table:
    """The table of the exported forms: accuracy on the measured split in percent, size, latency."""
    int8 = metrics["int8"]
    objects = f", {counted(int8['objects'], 'object')}" if "objects" in int8 else ""
    has_raw = any(form.endswith("_raw") for form in metrics)
    size = "kB" if has_raw else "bytes"  # with the longer names, 80 columns have no room for bytes
    figures = [Column(title, justify="right", no_wrap=True) for title in ("mAP50 %", "mAP %", size, "ms")]
    title = f"{str(int8.get('split', 'test')).capitalize()} split{objects}, by LiteRT"
    table = Table(Column("form", no_wrap=True), *figures, title=title, pad_edge=False)  # 80 columns hold the widest
    for form in sorted(metrics, key=lambda form: (form.endswith("_raw"), FORMS.index(form.removesuffix("_raw")))):
        row = metrics[form]
        scores = (
            "-" if int8.get("objects") == 0 else map_text(row[name], row.get(f"{name}_interval")).replace(" %", "")
            for name in ("map50", "map")
        )
        shown = f"{row['bytes'] / 1000:,.0f}" if has_raw else f"{row['bytes']:,}"
        table.add_row(form, *scores, shown, f"{row['median_ms']:.2f}")
    return table
