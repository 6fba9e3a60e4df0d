"""The list of jobs, and one job: what was found in its photos, what became of them."""

import time
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from producer.jobs.status import load_job
from producer.page.board import Board
from producer.page.render import render
from shared.errors import PlanError


def jobs(request: Request) -> Response:
    """`/`: all jobs of the store."""
    board: Board = request.app.state.board
    return render(request, "jobs.html.j2", rows=board.rows(), now=time.time())


def job(request: Request) -> Response:
    """`/jobs/{job}`: one job."""
    name = request.path_params["job"]
    state = request.app.state
    row = state.board.row(name)
    if row is None:
        raise PlanError(f"no job {name!r} in {state.storage.root}")
    facts: dict[str, Any] = {"row": row, "now": time.time()}
    if row.status is not None:
        facts["job"] = load_job(state.storage, name)
    return render(request, "job.html.j2", **facts)
