"""The page of one run, with its training, its figures and its model; and the page that compares several runs."""

import hashlib
import time
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from producer.page.facts.commands import asked_with
from producer.page.facts.confusion import precision_recall, read_confusion
from producer.page.facts.differences import Difference, difference, most_different
from producer.page.facts.job_runs import result_of
from producer.page.facts.resamples import Pair, pair_of, read_resamples
from producer.page.facts.run_files import FORMS, RunFiles, charts_of, is_inside, read_run
from producer.page.facts.seen import SeenPhoto, SeenRun, counts_at, near_at, read_seen
from producer.page.facts.thresholds import proposals
from producer.page.render import render
from producer.page.seen_pages import Tile, least_of, own_least, tiles_of
from producer.state.stored import load_job
from shared.audit.same_name import other_pictures
from shared.errors import FormatError, OptionError, PlanError
from shared.jobs.paths import RunPaths
from shared.specs.run import RunSpec
from shared.specs.training import TrainingOptions
from shared.storage import Stamp, Storage

MOST_COMPARED: Final = 5
_MOST_WORST: Final = 6
_MAPS: Final = ("map50", "map")
_CHUNK_BYTES: Final = 1 << 20
# The files that can be downloaded, besides those that `run.json` lists.
_ALSO: Final = ("model_card.md", "report.html", "audit.csv", "audit.html")
_SHOWN_IN_BROWSER: Final = {".html": "text/html; charset=utf-8", ".md": "text/plain; charset=utf-8"}
# Reports are self-contained files with styles inside; they run no script and load nothing.
_REPORT_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox"


def run(request: Request) -> Response:
    """`/runs/{run}`: one run."""
    state, asked = request.app.state, _asked(request, request.path_params["run"])
    files = read_run(state.storage, asked)
    row = state.board.row(asked.job)
    views = row.status.runs if row is not None and row.status is not None else ()
    view = next((each for each in views if each["run"] == asked.run), None)
    also = _also(state.storage, asked.run)
    facts: dict[str, Any] = {"asked": asked, "files": files, "view": view, "also": also, "now": time.time()}
    raw = [f"{name}_raw" for name in FORMS if f"{name}_raw" in files.forms]
    forms = [*(name for name in FORMS if name in files.forms), *raw]
    facts |= {"forms": forms, "raw": raw, "charts": charts_of({asked.run: files})}
    again = asked_with(
        state.storage, load_job(state.storage, asked.job), asked, has_broker=state.settings.broker_url is not None
    )
    facts |= {"asked_with": again, "per_class": _per_class(files), "result": result_of(state.audits.get, view)}
    facts |= {"downloads": _downloads(asked, files, forms), "others": _others(asked, views)}
    facts |= _what_it_sees(request, asked)
    return render(request, "run.html.j2", **facts)


def compare(request: Request) -> Response:
    """`/compare?run=A&run=B`: two to five runs side by side."""
    names = list(dict.fromkeys(request.query_params.getlist("run")))
    if not 2 <= len(names) <= MOST_COMPARED:
        raise OptionError(f"expected 2 to {MOST_COMPARED} runs, found {len(names)}: /compare?run=ONE&run=OTHER")
    asked = {name: _asked(request, name) for name in names}
    files = {name: read_run(request.app.state.storage, each) for name, each in asked.items()}
    forms = [each.forms.get("int8", {}) for each in files.values()]
    pairs = _pairs(request.app.state.storage, asked, [str(form.get("split", "")) for form in forms])
    facts: dict[str, Any] = {
        "files": files,
        "charts": charts_of(files),
        "differ": _differing(asked),
        "figures": [(name, _beside(forms, name, pairs)) for name in _MAPS],
        "classes": [(name, _beside(rows, "ap50", pairs, name)) for name, rows in _all_classes(files)],
        "alone": [name for name, pair in zip(names, pairs, strict=True) if pair is None][1:],
        "photos": _same_photos(request, asked),
    }
    return render(request, "compare.html.j2", asked=asked, **facts)


