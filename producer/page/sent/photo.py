"""A photo that a person sends -> what the run's int8 model sees in it: JSON for the page's script, a page without one.

Sent photos are limited in size, in number at a time and in time, and are looked at in a separate process.
"""

import asyncio
import base64
import logging
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from typing import IO, Any, Final

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import Message, Receive

from producer.page.render import render
from producer.page.sent.child import MOST_PHOTO_BYTES, Looked, StoredModel
from producer.page.try_it import find_model
from shared.colours import PALETTE, as_css
from shared.errors import ImageError, OptionError, PipelineError, PlanError
from shared.jobs.identity import is_name, read_request
from shared.model.file import MOST_MODEL_BYTES
from shared.storage import Storage

logger = logging.getLogger(__name__)

# A form has boundaries, names and the threshold besides the photo.
_MOST_FORM_BYTES: Final = MOST_PHOTO_BYTES + (64 << 10)
_MOST_FIELD_BYTES: Final = 1 << 10
# A model is read in pieces, so that it is never in memory as a whole.
_PIECE_BYTES: Final = 1 << 20
# How many photos are accepted at a time; each is in a file until it is its turn.
_MOST_AT_A_TIME: Final = 4
_MOST_UPLOAD_S: Final = 60.0
# The picture is inside the page, because it is not kept and could not be requested later.
_SOURCES: Final = {"img-src": "'self' data:"}
_PRIVATE: Final = {"Cache-Control": "no-store"}


class Places:
    """Limits how many photos are sent at the same time."""

    def __init__(self) -> None:
        self._taken = 0

    @asynccontextmanager
    async def one(self) -> AsyncIterator[None]:
        """A place for one photo; a 429 if all are taken."""
        if self._taken == _MOST_AT_A_TIME:
            raise HTTPException(429, "Other photos are being looked at: try again in a moment")
        self._taken += 1
        try:
            yield
        finally:
            self._taken -= 1


async def seen_json(request: Request) -> Response:
    """POST `/runs/{run}/seen.json`, the photo's bytes: what is seen, as JSON; or `{"error": ...}`."""
    try:
        looked = await _in_a_place(request, _of_body, with_picture=False)
    except HTTPException as error:
        return JSONResponse({"error": error.detail}, error.status_code, _PRIVATE)
    except PipelineError as error:
        return JSONResponse({"error": str(error)}, 404 if isinstance(error, PlanError) else 422, _PRIVATE)
    return JSONResponse(looked.photo.model_dump(mode="json"), headers=_PRIVATE)


async def seen_page(request: Request) -> Response:
    """POST `/runs/{run}/seen`, a form with `photo` and `least`: a page with the boxes drawn."""
    least: list[str] = []
    looked = await _in_a_place(request, partial(_of_form, least=least), with_picture=True)
    photo = looked.photo
    shown = _score(least[0]) if least else None
    shown = photo.threshold if shown is None else shown
    run = request.path_params["run"]
    asked = await run_in_threadpool(read_request, request.app.state.storage, run)
    facts: dict[str, Any] = {"run": run, "job": asked.job if asked is not None else None, "photo": photo}
    facts["least"] = shown
    facts["seen"] = [
        (one, as_css(PALETTE[(one.class_id - 1) % len(PALETTE)])) for one in photo.seen if one.score >= shown
    ]
    facts["picture"] = f"data:image/jpeg;base64,{base64.b64encode(looked.jpeg).decode()}"
    return render(request, "sent.html.j2", sources=_SOURCES, headers=_PRIVATE, **facts)


async def _in_a_place(
    request: Request, read: Callable[[Request, IO[bytes]], Awaitable[None]], *, with_picture: bool
) -> Looked:
    """Receive the photo and look at it.

    Raises:
        HTTPException: Too many photos are being sent, or this one is too large or comes too slowly.
        PipelineError: There is no such model, or the photo is refused.
    """
    state, run = request.app.state, request.path_params["run"]
    if not is_name(run):
        raise HTTPException(404, "There is no such run")
    async with state.places.one():
        told = request.headers.get("content-length", "")
        if told.isdecimal() and (len(told) > 12 or int(told) > _MOST_FORM_BYTES):
            raise _too_large()
        model = await run_in_threadpool(_model_of, state.storage, run)
        with tempfile.TemporaryFile() as kept:
            try:
                async with asyncio.timeout(_MOST_UPLOAD_S):
                    await read(Request(request.scope, _counted(request.receive)), kept)
            except TimeoutError as error:
                raise HTTPException(408, "The photo came too slowly") from error
            except ClientDisconnect as error:
                raise HTTPException(400, "The photo did not come to its end") from error
            looked: Looked = await state.looker.look(model, kept, with_picture=with_picture)
        logger.info("photo_seen", extra={"run": run, "seen": len(looked.photo.seen)})
        return looked


def _model_of(storage: Storage, run: str) -> StoredModel:
    """The int8 model of a run.

    Raises:
        PlanError: There is none.
        ImageError: It is larger than `MOST_MODEL_BYTES`.
    """
    key, size = find_model(storage, run)
    if size > MOST_MODEL_BYTES:
        raise ImageError(f"{storage.url(key)}: {size:,} bytes, a model has at most {MOST_MODEL_BYTES:,}")

    def pieces() -> Iterator[bytes]:
        for start in range(0, size, _PIECE_BYTES):
            yield storage.read_range(key, start, min(_PIECE_BYTES, size - start))

    return StoredModel(name=storage.url(key), size_bytes=size, pieces=pieces)


def _counted(receive: Receive) -> Receive:
    """`receive` with a limit: it raises a 413 once more bytes have come than are accepted."""
    left = _MOST_FORM_BYTES

    async def counted() -> Message:
        nonlocal left
        message = await receive()
        left -= len(message.get("body", b""))
        if left < 0:
            raise _too_large()
        return message

    return counted


def _too_large() -> HTTPException:
    return HTTPException(413, f"A photo may have {MOST_PHOTO_BYTES >> 20} MB at most")


async def _of_body(request: Request, into: IO[bytes]) -> None:
    async for chunk in request.stream():
        into.write(chunk)


async def _of_form(request: Request, into: IO[bytes], least: list[str]) -> None:
    async with request.form(max_files=1, max_fields=1, max_part_size=_MOST_FIELD_BYTES) as form:
        sent = form.get("photo")
        if not isinstance(sent, UploadFile) or not sent.size:
            raise OptionError("no photo was chosen")
        least.append(str(form.get("least", "")))
        await run_in_threadpool(shutil.copyfileobj, sent.file, into)


def _score(text: str) -> float | None:
    """The score in [0, 1] that a form's text is; None if it is not one."""
    try:
        score = float(text)
    except ValueError:
        return None
    return score if 0 <= score <= 1 else None
