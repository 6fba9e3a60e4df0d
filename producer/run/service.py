"""The producer's two loops: `serve` keeps all jobs going, `watch` shows one."""

import logging
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from rich.console import Console

from producer.local import interrupts
from producer.reconcile.context import Context
from producer.reconcile.reconciler import Reconciler
from producer.run.endpoints import serve_endpoints
from producer.run.wait_for_job import SHOW_EVERY_S, show_status
from producer.settings import ProducerSettings
from producer.state.status import JobStatus
from producer.state.stored import TERMINAL, load_job
from producer.terminal.progress import Screen
from shared.broker import Broker
from shared.errors import Interrupted, StorageError
from shared.leasing.ledger import Ledger
from shared.leasing.redis_client import connect
from shared.storage import Storage

logger = logging.getLogger(__name__)

# How often the queue's length is asked (one LLEN) between rounds, to notice an empty queue: with two hints per slot
# only every 2 s, two worker processes could not write more than 500 pictures/s.
LOOK_AT_QUEUE_S: Final = 0.2


def serve(settings: ProducerSettings) -> None:
    """Reconcile every `settings.tick_s` seconds until interrupted.

    Raises:
        StorageError: The store cannot be written.
        OptionError: No broker is configured.
    """
    storage, broker_place = Storage(settings.store), settings.broker_place()
    storage.make_root()
    probe = f"serve-{uuid.uuid4().hex}.txt"
    storage.write(probe, b"")  # if the store refuses, fail now instead of logging it at every round
    storage.remove(probe)
    logger.info("serving", extra={"store": storage.root, "broker": broker_place})
    ledger, broker = Ledger(connect(settings.broker())), Broker(settings.broker())
    reconciler = Reconciler(Context(storage=storage, ledger=ledger, broker=broker, settings=settings))
    serve_endpoints(settings, storage, ledger)
    with interrupts.deferred() as pause, suppress(KeyboardInterrupt):
        while True:
            reconciler.tick()
            if settings.heartbeat_file is not None and ledger.is_reachable():
                settings.heartbeat_file.touch()
            _await_round(reconciler, settings.tick_s, pause)
    reconciler.stop()


def _await_round(reconciler: Reconciler, tick_s: float, pause: Callable[[float], None]) -> None:
    """Wait for the next round, or only until workers have emptied the queue, if that is sooner."""
    due_at = time.monotonic() + tick_s
    while time.monotonic() < due_at:
        pause(min(LOOK_AT_QUEUE_S, tick_s))
        if reconciler.is_queue_empty():
            return


@contextmanager
def looking_only(name: str) -> Iterator[None]:
    """Make Ctrl-C say that only the watching has ended, not the job."""
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted(f"no longer watching {name}; the job is left as it is") from None


def watch(name: str, settings: ProducerSettings, console: Console, run: str | None = None) -> JobStatus:
    """Show the progress of the job `name`, seen with its run `run`, until it ends; return its last status.

    If the store refuses meanwhile, such as a bucket that is restarted, that is shown and it is tried again.
    """
    storage = Storage(settings.store)
    ledger = Ledger(connect(settings.broker())) if settings.broker_url is not None else None
    job = load_job(storage, name, run)
    with Screen(console) as screen, looking_only(name):
        while True:
            try:
                status = show_status(job, storage, ledger, settings, screen)
                if status.state in TERMINAL:
                    return status
            except StorageError as error:
                screen.stage("waiting", 0, 0, f"{error}; trying again until the store answers, Ctrl-C stops that")
            time.sleep(SHOW_EVERY_S * 2)
