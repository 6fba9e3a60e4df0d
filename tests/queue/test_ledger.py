"""The ledger's scripts on a real broker: who owns a shard, how often it was tried, what a wipe does."""

import subprocess
import sys
import threading
import time

import pytest

from shared.errors import Cancelled, LeaseLost, StopRequested
from shared.leasing.lease import Holder, Lease, give_back
from shared.leasing.scopes import Demand, UnderWay, Unit
from tests.cluster import Broker, wait_until

UNIT = Unit(scope="job:job@0123", name="train-00000-of-00002", ordinal=0)


def lease_of(broker: Broker, worker: str = "host-1", *, lease_s: float = 60, stop: bool = False) -> Lease:
    return Lease(
        Holder(
            ledger=broker.ledger(), worker=worker, lease_s=lease_s, stall_s=30, attempts=3, should_stop=lambda: stop
        ),
        UNIT,
    )


def under_way(broker: Broker) -> UnderWay:
    return broker.ledger().under_way(UNIT.scope, lambda _: True)


def expire(broker: Broker) -> None:
    """Have the lease end now, as Redis does when its time is over."""
    assert broker.ledger().client.delete(UNIT.lease_key) == 1


def test_claimed_unit_is_held_until_its_lease_expires(broker: Broker) -> None:
    assert lease_of(broker).claim() == ("claimed", 1)
    assert lease_of(broker, "host-2").claim()[0] == "held"
    expire(broker)
    assert lease_of(broker, "host-2").claim() == ("claimed", 2)


def test_renewed_lease_outlives_its_term(broker: Broker) -> None:
    lease = lease_of(broker, lease_s=1)
    lease.claim()
    with lease.renewed():
        time.sleep(1.5)
        lease.advance(images=1)
        assert lease_of(broker, "host-2").claim()[0] == "held"


def test_attempts_are_counted_at_the_claim_and_limited(broker: Broker) -> None:
    for attempt in (1, 2, 3):
        lease = lease_of(broker)
        assert lease.claim() == ("claimed", attempt)
        lease.release(counted=True, error="disk full")
    assert lease_of(broker).claim() == ("exhausted", 3)
    assert under_way(broker).errors == {UNIT.name: "disk full"}


def test_uncounted_release_gives_the_attempt_back(broker: Broker) -> None:
    lease = lease_of(broker)
    lease.claim()
    lease.release(counted=False)
    assert lease_of(broker).claim() == ("claimed", 1)


def test_same_token_claims_twice_because_the_first_answer_may_be_lost(broker: Broker) -> None:
    lease = lease_of(broker)
    assert lease.claim() == lease.claim() == ("claimed", 1)


def test_done_unit_is_never_claimed_again_and_counted_once(broker: Broker) -> None:
    lease = lease_of(broker)
    lease.claim()
    lease.complete(written=7, quarantined=1)
    lease.complete(written=7, quarantined=1)
    assert lease_of(broker).claim()[0] == "done"
    ledger = broker.ledger()
    assert ledger.done_count(UNIT.scope) == 1
    state = ledger.read_state(UNIT.scope)
    assert (state.written, state.quarantined) == (7, 1)
    assert ledger.done_bits(UNIT.scope, units=2) == b"\x80"


def test_wiped_redis_is_re_asserted_by_the_holder(broker: Broker) -> None:
    lease = lease_of(broker)
    lease.claim()
    broker.ledger().client.flushall()
    lease.before_publish()
    assert lease_of(broker, "host-2").claim()[0] == "held"


def test_lease_taken_by_another_is_lost(broker: Broker) -> None:
    lease = lease_of(broker)
    lease.claim()
    expire(broker)
    lease_of(broker, "host-2").claim()
    with pytest.raises(LeaseLost):
        lease.before_publish()


def test_cancel_is_seen_at_renewal_and_at_claim(broker: Broker) -> None:
    lease = lease_of(broker)
    lease.claim()
    broker.ledger().write_state(UNIT.scope, cancelled=1)
    with pytest.raises(Cancelled):
        lease.before_publish()
    lease.release(counted=False)
    assert lease_of(broker).claim()[0] == "cancelled"


def test_stop_request_is_raised_at_the_next_advance(broker: Broker) -> None:
    lease = lease_of(broker, stop=True)
    lease.claim()
    with pytest.raises(StopRequested):
        lease.advance()