def file(request: Request) -> Response:
    """`/runs/{run}/files/{name}`: one file of a run, as a download or shown."""
    storage, asked = request.app.state.storage, _asked(request, request.path_params["run"])
    name = request.path_params["name"]
    released = {each for each, _, _ in read_run(storage, asked).released}
    key = f"{RunPaths(asked.run).root}/{name}"
    size = storage.size_or_none(key) if name in released | set(_ALSO) and is_inside(storage, key) else None
    if size is None:
        raise PlanError(f"run {asked.run} hands out no file {name!r}")
    shown = _SHOWN_IN_BROWSER.get(name[name.rfind(".") :])
    headers = {"Content-Length": str(size), "Content-Security-Policy": _REPORT_POLICY}
    if shown is None:
        headers["Content-Disposition"] = f'attachment; filename="{asked.run}-{name}"'
    content = _chunks(storage, key, size)
    return StreamingResponse(content, headers=headers, media_type=shown or "application/octet-stream")


def _also(storage: Storage, run: str) -> dict[str, tuple[int, str]]:
    """Bytes and SHA-256 of each file that can be downloaded, besides those that `run.json` lists."""
    keys = {name: f"{RunPaths(run).root}/{name}" for name in _ALSO}
    stamps = {name: storage.stamp_or_none(key) if is_inside(storage, key) else None for name, key in keys.items()}
    return {
        name: (stamp.size_bytes, _digest(storage, keys[name], stamp))
        for name, stamp in stamps.items()
        if stamp is not None
    }


@lru_cache(maxsize=64)
def _digest(storage: Storage, key: str, stamp: Stamp) -> str:
    """The SHA-256 of a file; it is read again only if it has changed."""
    digest = hashlib.sha256()
    for chunk in _chunks(storage, key, stamp.size_bytes):
        digest.update(chunk)
    return digest.hexdigest()


def _downloads(asked: RunSpec, files: RunFiles, forms: Sequence[str]) -> dict[str, str]:
    """The released file for each of the model's `forms`; "" if there is none."""
    released = {name for name, _, _ in files.released}
    names = {form: f"model_{form}.tflite" for form in forms} | {"int8": asked.int8_file}
    return {form: name if name in released else "" for form, name in names.items()}


def _others(asked: RunSpec, views: Sequence[Mapping[str, Any]]) -> list[str]:
    """The measured runs of the same job to compare with this one, as many as fit."""
    measured = [str(view["run"]) for view in views if view.get("map50") is not None]
    return [name for name in measured if name != asked.run][: MOST_COMPARED - 1] if asked.run in measured else []


def _chunks(storage: Storage, key: str, size: int) -> Any:
    return (storage.read_range(key, start, _CHUNK_BYTES) for start in range(0, size, _CHUNK_BYTES))


def _what_it_sees(request: Request, asked: RunSpec) -> dict[str, Any]:
    """What the run's page shows of its detections, or why there is nothing if their file cannot be read."""
    state = request.app.state
    try:
        seen = read_seen(state.storage, asked.run)
    except PlanError:
        return {"seen": None, "seen_error": ""}
    except FormatError as error:
        return {"seen": None, "seen_error": str(error)}
    least, confusion = least_of(request, state.storage, asked.run), read_confusion(state.storage, asked.run)
    rows, names = confusion.counts(least), [*confusion.labels, "nothing"]
    worst = [photo for photo in seen.worst(least)[:_MOST_WORST] if photo.mistakes(least)]
    scores = seen.scores()
    proposed = [each.least for each in proposals(scores, own_least(state.storage, asked.run))]
    marked = list(dict.fromkeys([least, *proposed]))
    return {
        "seen": seen.split,
        "seen_error": "",
        "least": least,
        "totals": [sum(row[place] for row in counts_at(scores, least)) for place in (1, 2, 3, 4)],
        "near": near_at(scores, least),
        "names": names,
        "confusion": confusion,
        "cells": list(zip(names, rows, strict=True)),
        "curve": precision_recall(scores, marked),
        "marked": marked,
        "worst": tiles_of(load_job(state.storage, asked.job), seen, worst, state.settings.data_root),
    }


