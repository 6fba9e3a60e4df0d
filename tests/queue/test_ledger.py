"""The ledger's scripts on a real broker: who owns a shard, how often it was tried, what a wipe does."""

import subprocess
import sys
import threading
import time
from dataclasses import replace

import pytest

from shared.errors import Cancelled, LeaseLost, StopRequested
from shared.leasing.lease import Holder, Lease, give_back
from shared.leasing.ledger import FAREWELL_S
from shared.leasing.scopes import NOTHING_UNDER_WAY, UnderWay, Unit
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
        assert lease_of(broker).claim()[0] == "held"
        lease.release(counted=True, error="disk full")
    assert lease_of(broker).claim() == ("exhausted", 3)
    assert under_way(broker).errors == {UNIT.name: "disk full"}


def test_a_claim_is_counted_and_takes_the_hint_of_its_unit_out_of_the_queue(broker: Broker) -> None:
    ledger = broker.ledger()
    ledger.mark_queued(UNIT.scope, UNIT.name)
    assert under_way(broker).queued.keys() == {UNIT.name}
    lease_of(broker).claim()
    view = under_way(broker)
    assert (view.queued, set(view.leased), view.attempts) == ({}, {UNIT.name}, {UNIT.name: 1})
    assert ledger.read_state(UNIT.scope).attempts == 1


def test_uncounted_release_gives_the_attempt_back(broker: Broker) -> None:
    lease = lease_of(broker)
    lease.claim()
    lease.release(counted=False)
    assert (under_way(broker).leased, broker.ledger().read_state(UNIT.scope).attempts) == ({}, 0)
    assert lease_of(broker).claim() == ("claimed", 1)


def test_the_last_error_of_a_scope_names_its_unit_and_stays_until_there_is_another(broker: Broker) -> None:
    for error in ("disk full", ""):
        lease = lease_of(broker)
        lease.claim()
        lease.release(counted=True, error=error)
    assert under_way(broker).errors == {UNIT.name: "disk full"}
    assert broker.ledger().read_state(UNIT.scope).last_error == f"{UNIT.name}: disk full"


def test_same_token_claims_twice_because_the_first_answer_may_be_lost(broker: Broker) -> None:
    lease = lease_of(broker)
    assert lease.claim() == lease.claim() == ("claimed", 1)
    broker.ledger().start_counting_anew(UNIT.scope, 1)
    assert lease.claim() == ("claimed", 1)


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


def test_nothing_is_left_of_a_done_unit_but_its_count(broker: Broker) -> None:
    ledger, failed, lease = broker.ledger(), lease_of(broker), lease_of(broker)
    failed.claim()
    failed.release(counted=True, error="disk full")
    lease.claim()
    ledger.mark_queued(UNIT.scope, UNIT.name)  # a second hint, sent by a reconciler that had lost sight of it
    lease.complete()
    assert under_way(broker) == NOTHING_UNDER_WAY
    assert ledger.client.get(UNIT.lease_key) is None


def test_who_completes_a_unit_that_another_holds_leaves_the_other_its_lease(broker: Broker) -> None:
    lease, other = lease_of(broker), lease_of(broker, "host-2")
    lease.claim()
    expire(broker)
    other.claim()
    lease.complete()
    assert broker.ledger().client.get(UNIT.lease_key) == other.token


def test_wiped_redis_is_re_asserted_by_the_holder(broker: Broker) -> None:
    lease = lease_of(broker)
    lease.claim()
    broker.ledger().client.flushall()
    lease.before_publish()
    assert lease_of(broker, "host-2").claim()[0] == "held"
    assert under_way(broker).leased[UNIT.name]["worker"] == "host-1"


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
    broker.ledger().write_state(UNIT.scope, cancelled=0)
    retried = lease_of(broker)
    assert retried.claim() == ("claimed", 1)
    retried.before_publish()


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


@pytest.mark.parametrize("end_s", [None, 365 * 86400], ids=["without an end", "for a year"])
def test_a_lease_that_is_none_of_ours_is_expired_and_takes_nothing_from_its_holder(
    broker: Broker, end_s: int | None
) -> None:
    lease, client = lease_of(broker), broker.ledger().client
    lease.claim()
    client.set(UNIT.lease_key, "nobody", ex=end_s)
    assert under_way(broker).expired == {UNIT.name}
    lease.before_publish()
    assert client.get(UNIT.lease_key) == lease.token
    assert under_way(broker).expired == frozenset()


