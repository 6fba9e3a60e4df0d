"""What becomes of a unit by what its work does: done, given back, failed for now, failed for good."""

import logging
from collections.abc import Callable

import pytest

from shared.errors import Cancelled, ExportError, LeaseLost, PipelineError, StopRequested, StorageError
from shared.leasing.lease import Lease
from shared.leasing.runner import Done, Runner
from shared.leasing.scopes import Unit
from tests.cluster import Broker
from tests.unit.shared.leasing.holders import holder

pytestmark = pytest.mark.usefixtures("task_logs")

UNIT = Unit(scope="job:job@0123", name="train-00000-of-00002", ordinal=0)
DONE = Done(written=7, quarantined=1)
RUNNER = Runner(kind="shard", logger=logging.getLogger("test"))


def lease_of(broker: Broker) -> Lease:
    return Lease(holder(broker), UNIT)


def raising(error: BaseException) -> Callable[[int], Done]:
    def work(_attempt: int) -> Done:
        raise error

    return work


def events(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records]


def test_done_work_is_counted_once_and_never_claimed_again(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    assert RUNNER.run(lease_of(broker), None, lambda _: DONE) == DONE
    assert RUNNER.run(lease_of(broker), None, raising(AssertionError("it is done"))) is None
    state = broker.ledger().read_state(UNIT.scope)
    assert (state.written, state.quarantined, broker.ledger().done_count(UNIT.scope)) == (7, 1, 1)
    assert events(caplog) == ["shard_not_claimed"]
    assert vars(caplog.records[0])["outcome"] == "done"


def test_settled_work_is_not_claimed(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    assert RUNNER.run(lease_of(broker), "cancelled", raising(AssertionError("it is cancelled"))) is None
    assert broker.ledger().client.get(UNIT.lease_key) is None
    assert vars(caplog.records[0])["outcome"] == "cancelled"


def test_held_work_is_left_to_its_holder(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    lease_of(broker).claim()
    assert RUNNER.run(lease_of(broker), None, raising(AssertionError("it is held"))) is None
    assert vars(caplog.records[0])["outcome"] == "held"


@pytest.mark.parametrize(
    ("error", "event"),
    [(StopRequested("x"), "shard_given_back"), (Cancelled("x"), "shard_left"), (LeaseLost("x"), "shard_left")],
)
def test_work_that_was_told_to_end_is_given_back_uncounted(
    broker: Broker, caplog: pytest.LogCaptureFixture, error: PipelineError, event: str
) -> None:
    assert RUNNER.run(lease_of(broker), None, raising(error)) is None
    assert events(caplog) == [event]
    assert lease_of(broker).claim() == ("claimed", 1)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (StorageError("cannot write /out: No space left on device"), "cannot write /out: No space left on device"),
        (OSError(28, "No space left on device"), "[Errno 28] No space left on device"),
        (MemoryError(), "MemoryError"),
    ],
)
def test_a_passing_fault_is_counted_until_the_attempts_are_used_up(
    broker: Broker, caplog: pytest.LogCaptureFixture, error: Exception, text: str
) -> None:
    runner = Runner(kind="run", logger=RUNNER.logger, fail_for_good=raising(AssertionError("it passes")))  # type: ignore[arg-type]
    for _ in range(4):
        assert runner.run(lease_of(broker), None, raising(error)) is None
    assert events(caplog) == ["run_failed"] * 3 + ["run_not_claimed"]
    assert vars(caplog.records[-1])["outcome"] == "exhausted"
    assert broker.ledger().under_way(UNIT.scope, lambda _: True).errors == {UNIT.name: text}


def test_a_fault_of_the_work_itself_fails_it_for_good(broker: Broker) -> None:
    told: list[PipelineError] = []
    error = ExportError("disagrees")

    def fail_for_good(error: PipelineError) -> None:
        assert lease_of(broker).claim()[0] == "held"  # nobody may try again before the failure is on record
        told.append(error)

    runner = Runner(kind="run", logger=RUNNER.logger, fail_for_good=fail_for_good)
    assert runner.run(lease_of(broker), None, raising(error)) is None
    assert told == [error]
    assert lease_of(broker).claim() == ("claimed", 2)
    assert broker.ledger().under_way(UNIT.scope, lambda _: True).errors == {UNIT.name: "disagrees"}


@pytest.mark.parametrize("error", [ExportError("x"), ValueError("x"), KeyboardInterrupt("x")])
def test_an_error_that_nothing_explains_is_raised_after_the_lease_went_back(
    broker: Broker, error: BaseException
) -> None:
    with pytest.raises(type(error)):
        RUNNER.run(lease_of(broker), None, raising(error))
    assert lease_of(broker).claim() == ("claimed", 2)
    errors = broker.ledger().under_way(UNIT.scope, lambda _: True).errors
    assert errors == {UNIT.name: f"{type(error).__name__}: x"}


def test_the_work_is_told_its_attempt_and_its_lease_is_kept_meanwhile(broker: Broker) -> None:
    seen = []

    def work(attempt: int) -> Done:
        seen.append((attempt, lease_of(broker).claim()[0]))
        raise OSError("x") if attempt == 1 else StopRequested

    RUNNER.run(lease_of(broker), None, work)
    RUNNER.run(lease_of(broker), None, work)
    assert seen == [(1, "held"), (2, "held")]