def test_parent_gives_back_only_what_its_own_children_hold(broker: Broker) -> None:
    lease = lease_of(broker, "host-1")
    lease.claim()
    ledger = broker.ledger()
    assert give_back(ledger, [UNIT.scope], "host-2") == []
    assert give_back(ledger, [UNIT.scope], "host-1") == [f"{UNIT.scope}:{UNIT.name}"]
    assert lease_of(broker, "host-2").claim() == ("claimed", 1)


def test_expired_lease_is_told_apart_from_a_live_one(broker: Broker) -> None:
    lease_of(broker).claim()
    assert under_way(broker).expired == frozenset()
    expire(broker)
    assert under_way(broker).expired == {UNIT.name}


def test_a_unit_that_completes_between_two_looks_is_not_expired(broker: Broker) -> None:
    """Leases are looked at together with what is noted of their holders."""
    ended = threading.Event()

    def work() -> None:
        while not ended.is_set():
            lease = lease_of(broker)
            lease.claim()
            lease.complete()
            broker.ledger().unmark_done(UNIT.scope, 0)

    seen: list[UnderWay] = []
    worker = threading.Thread(target=work)
    worker.start()
    try:
        # On a busy machine 400 looks may pass while the worker's thread stands still between two leases.
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and (len(seen) < 400 or not any(view.leased for view in seen)):
            seen.append(under_way(broker))
    finally:
        ended.set()
        worker.join()
    assert any(view.leased for view in seen)
    assert not [view for view in seen if view.expired]


def test_a_lease_that_is_none_of_ours_is_taken(broker: Broker) -> None:
    client = broker.ledger().client
    client.set(UNIT.lease_key, "without an end")
    assert lease_of(broker).claim() == ("claimed", 1)
    client.set(UNIT.lease_key, "for a year", ex=365 * 86400)
    assert lease_of(broker, "host-2").claim() == ("claimed", 2)


def test_a_lease_ends_by_itself(broker: Broker) -> None:
    lease_of(broker, lease_s=1).claim()
    wait_until(lambda: UNIT.name in under_way(broker).expired, 30, "the lease expires")
    assert lease_of(broker, "host-2").claim() == ("claimed", 2)


def test_one_reconciler_leads_until_it_stops(broker: Broker) -> None:
    ledger = broker.ledger()
    assert ledger.lead("a", 10)
    assert not ledger.lead("b", 10)
    ledger.stop_leading("b")
    assert ledger.lead("a", 10)
    ledger.stop_leading("a")
    assert ledger.lead("b", 10)


@pytest.mark.parametrize("fate", ["ours", "cancelled", "lost"])
def test_work_that_stands_still_ends_its_process_whoever_holds_the_lease(broker: Broker, fate: str) -> None:
    deed = {
        "ours": "",
        "cancelled": "ledger.write_state('job:x', cancelled=1)",
        "lost": "ledger.client.set(unit.lease_key, 'another')",
    }[fate]
    program = (
        "import time; from shared.leasing.lease import *; from shared.leasing.ledger import *\n"
        "from shared.leasing.redis_client import connect\n"
        f"ledger = Ledger(connect({broker.url!r})); unit = Unit(scope='job:x', name='u', ordinal=0)\n"
        "holder = Holder(ledger=ledger, worker='w', lease_s=1, stall_s=1, attempts=3)\n"
        "lease = Lease(holder, unit); lease.claim()\n"
        f"{deed}\n"
        "with lease.renewed():\n    time.sleep(60)\n"
    )
    assert subprocess.run([sys.executable, "-c", program], timeout=90).returncode == -9


@pytest.mark.parametrize("ahead_s", [-7200, 7200], ids=["behind", "ahead"])
def test_the_age_of_a_round_is_right_where_clocks_differ_by_hours(broker: Broker, ahead_s: float) -> None:
    ledger = broker.ledger()
    ledger.note_round(Demand(shards=0, runs=0))
    ledger.client.set("voc:reconciled", time.time() + ahead_s, keepttl=True)  # as a machine with another clock has it
    age_s = ledger.round_age_s()
    assert age_s is not None
    assert 0 <= age_s < 5


def test_the_round_of_an_older_version_has_an_age(broker: Broker) -> None:
    broker.ledger().client.set("voc:reconciled", time.time() - 100)
    assert broker.ledger().round_age_s() == pytest.approx(100, abs=5)


def test_what_is_no_message_in_a_queue_has_no_id(broker: Broker) -> None:
    ledger = broker.ledger()
    for text in ("garbage", "[]", "7", "{}", '{"headers": null}', '{"headers": {"id": "job/shard"}}'):
        ledger.client.lpush("shards", text)
    assert ledger.queued_ids("shards") == ["job/shard"]
