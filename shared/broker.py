"""The Celery application, its settings and how a worker is tended: the only place that knows how messages travel.

A message is a hint. Every setting that is not Celery's default has its reason here; measured on Celery 5.7.0,
kombu 5.7.0 and Redis 7.0.
"""

import logging
import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from billiard import active_children, current_process
from celery import Celery, signals
from celery.worker import state as celery_state
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

from shared import presence
from shared.errors import BrokerError, PipelineError
from shared.job import SCHEMA_VERSION, Frozen, Name
from shared.lease import give_back
from shared.ledger import Ledger
from shared.presence import Post, Presence

logger = logging.getLogger(__name__)

SHARD_TASK: Final = "shard.write"
SHARD_QUEUE: Final = "shards"
RUN_TASK: Final = "run.train"
RUN_QUEUE: Final = "train"

_TRANSPORT: Final[dict[str, Any]] = {
    # Only for a message whose worker died between BRPOP and its acknowledgement; we acknowledge early.
    "visibility_timeout": 3600,
    # The default sweep made redelivery take over 80 s, whatever the visibility time-out.
    "unacked_restore_interval": 5,
    "unacked_restore_throttle": 1,
    # A stale mutex of a killed worker blocked redelivery for 300 s.
    "unacked_mutex_expire": 10,
    "socket_connect_timeout": 5,
    "socket_timeout": 30,
    "socket_keepalive": True,
    "health_check_interval": 10,
}

_SETTINGS: Final[dict[str, Any]] = {
    # JSON only: a pickle in a message is code from whoever can write to Redis.
    "accept_content": ["json"],
    "task_serializer": "json",
    "result_serializer": "json",
    # Leases and receipts decide what was done; late acknowledgement starts second copies on a reset connection.
    "task_acks_late": False,
    "task_ignore_result": True,
    # A waiting worker must not hoard the hints of others: it takes one only when a slot is free.
    "worker_disable_prefetch": True,
    # No limit but that. With 1, messages whose acknowledgement failed, because Redis died, count as held for ever: a
    # worker to which that happened with all its slots never consumed again, nor noticed that its connection was gone.
    "worker_prefetch_multiplier": 0,
    # Lost the task 3 times of 3; we acknowledge early and go on working while Redis is away.
    "worker_cancel_long_running_tasks_on_connection_loss": False,
    "broker_connection_retry_on_startup": True,
    # A worker outlives any outage of Redis.
    "broker_connection_max_retries": None,
    # Logging is ours (shared/logs.py), one line an event.
    "worker_hijack_root_logger": False,
    "worker_redirect_stdouts": False,
    # Remote control keeps a reply queue per worker in Redis, and answers in 4 to 13 s; heartbeats are in the ledger.
    "worker_enable_remote_control": False,
    "worker_send_task_events": False,
    "task_create_missing_queues": True,
}


class RunHint(Frozen):
    """The message that tells a trainer of a run; what is asked is in the run's `request.json`."""

    schema_version: Literal[1] = SCHEMA_VERSION
    run: Name


def celery_app(name: str, broker_url: str, queue: str, **settings: Any) -> Celery:
    """The Celery application of one service.

    Args:
        name: The service's name.
        broker_url: Redis, with its password; never logged.
        queue: What a worker of this application consumes unless told by `-Q`.
        **settings: Celery settings of this service alone.

    Returns:
        The configured application; no connection is made.
    """
    app = Celery(name, broker=_with_tls_check(broker_url), set_as_current=False)
    app.conf.update(_SETTINGS, **settings)
    transport = dict(_TRANSPORT)
    if broker_url.startswith("unix://") or "+socket" in broker_url:
        # A unix socket knows no TCP keepalive, and kombu names the scheme otherwise than redis-py.
        app.conf.broker_url = "redis+socket://" + broker_url.split("://", 1)[1]
        transport.pop("socket_keepalive")
    # Under names of the queue's own, so that a Redis user who may touch one queue needs nothing of the other.
    transport |= {f"unacked{part}_key": f"{queue}.unacked{part}" for part in ("", "_index", "_mutex")}
    app.conf.broker_transport_options = transport
    app.conf.task_default_queue = queue
    return app


