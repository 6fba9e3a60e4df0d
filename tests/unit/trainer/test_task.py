"""One message -> one run: what is refused, settled, or fails for good; the work itself is a test's function."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from shared.errors import Cancelled, ExportError, LeaseLost, StopRequested, StorageError
from shared.jobs.identity import make_note
from shared.jobs.job import Job
from shared.jobs.paths import JobPaths, RunPaths
from shared.leasing.guard import Guard
from shared.leasing.scopes import RUN_UNIT, run_scope
from shared.specs.data import JobSpec
from shared.specs.run import RunSpec
from shared.storage import Storage
from tests.cluster import Broker, wait_until
from tests.task_logs import events
from tests.unit.shared.leasing.holders import holder
from trainer.task import RunWorker, do_task

pytestmark = pytest.mark.usefixtures("task_logs")


PATHS = RunPaths("run")
INCARNATION = "1" * 32
HINT = {"run": "run", "incarnation": INCARNATION}
SPEC = RunSpec(run="run", job="job", incarnation=INCARNATION)
JOB = Job(
    job="job",
    incarnation=INCARNATION,
    dataset="set",
    folder="set",
    spec=JobSpec(),
    run=None,
    labels=("cat",),
    splits={},
    request_digest="0" * 64,
)


class Asked:
    """A run that was asked for in a store, and a trainer's process for it."""

    def __init__(self, folder: Path, broker: Broker) -> None:
        self.broker, self.storage = broker, Storage(str(folder))
        self.storage.write(JobPaths("job").job, JOB.to_json().encode())
        self.storage.write(PATHS.request, SPEC.to_json().encode())
        self.done: list[RunSpec] = []

    def do(self, message: Any = HINT, *, raising: BaseException | None = None) -> None:
        def train(request: RunSpec, guard: Guard) -> None:
            guard.advance(step=1)
            if raising is not None:
                raise raising
            guard.before_publish()
            self.done.append(request)

        do_task(message, RunWorker(storage=self.storage, holder=holder(self.broker), train=train))

    def failed(self) -> Any:
        text = self.storage.read_or_none(PATHS.failed)
        return None if text is None else json.loads(text)


@pytest.fixture
def asked(tmp_path: Path, broker: Broker) -> Asked:
    return Asked(tmp_path, broker)


def test_a_run_that_was_asked_for_is_done_once(asked: Asked, caplog: pytest.LogCaptureFixture) -> None:
    asked.do()
    asked.do()
    assert asked.done == [SPEC]
    assert events(caplog) == [("run_done", None), ("run_not_claimed", "done")]


@pytest.mark.parametrize(
    ("hint", "reason"),
    [
        ("nothing", "not a RunHint"),
        ({"run": "other"}, "no run 'other' was asked for"),
        ({"run": "run", "incarnation": "2" * 32}, "by another job than those in"),
    ],
)
def test_a_hint_of_nothing_that_was_asked_for_is_refused(
    asked: Asked, caplog: pytest.LogCaptureFixture, hint: Any, reason: str
) -> None:
    asked.do(hint)
    ((event, found),) = events(caplog)
    assert event == "message_refused"
    assert reason in found
    assert asked.done == []
    assert asked.failed() is None


def test_a_run_of_a_removed_job_is_refused(asked: Asked, caplog: pytest.LogCaptureFixture) -> None:
    asked.storage.remove(JobPaths("job").job)
    asked.do()
    assert [event for event, _ in events(caplog)] == ["message_refused"]


def test_a_request_that_cannot_be_read_fails_for_good(asked: Asked, caplog: pytest.LogCaptureFixture) -> None:
    asked.storage.write(PATHS.request, b"{")
    asked.do()
    assert [event for event, _ in events(caplog)] == ["run_failed_for_good"]
    assert asked.failed()["kind"] == "FormatError"
    assert asked.failed()["incarnation"] == INCARNATION


@pytest.mark.parametrize("key", [PATHS.run, PATHS.failed, PATHS.cancelled])
def test_a_run_that_is_settled_is_not_claimed(asked: Asked, caplog: pytest.LogCaptureFixture, key: str) -> None:
    asked.storage.write(key, make_note(INCARNATION))
    asked.do()
    assert events(caplog) == [("run_not_claimed", "settled")]
    assert asked.done == []


