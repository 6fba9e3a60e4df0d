"""What people and Prometheus are told of a job, from a real ledger, and from storage alone where that is empty."""

import json
import time
from pathlib import Path
from typing import cast

import pytest

from producer.jobs.control import note_of
from producer.jobs.submit import Request
from producer.run.metrics import PipelineMetrics
from producer.state.stored import load_job
from shared.jobs.job import Job, ShardTask
from shared.jobs.paths import JobPaths
from shared.leasing.guard import Unguarded
from shared.leasing.lease import Holder, Lease
from shared.leasing.ledger import Ledger
from shared.leasing.scopes import SHARD_QUEUE, Demand, Unit, job_scope
from shared.specs.data import JobSpec
from shared.storage import Storage
from tests.cluster import Broker, Cluster
from tests.unit.producer.folders import lint_and_submit
from worker.shard import write_shard

# Printed by `producer status --json`, promised in docs/formats.md: add, never rename or take away.
KEYS = [
    *("job", "state", "shards", "done", "reused", "queued", "leased", "failed", "pending"),
    *("images", "images_done", "quarantined", "attempts", "images_per_s", "eta_s", "last_error"),
    *("failures", "holders", "run", "runs", "size_bytes", "why", "next", "age_s", "took_s"),
    *("map50", "map50_interval", "map", "map_interval", "objects", "model", "warnings"),
]


def claim(ledger: Ledger, job: Job, ordinal: int) -> Lease:
    unit = Unit(scope=job_scope(job), name=job.shards[ordinal], ordinal=ordinal)
    lease = Lease(Holder(ledger=ledger, worker="host-1", lease_s=30, stall_s=60, attempts=5), unit)
    lease.claim()
    return lease


@pytest.fixture
def under_way(cluster: Cluster, small_voc: Path) -> Storage:
    """A job of 11 shards: two done in two and three attempts, one failed, one leased with 2 pictures, one queued."""
    storage, ledger = cluster.storage(), cluster.broker.ledger()
    request = Request(dataset=small_voc, name="job", spec=JobSpec(shard_images=4), run=None)
    lint_and_submit(request, storage=storage, data_root=small_voc.parent)
    job = load_job(storage, "job")
    tasks = [ShardTask.model_validate_json(line) for line in storage.lines(JobPaths("job").shown_plan)]
    for ordinal, failures in ((0, 1), (1, 2)):
        for _ in range(failures):
            claim(ledger, job, ordinal).release(counted=True, error="x: disk full")
        lease = claim(ledger, job, ordinal)
        receipt = write_shard(
            tasks[ordinal], job, storage=storage, data_root=small_voc.parent, guard=Unguarded(), attempt=failures + 1
        )
        lease.complete(written=receipt.written, quarantined=receipt.quarantined)
    reason = note_of(job, shard=job.shards[2], attempts=5, reason="cannot write /out: No space left on device")
    storage.write(JobPaths("job").failure(job.shards[2]), reason)
    holder = claim(ledger, job, 3)
    holder.advance(images=2)
    holder.before_publish()
    ledger.mark_queued(job_scope(job), job.shards[4])
    ledger.write_state(job_scope(job), state="RUNNING", images_per_s=5.0)
    return storage


def told(cluster: Cluster, *words: str) -> dict[str, object]:
    answer: dict[str, object] = json.loads(cluster.producer("status", "job", "--json", *words).stdout)
    return answer


def test_status_tells_what_is_done_held_queued_and_failed(cluster: Cluster, under_way: Storage) -> None:
    status = told(cluster)
    assert list(status) == KEYS
    facts = {key: status[key] for key in KEYS[: KEYS.index("failures")]}
    assert facts == {
        "job": "job",
        "state": "RUNNING",
        "shards": 11,
        "done": 2,
        "reused": 0,
        "queued": 1,
        "leased": 1,
        "failed": 1,
        "pending": 6,
        "images": 40,
        "images_done": facts["images_done"],
        "quarantined": 0,
        "attempts": 6,
        "images_per_s": 5.0,
        "eta_s": (40 - int(str(facts["images_done"]))) / 5,
        "last_error": "train-00001-of-00008: x: disk full",
    }
    assert status["failures"] == {"train-00002-of-00008": "cannot write /out: No space left on device"}
    (holder,) = cast(list[dict[str, object]], status["holders"])
    assert (holder["shard"], holder["worker"], holder["images"]) == ("train-00003-of-00008", "host-1", 2)