@pytest.mark.parametrize("text", ["many", "-5", "0.5", "1e99", "nan", ""])
def test_a_count_that_is_no_number_of_claims_counts_as_none(broker: Broker, text: str) -> None:
    client = broker.ledger().client
    client.hset(UNIT.key("attempts"), UNIT.name, text)
    client.hset(UNIT.state_key, mapping={"attempts": text, "written": text, "quarantined": text})
    lease = lease_of(broker)
    assert lease.claim() == ("claimed", 1)
    lease.complete(written=7, quarantined=1)
    state = broker.ledger().read_state(UNIT.scope)
    assert (state.attempts, state.written, state.quarantined) == (1, 7, 1)


def test_keys_of_other_types_are_taken_away_by_whatever_a_worker_does(broker: Broker) -> None:
    client, lease, keys = (
        broker.ledger().client,
        lease_of(broker),
        list(map(UNIT.key, ("queued", "leased", "attempts"))),
    )
    keys += [UNIT.state_key, UNIT.lease_key, UNIT.key("errors"), UNIT.key("done")]

    def spoil(*kept: str) -> None:
        for key in set(keys) - set(kept):
            client.delete(key)
            client.xadd(key, {"a": "b"})

    spoil()
    assert lease.claim() == ("claimed", 1)
    spoil()
    lease.before_publish()
    spoil(UNIT.lease_key)
    lease.release(counted=True, error="disk full")
    assert under_way(broker).errors == {UNIT.name: "disk full"}
    spoil()
    lease.complete(written=7)
    assert under_way(broker) == NOTHING_UNDER_WAY
    assert (broker.ledger().done_count(UNIT.scope), broker.ledger().read_state(UNIT.scope).written) == (1, 7)


def test_a_lease_ends_by_itself(broker: Broker) -> None:
    lease_of(broker, lease_s=1).claim()
    wait_until(lambda: UNIT.name in under_way(broker).expired, 30, "the lease expires")
    assert lease_of(broker, "host-2").claim() == ("claimed", 2)


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


def test_units_that_the_job_does_not_have_are_not_under_way(broker: Broker) -> None:
    client = broker.ledger().client
    client.zadd(UNIT.key("queued"), {"evil": 1})
    for part in ("leased", "attempts", "errors"):
        client.hset(UNIT.key(part), "evil", "1")
    assert broker.ledger().under_way(UNIT.scope, lambda name: name == UNIT.name) == NOTHING_UNDER_WAY


def test_an_error_is_kept_short_whoever_wrote_it(broker: Broker) -> None:
    lease, client = lease_of(broker), broker.ledger().client
    lease.claim()
    lease.release(counted=True, error="x" * 100_000)
    assert client.hstrlen(UNIT.key("errors"), UNIT.name) == 2000
    client.hset(UNIT.key("errors"), UNIT.name, "x" * 100_000)
    assert under_way(broker).errors == {UNIT.name: "x" * 2000}


def leave_traces(broker: Broker) -> Lease:
    """Have a unit claimed that has failed before, with a second hint on its way, beside one that is done."""
    failed, lease = lease_of(broker), lease_of(broker)
    failed.claim()
    failed.release(counted=True, error="disk full")
    lease.claim()
    broker.ledger().mark_queued(UNIT.scope, UNIT.name)
    broker.ledger().mark_done(UNIT.scope, [1])
    return lease


def test_a_retry_forgets_attempts_and_errors_and_nothing_else(broker: Broker) -> None:
    lease = leave_traces(broker)
    before = under_way(broker)
    broker.ledger().start_counting_anew(UNIT.scope, 2)
    assert under_way(broker) == replace(before, attempts={}, errors={})
    lease.release(counted=False)  # there is nothing left to be taken back
    state = broker.ledger().read_state(UNIT.scope)
    assert (state.retried, state.attempts, broker.ledger().done_count(UNIT.scope)) == (2, 2, 1)
    assert lease_of(broker).claim() == ("claimed", 1)


def test_a_scope_that_is_forgotten_leaves_nothing_but_the_leases_of_those_at_work(broker: Broker) -> None:
    lease, ledger = leave_traces(broker), broker.ledger()
    ledger.forget_scope(UNIT.scope)
    assert ledger.client.keys() == [UNIT.lease_key]
    lease.before_publish()
    assert under_way(broker).leased.keys() == {UNIT.name}


def test_who_works_on_a_removed_job_is_told_for_an_hour_and_nothing_else_is_left(broker: Broker) -> None:
    lease, ledger = leave_traces(broker), broker.ledger()
    ledger.end_scope(UNIT.scope)
    assert sorted(ledger.client.keys()) == sorted([UNIT.state_key, UNIT.lease_key])
    assert FAREWELL_S - 60 < ledger.client.ttl(UNIT.state_key) <= FAREWELL_S
    with pytest.raises(Cancelled):
        lease.before_publish()
