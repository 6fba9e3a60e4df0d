"""Every service under its own Redis user: a whole job is done, and what a service does not need is refused."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import redis
from pydantic import SecretStr
from redis.exceptions import NoPermissionError

from producer.doctor.setup import CheckResult, check_setup
from producer.redis_users import USERS, make_users
from producer.settings import ProducerSettings
from shared.broker import celery_app
from shared.leasing.lease import Holder, Lease
from shared.leasing.ledger import Ledger
from shared.leasing.redis_client import connect
from shared.leasing.scopes import RUN_QUEUE, RUN_UNIT, SHARD_QUEUE, Unit
from tests.cluster import Cluster, GuardedBroker, assert_common_outcome, wait_until
from tests.page import served


@pytest.fixture
def guarded(broker_folder: Path) -> Iterator[GuardedBroker]:
    started = GuardedBroker(broker_folder)
    started.start()
    yield started
    started.stop()


@pytest.fixture
def guarded_cluster(guarded: GuardedBroker, tmp_path: Path, small_voc: Path) -> Iterator[Cluster]:
    made = Cluster(broker=guarded, store=tmp_path / "store", data_root=small_voc.parent)
    yield made
    made.stop()


def test_job_needs_no_more_than_the_rights_given(
    guarded: GuardedBroker, guarded_cluster: Cluster, small_voc: Path
) -> None:
    """Trainers under their user: tests/faults/test_trainers.py."""
    cluster = guarded_cluster
    cluster.serve()
    cluster.worker(slots=2)
    cluster.producer("submit", str(small_voc), "--job", "job", "--shard-images", "4", "--no-train")
    cluster.wait_for("job")
    assert_common_outcome(cluster, "job")
    assert json.loads(cluster.producer("status", "job", "--json").stdout)["attempts"] == 11
    for command in ("cancel", "retry", "rm"):
        cluster.producer(command, "job", *(["--yes"] if command == "rm" else []))
    assert guarded.denied() == []


def test_passwords_are_in_no_log_and_no_command_line(
    guarded: GuardedBroker, guarded_cluster: Cluster, small_voc: Path
) -> None:
    cluster = guarded_cluster
    cluster.serve()
    cluster.worker()
    cluster.producer("submit", str(small_voc), "--job", "job", "--no-train")
    cluster.wait_for("job")
    commands = " ".join(word for process in cluster.processes for word in psutil.Process(process.pid).cmdline())
    guarded.kill()
    wait_until(lambda: cluster.events("serve", "redis_unreachable"), 60, "the service complains")
    wait_until(lambda: "onnection" in cluster.text("worker"), 60, "the worker complains")
    told = cluster.producer("doctor", "--json", check=False)
    texts = [commands, cluster.text("serve"), cluster.text("worker"), told.stdout, told.stderr]
    passwords = [(guarded.folder / f"secrets/{user}_password").read_text() for user in USERS]
    assert not [password for password in passwords if any(password in text for text in texts)]


@pytest.mark.parametrize("user", [user for user in USERS if user != "default"])
def test_no_service_may_administer_or_wipe_redis(guarded: GuardedBroker, user: str) -> None:
    client: Any = redis.Redis.from_url(guarded.url_of(user))
    assert client.ping()
    for command in (
        "FLUSHALL",
        "FLUSHDB",
        "KEYS *",
        "CONFIG GET *",
        "SHUTDOWN",
        "ACL LIST",
        "MONITOR",
    ):
        with pytest.raises(NoPermissionError):
            client.execute_command(*command.split())
    with pytest.raises(NoPermissionError):
        client.set("somebody-elses-key", "x")


def test_worker_trainer_and_monitoring_reach_only_what_is_theirs(guarded: GuardedBroker) -> None:
    users: list[Any] = [connect(guarded.url_of(user)) for user in ("worker", "trainer", "monitoring")]
    worker, trainer, monitoring = users
    guarded.ledger().write_state("job:job", state="RUNNING")
    assert monitoring.hgetall("voc:job:job") == {"state": "RUNNING"}
    assert monitoring.llen(SHARD_QUEUE) == 0
    for client, key in ((worker, "voc:run:job"), (worker, RUN_QUEUE), (trainer, "voc:job:job"), (trainer, SHARD_QUEUE)):
        with pytest.raises(NoPermissionError):
            client.delete(key)
    for command in ("HSET voc:job:job state DONE", "DEL voc:job:job", f"LPUSH {SHARD_QUEUE} x", "SADD voc:touched x"):
        with pytest.raises(NoPermissionError):
            monitoring.execute_command(*command.split())
    with pytest.raises(NoPermissionError):
        worker.lrange("unacked", 0, -1)


def test_monitoring_hears_task_events(guarded: GuardedBroker) -> None:
    heard: list[str] = []
    speaker = celery_app("speaker", guarded.url_of("worker"), SHARD_QUEUE)
    listener = celery_app("listener", guarded.url_of("monitoring"), SHARD_QUEUE)
    with listener.connection() as ears, speaker.connection() as mouth:
        receiver = listener.events.Receiver(ears, handlers={"*": lambda event: heard.append(event["type"])})
        consumer = receiver.itercapture(limit=None, timeout=10, wakeup=False)
        next(consumer)
        with speaker.events.Dispatcher(mouth) as dispatcher:
            dispatcher.send("task-received", uuid="x")
        next(consumer)
    assert "task-received" in heard


def test_run_is_claimed_renewed_and_given_back_by_the_trainers_user(guarded: GuardedBroker) -> None:
    ledger = Ledger(connect(guarded.url_of("trainer")))
    unit = Unit(scope="run:run", name=RUN_UNIT, ordinal=0)
    lease = Lease(Holder(ledger=ledger, worker="host-1", lease_s=5, stall_s=60, attempts=5), unit)
    assert lease.claim() == ("claimed", 1)
    lease.before_publish()
    lease.release(counted=True, error="x")
    assert lease.claim() == ("claimed", 2)
    lease.complete()
    assert guarded.denied() == []


def test_doctor_tells_whose_rights_the_producer_has(guarded: GuardedBroker, tmp_path: Path) -> None:
    def access(user: str) -> CheckResult:
        settings = ProducerSettings(broker_url=guarded.url_of(user), store=str(tmp_path), data_root=str(tmp_path))
        return next(check for check in check_setup(settings) if check.name == "access")

    assert access("producer").is_well
    assert "user producer" in access("producer").found
    assert access("default").is_well
    assert "may do anything" in access("default").found
    assert not access("monitoring").is_well
    assert "voc2tflite acl secrets" in access("monitoring").advice


def test_passwords_are_kept_and_private(tmp_path: Path) -> None:
    first = make_users(tmp_path / "secrets").read_text()
    assert make_users(tmp_path / "secrets").read_text() == first
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "secrets").iterdir()} == {0o600}
    assert "#" not in first


def test_the_page_looks_as_monitoring_and_needs_no_more(
    guarded: GuardedBroker, guarded_cluster: Cluster, small_voc: Path
) -> None:
    cluster = guarded_cluster
    cluster.serve()
    cluster.worker(VOC_FAULT="poison:loop:shapes")  # works for ever on its first picture
    cluster.producer("submit", str(small_voc), "--job", "job", "--shard-images", "4", "--no-train")
    settings = ProducerSettings(
        broker_url=SecretStr(guarded.url_of("monitoring")), store=str(cluster.store), data_root=str(cluster.data_root)
    )
    with served(settings) as page:
        wait_until(lambda: "1 worker process at work" in page.ask("/").text, 60, "the list shows who holds a shard")
        wait_until(lambda: "<dt>at work</dt>" in page.ask("/jobs/job").text, 60, "the job shows what is held")
        assert 'class="error"' not in page.ask("/jobs/job").text
    assert guarded.denied() == []
