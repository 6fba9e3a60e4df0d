"""More workers, fewer workers, while a job runs; and what the second core is worth."""

import json
import shutil
import subprocess
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.docker.stack import Stack, assert_common_outcome, docker, wait_for

pytestmark = [pytest.mark.docker, pytest.mark.timeout(1200)]


def _redis(stack: Stack, command: str) -> list[str]:
    """The lines that redis-cli prints; asked in its own container, because the port is not published."""
    script = f". /run/voc/redis-cli.env; export REDISCLI_AUTH; redis-cli --raw {command}"
    return stack.compose("exec", "-T", "redis", "sh", "-c", script).splitlines()


def _holders(stack: Stack, job: str) -> list[dict[str, Any]]:
    """Who works on which shard now."""
    return [json.loads(line) for line in _redis(stack, f"hvals voc:job:{job}:leased") if line.startswith("{")]


def _live(stack: Stack) -> set[str]:
    """The hosts (container ids) of the workers that beat."""
    keys = [line for line in _redis(stack, "keys 'voc:worker:*'") if line.startswith("voc:worker:")]
    return {key.removeprefix("voc:worker:").split("-")[0] for key in keys}


def _started_at(container: str) -> float:
    text = docker("inspect", "-f", "{{.State.StartedAt}}", container).strip()
    return datetime.fromisoformat(text[:26] + "+00:00").timestamp()


def _submit_in_background(stack: Stack, *arguments: str) -> "subprocess.Popen[str]":
    command = stack.command("run", "--rm", "-T", "producer", "submit", *arguments)
    return subprocess.Popen(command, env=stack.variables(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def test_workers_come_and_go_while_a_job_runs(stack: Stack, large_set: Path) -> None:
    shutil.copytree(large_set, stack.photos / "large")
    stack.up("--scale", "worker=1", "worker", "producer")
    submit = _submit_in_background(stack, "/data/large", "--no-train", "--wait", "--shard-images", "24")
    wait_for(lambda: stack.receipts("large"), within_s=60, what="a first shard")
    before = set(stack.containers("worker"))
    stack.up("--scale", "worker=4", "--no-recreate", "worker")
    new = {container[:12] for container in stack.containers("worker")} - {container[:12] for container in before}
    ready: dict[str, float] = {}
    claimed: dict[str, float] = {}

    def all_claimed() -> bool:
        for host in _live(stack):
            ready.setdefault(host, time.time())
        for holder in _holders(stack, "large"):
            claimed.setdefault(str(holder["worker"]).split("-")[0], float(holder["since"]))
        return new <= claimed.keys()

    wait_for(all_claimed, within_s=60, what="a shard for every new worker")
    # A worker may beat and claim between the two looks.
    waits_s = [claimed[host] - ready.get(host, claimed[host]) for host in new]
    print(f"\nfrom a container's start to its first shard: {[round(claimed[h] - _started_at(h), 1) for h in new]} s")
    print(f"from a worker's first heartbeat to its first shard: {[round(wait, 1) for wait in waits_s]} s")
    began = time.monotonic()
    stack.up("--scale", "worker=1", "--no-recreate", "worker")
    print(f"scaled down in {time.monotonic() - began:.1f} s")
    out = submit.communicate(timeout=600)[0]
    assert submit.returncode == 0, out
    assert_common_outcome(stack, "large")
    assert {receipt["attempt"] for receipt in stack.receipts("large")} == {1}
    assert max(waits_s) <= 5


def _cpu_s(stack: Stack) -> float:
    """Processor time that the worker containers have used, by their control groups (version 2, else 1)."""
    files = "/sys/fs/cgroup/cpu.stat /sys/fs/cgroup/cpuacct/cpuacct.usage"
    total_s = 0.0
    for container in stack.containers("worker"):
        words = docker("exec", container, "sh", "-c", f"cat {files} 2>/dev/null || true").split()
        total_s += int(words[1]) / 1e6 if words[0] == "usage_usec" else int(words[-1]) / 1e9
    return total_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """Images a second of a job, and how many cores its workers had while it ran."""

    images_per_s: float
    cores: float


def _rate(stack: Stack, job: str, workers: int) -> Rate:
    """The rate with `workers` up and idle at the start, once each has written a shard, to the last shard.

    Counted from the shard with which the last worker has (about) ended its first: what the others had already begun
    by then would otherwise flatter two workers.
    """
    stack.up("--scale", f"worker={workers}", "worker")
    wait_for(lambda: len(_live(stack)) == workers, within_s=60, what="all workers")
    cpu_s, began = _cpu_s(stack), time.monotonic()
    stack.submit("/data/large", "--job", job, "--no-train", "--wait", "--shard-images", "32")
    cores = (_cpu_s(stack) - cpu_s) / (time.monotonic() - began)
    lines = [line for line in stack.logs("worker") if line["event"] == "shard_written" and line.get("job") == job]
    times = [datetime.fromisoformat(line["time"]).timestamp() for line in lines]
    images = sum(int(line["examples"]) for line in lines[workers:])
    stack.producer("rm", job, "--yes")  # its shards are not for the next job
    return Rate(images_per_s=images / (times[-1] - times[workers - 1]), cores=cores)


def test_a_second_worker_on_a_second_core_is_worth_70_percent(stack: Stack, large_set: Path) -> None:
    shutil.copytree(large_set, stack.photos / "large")
    stack.up("--scale", "worker=1", "worker", "producer")
    # Balanced in order, so that a machine that gets slower or faster does not decide.
    rates = [_rate(stack, f"job{n}", workers) for n, workers in enumerate((1, 2, 2, 1))]
    one, two = rates[0].images_per_s + rates[3].images_per_s, rates[1].images_per_s + rates[2].images_per_s
    print(
        f"\nimages/s with 1, 2, 2, 1 workers: {[round(rate.images_per_s, 1) for rate in rates]}; ratio {two / one:.2f}"
    )
    print(f"cores that the workers had, scanning and waiting included: {[round(rate.cores, 2) for rate in rates]}")
    assert two / one >= 1.7
