"""A store that was removed beside a living Redis: storage is the truth, so a new job of an old name is done whole."""

import json
import shutil
from pathlib import Path

from shared.jobs.job import SPLITS
from shared.leasing.lease import Holder, Lease
from shared.leasing.scopes import RUN_UNIT, Unit
from tests.cluster import Cluster, assert_common_outcome, wait_until

OPTIONS = ("--job", "job", "--shard-images", "4")


def _shards(cluster: Cluster) -> int:
    splits = json.loads((cluster.store / "jobs/job/job.json").read_text())["splits"]
    return sum(len(splits[split]["digests"]) for split in SPLITS if split in splits)


def test_a_new_job_does_not_inherit_what_redis_knows_of_a_removed_one(cluster: Cluster, small_voc: Path) -> None:
    cluster.worker()
    first = cluster.serve()
    cluster.producer("submit", str(small_voc), *OPTIONS, "--no-train")
    cluster.wait_for("job")
    first.kill()
    first.wait()
    shards = _shards(cluster)
    ledger = cluster.broker.ledger()
    before = cluster.scope("job")
    ledger.client.hset(f"voc:{before}:attempts", "train-00000-of-00008", 5)
    shutil.rmtree(cluster.store)
    cluster.producer("submit", str(small_voc), *OPTIONS, "--no-train")
    assert cluster.scope("job") != before
    assert ledger.done_count(cluster.scope("job")) == 0
    cluster.serve()
    cluster.wait_for("job")
    assert_common_outcome(cluster, "job")
    assert not cluster.events("serve", "shard_done_again")
    assert ledger.read_state(cluster.scope("job")).attempts == shards


def test_a_run_that_redis_notes_as_done_without_its_files_is_given_to_a_trainer(
    cluster: Cluster, small_voc: Path
) -> None:
    cluster.producer("submit", str(small_voc), *OPTIONS)
    ledger, scope = cluster.broker.ledger(), cluster.run_scope("job")
    ledger.mark_done(scope, [0])
    cluster.serve()
    cluster.worker()
    cluster.wait_for("job", states=("TRAINING",))
    wait_until(lambda: cluster.under_way(scope).queued, 30, "the trainer is hinted")
    holder = Holder(ledger=ledger, worker="trainer-1", lease_s=5, stall_s=30, attempts=5)
    lease = Lease(holder, Unit(scope=scope, name=RUN_UNIT, ordinal=0))
    assert lease.claim() == ("claimed", 1)
