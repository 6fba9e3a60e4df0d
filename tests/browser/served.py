"""The page's parts on a real server of this process, on a port of its own."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn
from jinja2 import Environment, FileSystemLoader
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles

import producer.page
from producer.page.label_pages import Labels
from producer.page.label_routes import label_routes
from producer.page.labels import Audits
from producer.page.parts import Parts
from producer.page.try_it import try_routes
from shared.storage import Storage
from tests.cluster import wait_until

TOKEN = "a-token-of-the-tests"
ROOM = Path(producer.page.__file__).parent


def _app(storage: Storage, data_root: str, parts: Parts, token: str) -> Starlette:
    pages = Environment(loader=FileSystemLoader(ROOM / "templates"), autoescape=True)

    def render(_: Request, template: str, facts: Mapping[str, Any], status: int = 200, /) -> Response:
        return HTMLResponse(pages.get_template(template).render(**facts), status_code=status)

    labels = Labels(storage=storage, audits=Audits(storage), data_root=data_root)
    routes = [
        *try_routes(storage, render, parts),
        *label_routes(labels, render, lambda _, sent: bool(token) and sent == token, token),
        Mount("/static", StaticFiles(directory=ROOM / "static")),
    ]
    return Starlette(routes=routes)


@contextmanager
def served(store: Path, data_root: str = "/", parts: Parts | None = None, token: str = TOKEN) -> Iterator[str]:
    """The address of a server of the page."""
    app = _app(Storage(str(store)), data_root, parts or Parts(), token)
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="warning"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        wait_until(lambda: server.started or not thread.is_alive(), 60, "the server listens")
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join()
