"""A live Celery worker's memory and start, and a job's memory in Redis: `python tests/bench/live_worker.py`.

Real processes on a real broker. Ends with 1 where a figure of the issue does not hold.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from producer.jobs.plan import PlanLines
from producer.reconcile.context import Context
from producer.reconcile.dispatch import send_shard
from producer.reconcile.reconciler import Reconciler
from producer.settings import ProducerSettings
from shared.broker import Broker as Sender
from shared.jobs.identity import done_shards
from shared.jobs.job import Job, SplitPlan
from shared.jobs.paths import JobPaths
from shared.leasing.scopes import SHARD_QUEUE, job_scope
from tests.bench.celery_pool import IMAGES_A_SHARD, make_tasks
from tests.cluster import Broker, Cluster, wait_until
from worker.synthetic.shapes import synthesize

SLOTS = 2
SHARDS_A_CHILD = 3
CHILD_LIMIT_MB = 100
IMPORT_LIMIT_S = 1.0
# 2,560 and 102,400 pairs.
JOB_SHARDS = (10, 400)
# Between jobs of such sizes Redis may differ by the bits of their done shards and by its own allocator.
REDIS_GROWTH_LIMIT_KB = 64


def import_seconds(cluster: Cluster) -> float:
    """CPU seconds until a fresh process has imported the worker's application; the best of three."""
    code = "import time; start = time.process_time(); import worker.app; print(time.process_time() - start)"
    runs = [
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, env=cluster.environment("worker"))
        for _ in range(3)
    ]
    return min(float(run.stdout) for run in runs)


def children_mb(cluster: Cluster) -> list[tuple[float, float]]:
    """(resident, of it its own) MB of each child of a worker that has just written some shards."""
    job, tasks = make_tasks(cluster.data_root / "shapes", "memory", SLOTS * SHARDS_A_CHILD)
    storage, sender = cluster.storage(), Sender(cluster.broker.url)
    storage.write(JobPaths(job.job).job, job.to_json().encode())
    worker = psutil.Process(cluster.worker(slots=SLOTS).pid)
    wait_until(cluster.broker.ledger().workers, 60, "the worker is there")
    for task in tasks:
        send_shard(sender, cluster.broker.ledger(), task)
    wait_until(lambda: len(done_shards(storage, job)) == len(tasks), 300, "all shards are written")
    memory = [child.memory_full_info() for child in worker.children()]
    cluster.stop()
    cluster.broker.ledger().forget_scope(job_scope(job))
    storage.remove_tree(JobPaths(job.job).root)
    return [(one.rss / 2**20, one.uss / 2**20) for one in memory]


def write_plan(cluster: Cluster, shards: int) -> Job:
    """A job of `shards` shards in the store, as a submit leaves it."""
    job, tasks = make_tasks(cluster.data_root / "shapes", f"plan-{shards}", shards)
    lines, storage = PlanLines(tasks), cluster.storage()
    storage.write_lines(JobPaths(job.job).plan(job.incarnation), lines)
    plan = SplitPlan(pairs=shards * IMAGES_A_SHARD, digests=tuple(lines.digests))
    job = job.model_copy(update={"splits": {"train": plan}})
    storage.write(JobPaths(job.job).job, job.to_json().encode())
    return job


def redis_kb(cluster: Cluster, shards: int) -> tuple[float, int]:
    """What a job of `shards` shards takes in Redis once its window is full and all its shards are noted as done.

    Returns:
        KB, and the messages in the queue.
    """
    ledger = cluster.broker.ledger()
    ledger.client.flushall()
    settings = ProducerSettings(store=str(cluster.store), broker_url=cluster.broker.url)
    before = ledger.client.info("memory")["used_memory"]
    job = write_plan(cluster, shards)
    context = Context(storage=cluster.storage(), ledger=ledger, broker=Sender(cluster.broker.url), settings=settings)
    reconciler = Reconciler(context, only=job.job)
    reconciler.tick()
    queued = ledger.queue_length(SHARD_QUEUE)
    ledger.mark_done(job_scope(job), range(shards))
    grown = ledger.client.info("memory")["used_memory"] - before
    cluster.storage().remove_tree(JobPaths(job.job).root)
    return grown / 1e3, queued


def main() -> int:
    """Print the figures beside their limits."""
    scratch = Path(tempfile.mkdtemp(prefix="vb-"))
    broker = Broker(scratch)
    broker.start()
    cluster = Cluster(broker=broker, store=scratch / "store", data_root=scratch)
    held = True

    def line(text: str, *, holds: bool) -> None:
        nonlocal held
        held = held and holds
        print(f"{'ok  ' if holds else 'MISS'}\t{text}", flush=True)

    try:
        cluster.store.mkdir()
        synthesize(scratch / "shapes", images=48, seed=0)
        seconds = import_seconds(cluster)
        line(f"import of worker.app: {seconds:.2f} s CPU (most {IMPORT_LIMIT_S})", holds=seconds <= IMPORT_LIMIT_S)
        for resident, own in children_mb(cluster):
            text = f"a Celery child after about {SHARDS_A_CHILD} shards: {resident:.0f} MB resident, {own:.0f} its own"
            line(f"{text} (most {CHILD_LIMIT_MB})", holds=resident <= CHILD_LIMIT_MB)
        redis_kb(cluster, 1)  # the broker's own buffers grow once
        small, large = (redis_kb(cluster, shards) for shards in JOB_SHARDS)
        for shards, (kilobytes, queued) in zip(JOB_SHARDS, (small, large), strict=True):
            text = f"Redis for a job of {shards * IMAGES_A_SHARD:,} pairs: {kilobytes:.0f} KB, {queued} messages wait"
            line(text, holds=large[0] - small[0] <= REDIS_GROWTH_LIMIT_KB and queued == small[1])
    finally:
        cluster.stop()
        broker.stop()
        shutil.rmtree(scratch)
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
