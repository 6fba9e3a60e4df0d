"""A job on which an embedded run is at work is not the service's, on a store that both have."""

import time
from pathlib import Path

import pytest

from producer.jobs.submit import Request
from producer.reconcile.context import Context
from producer.reconcile.reconciler import Reconciler
from producer.settings import ProducerSettings
from producer.state.local_lock import has_local_run, lock_for_local_run
from producer.state.stored import load_job
from shared.broker import Broker as Hints
from shared.errors import PlanError, StorageError
from shared.jobs.identity import make_note
from shared.jobs.paths import JobPaths
from shared.leasing.scopes import SHARD_QUEUE
from shared.specs.data import JobSpec
from shared.storage import Storage
from tests.cluster import Cluster, wait_until
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


def test_a_local_run_beside_a_broker_that_is_set_loses_no_pair_of_its_own_or_another_job(
    cluster: Cluster, small_voc: Path, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    cluster.worker(VOC_DATA_ROOT=str(elsewhere))
    wait_until(lambda: cluster.broker.ledger().slots("worker") > 0, 30, "a worker that finds none of the photos")
    options = ("--no-train", "--shard-images", "4")
    cluster.producer("submit", str(small_voc.parent), "--job", "other", *options)
    cluster.producer("submit", str(small_voc), "--job", "mine", *options, "--local")
    mine, other = cluster.status("mine"), cluster.status("other")
    assert (mine.state, mine.images_done, mine.quarantined) == ("DONE", 40, 0)
    assert (other.state, other.done) == ("SUBMITTED", 0)


def test_status_tells_of_a_local_run_where_another_broker_is_set(cluster: Cluster, small_voc: Path) -> None:
    cluster.producer("submit", str(small_voc), "--job", "job", "--no-train")
    job, storage = load_job(cluster.storage(), "job"), cluster.storage()
    holder = {"shard": job.shards[0], "worker": "here", "pid": 1}
    note = make_note(job.incarnation, at=time.time(), held=True, attempts=1, holders=[holder], queued=2)
    storage.write(JobPaths("job").progress, note)
    with lock_for_local_run(storage, "job"):
        seen = cluster.status("job")
    assert (seen.leased, seen.queued, seen.attempts) == (1, 2, 1)
    assert cluster.status("job").leased == 0


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
