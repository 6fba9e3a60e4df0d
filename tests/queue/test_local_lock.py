"""A job on which an embedded run is at work is not the service's, on a store that both have."""

import time
from pathlib import Path

import pytest

from producer.local_lock import has_run, only_run_of
from producer.reconcile import Reconciler
from producer.settings import ProducerSettings
from producer.submit import Request, submit
from shared.broker import SHARD_QUEUE
from shared.broker import Broker as Hints
from shared.errors import PlanError, StorageError
from shared.job import JobSpec
from shared.manifest import JobPaths
from tests.cluster import Cluster

LISTING_S = 0.02


def test_a_service_leaves_a_job_to_its_embedded_run_and_takes_it_when_that_has_ended(
    cluster: Cluster, small_voc: Path
) -> None:
    storage, ledger = cluster.storage(), cluster.broker.ledger()
    settings = ProducerSettings(store=str(cluster.store), broker_url=cluster.broker.url, listing_s=LISTING_S)
    service = Reconciler(storage=storage, ledger=ledger, broker=Hints(cluster.broker.url), settings=settings)
    assert service.tick()
    request = Request(dataset=small_voc, name="job", spec=JobSpec(shard_images=4), run=None)
    submit(request, storage=storage, data_root=small_voc.parent, progress=lambda *_: None)
    with only_run_of(storage.local_path(JobPaths("job").root)):
        for _ in range(3):
            time.sleep(2 * LISTING_S)
            assert service.tick()
        assert ledger.queue_length(SHARD_QUEUE) == 0
    time.sleep(2 * LISTING_S)
    assert service.tick()
    assert ledger.queue_length(SHARD_QUEUE) > 0


def test_the_lock_is_seen_while_it_is_held_and_a_look_takes_it_from_nobody(tmp_path: Path) -> None:
    assert not has_run(tmp_path)
    with only_run_of(tmp_path):
        assert has_run(tmp_path)
        assert has_run(tmp_path)
        with pytest.raises(PlanError, match="another --local command works on it already"), only_run_of(tmp_path):
            pass
    assert not has_run(tmp_path)
    with only_run_of(tmp_path):
        assert has_run(tmp_path)


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with (
        pytest.raises(StorageError, match=r"cannot write .*/absent/local\.lock: No such file"),
        only_run_of(tmp_path / "absent"),
    ):
        pass
