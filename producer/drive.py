"""Wait for a job while doing the reconciler's part, and show how it goes: `submit --wait` and the embedded mode."""

import time
from collections.abc import Callable

from producer.reconcile import Reconciler
from producer.settings import ProducerSettings
from producer.state import TERMINAL, JobStatus, job_status
from producer.watch import Screen
from shared.job import Job
from shared.ledger import UNREACHABLE

# How often the screen is brought up to date.
LOOK_S = 0.5


def drive(
    job: Job,
    *,
    reconciler: Reconciler,
    settings: ProducerSettings,
    screen: Screen,
    keep: Callable[[], None],
    pause: Callable[[float], None],
) -> JobStatus:
    """Reconcile until `job` is in a terminal state.

    Args:
        job: The job to wait for; others in the store go on too, unless the reconciler keeps to this one.
        reconciler: Ticked every `settings.tick_s`; harmless beside the one of `producer serve`. Stopped at the end.
        settings: The producer's.
        screen: Where progress is shown.
        keep: Called every round, e.g. to start again processes that have died.
        pause: Called every round with the seconds to wait; it may raise KeyboardInterrupt (`interrupts.held`).

    Returns:
        The job's last status.
    """
    storage, ledger = reconciler.storage, reconciler.ledger
    ticked_at = float("-inf")
    try:
        while True:
            keep()
            if time.monotonic() - ticked_at >= settings.tick_s:
                reconciler.tick()
                ticked_at = time.monotonic()
            try:
                status = job_status(storage, ledger, job, settings.failed_share)
                screen.job(status, ledger.workers())
            except UNREACHABLE:
                status = job_status(storage, None, job, settings.failed_share)
                screen.stage("shards", status.done, status.shards, "Redis cannot be reached; waiting")
            if status.state in TERMINAL:
                return status
            pause(LOOK_S)
    finally:
        reconciler.stop()
