"""A training whose store is in a bucket that fails: shards that come damaged, and a server that is killed."""

import uuid
from collections import Counter
from pathlib import Path

import pytest

from shared.jobs.paths import RunPaths
from tests.cluster import Broker, Cluster, assert_chain, assert_common_outcome, wait_until
from tests.object_server import Cutting, ObjectServer, Trouble, Troubled, gateway_before

pytestmark = [pytest.mark.faults, pytest.mark.timeout(900)]

# But for the epochs.
OPTIONS = (
    *("--job", "job", "--shard-images", "2", "--image-size", "64", "--model", "nano", "--max-drop", "100"),
    *("--backbone", "conv", "--epochs"),
)


class _CutAndFlipped(Cutting, Troubled):
    """Of each shard that it hands out it changes a byte and cuts the half."""


def test_a_trainer_learns_from_shards_that_were_cut_short_and_changed_on_their_way(
    broker: Broker, small_voc: Path, tmp_path: Path, object_server: ObjectServer
) -> None:
    trouble, cut = Trouble("flipped", frozenset({"GET"}), ".tfrecord"), Counter[str]()
    cluster = Cluster(
        broker=broker, store=tmp_path / "store", data_root=small_voc.parent, url=object_server.url(uuid.uuid4().hex)
    )
    cluster.settings["VOC_SHARD_CACHE"] = str(tmp_path / "cache")
    try:
        with gateway_before(object_server, _CutAndFlipped, trouble=trouble, cut=cut, cuts=1, of=".tfrecord") as url:
            cluster.serve()
            cluster.worker()
            cluster.producer("submit", str(small_voc), *OPTIONS, "2")
            cluster.trainer(AWS_ENDPOINT_URL=url)
            cluster.wait_for("job", timeout_s=600)
        manifest = assert_common_outcome(cluster, "job")
        shards = {shard.file for split in manifest.splits.values() for shard in split}
        assert {Path(path).name for path in cut} == {Path(path).name for path in trouble.times} == shards
        assert_chain(cluster, "job")
        assert not cluster.events("trainer", "run_failed")
    finally:
        cluster.stop()


def test_a_server_that_is_killed_while_a_model_is_trained_delays_it(
    broker: Broker, small_voc: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = ObjectServer(tmp_path / "own")
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    server.start()
    cluster = Cluster(broker=broker, store=tmp_path / "store", data_root=small_voc.parent, url=server.url("trained"))
    cluster.settings |= {"VOC_LEASE_S": "3", "VOC_RUN_LEASE_S": "10"}
    try:
        services = [cluster.serve(), cluster.worker(), cluster.trainer()]
        cluster.producer("submit", str(small_voc), *OPTIONS, "60")
        wait_until(lambda: cluster.events("trainer", "epoch"), 300, "an epoch of the training is done")
        server.kill()
        wait_until(lambda: cluster.events("serve", "store_refuses"), 120, "the service cannot read the store")
        server.start()
        cluster.wait_for("job", timeout_s=300)
        assert_chain(cluster, "job")
        assert RunPaths("job").int8 in cluster.storage().walk(RunPaths("job").root)
        assert [service.poll() for service in services] == [None, None, None]
        assert "Traceback" not in cluster.text("trainer") + cluster.text("serve")
    finally:
        cluster.stop()
        server.stop()
