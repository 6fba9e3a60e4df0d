"""The reconciler's rounds against a real Valkey and a real store, with a clock of the test's own: few sleep."""

import json
import logging
import time
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from producer.jobs.submit import Request
from producer.reconcile.context import Context
from producer.reconcile.leadership import Leadership
from producer.reconcile.reconciler import Reconciler
from producer.settings import ProducerSettings
from producer.state.stored import stored_state
from shared.broker import Broker as Hints
from shared.jobs.job import Job
from shared.leasing.ledger import Ledger
from shared.leasing.redis_client import NO_REDIS, connect
from shared.leasing.scopes import SHARD_QUEUE, Unit, job_scope
from shared.specs.data import JobSpec
from shared.storage import Storage
from tests.cluster import Broker
from tests.unit.producer.folders import lint_and_submit

LEASE_S, LISTING_S, LOST_AFTER_S, ATTEMPTS = 15.0, 60.0, 30.0, 3


@dataclass
class Time:
    """Both clocks of the reconcilers; the time of day begins where Redis's and the ledger's is."""

    passed_s: float = 0.0

    def clock(self) -> float:
        return 1000.0 + self.passed_s

    def unix_time(self) -> float:
        return time.time() + self.passed_s


@dataclass
class World:
    """A store with one job of a few shards, a broker, and nobody who works."""

    broker: Broker
    store: Path
    photos: Path
    now: Time

    @property
    def storage(self) -> Storage:
        return Storage(str(self.store))

    @property
    def ledger(self) -> Ledger:
        return self.broker.ledger()

    def reconciler(self) -> Reconciler:
        settings = ProducerSettings(
            store=str(self.store),
            lease_s=LEASE_S,
            listing_s=LISTING_S,
            lost_after_s=LOST_AFTER_S,
            attempts=ATTEMPTS,
            failed_share=1.0,
        )
        context = Context(
            storage=self.storage,
            ledger=self.ledger,
            broker=Hints(self.broker.url),
            settings=settings,
            clock=self.now.clock,
            unix_time=self.now.unix_time,
        )
        return Reconciler(context)

    def submit(self, name: str = "job") -> Job:
        """A job of at least two shards in the store; Redis is not told of it."""
        request = Request(dataset=self.photos, name=name, spec=JobSpec(split=(100, 0, 0), shard_images=20), run=None)
        return lint_and_submit(request, storage=self.storage, data_root=self.photos).job

    def queued_job(self) -> tuple[Job, Reconciler]:
        """A job whose hints are in the queue, and the reconciler that leads."""
        service = self.reconciler()
        assert service.tick()  # on an empty store: nobody can hold a lease that Redis has forgotten
        job = self.submit()
        self.ledger.touch("job")
        assert service.tick()
        assert self.hints() == {*job.shards}
        return job, service

    def hints(self) -> set[str]:
        """The shards of the hints in the queue."""
        return {message_id.rpartition("/")[2] for message_id in self.ledger.queued_ids(SHARD_QUEUE)}

    def lose_hints(self) -> None:
        """The queue is emptied by somebody; what the ledger notes of it stays."""
        self.ledger.client.delete(SHARD_QUEUE)

    def claim(self, job: Job, shard: str) -> Unit:
        """Take the hint of `shard` and its lease, as a worker does."""
        for text in self.ledger.client.lrange(SHARD_QUEUE, 0, -1):
            if json.loads(text)["headers"]["id"].endswith(f"/{shard}"):
                self.ledger.client.lrem(SHARD_QUEUE, 1, text)
        unit = Unit(scope=job_scope(job), name=shard, ordinal=job.ordinal(shard))
        holder = {"worker": "w", "pid": 1, "since": 0.0}
        outcome, _ = self.ledger.claim(unit, "token", lease_s=LEASE_S, limit=ATTEMPTS, holder=holder)
        assert outcome == "claimed"
        return unit

    def expire(self, key: str) -> None:
        """Have Redis expire `key` now, as it does at the end of the key's time."""
        assert self.ledger.client.pttl(key) > 0, f"{key} has no end"
        self.ledger.client.pexpire(key, 0)


@pytest.fixture
def world(broker: Broker, small_voc: Path, tmp_path: Path) -> World:
    (tmp_path / "store").mkdir()
    return World(broker=broker, store=tmp_path / "store", photos=small_voc, now=Time())


def test_a_job_in_storage_is_queued_once(world: World) -> None:
    job, service = world.queued_job()
    for _ in range(3):
        assert service.tick()
    assert world.hints() == {*job.shards}
    assert world.ledger.queue_length(SHARD_QUEUE) == len(job.shards)


def test_a_lease_that_expires_is_queued_again(world: World) -> None:
    job, service = world.queued_job()
    unit = world.claim(job, job.shards[0])
    assert service.tick()
    assert world.hints() == {*job.shards[1:]}  # it is held
    world.expire(unit.lease_key)
    assert service.tick()
    assert world.hints() == {*job.shards}


def test_a_hint_that_is_lost_is_sent_again_once_it_is_overdue(world: World) -> None:
    job, service = world.queued_job()
    world.lose_hints()
    world.now.passed_s += LOST_AFTER_S - 5
    assert service.tick()
    assert not world.hints()
    world.now.passed_s += 10
    assert service.tick()
    assert world.hints() == {*job.shards}


def test_an_overdue_hint_that_still_waits_in_the_queue_is_not_sent_twice(world: World) -> None:
    job, service = world.queued_job()
    world.now.passed_s += LOST_AFTER_S + 5
    assert service.tick()
    assert world.ledger.queue_length(SHARD_QUEUE) == len(job.shards)


