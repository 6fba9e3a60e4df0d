"""The Celery application, its settings, and the hints sent with it: the only place that knows how messages travel.

A message is only a hint. Every setting that is not Celery's default has its reason here; measured on Celery 5.7.0,
kombu 5.7.0 and Redis 7.0.
"""

from typing import Any, Final, Literal

from celery import Celery
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

from shared.errors import BrokerError
from shared.leasing.scopes import SHARD_QUEUE
from shared.specs.frozen import SCHEMA_VERSION, Frozen, Incarnation, Name

SHARD_TASK: Final = "shard.write"
RUN_TASK: Final = "run.train"

_TRANSPORT: Final[dict[str, Any]] = {
    # Matters only for a message whose worker died between BRPOP and its acknowledgement: we acknowledge early.
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
    # JSON only: a pickle would run code from whoever can write to Redis.
    "accept_content": ["json"],
    "task_serializer": "json",
    "result_serializer": "json",
    # Leases and receipts decide what was done; late acknowledgement starts a second copy when a connection is reset.
    "task_acks_late": False,
    "task_ignore_result": True,
    # A waiting worker must not hoard the hints of others: it takes one only when a slot is free.
    "worker_disable_prefetch": True,
    # No further limit. With 1, messages whose acknowledgement failed because Redis died count as held for ever; a
    # worker that lost all its slots in this way never consumed again, and did not notice that its connection was gone.
    "worker_prefetch_multiplier": 0,
    # If true, the task was lost 3 times out of 3: we acknowledge early and go on working while Redis is away.
    "worker_cancel_long_running_tasks_on_connection_loss": False,
    "broker_connection_retry_on_startup": True,
    # A worker outlives any outage of Redis.
    "broker_connection_max_retries": None,
    # shared/logs.py sets up logging.
    "worker_hijack_root_logger": False,
    "worker_redirect_stdouts": False,
    # Remote control keeps a reply queue per worker in Redis, and answers in 4 to 13 s; heartbeats are in the ledger.
    "worker_enable_remote_control": False,
    "worker_send_task_events": False,
    "task_create_missing_queues": True,
}


class RunHint(Frozen):
    """The message that tells a trainer about a run; what to train is in the run's `request.json`."""

    schema_version: Literal[1] = SCHEMA_VERSION
    run: Name
    incarnation: Incarnation = ""


def celery_app(name: str, broker_url: str, queue: str, **settings: Any) -> Celery:
    """The configured Celery application of the service `name`; no connection is made.

    Args:
        name: The service's name.
        broker_url: Redis, with its password; never logged.
        queue: What a worker of this application consumes unless `-Q` says otherwise.
        **settings: Celery settings of this service alone.
    """
    app = Celery(name, broker=_with_tls_check(broker_url), set_as_current=False)
    app.conf.update(_SETTINGS, **settings)
    transport = dict(_TRANSPORT)
    if broker_url.startswith("unix://") or "+socket" in broker_url:
        # A unix socket has no TCP keepalive, and kombu names the scheme differently from redis-py.
        app.conf.broker_url = "redis+socket://" + broker_url.split("://", 1)[1]
        transport.pop("socket_keepalive")
    # Each queue has its own keys, so that a Redis user with rights to one queue needs none to the other.
    transport |= {f"unacked{part}_key": f"{queue}.unacked{part}" for part in ("", "_index", "_mutex")}
    app.conf.broker_transport_options = transport
    app.conf.task_default_queue = queue
    return app


class Broker:
    """Sends hints, once each, without Celery's own retries: the reconciler resends what got lost."""

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
        except (OperationalError, RedisError, OSError) as error:
            raise BrokerError(f"cannot send {task_id} to the queue {queue!r}: {error}") from error


def _with_tls_check(broker_url: str) -> str:
    """`broker_url` with the check of the server's certificate spelled out, as kombu needs it; default: required."""
    if broker_url.startswith("rediss://") and "ssl_cert_reqs" not in broker_url:
        return broker_url + ("&" if "?" in broker_url else "?") + "ssl_cert_reqs=required"
    return broker_url
