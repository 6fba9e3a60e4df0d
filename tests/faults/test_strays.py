"""Rows 22 and 23 of docs/faults.md: files in the store and values in Redis that are none of ours."""

import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from producer.reconcile.dispatch import LEAST_WINDOW
from producer.state.status import JobStatus
from producer.state.stored import load_job
from shared.leasing.scopes import SHARD_QUEUE
from tests.cluster import Cluster, assert_chain, assert_common_outcome, wait_until

pytestmark = pytest.mark.faults
Tell = Callable[[str, JobStatus], None]
SMALL = ("--no-train", "--shard-images", "4")


def litter(store: Path, job: str) -> None:
    """What file browsers, sync programs and people leave in a store."""
    for folder in (".", "jobs", "runs", f"jobs/{job}", f"jobs/{job}/shards", f"jobs/{job}/failed"):
        (store / folder).mkdir(parents=True, exist_ok=True)
        for name in (".DS_Store", "Thumbs.db", "desktop.ini", "._x", "notes.txt", "a (1).json", "empty.json"):
            (store / folder / name).write_bytes(b"")
        (store / folder / "New Folder").mkdir(exist_ok=True)
    shards, failed = store / f"jobs/{job}/shards", store / f"jobs/{job}/failed"
    (shards / "train-00000-of-00008 (1).json").write_text("{}")
    (shards / "train-00000-of-00099.json").write_text("{}")
    (failed / "train-00001-of-00008.json").write_bytes(b"")
    (failed / "train-00002-of-00008.json").write_text("[]")
    (failed / "train-00099-of-00008.json").write_text('{"reason":"x"}')
    for folder in ("jobs/file", "runs/file"):
        (store / folder).write_text("a file where a folder should be")
    for folder in ("jobs/folder/job.json", "runs/folder/request.json", "jobs/half", "runs/half"):
        (store / folder).mkdir(parents=True)
    (store / "jobs/half/job.json").write_text('{"job":"half"')
    (store / "runs/half/request.json").write_text("")
    (store / "jobs/loop").symlink_to(store / "jobs/loop")
    for circle in (path / "train-00004-of-00008.json" for path in (shards, failed, store / f"jobs/{job}")):
        circle.symlink_to(circle)
    (store / "jobs/with space").mkdir()
    (store / f"jobs/{job}/cancelled.json").write_text("not ours")
    (store / f"jobs/{job}/retried.json").write_text("[1]")
    (store / f"jobs/{job}/reused.json").write_text('{"shards":"many"}')


@pytest.mark.usefixtures("only_folder")
@pytest.mark.parametrize("when", ["before", "during"])
def test_stray_files_stop_no_job_and_no_service(cluster: Cluster, small_voc: Path, tell: Tell, when: str) -> None:
    if when == "before":
        litter(cluster.store, "job")
    service = cluster.serve(VOC_LISTING_S="1", VOC_LEASE_S="1")
    cluster.producer("submit", str(small_voc), "--job", "job", *SMALL)
    if when == "during":
        litter(cluster.store, "job")
    worker = cluster.worker()  # only now: what it has written is never littered over
    status = cluster.wait_for("job")
    assert assert_common_outcome(cluster, "job").failed == ()
    assert_chain(cluster, "job")
    cluster.producer("submit", str(small_voc), "--job", "next", *SMALL, "--seed", "1")
    cluster.wait_for("next")
    listed = json.loads(cluster.producer("list", "--json").stdout)
    assert [row["job"] for row in listed] == ["job", "next"]
    assert service.poll() is None
    assert worker.poll() is None
    restarted = cluster.serve(VOC_LISTING_S="1", VOC_LEASE_S="1")
    service.kill()
    cluster.producer("rm", "job", "--yes")
    assert not (cluster.store / "jobs/job").exists()
    time.sleep(3)
    assert restarted.poll() is None
    tell(f"stray files everywhere {when} the job", status)


SHARD = "train-{:05d}-of-00008".format
LEASE = "{scope}:lease:" + SHARD(6)

