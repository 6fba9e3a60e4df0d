"""What dies, and what is there afterwards: the outcomes of docs/faults.md, on containers."""

import json
import shutil
from pathlib import Path

import pytest

from tests.docker.stack import Stack, assert_common_outcome, docker, kill_main_process, wait_for

pytestmark = [pytest.mark.docker, pytest.mark.timeout(900)]


def _restarts(container: str) -> int:
    return int(docker("inspect", "-f", "{{.RestartCount}}", container))


def _begin(stack: Stack, photos: Path) -> None:
    """A job of 16 shards under way, some of them done."""
    shutil.copytree(photos, stack.photos / "large")
    stack.up("--scale", "worker=2", "worker", "producer")
    stack.submit("/data/large", "--no-train", "--shard-images", "16")
    wait_for(lambda: len(stack.receipts("large")) >= 2, within_s=90, what="two shards")
    assert len(stack.receipts("large")) < 16


def _finish(stack: Stack, within_s: float = 180) -> None:
    manifest = stack.store / "jobs/large/manifest.json"
    wait_for(manifest.exists, within_s=within_s, what="the manifest")
    assert_common_outcome(stack, "large")


def test_a_killed_worker_is_started_again_and_its_shard_is_done(stack: Stack, medium_set: Path) -> None:
    _begin(stack, medium_set)
    victim = stack.containers("worker")[0]
    kill_main_process(victim)
    wait_for(lambda: _restarts(victim) == 1, within_s=20, what="a restart")
    _finish(stack)
    assert _restarts(victim) == 1


def test_a_killed_redis_is_started_again_and_the_job_goes_on(stack: Stack, medium_set: Path) -> None:
    _begin(stack, medium_set)
    redis = stack.containers("redis")[0]
    kill_main_process(redis)
    wait_for(lambda: _restarts(redis) == 1, within_s=20, what="a restart")
    _finish(stack)
    assert _restarts(redis) == 1


def test_a_killed_producer_is_started_again_and_the_job_goes_on(stack: Stack, medium_set: Path) -> None:
    _begin(stack, medium_set)
    producer = stack.containers("producer")[0]
    kill_main_process(producer)
    wait_for(lambda: _restarts(producer) == 1, within_s=20, what="a restart")
    _finish(stack)
    assert _restarts(producer) == 1


def test_down_and_up_in_the_middle_loses_nothing(stack: Stack, medium_set: Path) -> None:
    _begin(stack, medium_set)
    stack.compose("down")
    done = {receipt["shard"]: receipt["sha256"] for receipt in stack.receipts("large")}
    stack.up("--scale", "worker=2", "worker", "producer")
    _finish(stack)
    after = {receipt["shard"]: receipt["sha256"] for receipt in stack.receipts("large")}
    assert done.items() <= after.items()
    assert {receipt["attempt"] for receipt in stack.receipts("large")} == {1}


def test_a_lost_redis_volume_is_rebuilt_from_the_store(stack: Stack, medium_set: Path) -> None:
    _begin(stack, medium_set)
    stack.compose("rm", "--stop", "--force", "--volumes", "redis")
    docker("volume", "rm", f"{stack.name}_redis")
    stack.up("redis")
    _finish(stack)
    assert any(line["event"] == "redis_lost" for line in stack.logs("producer"))


def test_a_full_disk_fails_with_its_reason_and_retry_mends_it(stack: Stack, small_set: Path) -> None:
    small = Stack(
        name=stack.name,
        folder=stack.folder,
        environment={**stack.environment, "VOC_ATTEMPTS": "2"},
        files=("docker-compose.yml", "tests/docker/full_disk.yml"),
    )
    shutil.copytree(small_set, stack.photos / "small")
    try:
        _fill_and_retry(small)
        assert _state(small, "small") == "DONE"
    finally:
        small.down()  # only its files name the small volume


def _fill_and_retry(small: Stack) -> None:
    small.up("--scale", "worker=1", "worker", "producer")
    in_store = ("exec", "-T", "producer", "sh", "-c")
    # Full but for 128 KiB: room for notes of what failed, not for a shard.
    small.compose(*in_store, "head -c 1G /dev/zero >/out/ballast; truncate -s -128K /out/ballast")
    text = small.submit("/data/small", "--no-train", "--wait", expect=(3,))
    assert "No space left on device" in " ".join(text.split())
    assert ".tfrecord" not in small.compose(*in_store, "find /out -name '*.tmp-*'")
    small.compose(*in_store, "rm /out/ballast")
    small.producer("retry", "small")
    wait_for(lambda: _state(small, "small") == "DONE", within_s=180, what="done after retry")


def _state(stack: Stack, job: str) -> str:
    text = stack.compose("exec", "-T", "producer", "python", "-m", "producer", "status", job, "--json")
    return str(json.loads(text[text.index("{") :])["state"])