def test_status_of_an_emptied_redis_is_that_of_the_store(cluster: Cluster, under_way: Storage) -> None:
    before = told(cluster)
    cluster.broker.ledger().client.flushall()
    after = told(cluster)
    same = ("state", "shards", "done", "failed", "images", "quarantined", "failures")
    assert {key: after[key] for key in same} == {key: before[key] for key in same}
    assert after["images_done"] == int(str(before["images_done"])) - 2  # what the holder had in hand
    assert after["attempts"] == 5  # of the receipts: the holder's claim is forgotten
    assert "No space left" in str(after["last_error"])
    cluster.broker.kill()
    ended = cluster.producer("status", "job", "--json")
    told_last = json.loads(ended.stdout)
    ages = ("why", "next", "age_s")
    assert {**told_last, **dict.fromkeys(ages)} == {**after, **dict.fromkeys(ages)}
    assert told_last["why"] == "2 of 11 shards done, Redis cannot be reached to ask who works on it"
    assert "doctor" in told_last["next"]
    assert "Redis cannot be reached" in ended.stderr


def test_a_person_reads_who_holds_what_and_why_it_failed(cluster: Cluster, under_way: Storage) -> None:
    text = cluster.producer("status", "job").stdout
    for fact in (
        "job: RUNNING",
        "2/11 done",
        "5 images/s",
        "ETA",
        "by host-1",
        "2 photos",
        "No space left",
        "6 attempts",
    ):
        assert fact in text, fact
    listed = cluster.producer("list", COLUMNS="80").stdout
    assert "job" in listed
    assert max(map(len, listed.splitlines())) <= 80


def test_every_metric_has_its_value(broker: Broker, cluster: Cluster, under_way: Storage) -> None:
    ledger = broker.ledger()
    ledger.note_round(Demand(shards=0, runs=0))
    ledger.beat("host-1", kind="worker", slots=3, pid=1, queue=SHARD_QUEUE)
    ledger.client.lpush(SHARD_QUEUE, "x", "y")
    time.sleep(0.2)
    found = {
        (sample.name, *sorted(value for key, value in sample.labels.items() if key != "job_name")): sample.value
        for family in PipelineMetrics(under_way, ledger, 0.1).collect()
        for sample in family.samples
    }
    exact = {
        ("voc_redis_up",): 1,
        ("voc_jobs", "RUNNING"): 1,
        ("voc_shards", "done"): 2,
        ("voc_shards", "queued"): 1,
        ("voc_shards", "leased"): 1,
        ("voc_shards", "failed"): 1,
        ("voc_shards", "pending"): 6,
        ("voc_attempts",): 6,
        ("voc_failures", "No space left on device"): 1,
        ("voc_leases",): 1,
        ("voc_images_per_second",): 5,
        ("voc_worker_processes", "worker"): 3,
        ("voc_worker_processes", "trainer"): 0,
        ("voc_queue_messages", "shards"): 2,
        ("voc_queue_messages", "train"): 0,
    }
    assert {key: found.get(key) for key in exact} == exact
    for age in ("voc_oldest_pending_shard_seconds", "voc_oldest_lease_seconds", "voc_reconcile_age_seconds"):
        assert 0.2 <= found[(age,)] < 60, age
    assert found[("voc_images_done",)] == told(cluster)["images_done"]
    assert len(found) == len(exact) + 4
    broker.kill()
    assert [family.name for family in PipelineMetrics(under_way, ledger, 0.1).collect()] == ["voc_redis_up"]