@pytest.mark.parametrize(
    ("error", "event"), [(StopRequested("x"), "run_given_back"), (Cancelled("x"), "run_left")], ids=["stop", "cancel"]
)
def test_a_run_that_was_told_to_end_is_given_back_uncounted(
    asked: Asked, caplog: pytest.LogCaptureFixture, error: Exception, event: str
) -> None:
    asked.do(raising=error)
    assert [event for event, _ in events(caplog)] == [event]
    asked.do()
    assert asked.done == [SPEC]
    assert asked.broker.ledger().read_state(run_scope(SPEC)).attempts == 1


@pytest.mark.parametrize(
    "error", [StorageError("no space left"), OSError("no space left"), MemoryError("no space left")]
)
def test_a_passing_fault_is_counted_and_tried_again(
    asked: Asked, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    asked.do(raising=error)
    assert [event for event, _ in events(caplog)] == ["run_failed"]
    under_way = asked.broker.ledger().under_way(run_scope(SPEC), lambda _: True)
    assert under_way.errors == {RUN_UNIT: "no space left"}
    assert asked.failed() is None
    asked.do()
    assert asked.done == [SPEC]


def test_an_error_of_the_work_fails_the_run_for_good(asked: Asked, caplog: pytest.LogCaptureFixture) -> None:
    asked.do(raising=ExportError("the model disagrees"))
    assert events(caplog) == [("run_failed_for_good", "the model disagrees")]
    assert (asked.failed()["kind"], asked.failed()["reason"]) == ("ExportError", "ExportError: the model disagrees")
    asked.do()
    assert asked.done == []


def test_an_error_that_nothing_explains_is_raised_and_counted(asked: Asked) -> None:
    with pytest.raises(ValueError, match="a bug"):
        asked.do(raising=ValueError("a bug"))
    assert asked.failed() is None
    under_way = asked.broker.ledger().under_way(run_scope(SPEC), lambda _: True)
    assert under_way.errors == {RUN_UNIT: "ValueError: a bug"}


def test_a_job_that_is_removed_in_the_middle_publishes_nothing(asked: Asked, caplog: pytest.LogCaptureFixture) -> None:
    def train(_request: RunSpec, guard: Guard) -> None:
        asked.storage.remove(JobPaths("job").job)
        guard.before_publish()
        raise AssertionError("published")

    do_task(HINT, RunWorker(storage=asked.storage, holder=holder(asked.broker), train=train))
    assert [event for event, _ in events(caplog)] == ["run_left"]


def progress(storage: Storage) -> Any:
    return json.loads(storage.read(PATHS.progress))


def test_who_trains_and_how_far_is_noted_in_the_store_and_that_it_ended(asked: Asked) -> None:
    seen = []

    def train(_request: RunSpec, guard: Guard) -> None:
        guard.advance(phase="train", step=7, steps=9, seconds=61.5, loss=0.25)
        wait_until(lambda: asked.storage.exists(PATHS.progress) and "step" in progress(asked.storage), 20, "noted")
        seen.append(progress(asked.storage))
        guard.advance(phase="export", form="int8")

    do_task(HINT, RunWorker(storage=asked.storage, holder=holder(asked.broker), train=train))
    (noted,) = seen
    assert noted.items() >= {"phase": "train", "step": 7, "steps": 9, "loss": 0.25, "held": True}.items()
    assert (noted["incarnation"], noted["pid"]) == (INCARNATION, os.getpid())
    last = progress(asked.storage)
    assert last.items() >= {"phase": "export", "form": "int8", "seconds": 61.5, "held": False}.items()
    assert not {"step", "loss"} & last.keys()  # a phase shows its own facts


def test_a_trainer_that_lost_its_lease_leaves_the_note_to_the_next(asked: Asked) -> None:
    asked.do(raising=LeaseLost("x"))
    assert not asked.storage.exists(PATHS.progress) or progress(asked.storage)["held"]


def test_a_refusal_after_an_export_by_hand_that_passed_is_not_noted(
    asked: Asked, caplog: pytest.LogCaptureFixture
) -> None:
    def train(_request: RunSpec, _guard: Guard) -> None:
        asked.storage.write(PATHS.run, make_note(INCARNATION))
        raise ExportError("the export gate refuses this model")

    do_task(HINT, RunWorker(storage=asked.storage, holder=holder(asked.broker), train=train))
    assert asked.failed() is None
    assert "run_finished_meanwhile" in [event for event, _ in events(caplog)]
