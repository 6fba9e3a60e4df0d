"""Files and messages of another version are refused with a text that says what to do."""

import json
from typing import Any

import pytest
from pydantic import BaseModel

from shared.broker import RunHint
from shared.errors import FormatError, MessageError, VersionError
from shared.jobs.job import Job, ShardTask
from shared.jobs.manifest import Manifest
from shared.jobs.receipts import ShardReceipt
from shared.jobs.versioned import read_message, read_stored
from shared.specs.frozen import SCHEMA_VERSION
from shared.specs.run import RunSpec

# Everything that outlives the process that wrote it: a version of its own in each.
VERSIONED: tuple[type[BaseModel], ...] = (Job, RunSpec, ShardTask, RunHint, ShardReceipt, Manifest)
TASK: dict[str, Any] = {"job": "job", "split": "train", "index": 0, "count": 1, "pairs": []}


@pytest.mark.parametrize("model", VERSIONED)
def test_every_form_carries_the_schema_version(model: type[BaseModel]) -> None:
    assert model.model_fields["schema_version"].default == SCHEMA_VERSION


@pytest.mark.parametrize("model", VERSIONED)
@pytest.mark.parametrize(
    ("version", "age", "remedy"),
    [(SCHEMA_VERSION + 1, "a newer", "upgrade this program"), (SCHEMA_VERSION - 1, "an older", "finish it with")],
)
def test_another_version_is_named_with_its_remedy(model: type[BaseModel], version: int, age: str, remedy: str) -> None:
    text = json.dumps({"schema_version": version})
    with pytest.raises(VersionError, match=f"out/file.json: schema version {version}.* reads 1.* {age} .*{remedy}"):
        read_stored(model, text, "out/file.json")
    with pytest.raises(MessageError, match=f"not a {model.__name__}: schema version {version}.* {age} .*{remedy}"):
        read_message(model, json.loads(text))


@pytest.mark.parametrize("version", ["2", None, [2], {}, 0.5])
def test_a_version_that_is_no_number_of_ours_is_named_too(version: Any) -> None:
    with pytest.raises(VersionError, match=r"schema version .* reads 1.* an older version"):
        read_stored(Job, json.dumps({"schema_version": version}), "job.json")
    with pytest.raises(MessageError, match=r"schema version .* reads 1.* an older version"):
        read_message(ShardTask, {"schema_version": version})


def test_text_of_this_version_is_read() -> None:
    task = ShardTask.model_validate(TASK)
    assert read_stored(ShardTask, task.to_json(), "plan.jsonl, line 1") == task
    assert read_message(ShardTask, task.model_dump(mode="json")) == task


def test_field_that_this_version_does_not_know_is_named() -> None:
    with pytest.raises(FormatError, match=r"plan\.jsonl: colour: Extra inputs .* written by another version"):
        read_stored(ShardTask, json.dumps({**TASK, "colour": "red"}), "plan.jsonl")


@pytest.mark.parametrize("text", ["", "{", b"{", "null", "[]", b"\xff\xfe", '{"schema_version": 1}'])
def test_damaged_text_is_told_from_another_version(text: str | bytes) -> None:
    with pytest.raises(FormatError, match=r"^job\.json: .*damaged") as caught:
        read_stored(Job, text, "job.json")
    assert not isinstance(caught.value, VersionError)
    assert "found \"b'" not in str(caught.value)


def test_hint_of_the_first_version_without_a_number_is_still_taken() -> None:
    assert read_message(RunHint, {"run": "cells"}).run == "cells"
