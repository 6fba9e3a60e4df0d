"""Requests for what a run's model saw -> its photos with their mistakes, the worst first, at any threshold."""

from dataclasses import dataclass
from typing import Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from producer.audit.photo_sizes import photos_folder
from producer.jobs.status import load_job
from producer.page.facts.confusion import read_confusion
from producer.page.facts.photos import shown_photo, shown_size
from producer.page.facts.run_files import read_run
from producer.page.facts.seen import Box, SeenPhoto, SeenRun, counts_at, read_seen
from producer.page.render import render
from shared.errors import PlanError
from shared.jobs.identity import read_request
from shared.jobs.job import Job
from shared.placement import Placement, place
from shared.storage import DataFolder, Storage

_PHOTOS_A_PAGE: Final = 24
# Of one photo; a model of random weights sees a hundred in each.
_MOST_DRAWN: Final = 40
# What no slider reaches is not drawn.
LEAST_SHOWN: Final = 0.05
_USUAL: Final = 0.4

Rect = tuple[float, float, float, float]  # x, y, width, height in pixels of the upright photo


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """A photo as it is drawn: its upright size, and boxes in its pixels with the score at which they come and go."""

    photo: SeenPhoto
    width: int
    height: int
    shown: list[tuple[Rect, float, bool, str]]
    objects: list[tuple[Rect, float, str]]


def seen(request: Request) -> Response:
    """`/runs/{run}/photos?least=&there=&seen=&page=`: photos of the split that figures are of."""
    run, storage = request.path_params["run"], request.app.state.storage
    job, seen_run = _of_run(storage, run)
    least = least_of(request, storage, run)
    worst, query = seen_run.worst(least), request.query_params
    confusion = read_confusion(storage, run)
    cell = confusion.cell(query.get("there", ""), query.get("seen", ""))
    if cell is not None:
        behind = confusion.files(cell, least)
        worst = [each for each in worst if each.file_name in behind]
    pages = max(1, -(-len(worst) // _PHOTOS_A_PAGE))
    page = min(max(_whole(query.get("page", "1")), 1), pages)
    chosen = worst[(page - 1) * _PHOTOS_A_PAGE : page * _PHOTOS_A_PAGE]
    return render(
        request,
        "seen.html.j2",
        run=run,
        job=job.job,
        split=seen_run.split.split,
        least=least,
        cell=cell,
        cell_words="" if cell is None else confusion.words(cell),
        least_shown=LEAST_SHOWN,
        rows=counts_at(seen_run.scores(), least),
        tiles=tiles_of(job, seen_run, chosen, request.app.state.settings.data_root),
        total=len(worst),
        page=page,
        pages=pages,
    )


def scores(request: Request) -> Response:
    """`/runs/{run}/scores.json`: what the slider counts with."""
    _, seen_run = _of_run(request.app.state.storage, request.path_params["run"])
    return JSONResponse(seen_run.scores())


def photo(request: Request) -> Response:
    """`/runs/{run}/photos/{image}`: one photo, by its number among the detections."""
    job, seen_run = _of_run(request.app.state.storage, request.path_params["run"])
    number = request.path_params["image"]
    name = next((one.file_name for one in seen_run.photos if one.image_id == number), None)
    if name is None:
        raise PlanError(f"the run has seen no photo {number}")
    folder = photos_folder(job, request.app.state.settings.data_root)
    content, kind = shown_photo(folder, name, job.spec.max_pixels)
    return Response(content, media_type=kind, headers={"Cache-Control": "private, max-age=600"})


def _of_run(storage: Storage, run: str) -> tuple[Job, SeenRun]:
    asked = read_request(storage, run)
    if asked is None:
        raise PlanError(f"no run {run!r} in {storage.root}")
    return load_job(storage, asked.job), read_seen(storage, run)


def least_of(request: Request, storage: Storage, run: str) -> float:
    """The threshold that is asked for, or the model's own."""
    try:
        asked = float(request.query_params["least"])
    except (KeyError, ValueError):
        spec = read_request(storage, run)
        own = read_run(storage, spec).forms.get("int8", {}).get("best_score") if spec is not None else None
        asked = own if isinstance(own, int | float) else _USUAL
    return round(min(max(asked, LEAST_SHOWN), 1.0), 2) if asked == asked else _USUAL


def _whole(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 8 else 1


def tiles_of(job: Job, seen_run: SeenRun, photos: list[SeenPhoto], data_root: str) -> list[Tile]:
    """Photos of a run as they are drawn."""
    try:
        folder = photos_folder(job, data_root)
    except PlanError:
        folder = None  # the boxes are drawn on nothing: where they are is in the run
    return [_tile(job, seen_run, each, folder) for each in photos]


def _tile(job: Job, seen_run: SeenRun, each: SeenPhoto, folder: DataFolder | None) -> Tile:
    side = seen_run.split.image_size
    known = shown_size(folder, each.file_name, job.spec.max_pixels) if folder is not None else None
    size = known or (side, side)
    placed = place(*size, side, seen_run.split.resize)
    labels = seen_run.split.labels
    drawn = [one for one in each.shown if one.score >= LEAST_SHOWN][:_MOST_DRAWN]
    return Tile(
        photo=each,
        width=size[0],
        height=size[1],
        shown=[(_rect(one.box, placed), one.score, one.is_right, labels[one.place]) for one in drawn],
        objects=[(_rect(one.box, placed), one.found_by, labels[one.place]) for one in each.objects],
    )


def _rect(box: Box, placed: Placement) -> Rect:
    xmin, ymin, xmax, ymax = (round(corner, 1) for corner in placed.back(box))
    return xmin, ymin, max(0.0, round(xmax - xmin, 1)), max(0.0, round(ymax - ymin, 1))
