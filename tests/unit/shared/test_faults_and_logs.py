"""Fault points kill, once if told so; log lines are one event and its facts."""

import json
import logging
import subprocess
import sys
from pathlib import Path

import pytest

from shared import faults, logs


def die(fault: str) -> int:
    program = f"from shared import faults; faults.arm({fault!r}); faults.reached('shard:after_rename')"
    return subprocess.run([sys.executable, "-c", program], check=False).returncode


def test_armed_point_kills_and_an_unarmed_one_does_not() -> None:
    assert die("shard:after_rename") == -9
    assert die("shard:after_receipt") == 0
    assert die("") == 0


def test_fault_with_a_marker_fires_once(tmp_path: Path) -> None:
    fault = f"shard:after_rename@{tmp_path / 'marker'}"
    assert [die(fault), die(fault)] == [-9, 0]


@pytest.mark.parametrize("fault", ["shard:no_such_point", "poison:no_such_poison:x"])
def test_unknown_fault_is_refused(fault: str) -> None:
    with pytest.raises(ValueError, match="there are"):
        faults.arm(fault)


def test_a_line_for_people_is_one_line_whatever_its_facts_hold(capsys: pytest.CaptureFixture[str]) -> None:
    before = logging.getLogger().handlers[:]
    try:
        logs.set_up("text", "INFO")
        logging.getLogger("worker").info("pair_skipped", extra={"file": "a\nb\x1b[31m"})
        try:
            raise ValueError("c\x1b[31m")
        except ValueError:
            logging.getLogger("worker").exception("task_failed")
    finally:
        logging.getLogger().handlers[:] = before
    first, *rest = capsys.readouterr().err.splitlines()
    assert first.endswith(r"pair_skipped file=a\nb\x1b[31m")
    assert rest[-1] == r"ValueError: c\x1b[31m"


@pytest.mark.parametrize("form", ["json", "text"])
def test_line_has_the_event_its_facts_and_what_is_bound(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    before = logging.getLogger().handlers[:]
    try:
        logs.set_up(form, "INFO")  # type: ignore[arg-type]  # one of the two
        logs.bind(job="bccd")
        logging.getLogger("worker").info("shard_written", extra={"shard": 7})
    finally:
        logs.bind()
        logging.getLogger().handlers[:] = before
    line = capsys.readouterr().err
    if form == "json":
        facts = json.loads(line)
        assert (facts["event"], facts["job"], facts["shard"], facts["level"]) == ("shard_written", "bccd", 7, "info")
    else:
        assert "shard_written job=bccd shard=7" in line
