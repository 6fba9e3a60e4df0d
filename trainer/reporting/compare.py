"""Finished runs -> how int8 compares with float in each run and overall, and how the runs differ."""

import json
import math
import statistics
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from shared.audit.same_name import other_pictures
from shared.audit.seen import SeenSplit
from shared.command import hint
from shared.errors import ExportError
from shared.jobs.identity import find_job, read_note, read_request, words_of
from shared.jobs.paths import RunPaths
from shared.specs.data import DataOptions
from shared.specs.run import RunSpec
from shared.specs.training import TrainingOptions
from shared.storage import Storage
from shared.text import counted
from trainer.evaluation.detections_file import read_detections
from trainer.reporting.job_facts import read_summary
from trainer.reporting.paired import Paired, paired

_COLUMNS: Final = 80
# How many of a table's 80 columns are left for the name of a run, and of a class.
_NAME_COLUMNS: Final = 12
_LABEL_COLUMNS: Final = 22


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """Int8 against float32 in one run: mAP50 and mAP in points, ratios of bytes and of one thread's milliseconds.

    `interval` and `map_interval` are the 95 % intervals of int8's mAP50 and mAP, `objects` is how many objects they are
    from; all three are None in runs of 0.2.0. `size_bytes` and `median_ms` are int8's. `asked` has the training options
    by name, `data` the job and its options, `epochs` how many epochs it took; empty or None if the run does not say.
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
    map_interval: tuple[float, float] | None = None
    size_bytes: int = 0
    median_ms: float = 0.0
    image_size: int | None = None
    epochs: int | None = None
    asked: Mapping[str, Any] = field(default_factory=dict)
    data: Mapping[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """The comparison as JSON values, with points, ratios and options as they are here."""
        return {**asdict(self), "drop": self.drop}

    @property
    def is_measured(self) -> bool:
        """Whether its mAP was measured on any object."""
        return self.objects != 0

    @property
    def drop(self) -> float:
        """Points of mAP50 that int8 loses; negative if it gains."""
        return self.float_map50 - self.int8_map50


def compare_runs(runs: Sequence[str], storage: Storage) -> list[Compared]:
    """Read the figures of `runs`.

    Raises:
        ExportError: A run has no figures, or they are damaged.
        FormatError: A run's `run.json` is damaged.
    """
    return [_compared(run, storage) for run in runs]


def _compared(run: str, storage: Storage) -> Compared:
    paths = RunPaths(run)
    content = storage.read_or_none(paths.metrics)
    if content is None:
        if not storage.exists(paths.request):
            measured = (name for name in storage.list_names("runs") if storage.exists(RunPaths(name).metrics))
            names = ", ".join(measured) or "none"
            raise ExportError(f"{storage.root} holds no run {run!r} (there are: {names})")
        raise _not_finished(run, storage)
    facts = _facts_of(run, storage)
    try:
        return _figures(run, json.loads(content), facts)
    except (ValueError, KeyError, TypeError, AttributeError, ZeroDivisionError) as error:
        found, again = f"{type(error).__name__}: {error}", hint("export", run, store=storage)
        raise ExportError(
            f"{storage.url(paths.metrics)}: damaged ({found}): `{again}` measures the run again"
        ) from error


def _figures(run: str, metrics: Mapping[str, Any], facts: Mapping[str, Any]) -> Compared:
    exact, rounded = metrics["float32"], metrics["int8"]
    return Compared(
        run=run,
        # Runs released before the figures named their split were measured on test if there was one.
        split=exact.get("split", "test"),
        float_map50=100 * exact["map50"],
        int8_map50=100 * rounded["map50"],
        float_map=100 * exact["map"],
        int8_map=100 * rounded["map"],
        bytes_share=rounded["bytes"] / exact["bytes"],
        time_share=rounded["median_ms"] / exact["median_ms"],
        interval=_points(rounded.get("map50_interval")),
        objects=rounded.get("objects"),
        map_interval=_points(rounded.get("map_interval")),
        size_bytes=rounded["bytes"],
        median_ms=rounded["median_ms"],
        **facts,
    )


def _points(interval: Sequence[float] | None) -> tuple[float, float] | None:
    return None if interval is None else (100 * interval[0], 100 * interval[1])


def _facts_of(run: str, storage: Storage) -> dict[str, Any]:
    """How a run was trained, as far as its own files say."""
    asked = read_request(storage, run) if storage.exists(RunPaths(run).request) else None
    summary = read_summary(storage, run) or {}
    training = summary.get("training") or {}
    per_epoch = (training.get("schedule") or {}).get("steps_per_epoch")
    return {
        "asked": {} if asked is None else asked.model_dump(mode="json", include=set(TrainingOptions.model_fields)),
        "data": {} if asked is None else _data_of(asked, storage),
        "image_size": summary.get("image_size"),
        "epochs": math.ceil(training["steps"] / per_epoch) if per_epoch else None,
    }


def _data_of(asked: RunSpec, storage: Storage) -> dict[str, Any]:
    """The job of a run and its data options; only the name if the job has been removed since."""
    job = find_job(storage, asked.job)
    if job is None or job.incarnation != asked.incarnation:
        return {"job": asked.job}
    photos = {f"{split} photos": plan.pairs for split, plan in job.splits.items()}
    options = job.spec.model_dump(mode="json", include=set(DataOptions.model_fields) - {"seed"})
    return {"job": job.job, "photos from": job.archive or job.dataset, **photos, **options}


def against_first(rows: Sequence[Compared], storage: Storage) -> tuple[list[Paired], list[str]]:
    """Each further run compared with the first, photo by photo, and a line for each that cannot be, saying why."""
    seen: dict[str, SeenSplit] = {}
    why_not: list[str] = []
    for row in rows:
        key = f"{RunPaths(row.run).root}/detections_{row.split}.json"
        content = storage.read_or_none(key)
        if content is None:
            again = hint("export", row.run, store=storage)
            why_not.append(f"run {row.run} has no detections_{row.split}.json, as older versions: `{again}` makes it")
        else:
            seen[row.run] = read_detections(content, storage.url(key))
    first, *others = (row.run for row in rows)
    there = [name for name in others if name in seen and first in seen and name != first]
    asked = {name: read_request(storage, name) for name in {first, *there}}
    pairs = []
    for name in there:
        both = seen[first].photos().keys() & seen[name].photos()
        unlike = other_pictures(storage, asked[first], asked[name], both)
        pairs.append(paired(seen[first], seen[name], (first, name), unlike))
    return pairs, why_not


def differing_settings(rows: Sequence[Compared]) -> dict[str, list[str]]:
    """The settings of data and training that differ between the runs: each run's value, by name of the setting."""
    flat = [{**_flat(row.asked), **row.data} for row in rows]
    names = sorted({name for options in flat for name in options})
    values = {name: [options.get(name) for options in flat] for name in names}
    shown = {name: [_shown(value) for value in found] for name, found in values.items()}
    return {name: found for name, found in shown.items() if len(set(found)) > 1}


