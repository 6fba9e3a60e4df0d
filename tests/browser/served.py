"""The page on a real server of this process, on a port of its own."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import uvicorn

from producer.page.app import make_app
from producer.page.parts import NODE_MODULES
from producer.settings import ProducerSettings
from tests.cluster import wait_until

TOKEN = "a-token-of-the-tests"


@contextmanager
def served(
    store: Path, data_root: Path | None = None, *, change_token: str | None = None, node_modules: Path = NODE_MODULES
) -> Iterator[str]:
    """The address of a server of the page."""
    settings = ProducerSettings(store=str(store), data_root=str(data_root or store))
    app = make_app(settings, change_token=change_token, node_modules=node_modules)
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_config=None))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        wait_until(lambda: server.started or not thread.is_alive(), 60, "the server listens")
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join()
