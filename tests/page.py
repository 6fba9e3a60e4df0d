"""A page that is really served, on a free port of this machine, and what asks it as a browser would."""

import http.client
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urlencode

import uvicorn

from producer.page.app import make_app
from producer.page.server import listen
from producer.settings import ProducerSettings
from tests.cluster import wait_until


@dataclass(frozen=True, slots=True)
class Answer:
    """What was answered; `headers` by name in small letters."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode()


@dataclass(frozen=True, slots=True)
class ServedPage:
    """A page at `host`:`port`."""

    port: int
    host: str = "127.0.0.1"

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://{self.host}:{self.port}"

    def ask(self, path: str, *, method: str = "GET", form: Mapping[str, str] | None = None, **headers: str) -> Answer:
        """Ask once; `path` is sent as it is, names of `headers` with _ for -."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=60)
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        body = None if form is None else urlencode(form)
        if form is not None:
            method = "POST"
            sent["Content-Type"] = "application/x-www-form-urlencoded"
        try:
            connection.putrequest(method, path, skip_host="Host" in sent, skip_accept_encoding=True)
            if body is not None:
                sent["Content-Length"] = str(len(body))
            for name, value in sent.items():
                connection.putheader(name, value)
            connection.endheaders(None if body is None else body.encode())
            answer = connection.getresponse()
            return Answer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
        finally:
            connection.close()


@contextmanager
def served(settings: ProducerSettings, *, port: int = 0, **options: str | None) -> Iterator[ServedPage]:
    """Serve the page of a store in a thread, on a free port without `port`; `options` are those of `make_app`."""
    app = make_app(settings, **options)  # type: ignore[arg-type]
    listener = listen("127.0.0.1", port)
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False, lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        wait_until(lambda: server.started, 30, "the page is served")
        yield ServedPage(listener.getsockname()[1])
    finally:
        server.should_exit = True
        thread.join(30)
        listener.close()
