"""A worker or trainer as a Celery process: its name and lease terms, its parent's heartbeat, and how it stops."""

import logging
import os
import signal
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from billiard import active_children, current_process
from celery import signals
from celery.worker import state as celery_state
from redis.exceptions import RedisError

from shared.errors import PipelineError
from shared.leasing.heartbeat import Presence, Registration, StopRequest
from shared.leasing.lease import Holder, give_back
from shared.leasing.ledger import Ledger
from shared.leasing.redis_client import connect
from shared.settings import CommonSettings

logger = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerProcess:
    """What the parent process of a worker or trainer needs to look after it; times in seconds.

    Its children look at `stop`. They get `finish_s` to finish, and after `stop_s` the parent ends whatever is left;
    `scopes` lists the scopes of the ledger in which they may hold a lease. Children get nice levels from 0 to
    `nice_levels` - 1 in turn.
    """

    kind: str
    queue: str
    holder: Callable[[], Holder]
    stop: StopRequest
    scopes: Callable[[], list[str]]
    heartbeat_file: Path | None
    finish_s: float
    stop_s: float
    nice_levels: int = 1


def worker_name() -> str:
    """The name of this worker, unique among all hosts and the same in every process of its pool."""
    is_parent = current_process()._name == "MainProcess"
    return f"{socket.gethostname()}-{os.getpid() if is_parent else os.getppid()}"


def holder_of(settings: CommonSettings, stop: StopRequest, *, lease_s: float, stall_s: float) -> Holder:
    """This process as one that takes leases, on a connection of its own."""
    return Holder(
        ledger=Ledger(connect(settings.broker())),
        worker=worker_name(),
        lease_s=lease_s,
        stall_s=stall_s,
        attempts=settings.attempts,
        should_stop=stop.is_due,
    )


def once_per_process(make: Callable[[], T]) -> Callable[[], T]:
    """`make`, called once in each process, so that a child forked later never uses its parent's connections."""
    made = cache(lambda _pid: make())
    return lambda: made(os.getpid())


def look_after(worker: WorkerProcess) -> None:
    """Have the parent process of this Celery worker send heartbeats, watch itself, and stop within its time.

    A plain SIGTERM is Celery's warm shutdown: the worker takes no new message, waits for its tasks, and exits as soon
    as they end. The soft shutdown (REMAP_SIGTERM) always sleeps its whole time-out, and informs the tasks only
    afterwards (docs/decisions/0001).
    """
    # With a receiver for this signal Celery leaves the level and handlers of the root logger alone.
    signals.setup_logging.connect(lambda **_: logging.getLogger("celery").setLevel("WARNING"), weak=False)
    started: list[Presence] = []

    def announce(sender: Any, **_: Any) -> None:
        registration = Registration(
            name=worker_name(),
            kind=worker.kind,
            queue=worker.queue,
            slots=sender.controller.concurrency,
            heartbeat_file=worker.heartbeat_file,
        )
        is_idle = lambda: not celery_state.active_requests  # noqa: E731
        started.append(Presence(worker.holder().ledger, registration, is_idle=is_idle))
        started[0].start()

    def stop(**_: Any) -> None:
        worker.stop.ask(within_s=worker.finish_s)
        threading.Thread(target=_end_in_time, args=(worker,), daemon=True).start()

    def leave(**_: Any) -> None:
        for presence in started:
            presence.stop()

    def set_nice_level(**_: Any) -> None:
        os.nice(current_process().index % worker.nice_levels)

    signals.worker_process_init.connect(set_nice_level, weak=False)
    signals.worker_ready.connect(announce, weak=False)
    signals.worker_shutting_down.connect(stop, weak=False)
    signals.worker_shutdown.connect(leave, weak=False)


def _end_in_time(worker: WorkerProcess) -> None:
    """When the time is up, kill remaining children, give back what they held, and end this process."""
    threading.Event().wait(worker.stop_s)
    try:
        # The children first: a child that still lives would renew what is given back.
        for child in active_children():
            os.kill(child.pid, signal.SIGKILL)
        give_back(worker.holder().ledger, worker.scopes(), worker_name())
    except (RedisError, PipelineError, OSError) as error:
        logger.warning("leases_left_to_expire", extra={"reason": str(error)})
    finally:
        os._exit(1)
