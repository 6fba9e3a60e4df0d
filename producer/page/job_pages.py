"""The pages of all jobs, of one job, and of what was found in its photos."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from producer.audit.cost import USUAL_FOLDS, cost_text
from producer.audit.photo_sizes import photos_folder
from producer.page.board import Board, Row
from producer.page.facts.commands import hint_here
from producer.page.facts.drawn import draw, image_of
from producer.page.facts.findings import PAGE, FindingsTable
from producer.page.facts.job_runs import besides, counts_text, result_of
from producer.page.facts.photos import shown_photo
from producer.page.render import render
from producer.state.status import JobStatus
from producer.state.stored import load_job
from shared.errors import PlanError
from shared.jobs.job import SPLITS, Job
from shared.jobs.manifest import Manifest
from shared.jobs.paths import JobPaths
from shared.specs.run import FoldOptions
from shared.storage import Storage

_MOST_TEXT: Final = 200
# A list with more classes is no help to choose from; the others are found with the text field.
_MOST_CLASSES: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A stage on the way from files to records: how many arrive, and what is lost on the way to it.

    `losses` are (what, how many, the kind of finding that names them or "").
    """

    what: str
    count: int
    losses: tuple[tuple[str, int, str], ...] = ()


def jobs(request: Request) -> Response:
    """`/`: all jobs of the store."""
    board: Board = request.app.state.board
    rows = board.rows()
    others = {row.name: besides(row.status) for row in rows if row.status is not None}
    counts = {row.name: counts_text(row.status) for row in rows if row.status is not None}
    facts: dict[str, Any] = {"rows": rows, "others": others, "run_counts": counts, "trouble": board.trouble()}
    return render(request, "jobs.html.j2", **facts, now=time.time())


def job(request: Request) -> Response:
    """`/jobs/{job}`: one job."""
    row, storage = _row(request), request.app.state.storage
    facts: dict[str, Any] = {"row": row, "now": time.time(), "job": None, "found_by_class": {}}
    if row.status is not None:
        asked = load_job(storage, row.name)
        manifest = _manifest(storage, row.name)
        table = request.app.state.findings.get(row.name)
        counts = table.counts if table is not None else []
        facts |= {"job": asked, "stages": funnel(asked, manifest, table), "kinds": counts}
        facts |= {"found_by_class": dict(table.class_counts) if table is not None else {}}
        facts |= _audit_facts(request, asked, row.status)
        facts |= {"classes": classes(asked, manifest), "splits": SPLITS, "counts": asked.counts}
    return render(request, "job.html.j2", **facts)


def _audit_facts(request: Request, job: Job, status: JobStatus) -> dict[str, Any]:
    """The job's other runs that go on, what its audits have found, how to ask for one, and what it would cost."""
    state = request.app.state
    local = () if state.settings.broker_url is not None else ("--local",)
    models = [str(view["run"]) for view in status.runs if view.get("map50") is not None]
    ways = [("audit", job.job, "--quick", "--run", run, *local) for run in models]
    return {
        "others": besides(status),
        "results": {str(view["run"]): result_of(state.audits.get, view) for view in status.runs},
        "models": models,
        "quick": [hint_here(state.storage, *way) for way in ways[:1]],
        "by_folds": hint_here(state.storage, "audit", job.job, *local),
        "cost": cost_text(job, USUAL_FOLDS, FoldOptions()),
    }


