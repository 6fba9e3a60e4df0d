"""The producer's two loops: keep jobs going, watch one."""

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from rich.console import Console

from producer import interrupts
from producer.drive import LOOK_S
from producer.metrics import serve_metrics
from producer.reconcile import Reconciler
from producer.settings import ProducerSettings
from producer.state import TERMINAL, JobStatus, job_status, load_job
from producer.watch import Screen
from shared.broker import Broker
from shared.ledger import UNREACHABLE, Ledger, connect
from shared.storage import Storage

# How soon an empty queue is seen, at one LLEN: two hints a slot every 2 s would hold two processes to 500 pictures/s.
HUNGRY_S: Final = 0.2


def serve(settings: ProducerSettings) -> None:
    """Reconcile every `settings.tick_s` seconds until interrupted."""
    storage = Storage(settings.store)
    storage.make_root()
    ledger, broker = Ledger(connect(settings.broker())), Broker(settings.broker())
    reconciler = Reconciler(storage=storage, ledger=ledger, broker=broker, settings=settings)
    serve_metrics(settings, storage, ledger)
    with interrupts.held() as pause, suppress(KeyboardInterrupt):
        while True:
            reconciler.tick()
            if settings.heartbeat_file is not None and ledger.is_reachable():
                settings.heartbeat_file.touch()
            _await_round(reconciler, settings.tick_s, pause)
    reconciler.stop()


def _await_round(reconciler: Reconciler, tick_s: float, pause: Callable[[float], None]) -> None:
    """Wait for the next round, less where small shards have emptied the window before it is due."""
    due_at = time.monotonic() + tick_s
    while time.monotonic() < due_at:
        pause(min(HUNGRY_S, tick_s))
        if reconciler.is_hungry():
            return


def watch(name: str, settings: ProducerSettings, console: Console) -> JobStatus:
    """Show the progress of the job `name` until it ends; its last status."""
    storage = Storage(settings.store)
    ledger = Ledger(connect(settings.broker())) if settings.broker_url is not None else None
    job = load_job(storage, name)
    with Screen(console) as screen:
        while True:
            try:
                status = job_status(storage, ledger, job, settings.failed_share)
                screen.job(status, ledger.workers() if ledger else {})
            except UNREACHABLE:
                status = job_status(storage, None, job, settings.failed_share)
                screen.stage("shards", status.done, status.shards, "Redis cannot be reached; storage says")
            if status.state in TERMINAL:
                return status
            time.sleep(LOOK_S * 2)
