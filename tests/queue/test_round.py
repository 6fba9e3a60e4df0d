"""What a round of the reconciler owes to a job that somebody touched."""

from pathlib import Path

from producer.reconcile.context import Context
from producer.reconcile.reconciler import Reconciler
from producer.settings import ProducerSettings
from shared.broker import Broker as Hints
from shared.jobs.paths import JobPaths
from shared.leasing.scopes import SHARD_QUEUE
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