def _shown(value: Any) -> str:
    """A setting's value for a person."""
    if isinstance(value, dict):
        return ", ".join(f"{old} → {new}" for old, new in value.items()) or "-"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "-"
    return "-" if value is None else str(value)


def _not_finished(run: str, storage: Storage) -> ExportError:
    """Why a run has no figures, and what to do about it."""
    asked = read_request(storage, run)
    if asked is None:
        return ExportError(f"run {run!r} has no figures, and its request cannot be read")
    if not asked.has_model:
        return ExportError(
            f"run {run!r} belongs to an audit of job {asked.job} and has no model: name runs that have one"
        )
    notes = {"was cancelled": RunPaths(run).cancelled, "failed": RunPaths(run).failed}
    ended = next((how for how, note in notes.items() if read_note(storage, note, asked.incarnation)), None)
    command = hint("retry" if ended else "status", *words_of(storage, run), store=storage)
    goes_on = "goes on with it" if ended else "says where it is"
    return ExportError(f"run {run!r} {ended or 'is not finished'} and has no figures: `{command}` {goes_on}")


def comparison_table(rows: Sequence[Compared]) -> str:
    """A table of at most 80 columns (long names get their own line), then how the runs differ and what int8 costs."""
    width = min(_NAME_COLUMNS, max(len("run"), *(len(row.run) for row in rows)))
    lines = [
        f"{'run':{width}} {'split':>5} {'object':>6} {'mAP50':>5} {'mAP50 of int8':>18} {'lost,':>5} {'mAP':>5} "
        f"{'mAP':>5} {'size':>5} {'time':>5}",
        f"{'':{width}} {'':>5} {'count':>6} {'float':>5} {'% (95 %)':>18} {'pts':>5} {'float':>5} {'int8':>5} "
        f"{'ratio':>5} {'ratio':>5}",
        *(_line(row, width) for row in rows),
    ]
    lines += ["", *_how_trained(rows, width)] if len(rows) > 1 else []
    lines += [
        _int8_sentence([row.drop for row in rows if row.is_measured]),
        f"size ratio at most {max(row.bytes_share for row in rows):.2f}, time ratio at most "
        f"{max(row.time_share for row in rows):.2f} (int8 / float32)",
    ]
    return "\n".join(lines)


