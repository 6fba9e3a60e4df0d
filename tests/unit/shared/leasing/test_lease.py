"""A lease from its claim to its end: what it tells, when it renews, and when it ends its process."""

import threading

import pytest

from shared.errors import Cancelled, LeaseLost, StopRequested
from shared.leasing.lease import RENEW_MOST_S, Lease, give_back
from shared.leasing.scopes import Unit
from tests.cluster import Broker, wait_until
from tests.unit.shared.leasing.holders import Clock, holder

UNIT = Unit(scope="job:job@0123", name="train-00000-of-00002", ordinal=0)


def lease_of(broker: Broker, worker: str = "host-1", *, lease_s: float = 60) -> Lease:
    return Lease(holder(broker, worker, lease_s=lease_s), UNIT)


def expire(broker: Broker) -> None:
    """Have the lease end now, as Redis does when its time is over."""
    assert broker.ledger().client.delete(UNIT.lease_key) == 1


def test_the_ledger_shows_who_holds_a_unit_and_how_far_it_is(broker: Broker) -> None:
    lease = lease_of(broker)
    lease.claim()
    lease.advance(images=7)
    lease.before_publish()
    held = broker.ledger().under_way(UNIT.scope, lambda _: True).leased[UNIT.name]
    assert (held["worker"], held["images"]) == ("host-1", 7)
    assert 59_000 < broker.ledger().client.pttl(UNIT.lease_key) <= 60_000


def test_a_phase_has_its_own_facts_and_those_of_the_whole_training(broker: Broker) -> None:
    lease = lease_of(broker)
    lease.claim()
    lease.advance(phase="train", step=9, loss=0.5, seconds=4.0, trained=9)
    lease.advance(phase="export", form="int8")
    facts = lease.facts()
    assert {"phase", "form", "trained", "seconds"} <= facts.keys()
    assert not {"step", "loss"} & facts.keys()


def test_the_thread_renews_while_the_work_advances(broker: Broker) -> None:
    lease = lease_of(broker, lease_s=0.6)
    lease.claim()
    client = broker.ledger().client
    client.pexpire(UNIT.lease_key, 500)
    with lease.renewed():
        wait_until(lambda: client.pttl(UNIT.lease_key) > 500, 20, "the lease is renewed")
        assert client.get(UNIT.lease_key) == lease.token


def test_a_lease_is_renewed_before_most_of_its_time_is_over(broker: Broker) -> None:
    lease, client = lease_of(broker, lease_s=4), broker.ledger().client
    lease.claim()
    client.hdel(UNIT.key("leased"), UNIT.name)  # a renewal notes the holder again
    with lease.renewed():
        assert wait_until(lambda: client.hlen(UNIT.key("leased")), 20, "the lease is renewed") < 3


def test_however_long_a_lease_is_its_holder_is_soon_known_again_after_a_wipe(broker: Broker) -> None:
    lease, client = lease_of(broker, lease_s=3600), broker.ledger().client
    lease.claim()
    with lease.renewed():
        client.flushall()
        took_s = wait_until(lambda: client.get(UNIT.lease_key) == lease.token, 60, "the holder has taken it again")
    assert took_s < 3 * RENEW_MOST_S


def test_the_thread_goes_on_when_redis_refuses_a_renewal(broker: Broker) -> None:
    lease, client = lease_of(broker, lease_s=0.6), broker.ledger().client
    lease.claim()
    client.config_set("maxmemory", 1)  # every write is refused from now on
    with lease.renewed():
        wait_until(lambda: client.get(UNIT.lease_key) is None, 20, "the lease has expired")
        client.config_set("maxmemory", 0)
        assert wait_until(lambda: client.get(UNIT.lease_key) == lease.token, 20, "the lease is taken again") < 20


def test_work_that_stands_still_longer_than_its_limit_ends_its_process(broker: Broker) -> None:
    clock, ended = Clock(), threading.Event()
    lease = Lease(holder(broker, lease_s=0.03), UNIT, clock=clock, end_process=ended.set)
    lease.claim()
    with lease.renewed():
        clock.pass_(29)
        lease.advance()
        clock.pass_(30)
        assert not ended.wait(0.1)
        clock.pass_(1)
        assert ended.wait(20)


