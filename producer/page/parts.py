"""What the browser's part takes from npm -> served by the page itself; `make page` puts it into `npm/node_modules`.

Without it the page works, but for what it does by itself in the browser, and says so.
"""

from pathlib import Path
from typing import Final

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

NODE_MODULES: Final = Path(__file__).parent / "npm" / "node_modules"
MAKE_PARTS: Final = "`make page` fetches it by npm (the image does so when it is built)"

# By the name that the page asks for; nothing else of a package is served.
_LITERT: Final = "@litertjs/core"
_RUNTIMES: Final = [
    f"litert_wasm_{kind}internal.{ending}" for kind in ("", "compat_", "threaded_") for ending in ("js", "wasm")
]
PARTS: Final = {
    "litert/index.js": f"{_LITERT}/dist/index.js",
    "litert/wasm-utils.js": "@litertjs/wasm-utils/dist/index.js",
    **{f"litert/wasm/{name}": f"{_LITERT}/wasm/{name}" for name in _RUNTIMES},
}
# LiteRT.js names another package, which a browser finds by an import map only: one inside of the page, which the
# Content-Security-Policy refuses.
_BARE: Final = (b'from "@litertjs/wasm-utils"', b'from "./wasm-utils.js"')
_TYPES: Final = {".js": "text/javascript", ".wasm": "application/wasm", ".css": "text/css"}
# A version has its own address only by a new `make page`: the browser asks, and mostly hears that nothing changed.
_CACHE: Final = {"Cache-Control": "no-cache"}


def litert_is_there() -> bool:
    """Whether a model can run in the browser."""
    return all((NODE_MODULES / path).is_file() for path in PARTS.values())


def part(request: Request) -> Response:
    """`/parts/{name}`: one file of a package."""
    path = PARTS.get(request.path_params["name"])
    if path is None:
        return PlainTextResponse("no such part\n", status_code=404)
    file = NODE_MODULES / path
    try:
        stamp = file.stat()
        tag = f'"{stamp.st_size:x}-{stamp.st_mtime_ns:x}"'
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=_CACHE | {"ETag": tag})
        content = file.read_bytes()
    except OSError:
        return PlainTextResponse(f"{path} is missing: {MAKE_PARTS}\n", status_code=404)
    return Response(content.replace(*_BARE), media_type=_TYPES[file.suffix], headers=_CACHE | {"ETag": tag})