def test_a_hint_noted_in_the_future_is_sent_again_where_it_is_lost(world: World) -> None:
    job, service = world.queued_job()
    world.lose_hints()
    world.now.passed_s -= 5  # the clock of this machine was set back
    assert service.tick()
    assert world.hints() == {*job.shards}


def test_a_shard_is_given_up_after_its_attempts_and_the_others_go_on(world: World) -> None:
    job, service = world.queued_job()
    for _ in range(ATTEMPTS):
        assert job.shards[0] in world.hints()
        world.expire(world.claim(job, job.shards[0]).lease_key)
        assert service.tick()
    assert world.hints() == {*job.shards[1:]}
    stored = stored_state(world.storage, job, 1.0)
    assert stored.failed == {job.shards[0]: "every process that worked on it died or hung"}


def test_the_store_is_listed_only_every_listing_s(world: World) -> None:
    service = world.reconciler()
    assert service.tick()
    job = world.submit()
    world.now.passed_s += LISTING_S - 1
    assert service.tick()
    assert not world.hints()
    world.now.passed_s += 2
    assert service.tick()
    assert world.hints() == {*job.shards}


def test_after_a_wipe_nothing_is_queued_until_every_holder_can_have_renewed(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    job, service = world.queued_job()
    world.ledger.client.flushall()
    assert service.tick()
    assert [record.wiped for record in caplog.records if record.message == "redis_lost"] == [True]  # type: ignore[attr-defined]
    held = world.claim(job, job.shards[0])  # by a worker that was at it all the time
    world.now.passed_s += LEASE_S - 1
    assert service.tick()
    assert not world.hints()
    world.now.passed_s += 2
    assert service.tick()
    assert world.hints() == {*job.shards[1:]}
    assert world.ledger.client.get(held.lease_key) == "token"


def test_after_a_restart_of_redis_a_third_of_a_lease_is_enough(world: World) -> None:
    job, service = world.queued_job()
    world.broker.kill()
    assert not service.tick()
    world.broker.start()
    world.lose_hints()
    world.now.passed_s += LOST_AFTER_S + 5
    assert service.tick()
    assert not world.hints()
    world.now.passed_s += LEASE_S / 3 + 2
    assert service.tick()
    assert world.hints() == {*job.shards}


def test_a_first_start_on_an_empty_redis_waits_for_nobody_but_one_beside_unfinished_jobs_does(world: World) -> None:
    assert world.reconciler().tick()
    assert world.ledger.round_age_s() is not None
    world.submit()
    world.ledger.client.flushall()
    assert world.reconciler().tick()
    assert world.ledger.round_age_s() is None
    assert not world.hints()


def test_who_leads_stays_the_leader_in_a_round_that_is_longer_than_its_expiry(world: World) -> None:
    """Otherwise `status` would say that no `serve` is running, and another one would begin beside it."""
    leadership = Leadership(world.reconciler().context, is_new_redis=False)
    assert leadership.acquire()
    with leadership.kept():
        world.ledger.client.expire("voc:leader", 4)
        time.sleep(4.5)
        assert world.ledger.is_led()
    assert leadership.acquire()


def test_the_second_leads_when_the_first_has_died(world: World) -> None:
    (job, first), second = world.queued_job(), world.reconciler()
    assert not second.tick()
    world.lose_hints()
    world.now.passed_s += LOST_AFTER_S + 5
    world.expire("voc:leader")  # the first was killed some time ago
    assert second.tick()
    assert world.hints() == {*job.shards}
    assert not first.tick()


def test_the_second_leads_at_once_when_the_first_is_stopped(world: World) -> None:
    first, second = world.reconciler(), world.reconciler()
    assert first.tick()
    first.stop()
    assert second.tick()
    assert not first.tick()


def test_a_reconciler_that_led_again_lists_the_store(world: World) -> None:
    first, second = world.reconciler(), world.reconciler()
    assert first.tick()
    first.stop()
    assert second.tick()
    assert not first.tick()
    job = world.submit()
    second.stop()
    assert first.tick()
    assert world.hints() == {*job.shards}


def test_a_redis_that_is_away_is_told_of_now_and_then_with_the_remedy(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    service = world.reconciler()
    nowhere = replace(service.context, ledger=Ledger(connect("redis://127.0.0.1:1/0")))
    service = Reconciler(nowhere)

    def complaints() -> list[logging.LogRecord]:
        return [record for record in caplog.records if record.message == "redis_unreachable"]

    for _ in range(3):
        assert not service.tick()
    assert [record.__dict__["hint"] for record in complaints()] == [NO_REDIS]
    world.now.passed_s += 31
    assert not service.tick()
    assert len(complaints()) == 2


def test_a_store_that_refuses_is_told_of_now_and_then_of_each_job(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    _, service = world.queued_job()
    asked = world.store / "jobs/job/job.json"
    content = asked.read_bytes()

    def complaints() -> list[str]:
        return [record.__dict__["job"] for record in caplog.records if record.message == "store_refuses"]

    asked.unlink()
    asked.symlink_to("x" * 300)  # which no system looks for
    world.ledger.touch("job")
    for _ in range(3):
        service.tick()
    assert complaints() == ["job"]
    world.now.passed_s += 31
    service.tick()
    assert complaints() == ["job", "job"]
    asked.unlink()
    asked.write_bytes(content)
    assert service.tick()
    assert len(complaints()) == 2