def _int8_sentence(drops: Sequence[float]) -> str:
    """What int8 costs over all runs; `drops` are points of mAP50 lost, negative if gained."""
    if not drops:
        return "int8 against float32 is not known: no photo that was measured on has an object that counts"
    if len(drops) == 1:
        return f"int8 {_change(drops[0])} of mAP50 against float32"
    mean, spread = statistics.mean(drops), statistics.stdev(drops)
    ends = f"worst run: {_change(max(drops))}; best run: {_change(min(drops))}"
    return f"int8 {_change(mean)} of mAP50 on average over {len(drops)} runs (spread {spread:.2f})\n{ends}"


def _change(drop: float) -> str:
    """`loses 0.30 points`, `gains 0.05 points`, or `loses nothing`."""
    if round(abs(drop), 2) == 0:
        return "loses nothing"
    return f"{'gains' if drop < 0 else 'loses'} {abs(drop):.2f} points"


def _how_trained(rows: Sequence[Compared], width: int) -> Iterator[str]:
    """The table of how the runs were trained and their results, and the other options in which they differ."""
    head = f"{'run':{width}} {'model':>6} {'px':>4} {'epochs':>6} {'seed':>5}"
    yield f"{head} {'mAP of int8':>18} {'bytes':>11} {'ms':>7}"
    for row in rows:
        asked = {name: row.asked.get(name, "-") for name in ("model", "seed")}
        sure = _sure(row, row.int8_map, row.map_interval)
        yield (
            f"{_name(row, width)} {asked['model']:>6} {row.image_size or '-':>4} {row.epochs or '-':>6} "
            f"{asked['seed']:>5} {sure:>18} {row.size_bytes:11,} {row.median_ms:7.2f}"
        )
    differing = {name: found for name, found in differing_settings(rows).items() if name not in ("model", "seed")}
    if differing:
        yield "they also differ in:"
        for at, row in enumerate(rows):
            said = ", ".join(f"{name} {found[at]}" for name, found in differing.items())
            yield from textwrap.wrap(f"{row.run}: {said}", _COLUMNS, initial_indent="  ", subsequent_indent="    ")


def paired_tables(pairs: Sequence[Paired]) -> str:
    """A table of at most 80 columns for each pair of runs: how many points better the second is, by class."""
    return "\n".join(line for pair in pairs for line in _paired_table(pair))


def _paired_table(pair: Paired) -> Iterator[str]:
    yield ""
    yield from textwrap.wrap(
        f"{pair.second} against {pair.first}, int8, on the {counted(pair.photos, pair.kind)} of both (AP50 of "
        "classes; * where chance does not explain it)",
        _COLUMNS,
    )
    for remark in pair.remarks:
        yield from textwrap.wrap(remark, _COLUMNS, initial_indent="  ", subsequent_indent="    ")
    if pair.rows:
        yield f"{'class':22} {'objects':>8} {'before %':>9} {'now %':>7} {'points':>8} {'95 %':>18}"
    for row in pair.rows:
        name = row.label if len(row.label) <= _LABEL_COLUMNS else f"{row.label[: _LABEL_COLUMNS - 1]}…"
        if row.points is None or row.interval is None:
            yield f"{name:22} {row.objects:8} {'-':>9} {'-':>7} {'-':>8}"
            continue
        low, high = row.interval
        sure = f"{low:+z.1f} to {high:+z.1f}"
        mark = " *" if row.is_sure else ""
        yield f"{name:22} {row.objects:8} {row.first:9.1f} {row.second:7.1f} {row.points:+z8.1f} {sure:>18}{mark}"


def _flat(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Options by name, including those of the augmentation."""
    return {**asked.get("augmentation", {}), **{name: asked[name] for name in asked if name != "augmentation"}}


def _name(row: Compared, width: int) -> str:
    return f"{row.run}\n{'':{width}}" if len(row.run) > width else f"{row.run:{width}}"


def _sure(row: Compared, figure: float, interval: tuple[float, float] | None) -> str:
    if not row.is_measured:
        return "-"
    return f"{figure:.1f}" + ("" if interval is None else f" ({interval[0]:.0f} to {interval[1]:.0f})")


def _line(row: Compared, width: int) -> str:
    name = _name(row, width)
    objects = "-" if row.objects is None else row.objects
    figures = f"{'-':>5} {'-':>18} {'-':>5} {'-':>5} {'-':>5}"
    if row.is_measured:
        sure = _sure(row, row.int8_map50, row.interval)
        figures = f"{row.float_map50:5.1f} {sure:>18} {row.drop:5.2f} {row.float_map:5.1f} {row.int8_map:5.1f}"
    return f"{name} {row.split:>5} {objects:>6} {figures} {row.bytes_share:5.2f} {row.time_share:5.2f}"