# Commands that leave what nobody of ours has written; `{scope}` is the job's. Keys of another type are deleted first.
VALUES: dict[str, list[list[Any]]] = {
    "common keys of other types": [
        ["HSET", "voc:generation", "a", "b"],
        ["SADD", "voc:leader", "x"],
        ["LPUSH", "voc:reconciled", "x"],
        ["SET", "voc:touched", "x"],
        ["HSET", "voc:worker:hash", "a", "b"],
    ],
    "common keys of other forms": [
        ["SET", "voc:leader", "nobody"],
        ["SET", "voc:reconciled", "soon"],
        ["SADD", "voc:touched", "../../etc", ".DS_Store", "", "\x00", b"\xff\xfe", "no-such-job", "x" * 500],
        ["SET", "voc:worker:evil", "{}"],
        ["SET", "voc:worker:list", "[]"],
        ["SET", "voc:worker:text", "no JSON"],
        ["SET", "voc:worker:bytes", b"\xff\xfe"],
        ["SET", "voc:worker:slots", '{"kind":"worker","slots":"many"}'],
        ["SET", "voc:worker:huge", '{"kind":"worker","slots":1e30}'],
        ["SET", "voc:worker:deep", "[" * 100_000],
    ],
    "the job's keys of other types": [
        ["SET", "{scope}", "x"],
        ["SET", "{scope}:queued", "x"],
        ["SET", "{scope}:leased", "x"],
        ["LPUSH", LEASE, "evil"],
        ["SADD", "{scope}:attempts", "x"],
        ["SET", "{scope}:errors", "x"],
        ["SADD", "{scope}:done", "x"],
    ],
    "the job's keys of other forms": [
        ["HSET", "{scope}", "state", "[/x]", "written", "many", "quarantined", "-1", "images_per_s", "nan"],
        ["HSET", "{scope}", "attempts", "1e99", "retried", "-5", "cancelled", "1", "last_error", b"\xff\x1b[2J"],
        ["ZADD", "{scope}:queued", "inf", SHARD(1), "-inf", SHARD(2), "1", "evil"],
        ["HSET", "{scope}:leased", SHARD(3), "no JSON", SHARD(4), "[]", "evil", '{"worker":"[/x]"}'],
        ["HSET", "{scope}:leased", SHARD(5), '{"images":"x","since":"then","pid":[]}'],
        ["HSET", "{scope}:leased", SHARD(0), f'{{"images":1{"0" * 400},"since":1e308,"worker":"\\ud800"}}'],
        ["SET", LEASE, "without an end"],
        ["HSET", "{scope}:attempts", SHARD(7), "many", "evil", "99", b"\xff", "1"],
    ],
    "every shard noted as done": [["SET", "{scope}:done", b"\xff\xff\xff\xff"]],
    "queues of other types": [["SET", SHARD_QUEUE, "x"], ["SET", "_kombu.binding.shards", "x"]],
}


@pytest.mark.parametrize("what", VALUES)
def test_values_in_redis_that_are_none_of_ours_delay_one_job_at_most(
    cluster: Cluster, small_voc: Path, tell: Tell, what: str
) -> None:
    client = cluster.broker.ledger().client
    service = cluster.serve(VOC_LISTING_S="3", VOC_LOST_AFTER_S="3")
    cluster.producer("submit", str(small_voc), "--job", "job", *SMALL)
    scope = f"voc:{cluster.scope('job')}"
    wait_until(lambda: cluster.under_way(cluster.scope("job")).queued, 30, "the service knows the job")
    for command in VALUES[what]:
        words = [word.replace("{scope}", scope) if isinstance(word, str) else word for word in command]
        if "type" in what:
            client.delete(words[1])
        client.execute_command(*words)
    cluster.producer("status", "job")
    cluster.producer("list")
    cluster.producer("submit", str(small_voc), "--job", "other", *SMALL, "--seed", "1")
    worker = cluster.worker()

    def is_done(job: str) -> bool:
        """Celery ends a worker whose queue is none; whoever runs it starts it again."""
        nonlocal worker
        if worker.poll() is not None:
            worker = cluster.worker()
        return cluster.state(job) == "DONE"

    for job in ("job", "other"):
        wait_until(partial(is_done, job), 60, f"{job} is done")
        assert_common_outcome(cluster, job)
        assert_chain(cluster, job)
    assert service.poll() is None
    assert cluster.producer("doctor", "--json", check=False).returncode in (0, 1)
    tell(f"{what} in Redis", cluster.status("job"))


def test_a_clock_that_is_set_back_keeps_no_lost_hint(cluster: Cluster, small_voc: Path, tell: Tell) -> None:
    cluster.serve(VOC_LISTING_S="600")
    cluster.producer("submit", str(small_voc), "--job", "job", *SMALL)
    scope = cluster.scope("job")
    client = cluster.broker.ledger().client
    # A hint is noted before it is sent: only a full window says that no message follows the deletion.
    wait_until(lambda: client.llen(SHARD_QUEUE) == LEAST_WINDOW, 30, "all hints of the window are sent")
    client.delete(SHARD_QUEUE)
    for unit in cluster.under_way(scope).queued:
        client.zadd(f"voc:{scope}:queued", {unit: time.time() + 3600})
    cluster.worker()
    took = wait_until(lambda: cluster.state("job") == "DONE", 60, "the job is done")
    assert cluster.events("serve", "hint_lost")
    assert_common_outcome(cluster, "job")
    job = load_job(cluster.storage(), "job")
    assert job.incarnation
    tell(f"hints of the future that are in no queue, done after {took:.1f} s", cluster.status("job"))
