"""Whether a worker slows down over a job of tiny photos, told apart from a machine that does: the same shards, twice.

One worker (Redis, Celery, leases) and one process without any of these take turns over a job, some shards at a time, in
changing order. Where both become slower it is the machine, or the shards; the ratio of the two is the worker's own. It
is told of the first and the last fifth of the job, by the clock and by the processor's time of the two processes; the
first turn of each, in which all is cold, is left out.
Photos are of 16x16 pixels; 2,000 different ones are used again and again. A drift of the worker's own of more than 5 %
is a MISS.

Run: `python tests/bench/worker_drift.py [--photos 20000] [--turns 20]`; 200,000 take 20 minutes.
"""

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from producer.reconcile.dispatch import send_shard
from shared.broker import Broker as Sender
from shared.jobs.job import Job, ShardTask
from shared.jobs.paths import JobPaths
from shared.leasing.scopes import job_scope
from shared.specs.data import JobSpec
from tests.bench.celery_pool import IMAGES_A_SHARD, make_tasks, pool_task
from tests.cluster import Broker, Cluster, wait_until
from tests.tiny import make_tiny_voc

DIFFERENT = 2000
LEAST = 0.95
# How many shards the worker has waiting, as the producer's window has it.
WINDOW = 4


class Rate(NamedTuple):
    """Pictures a second, of the clock and of the processor."""

    wall: float
    cpu: float


def worker_turn(cluster: Cluster, worker: psutil.Process, job: Job, tasks: list[ShardTask]) -> Rate:
    """Have the worker write these shards of the job."""
    ledger, sender = cluster.broker.ledger(), Sender(cluster.broker.url)
    scope, before = job_scope(job), ledger.done_count(job_scope(job))

    def turn() -> None:
        for sent, task in enumerate(tasks):
            while ledger.done_count(scope) <= before + sent - WINDOW:
                time.sleep(0.005)
            send_shard(sender, ledger, task)
        wait_until(lambda: ledger.done_count(scope) == before + len(tasks), 600, "all shards are written")

    return _timed(turn, lambda: _cpu_s(worker), len(tasks))


def control_turn(pool: ProcessPoolExecutor, job: Job, tasks: list[ShardTask], scratch: Path) -> Rate:
    """Have the process of the pool write the same shards elsewhere."""
    (alone,) = (psutil.Process(pid) for pid in pool._processes)

    def turn() -> None:
        for future in [pool.submit(pool_task, task, job, str(scratch / "control"), str(scratch)) for task in tasks]:
            future.result()

    return _timed(turn, lambda: _cpu_s(alone), len(tasks))


def _cpu_s(process: psutil.Process) -> float:
    """Processor seconds of a process and its children, also of those that have ended."""
    times = [process.cpu_times(), *(child.cpu_times() for child in process.children())]
    return sum(one.user + one.system for one in times) + times[0].children_user + times[0].children_system


def _timed(turn: Callable[[], None], cpu_s: Callable[[], float], shards: int) -> Rate:
    before, start = cpu_s(), time.perf_counter()
    turn()
    images = shards * IMAGES_A_SHARD
    return Rate(images / (time.perf_counter() - start), images / (cpu_s() - before))


def report(rates: dict[str, list[Rate]], images: int) -> None:
    """Print the rates of the first and the last fifth, and how much of the change is the worker's own."""
    turns = len(rates["worker"])
    fifth = max(1, turns // 5)
    print(f"{images} pictures in {turns} turns each, {IMAGES_A_SHARD} a shard; medians of {fifth} turns at each end")
    for index, kind in enumerate(Rate._fields):
        for who, rows in rates.items():
            first, last = (statistics.median(row[index] for row in part) for part in (rows[:fifth], rows[-fifth:]))
            print(f"  {who:7} {kind:4}  {first:7.0f} images/s at the start, {last:7.0f} at the end: {last / first:.3f}")
        own = [worker[index] / alone[index] for worker, alone in zip(*rates.values(), strict=True)]
        first, last = statistics.median(own[:fifth]), statistics.median(own[-fifth:])
        word = "ok  " if last >= LEAST * first else "MISS"
        print(f"{word}\tworker : control {kind}  {first:.3f} at the start, {last:.3f} at the end: {last / first:.3f}")


def main() -> None:
    """Print the rates and ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--photos", type=int, default=20_000)
    parser.add_argument("--turns", type=int, default=20)
    asked = parser.parse_args()
    scratch = Path(tempfile.mkdtemp(prefix="vb-"))
    broker = Broker(scratch)
    broker.start()
    cluster = Cluster(broker=broker, store=scratch / "store", data_root=scratch)
    try:
        for folder in (cluster.store, scratch / "control"):
            folder.mkdir()
        made, tasks = make_tasks(make_tiny_voc(scratch / "tiny", DIFFERENT), "drift", asked.photos // IMAGES_A_SHARD)
        job = made.model_copy(update={"labels": ("x",), "spec": JobSpec(image_size=32)})
        cluster.storage().write(JobPaths(job.job).job, job.to_json().encode())
        worker = psutil.Process(cluster.worker(slots=1).pid)
        wait_until(lambda: broker.ledger().workers(), 60, "the worker is there")
        rates: dict[str, list[Rate]] = {"worker": [], "control": []}
        with ProcessPoolExecutor(1) as pool:
            pool.submit(os.getpid).result()
            size = max(1, len(tasks) // asked.turns)
            for number in range(len(tasks) // size):
                part = tasks[number * size : (number + 1) * size]
                for who in rates if number % 2 == 0 else reversed(rates):
                    took = (
                        worker_turn(cluster, worker, job, part)
                        if who == "worker"
                        else control_turn(pool, job, part, scratch)
                    )
                    if number:
                        rates[who].append(took)
        report(rates, len(tasks) // size * size * IMAGES_A_SHARD)
    finally:
        cluster.stop()
        broker.stop()
        shutil.rmtree(scratch)


if __name__ == "__main__":
    main()
