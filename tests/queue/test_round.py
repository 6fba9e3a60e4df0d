"""What a round of the reconciler owes to a job that somebody touched."""

from pathlib import Path

import pytest

from producer.jobs.control import retry
from producer.reconcile.context import Context
from producer.reconcile.reconciler import Reconciler
from producer.settings import ProducerSettings
from producer.state.stored import load_job
from shared.broker import Broker as Hints
from shared.jobs.paths import JobPaths
from shared.leasing.lease import Holder, Lease
from shared.leasing.scopes import SHARD_QUEUE, Unit, job_scope
from shared.storage import Storage
from tests.cluster import Cluster


def test_a_touched_job_that_could_not_be_read_is_looked_at_in_the_next_round(cluster: Cluster, small_voc: Path) -> None:
    storage, ledger = cluster.storage(), cluster.broker.ledger()
    settings = ProducerSettings(store=str(cluster.store), broker_url=cluster.broker.url, listing_s=3600)
    hints = Hints(cluster.broker.url)
    service = Reconciler(Context(storage=storage, ledger=ledger, broker=hints, settings=settings))
    assert service.tick()
    cluster.producer("submit", str(small_voc), "--job", "job", "--no-train")
    stored = storage.local_path(JobPaths("job").job)
    aside = stored.rename(stored.with_name("aside"))
    stored.symlink_to("/proc/self/mem")  # a file that is there, and whose read fails with EIO as a broken disk's does
    service.tick()
    assert ledger.queue_length(SHARD_QUEUE) == 0
    stored.unlink()
    aside.rename(stored)
    assert service.tick()
    assert ledger.queue_length(SHARD_QUEUE) > 0


class RetryBetweenRounds(Storage):
    """A store of a `retry` during which the service makes a whole round after each failure that is taken back."""

    def __init__(self, root: str, service: Reconciler) -> None:
        super().__init__(root)
        self.service = service

    def remove(self, key: str) -> None:
        super().remove(key)
        if "/failed/" in key:
            assert self.service.tick()


@pytest.mark.parametrize("rounds_before", [0, 1], ids=["just failed", "failed for a while"])
def test_a_round_in_the_middle_of_a_retry_gives_no_shard_up_again(
    cluster: Cluster, small_voc: Path, rounds_before: int
) -> None:
    storage, ledger = cluster.storage(), cluster.broker.ledger()
    settings = ProducerSettings(
        store=str(cluster.store), broker_url=cluster.broker.url, attempts=1, failed_share=0, listing_s=1e-6
    )
    service = Reconciler(Context(storage=storage, ledger=ledger, broker=Hints(cluster.broker.url), settings=settings))
    assert service.tick()
    cluster.producer("submit", str(small_voc), "--job", "job", "--no-train", "--shard-images", "20")
    assert service.tick()
    job = load_job(storage, "job")
    holder = Holder(ledger=ledger, worker="worker-1", lease_s=60, stall_s=30, attempts=1)
    for shard in job.shards:
        lease = Lease(holder, Unit(scope=job_scope(job), name=shard, ordinal=job.ordinal(shard)))
        assert lease.claim() == ("claimed", 1)
        lease.release(counted=True, error="a full disk")
    assert service.tick()
    assert cluster.state("job") == "FAILED"
    for _ in range(rounds_before):
        assert service.tick()
    retry(RetryBetweenRounds(str(cluster.store), service), ledger, "job", only_failed=True)
    assert service.tick()
    assert cluster.state("job") == "SUBMITTED"
    assert ledger.queue_length(SHARD_QUEUE) > 0
