"""A store in a bucket whose network or server misbehaves for a while: nothing lost, nothing twice, reasons named.

Between every process and the real server stands a gateway that makes the trouble. The bytes of each job are held
against those of the same job in a folder.
"""

import re
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from shared.storage import Storage
from shared.storage.object_lock import ObjectLocks
from shared.storage.objects import ObjectStorage
from tests.cluster import Broker, Cluster, assert_chain, assert_common_outcome, wait_for_progress, wait_until
from tests.object_server import SECRETS, TOKEN, Cutting, Gateway, ObjectServer, Trouble, Troubled, gateway_before

pytestmark = [pytest.mark.faults, pytest.mark.timeout(900)]

OPTIONS = ("--job", "job", "--shard-images", "2", "--no-train")
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
        made = Scene(cluster, trouble)
        yield made
        trouble.kind = ""
        cluster.stop()
        logs = [path.read_text(errors="replace") for path in tmp_path.glob("*.log")]
        assert not [secret for secret in SECRETS for log in logs if secret in log]


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


@pytest.mark.parametrize("kind", ["held", "late"])
def test_requests_that_time_out_are_told_and_are_neither_lost_nor_done_twice(
    scene: Scene, small_voc: Path, digests: dict[str, str], kind: str
) -> None:
    """Some were never seen by the server; others it has done, and its answer comes too late."""
    scene.cluster.settings["VOC_REQUEST_TIMEOUT_S"] = "2"
    scene.begin(small_voc)
    with scene.troubled(kind, "/jobs/job/", *(() if kind == "held" else ("PUT",))):
        wait_until(lambda: scene.reasons("no whole answer within VOC_REQUEST_TIMEOUT_S"), 120, "a request timed out")
    to_the_end(scene)
    assert digests_of(scene.cluster) == digests
    assert_chain(scene.cluster, "job")
    assert "Traceback" not in scene.logs()


def test_what_changes_on_its_way_to_the_server_is_refused_and_written_again(
    scene: Scene, small_voc: Path, digests: dict[str, str]
) -> None:
    with scene.troubled("spoiled", "/jobs/job/shards/", "PUT"):
        scene.begin(small_voc)
        to_the_end(scene)
    assert scene.met() == 3 * len(digests), "each shard's two files and its receipt met it"
    assert scene.reasons("BadDigest")
    assert digests_of(scene.cluster) == digests
    assert_chain(scene.cluster, "job")
    assert "Traceback" not in scene.logs()


