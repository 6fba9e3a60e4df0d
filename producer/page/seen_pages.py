"""Requests for what a run's model saw -> the photos with their mistakes, the worst first, at any threshold."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from producer.audit.photo_sizes import photos_folder
from producer.page.facts.commands import rooted
from producer.page.facts.confusion import read_confusion
from producer.page.facts.photos import shown_photo, shown_size
from producer.page.facts.run_files import read_run
from producer.page.facts.seen import Box, SeenPhoto, SeenRun, Shown, counts_at, near_at, quality, read_seen
from producer.page.facts.thresholds import LEAST_KEPT, proposals
from producer.page.render import render
from producer.state.stored import load_job
from shared.command import hint
from shared.errors import PlanError
from shared.jobs.identity import read_request
from shared.jobs.job import Job
from shared.jobs.paths import RunPaths
from shared.placement import Placement, place
from shared.storage import DataFolder, Storage

_PHOTOS_A_PAGE: Final = 24
# How many detections are drawn in a photo; a model with random weights sees a hundred in each.
_MOST_DRAWN: Final = 40
_USUAL: Final = 0.4

Rect = tuple[float, float, float, float]  # x, y, width, height in pixels of the upright photo


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A box to draw, with the score at which it appears or disappears; `is_asked` if it is in the cell shown.

    `kind` is its class in the style sheet: right, missed, near (badly placed) or wrong (made up).
    """

    rect: Rect
    score: float
    label: str
    kind: str = "right"
    is_asked: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """A photo to draw: its upright size, and boxes in its pixels, of detections (`shown`) and of `objects`.

    `turn` is the threshold at which the photo comes into the cell that is shown, or leaves it.
    """

    photo: SeenPhoto
    width: int
    height: int
    shown: list[Mark]
    objects: list[Mark]
    turn: float | None = None


