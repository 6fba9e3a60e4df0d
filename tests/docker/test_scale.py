"""More workers, fewer workers, while a job runs. What a second core is worth: tests/bench/second_worker.py."""

import json
import shutil
import subprocess
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.docker.stack import Stack, assert_common_outcome, docker, live_workers, wait_for

pytestmark = [pytest.mark.docker, pytest.mark.timeout(1200)]


def _holders(stack: Stack, job: str) -> list[dict[str, Any]]:
    """Who works on which shard now."""
    keys = [line for line in stack.redis_cli(f"keys 'voc:job:{job}@*:leased'") if line.startswith("voc:job:")]
    lines = [line for key in keys for line in stack.redis_cli(f"hvals '{key}'")]
    return [json.loads(line) for line in lines if line.startswith("{")]


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
        for host in live_workers(stack):
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


def test_two_workers_share_a_job_and_no_shard_is_written_twice(stack: Stack, medium_set: Path) -> None:
    shutil.copytree(medium_set, stack.photos / "large")
    stack.up("--scale", "worker=2", "worker", "producer")
    wait_for(lambda: len(live_workers(stack)) == 2, within_s=60, what="both workers")
    stack.submit("/data/large", "--no-train", "--wait", "--shard-images", "8")
    assert_common_outcome(stack, "large")
    logs = [stack.logs("--index", str(number), "worker") for number in (1, 2)]
    written = [[line["shard"] for line in log if line["event"] == "shard_written"] for log in logs]
    assert all(written), "one worker wrote no shard"
    assert sorted(written[0] + written[1]) == sorted(receipt["shard"] for receipt in stack.receipts("large"))
