"""The npm packages that the browser needs, served by the page itself; `make page` puts them into `npm/node_modules`.

Without them the page works, except for running a model in the browser, and says so.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from shared.errors import PlanError

NODE_MODULES: Final = Path(__file__).parent / "npm" / "node_modules"
MAKE_PARTS: Final = "`make page` fetches it by npm (the image does so when it is built)"

# The files that are served, by the name that the page asks for; nothing else of a package is.
_LITERT: Final = "@litertjs/core"
_RUNTIMES: Final = [
    f"litert_wasm_{kind}internal.{ending}" for kind in ("", "compat_", "threaded_") for ending in ("js", "wasm")
]
PARTS: Final = {
    "litert/index.js": f"{_LITERT}/dist/index.js",
    "litert/wasm-utils.js": "@litertjs/wasm-utils/dist/index.js",
    **{f"litert/wasm/{name}": f"{_LITERT}/wasm/{name}" for name in _RUNTIMES},
}
# LiteRT.js imports another package by its bare name, which a browser only finds with an import map inside the page, and
# the Content-Security-Policy refuses that. So the name is replaced by a path.
_BARE: Final = (b'from "@litertjs/wasm-utils"', b'from "./wasm-utils.js"')
# A WebAssembly thread counts as a document of its own, and must be as isolated as the page.
_ISOLATED: Final = {"Cross-Origin-Embedder-Policy": "require-corp"}
_TYPES: Final = {".js": "text/javascript", ".wasm": "application/wasm", ".css": "text/css"}


@dataclass(frozen=True, slots=True)
class Parts:
    """The packages in one `node_modules`."""

    node_modules: Path = NODE_MODULES

    def has_litert(self) -> bool:
        """Whether a model can run in the browser."""
        return all((self.node_modules / path).is_file() for path in PARTS.values())


def part(request: Request) -> Response:
    """`/parts/{name}`: one file of a package."""
    path = PARTS.get(request.path_params["name"])
    if path is None:
        raise PlanError("no such part")
    file = request.app.state.parts.node_modules / path
    try:
        stamp = file.stat()
        headers = {"ETag": f'"{stamp.st_size:x}-{stamp.st_mtime_ns:x}"', **_ISOLATED}
        if request.headers.get("if-none-match") == headers["ETag"]:
            return Response(status_code=304, headers=headers)
        content = file.read_bytes()
    except OSError as error:
        raise PlanError(f"{path} is missing: {MAKE_PARTS}") from error
    return Response(content.replace(*_BARE), media_type=_TYPES[file.suffix], headers=headers)
