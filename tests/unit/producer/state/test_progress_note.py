"""Who works on what by the notes in storage, where Redis is not asked: only what is fresh and in our form counts."""

import time
from pathlib import Path
from typing import Any

import pytest

from producer.state.progress_note import FRESH_S, read_run_progress, run_holder, shards_under_way
from shared.jobs.identity import make_note
from shared.jobs.job import Job
from shared.specs.run import RunSpec
from shared.storage import Storage
from tests.golden.regenerate import GOLDEN

ASKED = RunSpec(run="r", job="j", incarnation="a" * 32)


@pytest.fixture
def job() -> Job:
    return Job.model_validate_json((GOLDEN / "store-0.1.0/jobs/upgraded/job.json").read_text(encoding="utf-8"))


def noted(tmp_path: Path, job: Job, **facts: Any) -> Storage:
    """A store in which the command that waits for `job` has noted `facts` just now."""
    storage = Storage(str(tmp_path))
    storage.write(
        f"jobs/{job.job}/progress.json", make_note(job.incarnation, **{"at": time.time(), "held": True, **facts})
    )
    return storage


def test_holders_that_were_noted_just_now_are_at_work(tmp_path: Path, job: Job) -> None:
    shard = next(iter(job.shards))
    holder = {"shard": shard, "worker": "w1", "pid": 7, "images": 3}
    found = shards_under_way(noted(tmp_path, job, holders=[holder], queued=2, attempts=5), None, job, set())
    assert found.leased.keys() == {shard}
    assert (found.leased[shard]["worker"], found.queued, found.view.attempts) == ("w1", 2, 5)


@pytest.mark.parametrize("facts", [{"at": 1000.0}, {"held": False}])
def test_what_was_noted_long_ago_or_given_up_leaves_counts_only(
    tmp_path: Path, job: Job, facts: dict[str, Any]
) -> None:
    holder = {"shard": next(iter(job.shards)), "worker": "w1", "pid": 7}
    found = shards_under_way(noted(tmp_path, job, holders=[holder], queued=2, attempts=5, **facts), None, job, set())
    assert (found.leased, found.queued, found.view.attempts) == ({}, 0, 5)


@pytest.mark.parametrize("holders", [None, "w1", [3, "w1"], [{"shard": "another-00000-of-00001"}], [{"worker": "w1"}]])
def test_holders_in_another_form_or_of_no_shard_do_not_count(tmp_path: Path, job: Job, holders: object) -> None:
    assert shards_under_way(noted(tmp_path, job, holders=holders), None, job, set()).leased == {}


def test_a_finished_data_set_is_held_by_nobody(tmp_path: Path, job: Job) -> None:
    holder = {"shard": next(iter(job.shards)), "worker": "w1", "pid": 7}
    assert shards_under_way(noted(tmp_path, job, holders=[holder]), None, job, None).leased == {}


def test_a_trainer_that_noted_its_run_just_now_holds_it(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    assert read_run_progress(storage, ASKED) is None
    assert run_holder(None, ASKED, None) == {}
    for age_s, is_held in ((0.0, True), (FRESH_S + 5, False), (-FRESH_S - 5, False)):
        facts = {"at": time.time() - age_s, "held": True, "phase": "train", "step": 9}
        storage.write("runs/r/progress.json", make_note(ASKED.incarnation, **facts))
        progress = read_run_progress(storage, ASKED)
        assert progress is not None
        assert bool(run_holder(None, ASKED, progress)) == is_held
