"""The broker of an embedded run: reached whatever the folder for temporary files is called, or refused at once."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from producer.local.pipeline import start_broker
from producer.local.processes import Processes
from shared.broker import RUN_TASK, Broker, RunHint
from shared.errors import BrokerError
from shared.leasing.redis_client import connect
from shared.leasing.scopes import RUN_QUEUE


@pytest.fixture
def processes() -> Iterator[Processes]:
    ours = Processes()
    yield ours
    ours.stop()


@pytest.mark.parametrize("name", ["a#b", "a?b=c", "a%23b", "a b@c:1", "é"])
def test_the_broker_is_reached_by_redis_and_by_celery_in_a_folder_of_any_name(
    broker_folder: Path, processes: Processes, name: str
) -> None:
    folder = broker_folder / name
    folder.mkdir()
    url = start_broker(processes, folder)
    Broker(url).send(task=RUN_TASK, queue=RUN_QUEUE, message=RunHint(run="r"), task_id="one")
    assert connect(url).llen(RUN_QUEUE) == 1


@pytest.mark.parametrize(
    ("name", "told"),
    [("x" * 100, r"its path has \d+ bytes, expected at most 10\d; set TMPDIR"), (os.fsdecode(b"\xff"), "not UTF-8")],
)
def test_a_folder_in_which_no_socket_can_be_is_refused_before_anything_starts(
    broker_folder: Path, processes: Processes, name: str, told: str
) -> None:
    folder = broker_folder / name
    folder.mkdir()
    with pytest.raises(BrokerError, match=told) as refused:
        start_broker(processes, folder)
    assert "\n" not in str(refused.value)
    assert not list(folder.iterdir())
