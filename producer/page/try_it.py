"""A run's int8 model -> the page on which it runs in the browser, and what the page must know about it.

Pictures that a person shows the model stay in the browser and are not sent here. If the model cannot run there, the
page says so before it offers to send a photo (`producer/page/sent/`).
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from producer.page.facts.run_files import is_inside
from producer.page.parts import MAKE_PARTS
from producer.page.reach import qr_svg
from producer.page.render import render
from shared.colours import PALETTE, as_css
from shared.command import hint
from shared.errors import PipelineError, PlanError
from shared.jobs.identity import is_name, read_request
from shared.jobs.paths import RunPaths
from shared.model.description import PIXEL_MEAN, PIXEL_STD, read_description
from shared.model.file import MOST_MODEL_BYTES, ModelFile
from shared.storage import Storage

# Threads in WebAssembly need a page that shares its process with no other origin.
# https://developer.mozilla.org/docs/Web/API/Window/crossOriginIsolated
_ISOLATED: Final = {"Cross-Origin-Embedder-Policy": "require-corp"}
# The name of the NMS operator, as a file with that operator contains it.
_SUPPRESSION: Final = b"TFLite_Detection_PostProcess"
# Allows compiling WebAssembly, but not running text as a script.
_SOURCES: Final = {"script-src": "'self' 'wasm-unsafe-eval'"}


def find_model(storage: Storage, run: str) -> tuple[str, int]:
    """The key of the int8 model of a run, and its size in bytes.

    Raises:
        PlanError: There is no such run, or it has no model (yet).
    """
    key = RunPaths(run).int8
    size = storage.size_or_none(key) if is_name(run) and is_inside(storage, key) else None
    if size is None:
        raise _no_model(storage, run)
    return key, size


def read_model(storage: Storage, run: str) -> ModelFile:
    """The int8 model of a run.

    Raises:
        PlanError: There is no such run, or it has no model (yet).
        ExportError: Its file is larger than a model may be.
    """
    key, size = find_model(storage, run)
    content = storage.read_range(key, 0, min(size, MOST_MODEL_BYTES + 1))
    return ModelFile.read(content, storage.url(key))


def _no_model(storage: Storage, run: str) -> PlanError:
    """The error if there is no model to try; if there is one without NMS, with the command to make one with it."""
    raw = RunPaths(run).raw_int8 if is_name(run) else None
    if raw is None or not is_inside(storage, raw) or not storage.exists(raw):
        return PlanError(f"run {run!r} has no int8 model (yet)")
    both = hint("export", run, "--nms", "both", store=storage)
    return PlanError(f"run {run!r} was exported with --nms outside; a model to try has NMS inside: `{both}` makes it")


def model_facts(file: ModelFile, url: str) -> Mapping[str, Any]:
    """What the browser must know to run the model at `url` as `predict` does.

    Raises:
        ExportError: The file does not describe itself, or has no suppression (NMS) inside.
    """
    file.check_identifier()
    said = read_description(file)
    if said.decoding is not None or _SUPPRESSION not in file.content:
        raise file.refusal("its suppression (NMS) is outside", "a model with it inside, which the page can run")
    return {
        "url": url,
        "name": said.name,
        "labels": said.labels,
        "image_size": said.image_size,
        "resize": said.resize,
        "threshold": said.threshold,
        "mean": PIXEL_MEAN,
        "std": PIXEL_STD,
        "colours": [as_css(colour) for colour in PALETTE],
    }


def try_page(request: Request) -> Response:
    """`/runs/{run}/try`: the page."""
    state, run = request.app.state, request.path_params["run"]
    key, _ = find_model(state.storage, run)
    least = asked_least(request)
    command = hint("predict", state.storage.url(key), "PHOTO", *(("--threshold", least) if least else ()))
    missing = "" if state.parts.has_litert() else MAKE_PARTS
    asked = read_request(state.storage, run)
    facts = {
        "run": run,
        "job": asked.job if asked is not None else None,
        "missing": missing,
        "command": command,
        "least": least,
        "outside": state.outside,
    }
    facts["cannot_look"] = state.looker.missing()
    return render(request, "try.html.j2", sources=_SOURCES, headers=_ISOLATED, **facts)


def asked_least(request: Request) -> str:
    """The threshold in an address, such as `0.21`, that the page begins with; "" if it names none."""
    text = request.query_params.get("least", "")
    return text if re.fullmatch(r"0\.\d{1,2}|1(\.0{1,2})?", text, re.ASCII) else ""


def try_code(request: Request) -> Response:
    """`/runs/{run}/try.svg`: a QR code of the page for a phone. It has the token, which the request had to have too."""
    state, run = request.app.state, request.path_params["run"]
    if state.outside is None or not is_name(run):
        raise PlanError("the page is not reached from other machines: `--bind 0.0.0.0 --tls` changes that")
    return Response(qr_svg(f"{state.outside}/runs/{run}/try?token={state.token}"), media_type="image/svg+xml")


def model_json(request: Request) -> Response:
    """`/runs/{run}/model.json`: what the browser must know about the model, or why there is none."""
    run = request.path_params["run"]
    try:
        file = read_model(request.app.state.storage, run)
        return JSONResponse(model_facts(file, f"/runs/{run}/model_int8.tflite"))
    except PipelineError as error:
        return JSONResponse({"error": str(error)}, status_code=404)


def model_bytes(request: Request) -> Response:
    """`/runs/{run}/model_int8.tflite`: the model."""
    file = read_model(request.app.state.storage, request.path_params["run"])
    return Response(file.content, media_type="application/octet-stream")
