"""A store that another version wrote: finished where it can be, else refused with a text that says what to do.

`tests/golden/store-0.1.0` was written by version 0.1.0 from `tests/golden/voc` (as /data/golden): a job of six
shards, one of them done, and the request of its run. A change that this version cannot finish it after is a change
of `SCHEMA_VERSION`.
"""

import json
import shutil
from pathlib import Path

import pytest

from shared.broker import SHARD_TASK, celery_app
from shared.jobs.paths import RunPaths
from shared.leasing.scopes import SHARD_QUEUE
from tests.cluster import Cluster, assert_common_outcome, wait_until
from trainer.task import admit

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
FIRST = "train-00000-of-00004"


@pytest.fixture
def upgraded(cluster: Cluster, tmp_path: Path) -> Cluster:
    """The store of version 0.1.0 and its photos, nothing started."""
    shutil.copytree(GOLDEN / "store-0.1.0", cluster.store)
    shutil.copytree(GOLDEN / "voc", tmp_path / "data/golden")
    cluster.data_root = tmp_path / "data"
    return cluster


def _rewrite(path: Path, **fields: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def _refused(cluster: Cluster, log: str = "serve", event: str = "job_unreadable") -> str:
    wait_until(lambda: cluster.events(log, event), 30, event)
    return str(cluster.events(log, event)[0]["reason"])


def test_a_job_begun_by_the_first_version_is_finished(upgraded: Cluster) -> None:
    before = (upgraded.store / "jobs/upgraded/shards" / f"{FIRST}.json").read_bytes()
    upgraded.serve()
    upgraded.worker()
    upgraded.wait_for("upgraded", states=("TRAINING",))
    manifest = assert_common_outcome(upgraded, "upgraded")
    assert sum(manifest.examples(split) for split in manifest.splits) == 12
    assert (upgraded.store / "jobs/upgraded/shards" / f"{FIRST}.json").read_bytes() == before
    assert admit({"run": "upgraded"}, upgraded.storage()).job == "upgraded"


def test_the_same_submit_after_an_upgrade_goes_on_with_the_old_job(upgraded: Cluster) -> None:
    # Of the first version's options; those that came later are left at their defaults.
    options = ("--job", "upgraded", "--image-size", "64", "--shard-images", "2", "--model", "nano", "--epochs", "1")
    again = upgraded.producer("submit", str(upgraded.data_root / "golden"), *options)
    assert "known already" in again.stderr
    other = upgraded.producer("submit", str(upgraded.data_root / "golden"), *options, "--batch", "4", check=False)
    assert "training options (batch): --run NAME trains on its shards with these" in other.stderr


@pytest.mark.parametrize(("version", "age"), [(0, "an older"), (2, "a newer")])
def test_a_job_of_another_version_is_refused_and_the_others_go_on(upgraded: Cluster, version: int, age: str) -> None:
    upgraded.serve()
    upgraded.worker()
    upgraded.wait_for("upgraded", states=("TRAINING",))
    shutil.copytree(GOLDEN / "store-0.1.0/jobs/upgraded", upgraded.store / "jobs/other")
    _rewrite(upgraded.store / "jobs/other/job.json", job="other", schema_version=version)
    files = sorted(path.name for path in (upgraded.store / "jobs/other").rglob("*"))
    upgraded.broker.ledger().touch("other")
    reason = _refused(upgraded)
    assert "jobs/other/job.json" in reason
    assert f"schema version {version}" in reason
    assert age in reason
    told = upgraded.producer("status", "other", check=False)
    assert told.returncode == 1
    assert f"schema version {version}" in told.stderr
    listed = upgraded.producer("list")
    assert "upgraded" in listed.stdout
    assert "other is left out" in listed.stderr
    assert sorted(path.name for path in (upgraded.store / "jobs/other").rglob("*")) == files


def test_a_service_that_starts_beside_a_job_of_another_version_serves_the_rest(upgraded: Cluster) -> None:
    shutil.copytree(GOLDEN / "store-0.1.0/jobs/upgraded", upgraded.store / "jobs/aaa")
    _rewrite(upgraded.store / "jobs/aaa/job.json", job="aaa", schema_version=2)
    service = upgraded.serve(VOC_LEASE_S="1")
    upgraded.worker()
    upgraded.wait_for("upgraded", states=("TRAINING",))
    assert service.poll() is None


def test_a_plan_of_another_version_is_refused_and_the_service_stays(upgraded: Cluster) -> None:
    plan = upgraded.store / "jobs/upgraded/plan.jsonl"
    plan.write_text(plan.read_text().replace('"schema_version":1', '"schema_version":2'))
    service = upgraded.serve(VOC_LEASE_S="1")
    reason = _refused(upgraded)
    assert "plan.jsonl, line 2: schema version 2" in reason
    assert service.poll() is None


def test_a_receipt_of_another_version_is_left_as_it_is(upgraded: Cluster) -> None:
    path = upgraded.store / "jobs/upgraded/shards" / f"{FIRST}.json"
    _rewrite(path, schema_version=2)
    before = path.read_bytes()
    upgraded.serve(VOC_LEASE_S="1")
    upgraded.worker()
    assert f"{FIRST}.json: schema version 2" in _refused(upgraded)
    assert path.read_bytes() == before
    assert not (upgraded.store / "jobs/upgraded/manifest.json").exists()


def test_a_damaged_receipt_is_written_again(upgraded: Cluster) -> None:
    upgraded.serve(VOC_LEASE_S="1")
    wait_until(
        lambda: upgraded.broker.ledger().done_count(upgraded.scope("upgraded")) == 1, 30, "the ledger is rebuilt"
    )
    path = upgraded.store / "jobs/upgraded/shards" / f"{FIRST}.json"
    path.write_bytes(path.read_bytes()[:100])
    upgraded.worker()
    upgraded.wait_for("upgraded", states=("TRAINING",))
    assert_common_outcome(upgraded, "upgraded")


def test_a_message_of_another_version_is_refused_with_both_versions_and_the_worker_goes_on(upgraded: Cluster) -> None:
    line = json.loads(next(upgraded.storage().lines("jobs/upgraded/plan.jsonl")))
    app = celery_app("older", upgraded.broker.url, SHARD_QUEUE)
    app.send_task(SHARD_TASK, args=[{**line, "schema_version": 2}], queue=SHARD_QUEUE)
    upgraded.worker()
    assert "schema version 2, and voc2tflite" in _refused(upgraded, "worker", "message_refused")
    upgraded.serve()
    upgraded.wait_for("upgraded", states=("TRAINING",))


def test_a_trainer_fails_a_request_of_another_version_with_the_reason(upgraded: Cluster) -> None:
    request = upgraded.store / RunPaths("upgraded").request
    _rewrite(request, schema_version=0)
    upgraded.serve()
    upgraded.worker()
    upgraded.trainer()
    status = upgraded.wait_for("upgraded", states=("FAILED",))
    reason = (upgraded.store / RunPaths("upgraded").failed).read_text()
    assert "request.json: schema version 0" in reason
    assert "an older version" in reason
    assert status.done == status.shards


def test_the_queue_of_the_first_version_is_worked_off(upgraded: Cluster) -> None:
    """Its messages carry no identity, as its jobs have none."""
    app = celery_app("older", upgraded.broker.url, SHARD_QUEUE)
    lines = [json.loads(line) for line in upgraded.storage().lines("jobs/upgraded/plan.jsonl")]
    for line in lines:
        app.send_task(SHARD_TASK, args=[line], queue=SHARD_QUEUE)
    upgraded.worker()
    wait_until(lambda: upgraded.status("upgraded").done == len(lines), 60, "every message is done")
    upgraded.serve(VOC_LEASE_S="1")
    upgraded.wait_for("upgraded", states=("TRAINING",))
    assert_common_outcome(upgraded, "upgraded")
