"""The addresses of an audit's findings: their pages, their photos, and the form that decides."""

from collections.abc import Callable, Mapping
from urllib.parse import parse_qs

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from producer.audit.decisions import ANSWERS
from producer.page.label_pages import Labels
from producer.page.labels import Trail
from producer.page.render import Render
from shared.errors import PipelineError

# Bytes of the form; it has four short fields.
_MOST_FORM_BYTES = 8192


def label_routes(labels: Labels, render: Render, allowed: Callable[[Request, str], bool], token: str) -> list[Route]:
    """The routes.

    Args:
        labels: What the pages show.
        render: Makes a page of a template.
        allowed: Whether a request may change something, by the token that its form sent.
        token: What this page's forms send; "" where nothing may be changed.
    """

    def page(request: Request) -> Response:
        run, asked = request.path_params["run"], request.query_params
        trail = Trail.read(asked.get("trail", ""))
        try:
            facts = labels.facts(run, asked.get("at", ""), trail, asked.get("said", ""))
        except PipelineError as error:
            return render(request, "sorry.html.j2", {"message": str(error)}, 404)
        return render(request, "labels.html.j2", facts | {"token": token})

    def photo(request: Request) -> Response:
        try:
            content, kind = labels.photo(request.path_params["run"], request.path_params["finding"])
        except PipelineError as error:
            return PlainTextResponse(f"{error}\n", status_code=404)
        return Response(content, media_type=kind, headers={"Cache-Control": "private, max-age=600"})

    async def decide(request: Request) -> Response:
        form = await _form(request)
        if form is None or not allowed(request, form.get("token", "")):
            return render(request, "sorry.html.j2", {"message": "This page may not change anything."}, 403)
        return await run_in_threadpool(_decided, labels, request, render, form)

    return [
        Route("/runs/{run}/labels", page),
        Route("/runs/{run}/labels", decide, methods=["POST"]),
        Route("/runs/{run}/labels/photos/{finding}", photo),
    ]


async def _form(request: Request) -> dict[str, str] | None:
    """The fields of a form, each once; None where it is larger than ours."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > _MOST_FORM_BYTES:
            return None
    return {name: values[0] for name, values in parse_qs(body.decode(errors="replace")).items()}


def _decided(labels: Labels, request: Request, render: Render, form: Mapping[str, str]) -> Response:
    run, trail, asked = request.path_params["run"], Trail.read(form.get("trail", "")), form.get("answer", "")
    answers = {answer: answer for answer in ANSWERS if answer != "open"}
    try:
        if asked == "undo":
            return RedirectResponse(labels.undo(run, trail), status_code=303)
        if asked in answers:
            return RedirectResponse(labels.decide(run, form.get("finding", ""), answers[asked], trail), status_code=303)
    except PipelineError as error:
        return render(request, "sorry.html.j2", {"message": str(error)}, 409)
    expected = f"expected right, wrong, skip or undo, found {asked[:80]!r}"
    return render(request, "sorry.html.j2", {"message": expected}, 400)
