"""`celery -A trainer.app worker -Q train`: the application and its one thin task.

An entry point: importing it reads the settings and sets up logging. TensorFlow is imported by the child that trains,
a fresh one for each run.
"""

import os
from functools import cache
from typing import Any

from shared import faults, logs, presence
from shared.broker import RUN_QUEUE, RUN_TASK, Station, celery_app, parent_pid, tend
from shared.guard import Guard
from shared.job import RunSpec
from shared.lease import LeaseTerms
from shared.ledger import Ledger, connect, run_scope
from shared.storage import Storage
from trainer.settings import TrainerSettings
from trainer.task import Bench, do_task

settings = TrainerSettings()
logs.set_up(settings.log_format, settings.log_level)
faults.arm(settings.fault)

# A fresh process, and so a fresh TensorFlow, for every run: devices and thread pools are set once a process.
app = celery_app("trainer", settings.broker(), RUN_QUEUE, worker_max_tasks_per_child=1)


def bench() -> Bench:
    """Where this process works."""
    return _bench_of(os.getpid())


@cache
def _bench_of(_pid: int) -> Bench:
    """Made once a process, so that a child forked later never uses its parent's connections."""
    parent = parent_pid()
    storage = Storage(settings.store)
    return Bench(
        storage=storage,
        ledger=Ledger(connect(settings.broker())),
        worker=presence.worker_name(parent),
        terms=LeaseTerms(lease_s=settings.run_lease_s, stall_s=settings.stall_s, attempts=settings.attempts),
        should_stop=lambda: presence.should_stop(parent),
        work=lambda request, guard: _train(request, storage, guard),
    )


def _train(request: RunSpec, storage: Storage, guard: Guard) -> None:
    from trainer.run import run  # TensorFlow: 15 s, half a gigabyte; in the child only

    run(request, storage=storage, settings=settings, guard=guard)


@app.task(name=RUN_TASK)
def train_task(message: Any) -> None:
    """Do one run; see `trainer.task.do_task`."""
    logs.bind()
    do_task(message, bench())


tend(
    Station(
        kind="trainer",
        queue=RUN_QUEUE,
        ledger=lambda: bench().ledger,
        scopes=lambda: [run_scope(run) for run in bench().storage.list_names("runs")],
        heartbeat_file=settings.heartbeat_file,
        finish_s=0,  # training saves at its next step
        stop_s=settings.soft_stop_s,
    )
)
