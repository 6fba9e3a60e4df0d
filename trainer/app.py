"""`celery -A trainer.app worker -Q train`: the application and its one thin task.

An entry point: importing it reads the settings and sets up logging. TensorFlow is imported by the child that trains,
a fresh one for each run.
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
from shared.broker import RUN_QUEUE, RUN_TASK, celery_app
from shared.guard import Guard
from shared.job import RunSpec
from shared.lease import LeaseTerms, give_back
from shared.ledger import UNREACHABLE, Ledger, connect, run_scope
from shared.presence import Post, Presence
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
    parent = os.getpid() if current_process()._name == "MainProcess" else os.getppid()
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


@signals.setup_logging.connect
def _keep_our_logging(**_: Any) -> None:
    """Having a receiver keeps Celery from setting the level and handlers of the root logger anew."""
    logging.getLogger("celery").setLevel("WARNING")


@signals.worker_ready.connect
def _announce(**_: Any) -> None:
    presence.forget_stop(os.getpid())
    post = Post(name=bench().worker, kind="trainer", queue=RUN_QUEUE, slots=1, heartbeat_file=settings.heartbeat_file)
    app.presence = Presence(bench().ledger, post, is_idle=lambda: not celery_state.active_requests)
    app.presence.start()


# As in worker/app.py: Celery's warm shutdown, bounded by us. Training saves at its next step.
@signals.worker_shutting_down.connect
def _stop(**_: Any) -> None:
    presence.ask_children_to_stop(os.getpid(), within_s=0)
    threading.Thread(target=_end_in_time, daemon=True).start()


def _end_in_time() -> None:
    """Give the run back and end this process, when the soft time is over."""
    threading.Event().wait(settings.soft_stop_s)
    try:
        ledger: Ledger = bench().ledger
        give_back(ledger, [run_scope(run) for run in bench().storage.list_names("runs")], bench().worker)
    except UNREACHABLE:
        pass
    os._exit(1)


@signals.worker_shutdown.connect
def _leave(**_: Any) -> None:
    app.presence.stop()
    presence.forget_stop(os.getpid())
