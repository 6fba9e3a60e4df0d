"""What is read of the texts that anybody may have written into Redis."""

import json
from typing import Any

import pytest

from shared.jobs.job import ShardTask
from shared.leasing.scopes import Demand, Heartbeat, ScopeState, as_count, job_scope, read_holder, run_of

DEEP = "[" * 100_000
NOBODY = {"worker": "unknown", "pid": 0, "since": 0.0}


def test_a_holder_is_read_as_it_was_written() -> None:
    written = {"worker": "host-1", "pid": 7, "since": 1.5, "phase": "train", "step": 3, "loss": 0.25}
    assert read_holder(json.dumps(written)) == written


@pytest.mark.parametrize(
    "text", ["", "no JSON", "[]", "7", "null", DEEP, '{"since": "then", "images": [], "step": null}']
)
def test_what_is_no_holder_is_an_unknown_one(text: str) -> None:
    assert read_holder(text) == NOBODY


@pytest.mark.parametrize(
    "number", ["NaN", "Infinity", "-Infinity", "1e308", "-1e308", f"1{'0' * 400}", f"-1{'0' * 400}"]
)
def test_a_number_that_cannot_be_shown_or_added_up_is_left_out_of_a_holder(number: str) -> None:
    assert read_holder(f'{{"since": {number}, "images": {number}}}') == NOBODY


@pytest.mark.parametrize("name", [r"\ud800", "a b", ""])
def test_a_name_that_is_none_of_ours_is_left_out_of_a_holder(name: str) -> None:
    assert read_holder(f'{{"{name}": 1}}') == NOBODY


def test_a_word_about_a_holder_is_short_and_can_be_written_anywhere() -> None:
    worker = read_holder(r'{"worker": "\ud800\u001b[2J' + "x" * 1000 + '"}')["worker"]
    assert worker.startswith(r"\ud800\x1b[2Jxx")
    assert len(worker.encode()) == 200


@pytest.mark.parametrize(
    ("text", "count"),
    [("7", 7), ("7.0", 7), ("-1", 0), ("0.5", 0), ("many", 0), ("nan", 0), ("1e99", 0), ("1" * 400, 0), (None, 0)],
)
def test_a_count_is_a_whole_number_or_none(text: str | None, count: int) -> None:
    assert as_count(text) == count


@pytest.mark.parametrize("rate", ["-5", "nan", "inf", "fast"])
def test_a_rate_that_is_none_counts_as_none(rate: str) -> None:
    assert ScopeState.read({"images_per_s": rate}).images_per_s == 0


@pytest.mark.parametrize(
    "facts",
    [
        {},
        {"kind": "cook", "slots": 1},
        {"kind": "worker"},
        *({"kind": "worker", "slots": n} for n in (-1, 1e30, "4", 4097)),
    ],
)
def test_a_heartbeat_of_another_form_is_none(facts: dict[str, Any]) -> None:
    assert Heartbeat.read(json.dumps(facts)) is None
    assert Heartbeat.read(json.dumps({"kind": "worker", "slots": 4})) == Heartbeat(kind="worker", slots=4)


@pytest.mark.parametrize("text", [None, "{}", DEEP, '{"shards": -1, "runs": 0}', '{"shards": 1, "runs": 1e99}'])
def test_a_demand_of_another_form_is_none(text: str | None) -> None:
    assert Demand.read(text) is None


def test_the_scope_of_a_job_of_0_1_0_is_its_name_alone() -> None:
    task = ShardTask(job="a", split="train", index=0, count=1, pairs=())
    assert job_scope(task) == "job:a"
    assert job_scope(task.model_copy(update={"incarnation": "0123"})) == "job:a@0123"


@pytest.mark.parametrize(
    ("message", "run"),
    [
        ("run:a@0123/run", ("a", "0123")),
        ("run:a/run", ("a", "")),
        ("job:a@0123/run", None),
        ("run:a@0123/train-00000-of-00002", None),
        ("", None),
    ],
)
def test_the_run_of_a_hint_is_in_its_id(message: str, run: tuple[str, str] | None) -> None:
    assert run_of(message) == run
