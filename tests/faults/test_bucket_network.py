"""A store in a bucket whose network or server misbehaves for a while: nothing lost, nothing twice, reasons named.

Between every process and the real server stands a gateway that makes the trouble. The bytes of each job are held
against those of the same job in a folder.
"""

import re
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from shared.jobs.paths import RunPaths
from shared.storage import Storage
from tests.cluster import Broker, Cluster, assert_chain, assert_common_outcome, wait_for_progress, wait_until
from tests.object_server import ObjectServer, Trouble, Troubled, gateway_before

pytestmark = [pytest.mark.faults, pytest.mark.timeout(900)]

OPTIONS = ("--job", "job", "--shard-images", "2", "--no-train")
TINY = ("--image-size", "64", "--model", "nano", "--max-drop", "100", "--backbone", "conv", "--epochs", "60")
HELD_S = 10.0


@pytest.fixture(scope="module")
def digests(tmp_path_factory: pytest.TempPathFactory, small_voc: Path) -> dict[str, str]:
    """SHA-256 of each shard of the job in a folder."""
    folder = tmp_path_factory.mktemp("folder")
    broker = Broker(folder)
    cluster = Cluster(broker=broker, store=folder / "store", data_root=small_voc.parent)
    broker.start()
    try:
        cluster.serve()
        cluster.worker()
        cluster.producer("submit", str(small_voc), *OPTIONS)
        cluster.wait_for("job")
        return digests_of(cluster)
    finally:
        cluster.stop()
        broker.stop()


def digests_of(cluster: Cluster) -> dict[str, str]:
    manifest = assert_common_outcome(cluster, "job")
    return {shard.file: shard.sha256 for shards in manifest.splits.values() for shard in shards}


@dataclass
class Scene:
    """A cluster whose way to its bucket leads through a gateway, and the trouble that it makes."""

    cluster: Cluster
    trouble: Trouble

    def begin(self, small_voc: Path) -> None:
        """A service and a worker are at work on the job, and have done a part of it."""
        self.cluster.serve()
        self.cluster.worker()
        self.cluster.producer("submit", str(small_voc), *OPTIONS)
        wait_for_progress(self.cluster, 1)

    @contextmanager
    def troubled(self, kind: str, part: str = "", *methods: str) -> Iterator[None]:
        """The gateway makes trouble for the length of the block."""
        self.trouble.part = part
        self.trouble.methods = frozenset(methods) or Trouble.methods
        self.trouble.kind = kind
        try:
            yield
        finally:
            self.trouble.kind = ""

    def met(self) -> int:
        """How often somebody met the trouble."""
        return sum(self.trouble.times.values())

    def reasons(self, named: str) -> list[str]:
        """The reasons that service and worker gave in their logs for what the store refused, of those that fit."""
        lines = self.cluster.log("serve") + self.cluster.log("worker")
        return [line["reason"] for line in lines if re.search(named, str(line.get("reason", "")))]

    def logs(self) -> str:
        """All that service and worker have said."""
        return self.cluster.text("serve") + self.cluster.text("worker")


@pytest.fixture
def scene(broker: Broker, tmp_path: Path, small_voc: Path, object_server: ObjectServer) -> Iterator[Scene]:
    trouble = Trouble()
    with gateway_before(object_server, Troubled, trouble=trouble) as url:
        cluster = Cluster(
            broker=broker, store=tmp_path / "store", data_root=small_voc.parent, url=object_server.url(uuid.uuid4().hex)
        )
        cluster.settings |= {"VOC_LEASE_S": "3", "VOC_LOST_AFTER_S": "4", "AWS_ENDPOINT_URL": url}
        yield Scene(cluster, trouble)
        trouble.kind = ""
        cluster.stop()


def is_over(scene: Scene) -> Callable[[], bool]:
    return lambda: scene.cluster.state("job") in ("DONE", "FAILED")


def to_the_end(scene: Scene) -> None:
    """Wait for the job's end; what was given up while the trouble lasted is done again, as a person would have it."""
    wait_until(is_over(scene), 180, "the job has an end")
    if scene.cluster.state("job") == "FAILED" or scene.cluster.status("job").failures:
        scene.cluster.producer("retry", "job")
        wait_until(lambda: scene.cluster.status("job").done == scene.cluster.status("job").shards, 180, "all is done")
        scene.cluster.wait_for("job")


@pytest.mark.parametrize(
    ("kind", "named"),
    [
        ("slow_down", "SlowDown of a test|503 Service Unavailable"),
        ("held", ""),  # the client may ask again by itself, and then nobody has a reason to name
        ("denied", "AccessDenied of a test|403 Forbidden: these credentials do not allow it"),
        ("no_bucket", "NoSuchBucket of a test"),
    ],
)
def test_a_server_that_does_not_serve_for_a_while_loses_and_doubles_nothing(
    scene: Scene, small_voc: Path, digests: dict[str, str], kind: str, named: str
) -> None:
    scene.begin(small_voc)
    with scene.troubled(kind):
        wait_until(scene.met, 60, "somebody meets the trouble")
        if kind == "held":  # an answer that is held back is dropped when the trouble is over
            time.sleep(HELD_S)
        else:
            wait_until(lambda: scene.reasons(named), 120, "somebody gave up asking, and says why")
    to_the_end(scene)
    assert digests_of(scene.cluster) == digests
    assert_chain(scene.cluster, "job")
    assert "Traceback" not in scene.logs()


def test_a_write_whose_answer_is_lost_is_neither_lost_nor_done_twice(
    scene: Scene, small_voc: Path, digests: dict[str, str]
) -> None:
    with scene.troubled("lost", "/jobs/job/", "PUT"):
        scene.begin(small_voc)
        to_the_end(scene)
    assert scene.met() > 2 * len(digests), "each shard's files, receipts and the job's own met it"
    assert digests_of(scene.cluster) == digests
    assert_chain(scene.cluster, "job")
    status = scene.cluster.status("job")
    assert (status.failed, status.quarantined) == (0, 0)
    assert "Traceback" not in scene.logs()


def test_of_two_who_create_one_file_one_wins_whatever_becomes_of_the_answers(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in scene.cluster.settings.items():
        monkeypatch.setenv(name, value)
    mine, theirs = Storage(scene.cluster.url), Storage(scene.cluster.url)
    with scene.troubled("lost", "/ours", "PUT"):
        assert mine.create("ours.json", b"mine")
        assert not theirs.create("ours.json", b"theirs")
    assert mine.create("taken.json", b"first")
    with scene.troubled("lost", "/taken", "PUT"):
        assert not theirs.create("taken.json", b"second")
    assert (mine.read("ours.json"), mine.read("taken.json")) == (b"mine", b"first")
    assert scene.met() == 2


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
        cluster.producer("submit", str(small_voc), *OPTIONS[:-1], *TINY)
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
