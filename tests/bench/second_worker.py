"""What a second worker in Compose is worth: images a second of one job with 1, 2, 2 and 1 workers.

    python tests/bench/second_worker.py

1.7 was asked of two workers on two free cores (1.90 and 1.92 measured in quiet). The share of cores that the workers
had is printed beside the ratio: on a machine whose cores are busy elsewhere the ratio says nothing of the workers.
Needs a Docker engine, and says so where there is none.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.docker.photos import large_photos
from tests.docker.stack import Stack, docker, live_workers, wait_for


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """Images a second of a job, and how many cores its workers had while it ran."""

    images_per_s: float
    cores: float


def cpu_s(stack: Stack) -> float:
    """Processor time that the worker containers have used, by their control groups (version 2, else 1)."""
    files = "/sys/fs/cgroup/cpu.stat /sys/fs/cgroup/cpuacct/cpuacct.usage"
    total_s = 0.0
    for container in stack.containers("worker"):
        words = docker("exec", container, "sh", "-c", f"cat {files} 2>/dev/null || true").split()
        total_s += int(words[1]) / 1e6 if words[0] == "usage_usec" else int(words[-1]) / 1e9
    return total_s


def rate(stack: Stack, job: str, workers: int) -> Rate:
    """The rate with `workers` up and idle at the start, once each has written a shard, to the last shard.

    Counted from the shard with which the last worker has (about) ended its first: what the others had already begun
    by then would otherwise flatter two workers.
    """
    stack.up("--scale", f"worker={workers}", "worker")
    wait_for(lambda: len(live_workers(stack)) == workers, within_s=60, what="all workers")
    used_s, began = cpu_s(stack), time.monotonic()
    stack.submit("/data/large", "--job", job, "--no-train", "--wait", "--shard-images", "32")
    cores = (cpu_s(stack) - used_s) / (time.monotonic() - began)
    lines = [line for line in stack.logs("worker") if line["event"] == "shard_written" and line.get("job") == job]
    times = [datetime.fromisoformat(line["time"]).timestamp() for line in lines]
    images = sum(int(line["examples"]) for line in lines[workers:])
    stack.producer("rm", job, "--yes")  # its shards are not for the next job
    return Rate(images_per_s=images / (times[-1] - times[workers - 1]), cores=cores)


def main() -> None:
    """Print the rates, their ratio, and the cores that the workers had."""
    if shutil.which("docker") is None or subprocess.run(["docker", "info"], capture_output=True).returncode:
        print("second worker: skipped, no Docker engine here")
        return
    with tempfile.TemporaryDirectory() as folder:
        for name in ("data", "out"):
            Path(folder, name).mkdir()
        large_photos(Path(folder, "data/large"), 768)
        ids = {"VOC_UID": str(os.getuid()), "VOC_GID": str(os.getgid())} if os.getuid() else {}
        stack = Stack(name="voc-bench", folder=Path(folder), environment={"VOC_TICK_S": "0.5", **ids})
        try:
            stack.compose("build", "producer", "worker", timeout_s=1200)
            stack.up("--scale", "worker=1", "worker", "producer")
            # Balanced in order, so that a machine that gets slower or faster does not decide.
            rates = [rate(stack, f"job{n}", workers) for n, workers in enumerate((1, 2, 2, 1))]
        finally:
            stack.down()
    one, two = rates[0].images_per_s + rates[3].images_per_s, rates[1].images_per_s + rates[2].images_per_s
    print(
        f"images/s with 1, 2, 2, 1 workers: {', '.join(f'{r.images_per_s:.1f}' for r in rates)}; ratio {two / one:.2f}"
    )
    print(f"cores that the workers had, scanning included: {', '.join(f'{r.cores:.2f}' for r in rates)}")


if __name__ == "__main__":
    main()
