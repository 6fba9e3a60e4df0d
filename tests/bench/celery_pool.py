"""Celery at 256 pictures a task against a plain process pool of the same size, on the same shards.

Both write the same shards with as many processes; Celery's do all that the product does (message, ledger, lease,
receipt), the pool's call `write_shard` and nothing else. Order-balanced (A B B A …), medians, wall and processor time.

Run: `python tests/bench/celery_pool.py [--shards 12] [--rounds 4] [--processes 2]`.
"""

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from producer.reconcile.dispatch import send_shard
from shared.broker import Broker as Sender
from shared.jobs.identity import done_shards
from shared.jobs.job import Job, ShardTask, SplitPlan
from shared.jobs.paths import JobPaths
from shared.leasing.guard import Unguarded
from shared.specs.data import JobSpec
from shared.storage import Storage
from tests.cluster import Broker, Cluster, wait_until
from tests.path_pairs import path_pair
from worker.shard import write_shard
from worker.synthetic.shapes import synthesize

IMAGES_A_SHARD = 256


SHAPES = ("circle", "cross", "triangle")


def make_tasks(folder: Path, name: str, shards: int, labels: tuple[str, ...] = SHAPES) -> tuple[Job, list[ShardTask]]:
    """A job of `shards` shards over the pictures of `folder`, each used many times: the work is the same."""
    stems = sorted(path.stem for path in (folder / "JPEGImages").iterdir())
    photos = [path_pair(folder, f"JPEGImages/{stem}.jpg", f"Annotations/{stem}.xml", source_id=1) for stem in stems]
    numbers = iter(range(1, shards * IMAGES_A_SHARD + 1))
    tasks = []
    for index in range(shards):
        pairs = []
        for number in (next(numbers) for _ in range(IMAGES_A_SHARD)):
            pairs.append(photos[number % len(photos)].model_copy(update={"source_id": number}))
        tasks.append(ShardTask(job=name, split="train", index=index, count=shards, pairs=tuple(pairs)))
    plan = SplitPlan(pairs=shards * IMAGES_A_SHARD, digests=tuple(task.digest() for task in tasks))
    job = Job(
        job=name,
        dataset=str(folder),
        folder=folder.name,
        spec=JobSpec(),
        run=None,
        labels=labels,
        splits={"train": plan},
        request_digest="bench",
    )
    return job, tasks


def cpu_s(processes: list[psutil.Process]) -> float:
    """Processor seconds that `processes` have used."""
    times = [process.cpu_times() for process in processes]
    return sum(one.user + one.system for one in times)


def celery_round(cluster: Cluster, worker: psutil.Process, job: Job, tasks: list[ShardTask]) -> tuple[float, float]:
    """Wall and processor seconds of Celery for `tasks`."""
    storage, ledger, sender = cluster.storage(), cluster.broker.ledger(), Sender(cluster.broker.url)
    storage.write(JobPaths(job.job).job, job.to_json().encode())
    processes = [worker, *worker.children()]
    before, start = cpu_s(processes), time.perf_counter()
    for task in tasks:
        send_shard(sender, ledger, task)
    wait_until(lambda: len(done_shards(storage, job)) == len(tasks), 600, "all shards are written")
    return time.perf_counter() - start, cpu_s(processes) - before


def pool_task(task: ShardTask, job: Job, store: str, data_root: str) -> None:
    """One shard in a process of the pool."""
    write_shard(task, job, storage=Storage(store), data_root=Path(data_root), guard=Unguarded(), attempt=1)


def pool_round(
    pool: ProcessPoolExecutor, job: Job, tasks: list[ShardTask], store: Path, data_root: Path
) -> tuple[float, float]:
    """Wall and processor seconds of the pool for `tasks`."""
    processes = [psutil.Process(pid) for pid in pool._processes]
    before, start = cpu_s(processes), time.perf_counter()
    futures = [pool.submit(pool_task, task, job, str(store), str(data_root)) for task in tasks]
    for future in futures:
        future.result()
    return time.perf_counter() - start, cpu_s(processes) - before


def main() -> None:
    """Print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shards", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--processes", type=int, default=2)
    asked = parser.parse_args()
    scratch = Path(tempfile.mkdtemp(prefix="vb-"))
    broker = Broker(scratch)
    broker.start()
    cluster = Cluster(broker=broker, store=scratch / "store", data_root=scratch)
    (scratch / "pool").mkdir()
    cluster.store.mkdir()
    try:
        synthesize(scratch / "shapes", images=48, seed=0)
        worker = psutil.Process(cluster.worker(slots=asked.processes).pid)
        wait_until(lambda: broker.ledger().workers(), 60, "the worker is there")
        with ProcessPoolExecutor(asked.processes) as pool:
            list(pool.map(abs, range(64)))  # starts its processes
            rows: dict[str, list[tuple[float, float]]] = {"celery": [], "pool": []}
            for number in range(asked.rounds):
                order = ("celery", "pool") if number % 2 == 0 else ("pool", "celery")
                for who in order:
                    job, tasks = make_tasks(scratch / "shapes", f"{who}-{number}", asked.shards)
                    if who == "celery":
                        rows[who].append(celery_round(cluster, worker, job, tasks))
                    else:
                        rows[who].append(pool_round(pool, job, tasks, scratch / "pool", scratch))
        print(f"{asked.processes} processes, {asked.rounds} rounds")
        report(rows, asked.shards * IMAGES_A_SHARD)
    finally:
        cluster.stop()
        broker.stop()
        shutil.rmtree(scratch)


def report(rows: dict[str, list[tuple[float, float]]], images: int) -> None:
    """Print medians and ratios."""
    wall = {who: statistics.median(row[0] for row in rows[who]) for who in rows}
    cpu = {who: statistics.median(row[1] for row in rows[who]) for who in rows}
    print(f"{images} pictures a round, {IMAGES_A_SHARD} a task")
    for who in rows:
        print(f"  {who:6}  {images / wall[who]:7.0f} images/s  {1000 * cpu[who] / images:6.2f} CPU ms an image")
    print(f"  celery : pool   wall {wall['celery'] / wall['pool']:.3f}   CPU {cpu['celery'] / cpu['pool']:.3f}")


if __name__ == "__main__":
    main()