class Broker:
    """Sends hints, once each, without Celery's own retries: the reconciler sends again what got lost."""

    def __init__(self, broker_url: str) -> None:
        self._app = celery_app("producer", broker_url, SHARD_QUEUE)

    def send(self, *, task: str, queue: str, message: Frozen, task_id: str) -> None:
        """Put one message on `queue`.

        Raises:
            BrokerError: Redis did not take it.
        """
        content = message.model_dump(mode="json")
        try:
            self._app.send_task(task, args=[content], queue=queue, task_id=task_id, retry=False, ignore_result=True)
        except (OperationalError, OSError) as error:
            raise BrokerError(f"cannot send {task_id} to the queue {queue!r}: {error}") from error


def parent_pid() -> int:
    """The process id of the worker's parent process, seen from any process of its pool."""
    return os.getpid() if current_process()._name == "MainProcess" else os.getppid()


@dataclass(frozen=True, slots=True, kw_only=True)
class Station:
    """A worker or trainer, as its parent process tends it; times in seconds.

    `finish_s` is what its children get to finish when asked to stop, `stop_s` when the parent ends whatever is left;
    `scopes` lists the scopes of the ledger in which they may hold a lease.
    """

    kind: str
    queue: str
    ledger: Callable[[], Ledger]
    scopes: Callable[[], list[str]]
    heartbeat_file: Path | None
    finish_s: float
    stop_s: float


def tend(station: Station) -> None:
    """Have the parent process of this Celery worker beat, watch itself, and stop within its time.

    A plain SIGTERM is Celery's warm shutdown: it takes no new message, waits for its tasks, and exits as soon as they
    end. The soft shutdown (REMAP_SIGTERM) always sleeps its whole time-out, and tells only afterwards (DECISIONS).
    """
    # Having a receiver keeps Celery from setting the level and handlers of the root logger anew.
    signals.setup_logging.connect(lambda **_: logging.getLogger("celery").setLevel("WARNING"), weak=False)
    started: list[Presence] = []

    def announce(sender: Any, **_: Any) -> None:
        presence.forget_stop(os.getpid())
        name, slots = presence.worker_name(os.getpid()), sender.controller.concurrency
        post = Post(
            name=name, kind=station.kind, queue=station.queue, slots=slots, heartbeat_file=station.heartbeat_file
        )
        started.append(Presence(station.ledger(), post, is_idle=lambda: not celery_state.active_requests))
        started[0].start()

    def stop(**_: Any) -> None:
        presence.ask_children_to_stop(os.getpid(), within_s=station.finish_s)
        threading.Thread(target=_end_in_time, args=(station,), daemon=True).start()

    def leave(**_: Any) -> None:
        for one in started:
            one.stop()
        presence.forget_stop(os.getpid())

    signals.worker_ready.connect(announce, weak=False)
    signals.worker_shutting_down.connect(stop, weak=False)
    signals.worker_shutdown.connect(leave, weak=False)


def _end_in_time(station: Station) -> None:
    """End frozen children, give back what they held and end this process, when its time is over."""
    threading.Event().wait(station.stop_s)
    try:
        # First, or one that still lives renews what is given back.
        for child in active_children():
            os.kill(child.pid, signal.SIGKILL)
        give_back(station.ledger(), station.scopes(), presence.worker_name(os.getpid()))
    except (RedisError, PipelineError, OSError) as error:
        logger.warning("leases_left_to_expire", extra={"reason": str(error)})
    finally:
        os._exit(1)


def _with_tls_check(broker_url: str) -> str:
    """Kombu wants the check of the server's certificate spelled out in a `rediss://` URL: required unless it says."""
    if broker_url.startswith("rediss://") and "ssl_cert_reqs" not in broker_url:
        return broker_url + ("&" if "?" in broker_url else "?") + "ssl_cert_reqs=required"
    return broker_url