def _pairs(storage: Storage, asked: Mapping[str, RunSpec], splits: Sequence[str]) -> list[Pair | None]:
    """Each run's resamples, paired with the first run's; None for the first, and if the photos are not the same."""
    first, *others = (read_resamples(storage, run, split) for run, split in zip(asked, splits, strict=True))
    one, *rest = asked.values()
    unlike = [bool(other_pictures(storage, one, other)) for other in rest]
    return [None, *(None if is_other else pair_of(first, each) for each, is_other in zip(others, unlike, strict=True))]


def _beside(
    rows: list[Mapping[str, Any]], name: str, pairs: Sequence[Pair | None], label: str | None = None
) -> list[tuple[Mapping[str, Any], Difference | None]]:
    """A figure of each run, and how it differs from the first one's."""
    return [
        (row, difference(rows[0], row, name, pair, label) if at else None)
        for at, (row, pair) in enumerate(zip(rows, pairs, strict=True))
    ]


def _same_photos(request: Request, asked: Mapping[str, RunSpec]) -> list[list[tuple[str, Tile, float]]]:
    """The photos in which the runs differ most: for each run its name, what it saw, its threshold."""
    state = request.app.state
    try:
        runs: list[tuple[SeenRun, float]] = [
            (read_seen(state.storage, name), least_of(request, state.storage, name)) for name in asked
        ]
    except (PlanError, FormatError):
        return []  # the run's own page says what is wrong with its file
    jobs = [load_job(state.storage, each.job) for each in asked.values()]
    one, *rest = asked.values()
    unlike = set[str]().union(*(other_pictures(state.storage, one, other) for other in rest))

    def drawn(photos: list[SeenPhoto]) -> list[tuple[str, Tile, float]]:
        rows = zip(asked, jobs, runs, photos, strict=True)
        root = state.settings.data_root
        return [(name, tiles_of(job, run, [photo], root)[0], least) for name, job, (run, least), photo in rows]

    return [drawn(photos) for photos in most_different(runs, _MOST_WORST, unlike)]


def _asked(request: Request, name: str) -> RunSpec:
    asked: RunSpec = request.app.state.board.asked(name)
    return asked


def _per_class(files: RunFiles) -> list[tuple[str, Mapping[str, Any]]]:
    """Each class with its figures for int8, or for the last form that there is; the worst first."""
    form = next((files.forms[name] for name in FORMS[::-1] if name in files.forms), {})
    rows = form.get("per_class")
    found = [(str(name), row) for name, row in rows.items() if isinstance(row, dict)] if isinstance(rows, dict) else []
    return sorted(found, key=lambda pair: -1.0 if pair[1].get("ap50") is None else pair[1]["ap50"])


def _all_classes(files: Mapping[str, RunFiles]) -> list[tuple[str, list[Mapping[str, Any]]]]:
    """Each class with the figures of each run; empty if a run does not know the class."""
    rows = [dict(_per_class(each)) for each in files.values()]
    return [(name, [row.get(name, {}) for row in rows]) for name in sorted({name for row in rows for name in row})]


def _differing(asked: Mapping[str, RunSpec]) -> list[tuple[str, list[str]]]:
    """The options that differ between runs: the field, and its value in each; `default` if it was not set."""
    dumped = [each.model_dump(mode="json") for each in asked.values()]
    fields = [name for name in TrainingOptions.model_fields if any(name in one for one in dumped)]
    rows = [(name, [one.get(name) for one in dumped]) for name in fields]
    return [
        (name, ["default" if value is None else str(value) for value in values])
        for name, values in rows
        if any(v != values[0] for v in values)
    ]
