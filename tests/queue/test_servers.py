"""The ledger and the users' rights on every server that is here: the bundled one, those on PATH, VOC_TEST_SERVERS.

`VOC_TEST_SERVERS` has paths of `redis-server` or `valkey-server`, put together as PATH is.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest
from redis.exceptions import NoPermissionError

from producer.local.redis_server import Server, choose_server, servers_here
from producer.redis_users import USERS
from shared.errors import BrokerError
from shared.leasing.lease import Holder, Lease
from shared.leasing.redis_client import connect
from shared.leasing.scopes import SHARD_QUEUE, UnderWay, Unit
from tests.cluster import Broker, Cluster, GuardedBroker, assert_common_outcome

# `%R~`, a key that may be read only, is of 7.0.
LEAST_WITH_USERS: Final = (7, 0)

UNIT: Final = Unit(scope="job:job@0123", name="train-00000-of-00002", ordinal=0)


def _servers() -> list[Server]:
    """Those that were named must do; what else is here may be too old."""
    named = [Path(path) for path in os.environ.get("VOC_TEST_SERVERS", "").split(os.pathsep) if path]
    found = [choose_server([(path, "named")]) for path in named]
    for candidate in servers_here():
        with suppress(BrokerError):
            found.append(choose_server([candidate]))
    return found


def _label(server: Server) -> str:
    return f"{server.name} {'.'.join(map(str, server.release))}"


@pytest.fixture(params=_servers(), ids=_label)
def server(request: pytest.FixtureRequest) -> Server:
    found: Server = request.param
    return found


def _is_guarded(server: Server) -> bool:
    return server.release >= LEAST_WITH_USERS


@pytest.fixture
def broker(server: Server, broker_folder: Path) -> Iterator[Broker]:
    """With a user for each service where the server knows such rights."""
    started = (GuardedBroker if _is_guarded(server) else Broker)(broker_folder, server=server)
    started.start()
    yield started
    started.stop()


def lease_of(broker: Broker, worker: str) -> Lease:
    return Lease(Holder(ledger=broker.ledger(), worker=worker, lease_s=60, stall_s=30, attempts=3), UNIT)


def test_a_unit_is_claimed_held_given_back_and_done(broker: Broker) -> None:
    first, second = lease_of(broker, "host-1"), lease_of(broker, "host-2")
    assert first.claim() == ("claimed", 1)
    first.advance(images=3)
    assert second.claim()[0] == "held"
    first.release(counted=True, error="disk full")
    assert second.claim() == ("claimed", 2)
    second.before_publish()
    second.complete()
    ledger = broker.ledger()
    assert ledger.done_count(UNIT.scope) == 1
    seen: UnderWay = ledger.under_way(UNIT.scope, lambda _: True)
    assert not seen.leased


def test_every_user_connects_and_is_refused_what_is_not_its_own(server: Server, broker: Broker) -> None:
    if not _is_guarded(server):
        pytest.skip(f"{server} does not know our users' rights")
    for user in (user for user in USERS if user != "default"):
        client: Any = connect(broker.url_of(user))
        assert client.execute_command("ACL", "WHOAMI") == user
        for command in ("FLUSHALL", "CONFIG GET *", "CLIENT KILL ID 1", "SET somebody-elses-key x"):
            with pytest.raises(NoPermissionError):
                client.execute_command(*command.split())
    monitoring: Any = connect(broker.url_of("monitoring"))
    assert monitoring.llen(SHARD_QUEUE) == 0
    with pytest.raises(NoPermissionError):
        monitoring.lpush(SHARD_QUEUE, "x")


def test_a_job_is_written_on_each_server(broker: Broker, cluster: Cluster, small_voc: Path) -> None:
    cluster.serve()
    cluster.worker(slots=2)
    cluster.producer("submit", str(small_voc), "--job", "job", "--shard-images", "8", "--no-train")
    cluster.wait_for("job")
    assert_common_outcome(cluster, "job")
    assert not isinstance(broker, GuardedBroker) or broker.denied() == []
