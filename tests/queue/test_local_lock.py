"""A job on which an embedded run is at work is not the service's, on a store that both have."""

import time
from pathlib import Path

import pytest

from producer.jobs.local_lock import has_local_run, lock_for_local_run
from producer.jobs.submit import Request
from producer.reconcile.context import Context
from producer.reconcile.reconciler import Reconciler
from producer.settings import ProducerSettings
from shared.broker import Broker as Hints
from shared.errors import PlanError, StorageError
from shared.jobs.paths import JobPaths
from shared.jobs.specs import JobSpec
from shared.leasing.scopes import SHARD_QUEUE
from shared.storage import Storage
from tests.cluster import Cluster
from tests.unit.producer.folders import lint_and_submit

LISTING_S = 0.02


def test_a_service_leaves_a_job_to_its_embedded_run_and_takes_it_when_that_has_ended(
    cluster: Cluster, small_voc: Path, store_root: str
) -> None:
    storage, ledger = Storage(store_root), cluster.broker.ledger()
    settings = ProducerSettings(store=store_root, broker_url=cluster.broker.url, listing_s=LISTING_S)
    hints = Hints(cluster.broker.url)
    service = Reconciler(Context(storage=storage, ledger=ledger, broker=hints, settings=settings))
    assert service.tick()
    asked = Request(dataset=small_voc, name="job", spec=JobSpec(shard_images=4), run=None)
    lint_and_submit(asked, storage=storage, data_root=small_voc.parent)
    with lock_for_local_run(storage, "job"):
        for _ in range(3):
            time.sleep(2 * LISTING_S)
            assert service.tick()
        assert ledger.queue_length(SHARD_QUEUE) == 0
    time.sleep(2 * LISTING_S)
    assert service.tick()
    assert ledger.queue_length(SHARD_QUEUE) > 0


def test_the_lock_is_seen_while_it_is_held_and_a_look_takes_it_from_nobody(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    storage.local_path(JobPaths("job").root).mkdir(parents=True)
    assert not has_local_run(storage, "job")
    with lock_for_local_run(storage, "job"):
        assert has_local_run(storage, "job")
        assert has_local_run(storage, "job")
        with (
            pytest.raises(PlanError, match="job job: another --local command works on it already"),
            lock_for_local_run(storage, "job"),
        ):
            pass
    assert not has_local_run(storage, "job")
    with lock_for_local_run(storage, "job"):
        assert has_local_run(storage, "job")


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with (
        pytest.raises(StorageError, match=r"cannot lock .*/absent/local\.lock: No such file"),
        lock_for_local_run(Storage(str(tmp_path)), "absent"),
    ):
        pass