def test_a_lock_whose_beats_are_answered_too_late_stays_its_holder_s(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A conditional write that timed out may have been done: the next one must not take it for another holder's."""
    for name, value in {**scene.cluster.settings, "VOC_REQUEST_TIMEOUT_S": "1"}.items():
        monkeypatch.setenv(name, value)
    objects = ObjectStorage(scene.cluster.url)
    with ObjectLocks(objects, beat_s=0.2).held("lock") as is_ours:
        assert is_ours is not None
        with scene.troubled("late", "/lock", "PUT"):
            wait_until(lambda: scene.met() > 1, 30, "two beats timed out")
        seen = objects.find("lock")
        wait_until(lambda: objects.find("lock") != seen, 10, "it beats again")
        assert is_ours()
        objects.write("lock", [b"of another writer, who asks nobody"])
        wait_until(lambda: not is_ours(), 10, "the holder notices")
    found = objects.find("lock")
    assert found is not None
    assert found.content == b"of another writer, who asks nobody"


def test_two_services_that_do_not_know_of_each_other_write_one_store_as_one_would(
    scene: Scene, tmp_path: Path, small_voc: Path, digests: dict[str, str]
) -> None:
    """Each has a Redis, leases and a worker of its own, so that both write every shard, under the same names."""
    (tmp_path / "other").mkdir()
    redis = Broker(tmp_path / "other")
    redis.start()
    ours = scene.cluster
    other = Cluster(broker=redis, store=tmp_path / "other/logs", data_root=ours.data_root, url=ours.url)
    other.settings = {**ours.settings, "VOC_LISTING_S": "0.5"}
    try:
        other.worker()
        other.leading_serve()
        scene.begin(small_voc)
        wait_until(lambda: other.events("worker", "shard_written"), 60, "the other one writes shards too")
        to_the_end(scene)
        other.wait_for("job")
        assert digests_of(ours) == digests
        assert_chain(ours, "job")
        assert "Traceback" not in scene.logs() + other.text("serve") + other.text("worker")
    finally:
        other.stop()
        redis.stop()


class _CuttingAll(Cutting):
    """Cuts everything, for ever."""

    of, cuts = "", 10**9


# What goes wrong, with what the server does, on which requests, what a person types, and what the line says.
LINES: dict[str, tuple[type[Gateway] | str, tuple[str, ...], tuple[str, ...], str]] = {
    "slow down": ("slow_down", (), ("status", "job"), "SlowDown of a test|503 Service Unavailable"),
    "denied": ("denied", (), ("status", "job"), "AccessDenied of a test|403 Forbidden"),
    "no bucket": ("no_bucket", (), ("status", "job"), "NoSuchBucket of a test"),
    "a clock that is hours ahead": (
        "skewed",
        (),
        ("list",),
        "RequestTimeTooSkewed of a test; set this machine's clock",
    ),
    "in a HEAD": ("skewed", (), ("status", "job"), "403 Forbidden: .*this machine's clock is wrong"),
    "credentials of yesterday": ("expired", (), ("list",), "ExpiredToken of a test; set new credentials, then do"),
    "the same in a HEAD": ("expired", (), ("status", "job"), "400 Bad Request: the credentials may have expired"),
    "no answer": ("held", (), ("status", "job"), "no whole answer within VOC_REQUEST_TIMEOUT_S"),
    "answer to a write too late": ("late", ("PUT",), ("submit",), "no whole answer within VOC_REQUEST_TIMEOUT_S"),
    "wrong checksum": ("spoiled", ("PUT",), ("submit",), "BadDigest"),
    "cut short": (_CuttingAll, (), ("status", "job"), "the answer was cut short"),
    "nobody there": ("http://127.0.0.1:9", (), ("status", "job"), "error sending request"),
}


def test_what_a_person_is_told_of_each_error_is_one_line_without_a_secret(
    scene: Scene, small_voc: Path, object_server: ObjectServer
) -> None:
    scene.begin(small_voc)

    def told(case: str) -> str:
        kind, methods, command, _ = LINES[case]
        settings = {"VOC_REQUEST_TIMEOUT_S": "1", "AWS_SESSION_TOKEN": ""}
        if kind in ("slow_down", "denied", "no_bucket"):
            settings["AWS_SESSION_TOKEN"] = TOKEN
        with ExitStack() as stack:
            trouble, url = Trouble(), str(kind)
            if not url.startswith("http"):
                gateway = kind if isinstance(kind, type) else Troubled
                url = stack.enter_context(gateway_before(object_server, gateway, trouble=trouble, cut=Counter()))
                trouble.kind, trouble.methods = str(kind), frozenset(methods) or Trouble.methods
            arguments = command if command[0] != "submit" else ("submit", str(small_voc), "--job", f"no-{case[:5]}")
            ended = scene.cluster.producer(*arguments, check=False, AWS_ENDPOINT_URL=url, **settings)
            trouble.kind = ""
        assert ended.returncode == 1, f"{case}: {ended.stdout}{ended.stderr}"
        return ended.stdout + ended.stderr

    with ThreadPoolExecutor(len(LINES)) as pool:
        answers = dict(zip(LINES, pool.map(told, LINES), strict=True))
    for case, (*_, named) in LINES.items():
        lines = [line for line in answers[case].splitlines() if line.startswith("error: ")]
        assert len(lines) == 1, f"{case}: {answers[case]}"
        assert re.search(named, lines[0]), f"{case}: {lines[0]}"
        assert "Traceback" not in answers[case], case
        assert not [secret for secret in SECRETS if secret in answers[case]], f"{case}: {answers[case]}"


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
