"""What `serve` runs: the loop that keeps all jobs of a store going until it is interrupted."""

import logging
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from producer.local import interrupts
from producer.reconcile.context import Context
from producer.reconcile.reconciler import Reconciler
from producer.run.endpoints import serve_endpoints
from producer.settings import ProducerSettings
from shared.broker import Broker
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
