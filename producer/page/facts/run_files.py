"""The files of a run -> what is shown of it. If a file is damaged or absent, its part of the page is left out."""

import csv
import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from producer.page.facts.curves import Chart, Points, chart
from shared.jobs.identity import read_note
from shared.jobs.paths import RunPaths
from shared.specs.run import RunSpec
from shared.storage import Storage

# The order in which forms are shown: as trained first, as shipped last.
FORMS: Final = ("float32", "float16", "dynamic", "int8")
_MOST_BYTES: Final = 64 << 20
_MOST_FIGURE: Final = 1e15
# Figures of a form that are names of splits, not numbers.
_SPLITS: Final = ("split", "score_split")
# The names of the curves of one run; in a chart of several runs, each curve has its run's name.
_CURVES: Final = {"val_map50": "mAP50", "val_map": "mAP"}
_FILE_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFiles:
    """What the files of a run say; empty for a file that is absent.

    `summary` is `run.json`, `forms` is `metrics.json`, `epochs` are the lines of `results.csv`, `checks` are from
    `gate.json`.
    """

    summary: Mapping[str, Any] = field(default_factory=dict)
    forms: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    epochs: Sequence[Mapping[str, float]] = ()
    checks: Sequence[Mapping[str, Any]] = ()

    @property
    def released(self) -> list[tuple[str, int, str]]:
        """Name, bytes and SHA-256 of each released file whose name is safe."""
        files = self.summary.get("files")
        rows = files.items() if isinstance(files, dict) else ()
        return [
            (name, row["bytes"], str(row.get("sha256")))
            for name, row in rows
            if _FILE_NAME.fullmatch(name) and isinstance(row, dict) and _is_figure(row.get("bytes"))
        ]

    def lines(self, name: str) -> list[str]:
        """A list of texts in the summary: `advice` or `warnings`."""
        found = self.summary.get(name)
        return [str(each) for each in found] if isinstance(found, list) else []

    def points(self, name: str) -> Points:
        """(step, value) of a column of `results.csv`."""
        return [(row["step"], row[name]) for row in self.epochs if "step" in row and name in row]


def read_run(storage: Storage, asked: RunSpec) -> RunFiles:
    """Read the files of a run."""
    paths = RunPaths(asked.run)
    metrics, checks = (_json(storage, key) for key in (paths.metrics, f"{paths.root}/gate.json"))
    forms = metrics.items() if isinstance(metrics, dict) else ()
    return RunFiles(
        summary=read_note(storage, paths.run, asked.incarnation) or {},
        forms={name: _figures(row) for name, row in forms if isinstance(row, dict)},
        epochs=_epochs(_text(storage, f"{paths.root}/results.csv")),
        checks=[each for each in checks if _is_check(each)] if isinstance(checks, list) else (),
    )


def _figures(row: Mapping[str, Any]) -> dict[str, Any]:
    """The figures of a form, or of a class, that are shown; whatever is not a figure is left out."""
    kept: dict[str, Any] = {}
    for name, value in row.items():
        if name == "per_class" and isinstance(value, dict):
            kept[name] = {label: _figures(each) for label, each in value.items() if isinstance(each, dict)}
        elif name.endswith("_interval"):
            if isinstance(value, list) and len(value) == 2 and all(map(_is_figure, value)):
                kept[name] = value
        elif _is_figure(value) or (name in _SPLITS and isinstance(value, str)):
            kept[name] = value
    return kept


def _is_figure(value: object) -> bool:
    """Whether `value` is a number that can be shown: not negative, not NaN, and not larger than a run can have."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < _MOST_FIGURE


def _is_check(value: object) -> bool:
    texts = ("name", "found", "advice")
    return isinstance(value, dict) and "is_ok" in value and all(isinstance(value.get(name), str) for name in texts)


def is_inside(storage: Storage, key: str) -> bool:
    """Whether `key` is inside the store, after following links."""
    if not storage.is_local:
        return True
    try:
        return storage.local_path(key).resolve().is_relative_to(storage.local_path("").resolve())
    except (OSError, RuntimeError):  # links that lead in a circle
        return False


def charts_of(runs: Mapping[str, RunFiles]) -> list[Chart]:
    """Charts with the curves of all runs, named after the runs; if there is one run, after the columns."""

    def named(name: str, column: str) -> str:
        return _CURVES.get(column, column) if len(runs) == 1 else name

    def of(columns: Sequence[str], scale: float = 1.0) -> list[tuple[str, Points]]:
        return [
            (named(name, column), [(x, y * scale) for x, y in files.points(column)])
            for name, files in runs.items()
            for column in columns
        ]

    figures = ("val_map50", "val_map") if len(runs) == 1 else ("val_map",)
    drawn = [
        chart("mAP on val, %", "steps", of(figures, 100.0), top=100.0),
        chart("loss", "steps", of(("loss",))),
        chart("photos a second", "steps", of(("images_per_s",))),
    ]
    return [each for each in drawn if each is not None]


def _epochs(text: str) -> list[dict[str, float]]:
    rows = []
    for row in csv.DictReader(io.StringIO(text)):
        numbers = {}
        for name, value in row.items():
            try:
                numbers[str(name)] = float(value)
            except (TypeError, ValueError):
                continue  # empty in an epoch without validation; or a line that a training is still writing
        rows.append(numbers)
    return rows


def _text(storage: Storage, key: str) -> str:
    size = storage.size_or_none(key)
    return "" if not size else storage.read_range(key, 0, min(size, _MOST_BYTES)).decode("utf-8", "replace")


def _json(storage: Storage, key: str) -> Any:
    try:
        return json.loads(_text(storage, key) or "null")
    except (ValueError, RecursionError):
        return None
