"""What a person may change from the page: cancel, retry, remove, submit, audit; done as on the command line.

All of it is off without `--allow-changes`; with it, a person types the printed token once per browser, which keeps it
as a cookie.
"""

import hmac
from collections.abc import Callable
from io import StringIO
from pathlib import Path, PurePosixPath
from typing import Any, Final
from urllib.parse import urlsplit

from rich.console import Console
from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from producer.audit.cost import USUAL_FOLDS
from producer.jobs import control
from producer.jobs.removal import remove, require_removable
from producer.page.facts.commands import hint_here, rooted_text
from producer.page.render import CHANGES_COOKIE, here, is_allowed, local_address, problem, render
from shared.command import hint
from shared.errors import OptionError, PipelineError
from shared.leasing.ledger import Ledger
from shared.specs.data import JobSpec
from shared.specs.run import FoldOptions
from shared.specs.training import TrainingOptions
from shared.storage import data_folder
from shared.text import counted

_MOST_FIELDS: Final = 20
_MOST_SAID: Final = 32
_WHERE_PRINTED: Final = "It was printed by `voc2tflite page --allow-changes` when it started."
# The service does the work; the page does not wait for it.
_HAND_OVER: Final[dict[str, Any]] = {"local": False, "wait": False, "workers": 1}


def refusal(request: Request) -> Response | None:
    """The answer to a request that may not change anything; None if it may."""
    if is_allowed(request):
        return None
    if request.app.state.change_token is None:
        return problem(
            request,
            403,
            "This page only looks",
            f"`{hint('page', '--allow-changes')}` starts one that can make changes.",
        )
    return problem(request, 403, "The token is missing", f"{_WHERE_PRINTED} Type it at the page's end.")


async def allow(request: Request) -> Response:
    """POST `/allow`: the token, typed in."""
    token: str | None = request.app.state.change_token
    form = await _form(request)
    back = local_address(str(form.get("back", "/")))
    answer = RedirectResponse(back, 303)
    if token is None or not hmac.compare_digest(str(form.get("token", "")).strip().encode(), token.encode()):
        return problem(request, 403, "That is not the token", _WHERE_PRINTED, back)
    answer.set_cookie(CHANGES_COOKIE, token, httponly=True, samesite="strict", secure=request.url.scheme == "https")
    return answer


def cancel(request: Request) -> Response:
    """POST `/jobs/{job}/cancel`."""
    state, job = request.app.state, request.path_params["job"]
    return _done(request, f"/jobs/{job}", lambda: control.cancel(state.storage, _ledger(request), job))


def cancel_run(request: Request) -> Response:
    """POST `/runs/{run}/cancel`; an audit is cancelled with its folds. Leads back to the page with the form."""
    state, run = request.app.state, request.path_params["run"]
    came = urlsplit(here(request)).path

    def stop() -> str:
        return control.cancel(state.storage, _ledger(request), state.board.asked(run).job, run)

    return _done(request, f"/runs/{run}" if came == "/" else came, stop)


def retry(request: Request) -> Response:
    """POST `/jobs/{job}/retry`. Without a broker, the page shows the command that does the work."""
    state, job = request.app.state, request.path_params["job"]

    def again() -> str:
        told = control.retry(state.storage, _ledger(request), job)
        go_on = hint_here(state.storage, "resume", job)
        return told if state.settings.broker_url is not None else f"{told}; nobody serves this store: {go_on}"

    return _done(request, f"/jobs/{job}", again)


def ask_to_remove(request: Request) -> Response:
    """GET `/jobs/{job}/remove`: asks whether to remove the job."""
    refused = refusal(request)
    if refused is not None:
        return refused
    require_removable(request.app.state.storage, _ledger(request), request.path_params["job"])
    return render(request, "remove.html.j2", job=request.path_params["job"])


def remove_job(request: Request) -> Response:
    """POST `/jobs/{job}/remove`."""
    state, job = request.app.state, request.path_params["job"]
    return _done(request, "/", lambda: remove(state.storage, _ledger(request), job))