@pytest.mark.parametrize("fate", ["cancelled", "lost"])
def test_work_that_ignores_the_loss_of_its_lease_is_still_watched(broker: Broker, fate: str) -> None:
    clock, ended = Clock(), threading.Event()
    lease = Lease(holder(broker, lease_s=0.03), UNIT, clock=clock, end_process=ended.set)
    lease.claim()
    if fate == "lost":
        broker.ledger().client.set(UNIT.lease_key, "another", ex=60)
    else:
        broker.ledger().write_state(UNIT.scope, cancelled=1)
    with pytest.raises(LeaseLost if fate == "lost" else Cancelled):
        lease.before_publish()
    with lease.renewed():
        clock.pass_(31)
        assert ended.wait(20)


def test_publishing_waits_for_redis_and_counts_as_an_advance(broker: Broker) -> None:
    clock, slept = Clock(), []
    broker.kill()

    def start_again(seconds: float) -> None:
        slept.append(seconds)
        clock.pass_(31)
        broker.start()

    lease = Lease(holder(broker), UNIT, clock=clock, sleep=start_again)
    lease.before_publish()
    assert slept == [1]
    lease.advance()
    assert lease_of(broker, "host-2").claim()[0] == "held"


def test_work_that_waits_for_redis_to_publish_does_not_stand_still(broker: Broker) -> None:
    clock, ended, waits = Clock(), threading.Event(), 0
    broker.kill()

    def look(_seconds: float) -> None:
        nonlocal waits
        waits += 1
        clock.pass_(29)
        ended.wait(1)  # the watching thread looks every 10 ms
        if waits == 3:
            broker.start()

    lease = Lease(holder(broker, lease_s=0.03), UNIT, clock=clock, sleep=look, end_process=ended.set)
    with lease.renewed():
        lease.before_publish()
    assert not ended.is_set()


def test_nothing_is_published_for_a_job_that_storage_says_is_gone(broker: Broker) -> None:
    def gone() -> None:
        raise Cancelled("job x was removed")

    lease = Lease(holder(broker), UNIT, require_wanted=gone)
    lease.claim()
    lease.advance()
    with pytest.raises(Cancelled, match="removed"):
        lease.before_publish()


def test_an_expired_lease_that_nobody_took_is_taken_again(broker: Broker) -> None:
    lease = lease_of(broker)
    lease.claim()
    expire(broker)
    lease.before_publish()
    assert lease_of(broker, "host-2").claim()[0] == "held"


def test_an_expired_lease_that_another_took_is_lost_and_its_release_takes_nothing(broker: Broker) -> None:
    lease = lease_of(broker)
    lease.claim()
    expire(broker)
    assert lease_of(broker, "host-2").claim() == ("claimed", 2)
    with pytest.raises(LeaseLost, match="another process"):
        lease.before_publish()
    with pytest.raises(LeaseLost):
        lease.advance()
    lease.release(counted=False)
    assert lease_of(broker, "host-3").claim()[0] == "held"


def test_a_request_to_stop_is_raised_at_the_next_advance_and_not_before_publishing(broker: Broker) -> None:
    lease = Lease(holder(broker, should_stop=lambda: True), UNIT)
    lease.claim()
    lease.before_publish()
    with pytest.raises(StopRequested, match=UNIT.name):
        lease.advance()


def test_counted_releases_use_the_attempts_up_and_uncounted_ones_do_not(broker: Broker) -> None:
    for counted, attempt in ((True, 1), (False, 2), (True, 2), (True, 3)):
        lease = lease_of(broker)
        assert lease.claim() == ("claimed", attempt)
        lease.release(counted=counted, error="disk full" if counted else "")
    assert lease_of(broker).claim() == ("exhausted", 3)
    assert broker.ledger().under_way(UNIT.scope, lambda _: True).errors == {UNIT.name: "disk full"}


def test_without_redis_completing_and_releasing_are_left_to_others(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    lease = lease_of(broker)
    lease.claim()
    broker.kill()
    lease.complete(written=1)
    lease.release(counted=True, error="x")
    assert [record.message for record in caplog.records] == ["ledger_not_told", "lease_left_to_expire"]


def test_a_parent_gives_back_what_its_own_children_hold(broker: Broker) -> None:
    lease_of(broker).claim()
    assert give_back(broker.ledger(), [UNIT.scope], "host-2") == []
    assert give_back(broker.ledger(), [UNIT.scope], "host-1") == [f"{UNIT.scope}:{UNIT.name}"]
    assert lease_of(broker, "host-2").claim() == ("claimed", 1)
