"""What a round of the reconciler owes to a job that somebody touched."""

from pathlib import Path

from producer.reconcile import Reconciler
from producer.settings import ProducerSettings
from shared.broker import SHARD_QUEUE
from shared.broker import Broker as Hints
from shared.manifest import JobPaths
from tests.cluster import Cluster


def test_a_touched_job_that_could_not_be_read_is_looked_at_in_the_next_round(cluster: Cluster, small_voc: Path) -> None:
    storage, ledger = cluster.storage(), cluster.broker.ledger()
    settings = ProducerSettings(store=str(cluster.store), broker_url=cluster.broker.url, listing_s=3600)
    service = Reconciler(storage=storage, ledger=ledger, broker=Hints(cluster.broker.url), settings=settings)
    assert service.tick()
    cluster.producer("submit", str(small_voc), "--job", "job", "--no-train")
    stored = storage.local_path(JobPaths("job").job)
    aside = stored.rename(stored.with_name("aside"))
    stored.symlink_to(stored)  # no file system opens a link to itself
    service.tick()
    assert ledger.queue_length(SHARD_QUEUE) == 0
    stored.unlink()
    aside.rename(stored)
    assert service.tick()
    assert ledger.queue_length(SHARD_QUEUE) > 0
