"""`celery -A worker.app worker`: the application and its one thin task.

An entry point: importing it reads the settings and sets up logging.
"""

import os
from functools import cache
from typing import Any

from shared import faults, logs, presence
from shared.broker import SHARD_QUEUE, SHARD_TASK, Station, celery_app, parent_pid, tend
from shared.lease import LeaseTerms
from shared.ledger import Ledger, connect, job_scope
from shared.storage import Storage
from worker.image import use_one_thread
from worker.isolate import Limits
from worker.settings import WorkerSettings
from worker.task import Bench, do_task

settings = WorkerSettings()
logs.set_up(settings.log_format, settings.log_level)
faults.arm(settings.fault)

# No `worker_max_tasks_per_child`: children do not grow (DECISIONS 48), and one that ends while the parent connects to
# Redis again makes Celery end the whole worker.
app = celery_app("worker", settings.broker(), SHARD_QUEUE)


def bench() -> Bench:
    """Where this process works."""
    return _bench_of(os.getpid())


@cache
def _bench_of(_pid: int) -> Bench:
    """Made once a process, so that a child forked later never uses its parent's connections."""
    use_one_thread()
    parent = parent_pid()
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


tend(
    Station(
        kind="worker",
        queue=SHARD_QUEUE,
        ledger=lambda: bench().ledger,
        scopes=lambda: [job_scope(job) for job in bench().storage.list_names("jobs")],
        heartbeat_file=settings.heartbeat_file,
        # A child gives back at its next picture after this; the rest is for one slow picture.
        finish_s=settings.soft_stop_s * 0.75,
        stop_s=settings.soft_stop_s,
    )
)
