"""A job of many tiny pictures through two workers: what broker, producer and reconciler cost as it goes on.

    python tests/bench/load.py --images 200000

Flat is the claim: memory of the broker and of the producer's service, and the reconciler's processor time, must not
grow with the number of pictures. One row a tenth of the job; the last line compares the last tenths with the first.
"""

import argparse
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.cluster import Broker, Cluster, wait_until
from tests.tiny import make_tiny_voc

ROWS: Final = 10
HEADER: Final = "pictures   images/s   broker keys MB   broker RSS MB   producer RSS MB   reconciler CPU %"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One look: pictures done, and since the last look pictures a second and CPU share; memory in MB."""

    images: int
    images_per_s: float
    broker_mb: float
    broker_rss_mb: float
    producer_mb: float
    cpu_share: float

    def __str__(self) -> str:
        return (
            f"{self.images:8,} {self.images_per_s:10.0f} {self.broker_mb:16.2f} {self.broker_rss_mb:15.1f}"
            f" {self.producer_mb:17.1f} {100 * self.cpu_share:18.1f}"
        )


@dataclass(slots=True)
class Watcher:
    """Looks at a running job; `service` is the producer's."""

    cluster: Cluster
    service: psutil.Process
    seen_at: float
    images: int = 0
    cpu_s: float = 0.0

    def look(self, images: int) -> Row:
        """What it costs now, and did since the last look."""
        broker = self.cluster.broker
        assert broker.process is not None
        now, times = time.monotonic(), self.service.cpu_times()
        cpu_s = times.user + times.system
        passed_s = now - self.seen_at
        row = Row(
            images=images,
            images_per_s=(images - self.images) / passed_s,
            broker_mb=broker.ledger().client.info("memory")["used_memory"] / 1e6,
            broker_rss_mb=psutil.Process(broker.process.pid).memory_info().rss / 1e6,
            producer_mb=self.service.memory_info().rss / 1e6,
            cpu_share=(cpu_s - self.cpu_s) / passed_s,
        )
        self.seen_at, self.images, self.cpu_s = now, images, cpu_s
        return row


def run(folder: Path, images: int) -> list[Row]:
    """Make the pictures, submit them, and look ten times until the job is done."""
    started = time.monotonic()
    make_tiny_voc(folder / "voc", images)
    print(f"{images:,} pictures of 16x16 made in {time.monotonic() - started:.0f} s")
    broker_folder = Path(tempfile.mkdtemp(prefix="voc-"))  # short, for its socket
    broker = Broker(broker_folder)
    broker.start()
    cluster = Cluster(broker=broker, store=folder / "store", data_root=folder)
    try:
        return _measure(cluster, folder / "voc", images)
    finally:
        cluster.stop()
        broker.stop()
        shutil.rmtree(broker_folder)


def _measure(cluster: Cluster, voc: Path, images: int) -> list[Row]:
    service = psutil.Process(cluster.serve(VOC_TICK_S="2").pid)
    for name in ("one", "two"):
        cluster.worker(name=name)
    wait_until(lambda: len(cluster.broker.ledger().workers()) == 2, 60, "the workers are there")
    started = time.monotonic()
    cluster.producer("submit", str(voc), "--job", "load", "--no-train", "--image-size", "32")
    print(f"submitted in {time.monotonic() - started:.0f} s\n{HEADER}")
    times = service.cpu_times()
    watcher = Watcher(cluster, service, time.monotonic(), cpu_s=times.user + times.system)
    rows: list[Row] = []
    while cluster.state("load") != "DONE":
        done = cluster.status("load").images_done
        if done >= images * (len(rows) + 1) / ROWS:
            rows.append(watcher.look(done))
            print(rows[-1], flush=True)
        time.sleep(0.5)
    print(f"finalized: producer {service.memory_info().rss / 1e6:.1f} MB")
    return rows


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=5000)
    images = parser.parse_args().images
    folder = Path(tempfile.mkdtemp(prefix="voc-load-"))
    try:
        rows = run(folder, images)
    finally:
        shutil.rmtree(folder)
    third = max(1, len(rows) // 3)
    first, last = rows[:third], rows[-third:]
    for name in ("broker_mb", "producer_mb", "cpu_share"):
        before, after = (sum(getattr(row, name) for row in part) / third for part in (first, last))
        print(f"{name}: last third / first third = {after / max(before, 1e-9):.2f}")


if __name__ == "__main__":
    main()