def findings(request: Request) -> Response:
    """`/jobs/{job}/findings?kind=&class=&text=&page=`: one page of what lint found, with the photos."""
    state, row, query = request.app.state, _row(request), request.query_params
    table = _table(request, row)
    asked = load_job(state.storage, row.name)
    chosen = {name: query.get(name, "")[:_MOST_TEXT] for name in ("kind", "class", "text")}
    page = max(1, int(query["page"])) if _is_number(query.get("page", "")) else 1
    one = table.row(int(query["number"])) if _is_number(query.get("number", "")) else None
    rows, total = (
        ([one], 1) if one else table.page(page, kind=chosen["kind"], class_name=chosen["class"], text=chosen["text"])
    )
    drawn = {each.number: draw(state.storage, asked, state.settings.data_root, each) for each in rows}

    def address(number: int) -> str:
        return f"/jobs/{row.name}/findings?{urlencode({**chosen, 'page': number})}"

    pages = -(-total // PAGE)
    around = {"before": address(page - 1) if page > 1 else "", "after": address(page + 1) if page < pages else ""}
    shown: dict[str, Any] = {
        "rows": rows,
        "drawn": drawn,
        "total": total,
        "page": page,
        "pages": pages,
        "around": around,
        "one": one,
        "here": address(page),
    }
    shown |= {"kinds": table.counts, "classes": _offered(table.class_counts, chosen["class"]), "chosen": chosen}
    return render(request, "findings.html.j2", job=row.name, **shown)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 9


def _offered(counts: Sequence[tuple[str, int]], chosen: str) -> list[tuple[str, int]]:
    """The classes to choose from, by name: those with the most findings, and the one that is chosen."""
    offered = dict(counts[:_MOST_CLASSES])
    if chosen:
        offered[chosen] = dict(counts).get(chosen, 0)
    return sorted(offered.items(), key=lambda each: (each[0].casefold(), each[0]))


def finding_photo(request: Request) -> Response:
    """`/jobs/{job}/findings/{number}/photo`: the photo that a finding is about."""
    state, row = request.app.state, _row(request)
    found = _table(request, row).row(request.path_params["number"])
    asked = load_job(state.storage, row.name)
    folder = photos_folder(asked, state.settings.data_root)
    content, media_type = shown_photo(
        folder, image_of(state.storage, asked, found, is_other="other" in request.query_params), asked.spec.max_pixels
    )
    return Response(content, media_type=media_type, headers={"Cache-Control": "private, max-age=60"})


def _row(request: Request) -> Row:
    name, state = request.path_params["job"], request.app.state
    row: Row | None = state.board.row(name)
    if row is None:
        raise PlanError(f"no job {name!r} in {state.storage.root}")
    return row


def _table(request: Request, row: Row) -> FindingsTable:
    table: FindingsTable | None = request.app.state.findings.get(row.name)
    if table is None:
        raise PlanError(f"the findings of {row.name} are written when its data set is finished")
    return table


def _manifest(storage: Storage, job: str) -> Manifest | None:
    content = storage.read_or_none(JobPaths(job).manifest)
    try:
        return None if content is None else Manifest.model_validate_json(content)
    except ValueError:
        return None


# The singular of each loss.
_SINGLE: Final = {"other files": "other file", "photos without XML": "photo without XML"}


def funnel(job: Job, manifest: Manifest | None, table: FindingsTable | None) -> list[Stage]:
    """The stages of a job's photos: files, photos, pairs, records; every loss with its reason."""
    kinds, aside = (dict(table.counts), table.aside) if table is not None else ({}, [])
    counts = job.counts
    photos, pairs = counts.get("images", 0), counts.get("pairs", 0)

    def named(*losses: tuple[str, str, str]) -> tuple[tuple[str, int, str], ...]:
        """The losses of (what, key in `counts`, kind) whose count is not 0."""
        return tuple(
            (_SINGLE.get(what, what) if counts[key] == 1 else what, counts[key], kind if kind in kinds else "")
            for what, key, kind in losses
            if counts.get(key)
        )

    stages = [
        Stage(what="files in the folder", count=counts.get("files", 0)),
        Stage(what="photos", count=photos, losses=named(("other files", "other_files", ""))),
        Stage(
            what="pairs of photo and XML",
            count=pairs,
            losses=named(("photos without XML", "orphan_images", "image_without_annotation")),
        ),
        Stage(
            what="pairs to be used",
            count=sum(plan.pairs for plan in job.splits.values()),
            losses=named(("left out, as no list names them", "left_out", "not_listed")),
        ),
    ]
    if manifest is not None:
        losses = tuple((kind.replace("_", " "), count, kind) for kind, count in aside)
        stages.append(Stage(what="written into shards", count=manifest.counters.get("written", 0), losses=losses))
    return stages


def classes(job: Job, manifest: Manifest | None) -> list[tuple[str, list[int]]]:
    """Each class with its objects by split, the most frequent first; until all is written, with those of the submit."""
    if manifest is None:
        return [(name, [job.counts.get(f"class:{name}", 0)]) for name in job.labels]
    rows = [(name, [manifest.class_counts.get(split, {}).get(name, 0) for split in SPLITS]) for name in manifest.labels]
    return sorted(rows, key=lambda row: -sum(row[1]))
