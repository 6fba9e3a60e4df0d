"""The result of a run, from its `run.json`, and how long a job took."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shared.errors import StorageError
from shared.jobs.identity import read_note
from shared.jobs.job import Job
from shared.jobs.paths import JobPaths, RunPaths
from shared.specs.run import RunSpec
from shared.storage import Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Figures of a finished run's int8 model: mAP as fractions with 95 % intervals, and the `objects` measured on.

    `model` is the URL of the model, `warnings` has one line each, `seconds` is how long the run took; None: not known.
    """

    model: str | None = None
    map50: float | None = None
    map50_interval: tuple[float, float] | None = None
    map: float | None = None
    map_interval: tuple[float, float] | None = None
    objects: int | None = None
    warnings: tuple[str, ...] = ()
    seconds: float | None = None


def read_outcome(storage: Storage, asked: RunSpec) -> Outcome:
    """What `run.json` of a run says; None in every field that it lacks or that has another form than ours."""
    summary = read_note(storage, RunPaths(asked.run).run, asked.incarnation)
    if summary is None:
        return Outcome()
    figures, seconds = _part(_part(summary, "metrics"), "int8"), _part(summary, "seconds")
    warnings = summary.get("warnings")
    return Outcome(
        model=storage.url(_model_of(asked.run, _part(summary, "files"))) if asked.has_model else None,
        map50=_number(figures.get("map50")),
        map50_interval=_interval(figures.get("map50_interval")),
        map=_number(figures.get("map")),
        map_interval=_interval(figures.get("map_interval")),
        objects=figures["objects"] if isinstance(figures.get("objects"), int) else None,
        warnings=tuple(map(str, warnings)) if isinstance(warnings, list) else (),
        seconds=_number(seconds.get("total")),
    )


def _model_of(run: str, files: Mapping[str, Any]) -> str:
    """The key of the int8 file of a run; the one without suppression if that is the only one."""
    paths = RunPaths(run)
    is_outside = paths.raw_int8.rpartition("/")[2] in files and paths.int8.rpartition("/")[2] not in files
    return paths.raw_int8 if is_outside else paths.int8


def written_at(storage: Storage, key: str) -> float | None:
    """When the file `key` was written (Unix time in s); None if it is absent or the store does not answer."""
    try:
        return storage.written_at(key) if storage.exists(key) else None
    except StorageError:
        return None


def seconds_taken(storage: Storage, job: Job, run_seconds: float | None) -> float | None:
    """The seconds from the submit to the finished data set, plus those of the run.

    None until the data set is finished, and if a `retry` came before that: it is not known how long the job lay idle.
    """
    paths = JobPaths(job.job)
    submitted, retried, finished = (written_at(storage, key) for key in (paths.job, paths.retried, paths.manifest))
    if submitted is None or finished is None or (retried is not None and submitted <= retried <= finished):
        return None
    return round(max(0.0, finished - submitted) + (run_seconds or 0), 1)


def _part(content: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = content.get(name)
    return part if isinstance(part, dict) else {}


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _interval(value: object) -> tuple[float, float] | None:
    if not isinstance(value, list) or len(value) != 2:
        return None
    low, high = map(_number, value)
    return None if low is None or high is None else (low, high)
