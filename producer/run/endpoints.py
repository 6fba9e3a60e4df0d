"""What `serve` answers by HTTP: `/metrics` for Prometheus, `/demand` for an autoscaler.

It listens on every address: the port is only open inside a cluster's or Compose's network, as nothing publishes it.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict
from threading import Thread
from typing import Any, Final, cast
from wsgiref.simple_server import WSGIRequestHandler, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.exposition import ThreadingWSGIServer
from redis.exceptions import RedisError

from producer.run.metrics import PipelineMetrics
from producer.settings import ProducerSettings
from shared.leasing.ledger import Ledger
from shared.storage import Storage

# An older count is not reported, so that an autoscaler keeps the workers that run.
_FRESH_S: Final = 60.0

_Start = Callable[[str, list[tuple[str, str]]], Any]


def serve_endpoints(settings: ProducerSettings, storage: Storage, ledger: Ledger) -> None:
    """Answer from a thread on `settings.metrics_port`; do nothing if that is None.

    Raises:
        OSError: The port is taken.
    """
    if settings.metrics_port is None:
        return
    registry = CollectorRegistry()
    registry.register(PipelineMetrics(storage, ledger, settings.failed_share))
    metrics = make_wsgi_app(registry)

    def answer(environ: dict[str, Any], start: _Start) -> Iterable[bytes]:
        if environ["PATH_INFO"] != "/demand":
            return cast("Iterable[bytes]", metrics(environ, start))
        status, body = _demand(ledger)
        start(status, [("Content-Type", "application/json")])
        return [json.dumps(body).encode()]

    server = make_server(
        "", settings.metrics_port, answer, server_class=ThreadingWSGIServer, handler_class=_SilentHandler
    )
    Thread(target=server.serve_forever, name="endpoints", daemon=True).start()


def _demand(ledger: Ledger) -> tuple[str, dict[str, Any]]:
    """Status and body: the shards and runs to be done, those that somebody works on included.

    A worker takes its message out of the queue when it begins, so the queue's length says nothing about busy workers.
    Without a fresh count the answer is an error, not 0: then an autoscaler leaves the workers as they are.
    """
    unavailable = "503 Service Unavailable"
    try:
        left, age_s = ledger.demand(), ledger.round_age_s()
    except RedisError:
        return unavailable, {"error": "Redis does not answer"}
    if left is None or age_s is None:
        return unavailable, {"error": "no round of the reconciler yet"}
    if age_s > _FRESH_S:
        return unavailable, {"error": f"the reconciler's last round was {age_s:.0f} s ago"}
    return "200 OK", asdict(left)


class _SilentHandler(WSGIRequestHandler):
    """Logs no requests."""

    def log_message(self, *_: Any) -> None:
        """Log nothing: probes come every few seconds."""
