"""`celery -A trainer.app worker -Q train`: the application and its one thin task.

An entry point: importing it reads the settings and sets up logging. TensorFlow is imported only by the child that
trains, a fresh one for each run.
"""

from typing import Any

from shared import faults, logs
from shared.broker import RUN_TASK, celery_app
from shared.jobs.identity import readable_requests
from shared.leasing.guard import Guard
from shared.leasing.heartbeat import StopRequest
from shared.leasing.scopes import RUN_QUEUE, run_scope
from shared.specs.run import RunSpec
from shared.storage import Storage
from shared.worker_process import WorkerProcess, holder_of, look_after, once_per_process
from trainer.settings import TrainerSettings
from trainer.task import RunWorker, do_task

settings = TrainerSettings()
logs.set_up(settings.log_format, settings.log_level)
faults.arm(settings.fault)

# A fresh process, and so a fresh TensorFlow, for every run: devices and thread pools can be set only once per process.
app = celery_app("trainer", settings.broker(), RUN_QUEUE, worker_max_tasks_per_child=1)
stop = StopRequest()


@once_per_process
def this_worker() -> RunWorker:
    """What this process needs to do runs."""
    storage = Storage(settings.store)
    return RunWorker(
        storage=storage,
        holder=holder_of(settings, stop, lease_s=settings.run_lease_s, stall_s=settings.stall_s),
        train=lambda request, guard: _train(request, storage, guard),
    )


def _train(request: RunSpec, storage: Storage, guard: Guard) -> None:
    from trainer.run import run  # imports TensorFlow (15 s, half a gigabyte), so only in the child

    run(request, storage=storage, settings=settings, guard=guard)


@app.task(name=RUN_TASK)
def train_task(message: Any) -> None:
    """Do one run; see `trainer.task.do_task`."""
    logs.bind()
    do_task(message, this_worker())


look_after(
    WorkerProcess(
        kind="trainer",
        queue=RUN_QUEUE,
        holder=lambda: this_worker().holder,
        stop=stop,
        scopes=lambda: [run_scope(request) for request in readable_requests(this_worker().storage)],
        heartbeat_file=settings.heartbeat_file,
        finish_s=0,  # training saves at its next step
        stop_s=settings.soft_stop_s,
    )
)