async def submit(request: Request) -> Response:
    """POST `/submit`: submits a folder below the data root, as `submit FOLDER --job NAME` does."""
    from starlette.concurrency import run_in_threadpool

    form = await _form(request)
    folder, name = str(form.get("folder", "")).strip(), str(form.get("name", "")).strip() or None
    return await run_in_threadpool(_done, request, "/", lambda: _submit(request, folder, name))


def _submit(request: Request, folder: str, name: str | None) -> str:
    # Imported here, so that a page that only looks starts without the modules that read folders.
    from producer.jobs.submit import Request as Submit
    from producer.run.intent import StartOptions
    from producer.run.start_job import start_job

    settings = request.app.state.settings
    root, parts = data_folder(settings.data_root), PurePosixPath(folder).parts
    if not folder or folder.startswith("/") or ".." in parts or "\0" in folder:
        raise OptionError(f"{folder or 'no folder'}: expected a folder below {root}, such as voc/train")
    place = root / folder
    if isinstance(root, Path) and not Path(root, folder).resolve().is_relative_to(root.resolve()):
        raise OptionError(f"{folder}: a link leads out of {root}")
    if settings.broker_url is None:
        raise _nobody_serves(request, "submit", place)
    asked = Submit(dataset=place, spec=JobSpec(), run=TrainingOptions(), name=name)
    status = start_job(asked, StartOptions(settings=settings, console=Console(file=StringIO()), **_HAND_OVER))
    return f"{status.job} is submitted: {counted(status.images, 'photo')}"


async def audit(request: Request) -> Response:
    """POST `/jobs/{job}/audit`: look for wrong labels, as `audit JOB` does, or with a finished run as `--quick`."""
    from starlette.concurrency import run_in_threadpool

    model_of, job = str((await _form(request)).get("quick", "")) or None, request.path_params["job"]
    return await run_in_threadpool(_done, request, f"/jobs/{job}", lambda: _audit(request, job, model_of))


def _audit(request: Request, job: str, model_of: str | None) -> str:
    from producer.audit.ask import AuditRequest, audit_name, start_audit
    from producer.run.intent import StartOptions

    settings = request.app.state.settings
    if settings.broker_url is None:
        raise _nobody_serves(request, "audit", job)
    folds = 0 if model_of else USUAL_FOLDS
    asked = AuditRequest(name=job, folds=folds, training=FoldOptions(), model_of=model_of)
    start_audit(asked, StartOptions(settings=settings, console=Console(file=StringIO()), **_HAND_OVER))
    return f"{audit_name(job, folds)} is asked for"


def _nobody_serves(request: Request, *words: object) -> OptionError:
    """The error, with the command to type instead, if no broker is set and nobody would do the work."""
    typed = hint_here(request.app.state.storage, *words, "--local")
    return OptionError(f"no broker is set here, so nobody would work on it: `{typed}`")


def _done(request: Request, place: str, deed: Callable[[], str]) -> Response:
    """Do a change, and say on the next page what it did."""
    refused = refusal(request)
    if refused is not None:
        return refused
    try:
        told = deed()
    except PipelineError as error:
        return problem(request, 409, "Not done", str(error))
    state = request.app.state
    state.board.look_again()
    return RedirectResponse(f"{place}?said={state.told.add(rooted_text(told, state.storage))}", 303)


def _ledger(request: Request) -> Ledger | None:
    ledger: Ledger | None = request.app.state.board.ledger()
    return ledger


async def _form(request: Request) -> FormData:
    return await request.form(max_files=0, max_fields=_MOST_FIELDS, max_part_size=1 << 16)


class Told:
    """The messages about changes, found by a number in the address, so that no text from an address is ever shown."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._count = 0

    def add(self, text: str) -> str:
        """Keep a text; return its number."""
        self._count += 1
        self._texts[str(self._count)] = text
        for oldest in list(self._texts)[:-_MOST_SAID]:
            self._texts.pop(oldest, None)
        return str(self._count)

    def text(self, number: str | None) -> str:
        """The text with this number, empty if there is none."""
        return self._texts.get(number or "", "")
