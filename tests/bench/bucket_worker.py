"""A worker's images a second from bucket to bucket, against folder to folder: the server on loopback, and 50 ms away.

Each way has a broker and a Celery worker of its own, with as many slots; they take the same shards in turns, in
changing order, the others idle. Medians of the rounds. SeaweedFS, and the proxy that makes it far away, run on this
machine too and would take what the workers use, so these are pinned to one core; the processor time a picture is theirs
alone. A slot waits for a far bucket at the start and the end of each shard, so there are more slots than cores. Ends
with 1 where a promise does not hold.

Drawn pictures of 223 KB and 1,100 to 1,600 px by default, the largest of 480; `--set shapes` takes 48 of 74 KB,
`--set bccd` photos of blood cells of 21 KB (`VOC_BCCD`). A picture's requests cost the same whatever its size: the more
it takes to decode, the less they weigh.

Run: `python tests/bench/bucket_worker.py [--shards 12] [--rounds 4] [--slots 6] [--core 1] [--set shapes]`.
"""

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from producer.reconcile.dispatch import send_shard
from shared.broker import Broker as Sender
from shared.jobs.paths import JobPaths
from shared.leasing.scopes import job_scope
from shared.storage import Storage
from tests.bench.celery_pool import IMAGES_A_SHARD, SHAPES, cpu_s, make_tasks
from tests.bench.photo_sets import BCCD
from tests.cluster import Broker, Cluster, wait_until
from tests.object_server import ObjectServer
from tests.slow_network import slow_network
from worker.synthetic.shapes import synthesize

LABELS: Final = {"shapes": SHAPES, "large": SHAPES, "bccd": ("Platelets", "RBC", "WBC")}
PHOTOS: Final = 48
DELAY_MS: Final = 50
LEAST: Final = 0.9


@dataclass
class Way:
    """A worker that reads and writes in one place; `store` is the URL or path by which this process looks there."""

    cluster: Cluster
    store: str
    worker: psutil.Process

    def round(self, photos: Path, labels: tuple[str, ...], name: str, shards: int) -> tuple[float, float]:
        """Wall and processor seconds of the worker for `shards`."""
        storage, ledger, sender = Storage(self.store), self.cluster.broker.ledger(), Sender(self.cluster.broker.url)
        job, tasks = make_tasks(photos, name, shards, labels)
        storage.write(JobPaths(name).job, job.to_json().encode())
        scope, processes = job_scope(job), [self.worker, *self.worker.children()]
        before, start = cpu_s(processes), time.perf_counter()
        for task in tasks:
            send_shard(sender, ledger, task)
        wait_until(lambda: ledger.done_count(scope) == shards, 600, "all shards are written")
        return time.perf_counter() - start, cpu_s(processes) - before


def make_photos(kind: str, folder: Path) -> None:
    """Have the photos of a kind; the large ones are those of most bytes among many."""
    if kind == "bccd":
        shutil.copytree(BCCD, folder)
        return
    synthesize(folder, images=PHOTOS * (10 if kind == "large" else 1), seed=0)
    by_size = sorted((folder / "JPEGImages").iterdir(), key=lambda photo: photo.stat().st_size)
    for photo in by_size[:-PHOTOS]:
        photo.unlink()


@contextmanager
def way(
    scratch: Path, name: str, store: str, data_root: str, asked: argparse.Namespace, **settings: str
) -> Iterator[Way]:
    """A broker and a worker."""
    (scratch / name).mkdir()
    broker = Broker(scratch / name)
    broker.start()
    settings = {"VOC_STORE": store, "VOC_DATA_ROOT": data_root, **settings}
    cluster = Cluster(broker=broker, store=scratch / name / "logs", data_root=scratch, settings=settings)
    cluster.prefix = ("taskset", "-c", str(asked.core))
    try:
        process = psutil.Process(cluster.worker(slots=asked.slots).pid)
        wait_until(broker.ledger().workers, 60, f"the worker of {name} is there")
        yield Way(cluster=cluster, store=store, worker=process)
    finally:
        cluster.stop()
        broker.stop()


def measure(
    ways: dict[str, Way], photos: Path, labels: tuple[str, ...], asked: argparse.Namespace
) -> dict[str, list[tuple[float, float]]]:
    """Wall and processor seconds of each way's rounds; the first one, in which all is cold, is left out."""
    rows: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for number in range(asked.rounds + 1):
        for name in ways if number % 2 == 0 else reversed(ways):
            took = ways[name].round(photos, labels, f"{name.replace(' ', '-')}-{number}", asked.shards)
            if number:
                rows[name].append(took)
    return rows


def report(rows: dict[str, list[tuple[float, float]]], images: int) -> bool:
    """Print medians and ratios; whether the promises hold."""
    wall = {name: statistics.median(row[0] for row in took) for name, took in rows.items()}
    cpu = {name: statistics.median(row[1] for row in took) for name, took in rows.items()}
    holds = True
    for name in rows:
        ratio = wall["folder"] / wall[name]
        holds = holds and ratio >= LEAST
        word = "ok  " if ratio >= LEAST else "MISS"
        rate, each_ms = images / wall[name], 1000 * cpu[name] / images
        print(f"{word}\t{name:8}  {rate:6.1f} images/s  {ratio:.3f} of folder   {each_ms:5.2f} CPU ms an image")
    return holds


def main() -> int:
    """Print the figures; whether a promise does not hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shards", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--slots", type=int, default=6)
    parser.add_argument("--core", type=int, default=min(1, (os.cpu_count() or 1) - 1))
    parser.add_argument("--set", default="large", choices=LABELS, dest="photos")
    asked = parser.parse_args()
    if asked.photos == "bccd" and not BCCD.is_dir():
        print(f"skipped: {BCCD} is absent")
        return 0
    scratch = Path(tempfile.mkdtemp(prefix="vb-"))
    photos = scratch / asked.photos
    server = ObjectServer(scratch / "server")
    try:
        server.start()
        os.environ.update(server.environment)
        make_photos(asked.photos, photos)
        url, here = server.upload(photos, f"data/{photos.name}").removesuffix(f"/{photos.name}"), scratch / "store"
        here.mkdir()
        with ExitStack() as stack:
            far = stack.enter_context(slow_network(server.environment["AWS_ENDPOINT_URL"], DELAY_MS))
            enter = stack.enter_context
            ways = {
                "folder": enter(way(scratch, "folder", str(here), str(scratch), asked)),
                "loopback": enter(way(scratch, "loopback", server.url("near"), url, asked)),
                "50 ms": enter(way(scratch, "far", server.url("far"), url, asked, AWS_ENDPOINT_URL=far)),
            }
            rows = measure(ways, photos, LABELS[asked.photos], asked)
        print(f"{asked.shards} shards of {IMAGES_A_SHARD} pictures a round, {asked.rounds} rounds, {asked.slots} slots")
        return 0 if report(rows, asked.shards * IMAGES_A_SHARD) else 1
    finally:
        server.stop()
        shutil.rmtree(scratch)


if __name__ == "__main__":
    raise SystemExit(main())
