"""A worker's presence: what the ledger shows of it, when it ends itself, and how its children are asked to stop."""

import subprocess
import sys
from pathlib import Path

import pytest

from shared.leasing.heartbeat import WATCHDOG_S, Presence, Registration, StopRequest
from shared.leasing.scopes import Heartbeat
from tests.cluster import Broker
from tests.unit.shared.leasing.holders import Clock


class Worker:
    """A worker's presence with a clock, an end and a load that the test decides."""

    def __init__(self, broker: Broker, heartbeat_file: Path | None = None) -> None:
        self.clock, self.exits, self.is_idle = Clock(), list[int](), True
        registration = Registration(
            name="host-1", kind="worker", queue="shards", slots=4, heartbeat_file=heartbeat_file
        )
        self.presence = Presence(
            broker.ledger(),
            registration,
            is_idle=lambda: self.is_idle,
            clock=self.clock,
            end_process=self.exits.append,
        )


def test_a_beat_is_shown_and_touches_the_file_for_health_checks(broker: Broker, tmp_path: Path) -> None:
    worker = Worker(broker, tmp_path / "heartbeat")
    worker.presence.beat()
    assert broker.ledger().workers() == {"host-1": Heartbeat(kind="worker", slots=4)}
    assert (tmp_path / "heartbeat").exists()
    worker.presence.stop()
    assert broker.ledger().workers() == {}


@pytest.mark.parametrize(("is_idle", "exits"), [(True, [1]), (False, [])])
def test_a_worker_that_idles_beside_a_waiting_message_ends_itself(
    broker: Broker, is_idle: bool, exits: list[int]
) -> None:
    worker = Worker(broker)
    worker.is_idle = is_idle
    broker.ledger().client.lpush("shards", "message")
    worker.clock.pass_(WATCHDOG_S)
    worker.presence.beat()
    assert worker.exits == []
    worker.clock.pass_(1)
    worker.presence.beat()
    assert worker.exits == exits


@pytest.mark.parametrize(("is_idle", "exits"), [(True, [1]), (False, [])])
def test_a_worker_without_redis_goes_on_only_while_it_has_a_task(
    broker: Broker, is_idle: bool, exits: list[int]
) -> None:
    worker = Worker(broker)
    worker.is_idle = is_idle
    broker.kill()
    worker.clock.pass_(WATCHDOG_S + 1)
    worker.presence.beat()
    assert worker.exits == exits
    worker.presence.stop()  # leaves its name to expire


def test_a_stop_request_is_due_when_its_time_is_over() -> None:
    clock = Clock()
    stop = StopRequest(clock)
    assert not stop.is_due()
    stop.ask(within_s=15)
    assert not stop.is_due()
    clock.pass_(15)
    assert stop.is_due()


def test_a_child_sees_what_its_parent_asks_for_after_the_fork() -> None:
    program = (
        "import os; from shared.leasing.heartbeat import StopRequest\n"
        "stop = StopRequest(); asked, ask = os.pipe(); child = os.fork()\n"
        "if not child:\n    os.read(asked, 1); os._exit(7 if stop.is_due() else 8)\n"
        "stop.ask(within_s=0); os.write(ask, b'x')\n"
        "raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    )
    assert subprocess.run([sys.executable, "-c", program], timeout=60).returncode == 7
