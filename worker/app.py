"""`celery -A worker.app worker`: the application and its one thin task.

An entry point: importing it reads the settings and sets up logging.
"""

import logging
import os
import threading
from functools import cache
from typing import Any

from billiard import current_process
from celery import signals
from celery.worker import state as celery_state

from shared import faults, logs, presence
from shared.broker import SHARD_QUEUE, SHARD_TASK, celery_app
from shared.lease import LeaseTerms, give_back
from shared.ledger import UNREACHABLE, Ledger, connect, job_scope
from shared.presence import Post, Presence
from shared.storage import Storage
from worker.isolate import Limits
from worker.settings import WorkerSettings
from worker.task import Bench, do_task, parent_pid_of

settings = WorkerSettings()
logs.set_up(settings.log_format, settings.log_level)
faults.arm(settings.fault)

# A child that has leaked is replaced after this many shards (over 10,000 pictures), a second of work in a minute.
app = celery_app("worker", settings.broker(), SHARD_QUEUE, worker_max_tasks_per_child=50)


def bench() -> Bench:
    """Where this process works."""
    return _bench_of(os.getpid())


@cache
def _bench_of(_pid: int) -> Bench:
    """Made once a process, so that a child forked later never uses its parent's connections."""
    parent = parent_pid_of(current_process()._name)
    return Bench(
        storage=Storage(settings.store),
        data_root=settings.data_root,
        ledger=Ledger(connect(settings.broker())),
        worker=presence.worker_name(parent),
        terms=LeaseTerms(lease_s=settings.lease_s, stall_s=settings.stall_s, attempts=settings.attempts),
        limits=Limits(memory_mb=settings.isolation_memory_mb, picture_s=settings.stall_s / 2),
        fault=settings.fault,
        should_stop=lambda: presence.should_stop(parent),
    )


@app.task(name=SHARD_TASK)
def write_shard_task(message: Any) -> None:
    """Write one shard; see `worker.task.do_task`."""
    logs.bind()
    do_task(message, bench())


@signals.setup_logging.connect
def _keep_our_logging(**_: Any) -> None:
    """Having a receiver keeps Celery from setting the level and handlers of the root logger anew."""
    logging.getLogger("celery").setLevel("WARNING")


@signals.worker_ready.connect
def _announce(sender: Any, **_: Any) -> None:
    presence.forget_stop(os.getpid())
    post = Post(
        name=bench().worker,
        kind="worker",
        queue=SHARD_QUEUE,
        slots=sender.controller.concurrency,
        heartbeat_file=settings.heartbeat_file,
    )
    app.presence = Presence(bench().ledger, post, is_idle=lambda: not celery_state.active_requests)
    app.presence.start()


# A plain SIGTERM is Celery's warm shutdown: it takes no new message, waits for its tasks, and exits as soon as they
# end. The soft shutdown (REMAP_SIGTERM) always sleeps its whole time-out, and tells only afterwards (DECISIONS).
@signals.worker_shutting_down.connect
def _stop(**_: Any) -> None:
    presence.ask_children_to_stop(os.getpid(), within_s=settings.soft_stop_s * 0.75)
    threading.Thread(target=_end_in_time, daemon=True).start()


def _end_in_time() -> None:
    """Give back what frozen children hold and end this process, when the soft time is over."""
    threading.Event().wait(settings.soft_stop_s)
    try:
        ledger: Ledger = bench().ledger
        jobs = Storage(settings.store).list_names("jobs")
        give_back(ledger, [job_scope(job) for job in jobs], bench().worker)
    except UNREACHABLE:
        pass
    os._exit(1)


@signals.worker_shutdown.connect
def _leave(**_: Any) -> None:
    app.presence.stop()
    presence.forget_stop(os.getpid())
