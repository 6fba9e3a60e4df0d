"""The page as a Starlette application: which function answers which address, and how errors are answered."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from producer.page import deeds, job_pages, label_pages, parts, run_pages, seen_pages, try_it
from producer.page.board import Board
from producer.page.facts.findings import FindingsTables
from producer.page.guard import Guard
from producer.page.labels import Audits
from producer.page.render import problem
from producer.page.sent import photo
from producer.page.sent.child import Looker
from producer.settings import ProducerSettings
from shared.errors import FormatError, InputError, PipelineError, PlanError, StorageError
from shared.storage import Storage

logger = logging.getLogger(__name__)

_STATIC: Final = Path(__file__).parent / "static"
# For what is not there, what is there but cannot be read, and a store that does not answer.
_STATUS: Final[dict[type[Exception], int]] = {PlanError: 404, FormatError: 422, InputError: 422, StorageError: 424}


def make_app(
    settings: ProducerSettings,
    *,
    names: Sequence[str] = (),
    token: str | None = None,
    change_token: str | None = None,
    node_modules: Path = parts.NODE_MODULES,
    looker: Looker | None = None,
) -> Starlette:
    """The application.

    Args:
        settings: The store, the photos and the broker that it looks at.
        names: Host names under which it is reached, besides addresses and localhost.
        token: The token that is needed to look; None: no token is needed.
        change_token: The token that is needed to change something; None: nothing can be changed.
        node_modules: The folder of npm's packages; it may be absent.
        looker: Looks at photos that are sent; None: a `Looker` with processes of this installation.

    Raises:
        StorageError: The store cannot be opened.
    """
    app = Starlette(
        routes=_routes(),
        middleware=[Middleware(Guard, names=names, token=token)],
        exception_handlers={HTTPException: _http_problem, PipelineError: _known_problem},
    )
    state = app.state
    state.settings, state.change_token = settings, change_token
    state.storage, state.told = Storage(settings.store), deeds.Told()
    state.board, state.findings = Board(state.storage, settings), FindingsTables(state.storage)
    # The address under which other machines reach the page, which the server sets, and the token that they need.
    state.outside, state.token = None, token
    state.looker, state.places = looker or Looker(), photo.Places()
    state.audits, state.parts = Audits(state.storage), parts.Parts(node_modules)
    return app


def _routes() -> list[BaseRoute]:
    return [
        Route("/", job_pages.jobs),
        Route("/jobs", lambda _: RedirectResponse("/", 303)),
        Route("/jobs/{job}", job_pages.job),
        Route("/allow", deeds.allow, methods=["POST"]),
        Route("/submit", deeds.submit, methods=["POST"]),
        Route("/jobs/{job}/cancel", deeds.cancel, methods=["POST"]),
        Route("/jobs/{job}/audit", deeds.audit, methods=["POST"]),
        Route("/jobs/{job}/retry", deeds.retry, methods=["POST"]),
        Route("/jobs/{job}/remove", deeds.ask_to_remove),
        Route("/jobs/{job}/remove", deeds.remove_job, methods=["POST"]),
        Route("/jobs/{job}/findings", job_pages.findings),
        Route("/jobs/{job}/findings/{number:int}/photo", job_pages.finding_photo),
        Route("/compare", run_pages.compare),
        Route("/runs/{run}", run_pages.run),
        Route("/runs/{run}/cancel", deeds.cancel_run, methods=["POST"]),
        Route("/runs/{run}/files/{name}", run_pages.file),
        Route("/runs/{run}/labels", label_pages.labels),
        Route("/runs/{run}/labels", label_pages.decide, methods=["POST"]),
        Route("/runs/{run}/labels/photos/{finding}", label_pages.photo),
        Route("/runs/{run}/photos", seen_pages.seen),
        Route("/runs/{run}/photos/{image:int}", seen_pages.photo),
        Route("/runs/{run}/scores.json", seen_pages.scores),
        Route("/runs/{run}/try", try_it.try_page),
        Route("/runs/{run}/seen", lambda request: RedirectResponse(f"/runs/{request.path_params['run']}/try", 303)),
        Route("/runs/{run}/seen", photo.seen_page, methods=["POST"]),
        Route("/runs/{run}/seen.json", photo.seen_json, methods=["POST"]),
        Route("/runs/{run}/try.svg", try_it.try_code),
        Route("/runs/{run}/model.json", try_it.model_json),
        Route("/runs/{run}/model_int8.tflite", try_it.model_bytes),
        Route("/parts/{name:path}", parts.part),
        # Browsers ask for it when they show a file that is not one of our pages.
        Route("/favicon.ico", lambda _: RedirectResponse("/static/icon.svg", 301)),
        Mount("/static", StaticFiles(directory=_STATIC)),
    ]


def _http_problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - Starlette chose the handler by it
    text = {404: "There is no such page.", 405: "This address does not accept such a request."}.get(
        error.status_code, ""
    )
    return problem(request, error.status_code, str(error.detail), text)


def _known_problem(request: Request, error: Exception) -> Response:
    status = next((status for kind, status in _STATUS.items() if isinstance(error, kind)), 400)
    title = {404: "Not there", 422: "Cannot be read", 424: "The store does not answer"}.get(status, "Not possible")
    return problem(request, status, title, str(error))
