"""`celery -A worker.app worker`: the application and its one thin task.

An entry point: importing it reads the settings and sets up logging.
"""

from typing import Any, Final

from shared import faults, logs
from shared.broker import SHARD_TASK, celery_app
from shared.jobs.identity import readable_jobs
from shared.leasing.heartbeat import StopRequest
from shared.leasing.scopes import SHARD_QUEUE, job_scope
from shared.storage import Storage, data_folder
from shared.worker_process import WorkerProcess, holder_of, look_after, once_per_process
from worker.isolate import Limits
from worker.picture.encode import use_one_thread
from worker.settings import WorkerSettings
from worker.task import ShardWorker, do_task

# Equally fast slots finish their shards at the same time and then all wait for a distant bucket at once. Each gets its
# own nice level, so that some always work while others wait (docs/decisions/0102).
_NICE_LEVELS: Final = 6

settings = WorkerSettings()
logs.set_up(settings.log_format, settings.log_level)
faults.arm(settings.fault)

# No `worker_max_tasks_per_child`: children do not leak memory (docs/decisions/0048), and one that ends while the parent
# reconnects to Redis makes Celery end the whole worker.
app = celery_app("worker", settings.broker(), SHARD_QUEUE)
stop = StopRequest()


@once_per_process
def this_worker() -> ShardWorker:
    """What this process needs to write shards."""
    use_one_thread()
    return ShardWorker(
        storage=Storage(settings.store),
        data_root=data_folder(settings.data_root),
        holder=holder_of(settings, stop, lease_s=settings.lease_s, stall_s=settings.stall_s),
        limits=Limits(memory_mb=settings.isolation_memory_mb, picture_s=settings.stall_s / 2),
        fault=settings.fault,
    )


@app.task(name=SHARD_TASK)
def write_shard_task(message: Any) -> None:
    """Write one shard; see `worker.task.do_task`."""
    logs.bind()
    do_task(message, this_worker())


look_after(
    WorkerProcess(
        kind="worker",
        queue=SHARD_QUEUE,
        holder=lambda: this_worker().holder,
        stop=stop,
        scopes=lambda: [job_scope(job) for job in readable_jobs(this_worker().storage)],
        heartbeat_file=settings.heartbeat_file,
        # After this time a child gives its shard back at its next picture; the rest is for one slow picture.
        finish_s=settings.soft_stop_s * 0.75,
        stop_s=settings.soft_stop_s,
        nice_levels=_NICE_LEVELS,
    )
)
