"""One run: its training as it goes on, its figures, its model."""

from starlette.requests import Request
from starlette.responses import Response

from producer.page.render import render
from shared.errors import PlanError
from shared.jobs.identity import read_request


def run(request: Request) -> Response:
    """`/runs/{run}`: one run."""
    name = request.path_params["run"]
    storage = request.app.state.storage
    asked = read_request(storage, name)
    if asked is None:
        raise PlanError(f"no run {name!r} in {storage.root}")
    return render(request, "run.html.j2", run=name, asked=asked)
