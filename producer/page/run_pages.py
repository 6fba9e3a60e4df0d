"""One run: its training as it goes on, its figures, its model; and several runs beside one another."""

import time
from collections.abc import Mapping
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from producer.jobs.status import load_job
from producer.page.facts.run_files import FORMS, RunFiles, charts_of, is_inside, read_run
from producer.page.render import render
from shared.errors import OptionError, PlanError
from shared.jobs.identity import read_request
from shared.jobs.options import words
from shared.jobs.paths import RunPaths
from shared.jobs.specs import RunSpec, TrainingOptions
from shared.storage import Storage

MOST_COMPARED: Final = 5
_CHUNK_BYTES: Final = 1 << 20
# What a run hands out, besides what `run.json` lists.
_ALSO: Final = ("model_card.md", "report.html", "audit.csv", "audit.html")
_SHOWN_IN_BROWSER: Final = {".html": "text/html; charset=utf-8", ".md": "text/plain; charset=utf-8"}
# Reports are files of their own with styles inside; they run no script and load nothing.
_REPORT_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox"


def run(request: Request) -> Response:
    """`/runs/{run}`: one run."""
    state, asked = request.app.state, _asked(request, request.path_params["run"])
    files = read_run(state.storage, asked)
    row = state.board.row(asked.job)
    views = row.status.runs if row is not None and row.status is not None else ()
    view = next((each for each in views if each["run"] == asked.run), None)
    also = [name for name in _ALSO if state.storage.exists(f"{RunPaths(asked.run).root}/{name}")]
    facts: dict[str, Any] = {"asked": asked, "files": files, "view": view, "also": also, "now": time.time()}
    facts |= {"forms": [name for name in FORMS if name in files.forms], "charts": charts_of({asked.run: files})}
    facts |= {"options": words(asked, TrainingOptions), "per_class": _per_class(files)}
    return render(request, "run.html.j2", **facts)


def compare(request: Request) -> Response:
    """`/compare?run=A&run=B`: two to five runs beside one another."""
    names = list(dict.fromkeys(request.query_params.getlist("run")))
    if not 2 <= len(names) <= MOST_COMPARED:
        raise OptionError(f"expected 2 to {MOST_COMPARED} runs, found {len(names)}: /compare?run=ONE&run=OTHER")
    asked = {name: _asked(request, name) for name in names}
    files = {name: read_run(request.app.state.storage, each) for name, each in asked.items()}
    facts: dict[str, Any] = {
        "files": files,
        "charts": charts_of(files),
        "differ": _differing(asked),
        "classes": _all_classes(files),
    }
    return render(request, "compare.html.j2", asked=asked, **facts)


def file(request: Request) -> Response:
    """`/runs/{run}/files/{name}`: one file that a run hands out."""
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


def _chunks(storage: Storage, key: str, size: int) -> Any:
    return (storage.read_range(key, start, _CHUNK_BYTES) for start in range(0, size, _CHUNK_BYTES))


def _asked(request: Request, name: str) -> RunSpec:
    storage = request.app.state.storage
    asked = read_request(storage, name)
    if asked is None:
        raise PlanError(f"no run {name!r} in {storage.root}")
    load_job(storage, asked.job)  # a removed job's run is none
    return asked


def _per_class(files: RunFiles) -> list[tuple[str, Mapping[str, Any]]]:
    """Each class with its figures of int8, or of the last form that there is; the worst first."""
    form = next((files.forms[name] for name in FORMS[::-1] if name in files.forms), {})
    rows = form.get("per_class")
    found = [(str(name), row) for name, row in rows.items() if isinstance(row, dict)] if isinstance(rows, dict) else []
    return sorted(found, key=lambda pair: -1.0 if pair[1].get("ap50") is None else pair[1]["ap50"])


def _all_classes(files: Mapping[str, RunFiles]) -> list[tuple[str, list[Mapping[str, Any]]]]:
    """Each class with the figures of each run, empty where one does not know it."""
    rows = [dict(_per_class(each)) for each in files.values()]
    return [(name, [row.get(name, {}) for row in rows]) for name in sorted({name for row in rows for name in row})]


def _differing(asked: Mapping[str, RunSpec]) -> list[tuple[str, list[str]]]:
    """The options that differ between runs: the field, and its value in each."""
    dumped = [each.model_dump(mode="json") for each in asked.values()]
    fields = [name for name in TrainingOptions.model_fields if any(name in one for one in dumped)]
    rows = [(name, [one.get(name) for one in dumped]) for name in fields]
    return [(name, [str(value) for value in values]) for name, values in rows if any(v != values[0] for v in values)]