def seen(request: Request) -> Response:
    """`/runs/{run}/photos?least=&there=&seen=&image=&page=`: photos of the split that the figures are about."""
    run, storage, query = request.path_params["run"], request.app.state.storage, request.query_params
    job, seen_run = _of_run(storage, run)
    least, own, confusion = least_of(request, storage, run), own_least(storage, run), read_confusion(storage, run)
    cell = confusion.cell(query.get("there", ""), query.get("seen", ""))
    behind = {} if cell is None else confusion.boxes(cell, least)
    worst = [each for each in seen_run.worst(least) if cell is None or behind[each.file_name]]
    turns = {} if cell is None else confusion.turns(cell)
    of_cell = {} if cell is None else {"turns": turns.values(), "is_missed": cell[1] == len(confusion.labels)}
    facts: dict[str, Any] = {"cell": cell, "cell_words": "" if cell is None else confusion.words(cell), **of_cell}
    facts |= {"total": len(worst), "least": least, "least_kept": LEAST_KEPT}
    # Runs of 0.2.0 do not say on which photos the threshold was chosen.
    said = _int8_figures(storage, run).get("score_split")
    facts |= {"chosen_on": said or ("val" if "val" in job.splits else "train")}
    facts |= {"command": _predict(storage, run)} | _figures(seen_run, least, own)
    one = [each for each in seen_run.photos if str(each.image_id) == query.get("image")]
    pages = max(1, -(-len(worst) // _PHOTOS_A_PAGE))
    page = min(max(_whole(query.get("page", "1")), 1), pages)
    chosen = one or worst[(page - 1) * _PHOTOS_A_PAGE : page * _PHOTOS_A_PAGE]
    tiles = tiles_of(job, seen_run, chosen, request.app.state.settings.data_root, behind)
    tiles = [replace(tile, turn=turns.get(tile.photo.file_name)) for tile in tiles]
    facts |= {"page": page, "pages": 1 if one else pages, "tiles": tiles, "one": one[0] if one else None}
    return render(request, "seen.html.j2", run=run, job=job.job, split=seen_run.split.split, **facts)


def _predict(storage: Storage, run: str) -> str:
    """The `predict` command for the run's model, to which a threshold is appended; "" if the run has no model."""
    key = RunPaths(run).int8
    command = hint("predict", f"STORE/{key}", "PHOTOS", "--threshold")
    return rooted(command, storage) if storage.exists(key) else ""


def _figures(seen_run: SeenRun, least: float, own: float | None) -> dict[str, Any]:
    """The table's rows and their sum: (name, (found, missed, badly placed, made up), (precision, recall, F1))."""
    scores = seen_run.scores()
    counts = [(name, figures) for name, *figures in counts_at(scores, least)]
    summed = [sum(figures[at] for _, figures in counts) for at in range(4)]
    rows = [
        (name, (found, missed, beside, made_up), tuple(map(share_text, quality(found, missed, beside + made_up))))
        for name, (found, missed, beside, made_up) in [*counts, ("all", summed)]
    ]
    proposed = [(each, share_text(each.precision), share_text(each.recall)) for each in proposals(scores, own)]
    most = quality(*_found_and_missed(scores), 0)[1]
    return {
        "rows": rows[:-1],
        "summed": rows[-1],
        "near": near_at(scores, least),
        "proposed": proposed,
        "most": share_text(most),
    }


def _found_and_missed(scores: Sequence[Mapping[str, Any]]) -> tuple[int, int]:
    """How many objects are found by all detections that are kept, and how many are not."""
    found = sum(len(row["right"]) for row in scores)
    return found, sum(row["objects"] for row in scores) - found


def share_text(share: float | None) -> str:
    """`66.7 %`, rounded as `threshold.js` does it; a dash for none."""
    return "\u2013" if share is None else f"{math.floor(1000 * share + 0.5) / 10:.1f} %"


def scores(request: Request) -> Response:
    """`/runs/{run}/scores.json`: the scores from which the slider counts."""
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
        own = own_least(storage, run)
        asked = _USUAL if own is None else own
    return round(min(max(asked, LEAST_KEPT), 1.0), 2) if asked == asked else _USUAL


def own_least(storage: Storage, run: str) -> float | None:
    """The threshold that was best on the photos it was chosen on, if known."""
    own = _int8_figures(storage, run).get("best_score")
    return own if isinstance(own, int | float) else None


def _int8_figures(storage: Storage, run: str) -> Mapping[str, Any]:
    spec = read_request(storage, run)
    return {} if spec is None else read_run(storage, spec).forms.get("int8", {})


def _whole(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 8 else 1


Asked = Mapping[str, frozenset[Box]]


def tiles_of(
    job: Job, seen_run: SeenRun, photos: list[SeenPhoto], data_root: str, asked: Asked = MappingProxyType({})
) -> list[Tile]:
    """The tiles for photos of a run; `asked` are the boxes to mark, by file."""
    try:
        folder = photos_folder(job, data_root)
    except PlanError:
        folder = None  # the boxes, which are in the run, are drawn without the photo
    return [_tile(job, seen_run, each, folder, asked.get(each.file_name, frozenset())) for each in photos]


def _tile(job: Job, seen_run: SeenRun, each: SeenPhoto, folder: DataFolder | None, asked: frozenset[Box]) -> Tile:
    side = seen_run.split.image_size
    known = shown_size(folder, each.file_name, job.spec.max_pixels) if folder is not None else None
    size = known or (side, side)
    placed = place(*size, side, seen_run.split.resize)
    labels = seen_run.split.labels
    drawn = each.shown[:_MOST_DRAWN]
    return Tile(
        photo=each,
        width=size[0],
        height=size[1],
        shown=[
            Mark(
                rect=_rect(one.box, placed),
                score=one.score,
                label=labels[one.place],
                kind=_kind(one),
                is_asked=one.box in asked,
            )
            for one in drawn
        ],
        objects=[
            Mark(
                rect=_rect(one.box, placed),
                score=one.found_by,
                label=labels[one.place],
                kind="missed",
                is_asked=one.box in asked,
            )
            for one in each.objects
        ],
    )


def _kind(one: Shown) -> str:
    """The style sheet's class for a detection."""
    if one.is_right:
        return "right"
    return "near" if one.is_beside else "wrong"


def _rect(box: Box, placed: Placement) -> Rect:
    xmin, ymin, xmax, ymax = (round(corner, 1) for corner in placed.back(box))
    return xmin, ymin, max(0.0, round(xmax - xmin, 1)), max(0.0, round(ymax - ymin, 1))
