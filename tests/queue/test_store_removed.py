"""A store that was removed beside a living Redis: storage is the truth, so a new job of an old name is done whole."""

import json
import shutil
from pathlib import Path

from shared.job import SPLITS
from shared.lease import Lease, LeaseTerms
from shared.ledger import RUN_UNIT, Unit, job_scope, run_scope
from tests.cluster import Cluster, assert_common_outcome, wait_until

TERMS = LeaseTerms(lease_s=5.0, stall_s=30.0, attempts=5)
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
    ledger.client.hset("voc:job:job:attempts", "train-00000-of-00008", 5)
    shutil.rmtree(cluster.store)
    cluster.producer("submit", str(small_voc), *OPTIONS, "--no-train")
    assert ledger.done_count(job_scope("job")) == 0
    cluster.serve()
    cluster.wait_for("job")
    assert_common_outcome(cluster, "job")
    assert not cluster.events("serve", "shard_done_again")
    assert ledger.read_state(job_scope("job"))["attempts"] == str(shards)


def test_a_run_that_redis_notes_as_done_without_its_files_is_given_to_a_trainer(
    cluster: Cluster, small_voc: Path
) -> None:
    ledger, scope = cluster.broker.ledger(), run_scope("job")
    cluster.producer("submit", str(small_voc), *OPTIONS)
    ledger.mark_done(scope, [0])
    cluster.serve()
    cluster.worker()
    cluster.wait_for("job", states=("TRAINING",))
    wait_until(lambda: ledger.under_way(scope).queued, 30, "the trainer is hinted")
    lease = Lease(
        ledger, Unit(scope=scope, name=RUN_UNIT, ordinal=0), TERMS, worker="trainer-1", should_stop=lambda: False
    )
    assert lease.claim() == ("claimed", 1)
