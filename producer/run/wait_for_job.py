"""Wait for a job while doing the reconciler's part, and show its progress: `submit --wait` and local runs."""

import time
from collections.abc import Callable

from producer.reconcile.reconciler import Reconciler
from producer.run.shards_note import ShardsNote
from producer.run.watch import SHOW_EVERY_S, show_status
from producer.state.status import JobStatus
from producer.state.stored import TERMINAL
from producer.terminal.progress import Screen
from shared.jobs.job import Job


def wait_for_job(
    job: Job,
    reconciler: Reconciler,
    screen: Screen,
    *,
    pause: Callable[[float], None],
    each_round: Callable[[], None] = lambda: None,
) -> JobStatus:
    """Reconcile until `job` is in a terminal state; return its last status.

    Other jobs of the store go on too, unless the reconciler is for this one only. It does no harm if `serve` runs as
    well, and is stopped at the end. `pause` waits for a number of seconds and may raise KeyboardInterrupt
    (`interrupts.deferred`); `each_round` restarts processes that have died.

    Raises:
        PlanError: The job was removed meanwhile.
    """
    context, ticked_at, has_ended = reconciler.context, float("-inf"), False
    note = ShardsNote(context.storage, job)
    try:
        while True:
            each_round()
            if time.monotonic() - ticked_at >= context.settings.tick_s:
                reconciler.tick()
                ticked_at = time.monotonic()
            status = show_status(job, context.storage, context.ledger, context.settings, screen)
            note.write(status)
            if status.state in TERMINAL:
                has_ended = True
                reconciler.announce(job)
                return status
            pause(SHOW_EVERY_S)
    finally:
        for failure in reconciler.stop(wait=has_ended):
            if has_ended:
                screen.console.print(f"warning: {failure}", style="yellow", highlight=False, soft_wrap=True)
