"""What the ledger tells of reconcilers, workers and queues; `tests/queue/test_ledger.py` has leases and attempts."""

import json
import time

import pytest

from shared.leasing.ledger import HEARTBEAT_EXPIRY_S
from shared.leasing.scopes import Demand
from tests.cluster import Broker


def test_one_reconciler_leads_until_it_stops(broker: Broker) -> None:
    ledger = broker.ledger()
    assert ledger.lead("a", 10)
    assert not ledger.lead("b", 10)
    ledger.stop_leading("b")
    assert ledger.lead("a", 10)
    ledger.stop_leading("a")
    assert ledger.lead("b", 10)


def test_a_leader_prolongs_its_time_and_one_that_died_is_followed_when_it_is_over(broker: Broker) -> None:
    ledger = broker.ledger()
    ledger.lead("a", 10)
    assert 0 < ledger.client.ttl("voc:leader") <= 10
    ledger.lead("a", 100)
    assert 90 < ledger.client.ttl("voc:leader") <= 100
    assert not ledger.lead("b", 10)
    assert 90 < ledger.client.ttl("voc:leader") <= 100


def test_a_leader_without_an_end_is_none_of_ours(broker: Broker) -> None:
    ledger = broker.ledger()
    ledger.client.set("voc:leader", "nobody")
    assert not ledger.lead("a", 10)
    assert ledger.lead("a", 10)


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
    for text in ("garbage", "[]", "7", "{}", '{"headers": null}', "[" * 100_000):
        ledger.client.lpush("shards", text)
    for shard in ("first", "second"):
        ledger.client.lpush("shards", json.dumps({"headers": {"id": shard}}))
    assert ledger.queued_ids("shards") == ["first", "second"]


def test_a_worker_that_died_is_no_longer_counted_when_its_heartbeat_has_expired(broker: Broker) -> None:
    ledger = broker.ledger()
    ledger.beat("host-1", kind="worker", slots=3)
    ledger.beat("host-2", kind="trainer", slots=1)
    assert (ledger.slots("worker"), ledger.slots("trainer")) == (3, 1)
    assert HEARTBEAT_EXPIRY_S - 5 < ledger.client.ttl("voc:worker:host-1") <= HEARTBEAT_EXPIRY_S


def test_a_refusal_of_the_store_is_told_until_a_round_is_complete_or_nobody_makes_one(broker: Broker) -> None:
    ledger = broker.ledger()
    ledger.note_refusal("disk full")
    assert ledger.refusal() == "disk full"
    assert 0 < ledger.client.ttl("voc:refused") <= 600
    ledger.note_round(Demand(shards=3, runs=1))
    assert (ledger.refusal(), ledger.demand()) == ("", Demand(shards=3, runs=1))


def test_a_touched_job_is_told_once(broker: Broker) -> None:
    ledger = broker.ledger()
    for job in ("a", "b", "a"):
        ledger.touch(job)
    assert ledger.touched() == {"a", "b"}
    assert ledger.touched() == set()
