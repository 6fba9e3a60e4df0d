"""What a pair from a bucket costs a worker's processor beside one from a folder, and how much of it is the client's.

Five contenders in turns over the same pairs, in changing order, medians of this process's time: a pair read and made
into its example from a folder and from a bucket; only read from a folder, from a bucket as workers read it, and from a
bucket by the client alone, in as many threads. SeaweedFS's own time is not counted. The last line says which share of
a folder's pictures a second one core could make if everything around the client were free.

Run: `python tests/bench/bucket_reads.py [--shards 2] [--rounds 6]`.
"""

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import obstore

from shared.errors import AnnotationError, ImageError
from shared.jobs.job import Job, ShardTask
from shared.leasing.guard import Unguarded
from shared.storage import BucketFolder, DataFolder
from shared.storage.ahead import THREADS
from tests.bench.celery_pool import IMAGES_A_SHARD, make_tasks
from tests.object_server import ObjectServer
from worker.record.fetched_files import files_of
from worker.record.prepare import prepare_example, recipe_by
from worker.synthetic.shapes import synthesize

PHOTOS = 48


def read(task: ShardTask, job: Job, root: DataFolder) -> None:
    """Read the files of a shard as a worker does."""
    with files_of(task, job, root, Unguarded()) as bring:
        for pair in task.pairs:
            bring(str(pair.annotation), AnnotationError)
            bring(pair.image, ImageError)


def make(task: ShardTask, job: Job, root: DataFolder) -> None:
    """Make the examples of a shard."""
    with files_of(task, job, root, Unguarded()) as bring:
        recipe = recipe_by(job, bring)
        for pair in task.pairs:
            prepare_example(pair, recipe=recipe)


def get(task: ShardTask, job: Job, root: BucketFolder) -> None:
    """Get the objects of a shard by the client alone."""
    bucket = (root / job.folder).objects._bucket
    keys = [key for pair in task.pairs for key in (str(pair.annotation), pair.image)]
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(lambda key: bytes(obstore.get(bucket, key).bytes()), keys))


def measure(
    contenders: dict[str, Callable[[ShardTask], None]], tasks: list[ShardTask], rounds: int
) -> dict[str, float]:
    """Median microseconds of this process's time a pair, by contender; the first round warms up."""
    seconds: dict[str, list[float]] = {who: [] for who in contenders}
    for number in range(rounds + 1):
        for who in contenders if number % 2 == 0 else reversed(contenders):
            before = time.process_time()
            for task in tasks:
                contenders[who](task)
            if number:
                seconds[who].append(time.process_time() - before)
    return {who: statistics.median(rows) / (len(tasks) * IMAGES_A_SHARD) * 1e6 for who, rows in seconds.items()}


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shards", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=6)
    asked = parser.parse_args()
    scratch = Path(tempfile.mkdtemp(prefix="vb-"))
    server = ObjectServer(scratch / "server")
    try:
        server.start()
        os.environ.update(server.environment)
        synthesize(scratch / "shapes", images=PHOTOS, seed=0)
        bucket = BucketFolder(server.upload(scratch / "shapes", "data/shapes")).parent
        job, tasks = make_tasks(scratch / "shapes", "reads", asked.shards)
        contenders: dict[str, Callable[[ShardTask], None]] = {
            "made, folder": partial(make, job=job, root=scratch),
            "made, bucket": partial(make, job=job, root=bucket),
            "read, folder": partial(read, job=job, root=scratch),
            "read, bucket": partial(read, job=job, root=bucket),
            "client alone": partial(get, job=job, root=bucket),
        }
        each_us = measure(contenders, tasks, asked.rounds)
        for who, figure in each_us.items():
            print(f"  {who:12}  {figure:7.1f} µs of processor a pair")
        made, least = each_us["made, folder"], each_us["client alone"] - each_us["read, folder"]
        print(f"  made, folder : bucket {made / each_us['made, bucket']:.3f}; at most {made / (made + least):.3f}")
    finally:
        server.stop()
        shutil.rmtree(scratch)


if __name__ == "__main__":
    main()
