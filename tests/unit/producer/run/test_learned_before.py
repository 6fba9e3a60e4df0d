"""Photos to measure by that the network of `--from` has learned from are told before anything is done."""

from pathlib import Path

import pytest

from producer.jobs.submit import Request
from producer.run.intent import run_intent
from producer.run.learned_before import learned_text
from shared.audit.same_name import splits_of
from shared.jobs.job import Job
from shared.jobs.paths import JobPaths, RunPaths
from shared.specs.data import JobSpec
from shared.specs.run import RunSpec
from shared.specs.training import TrainingOptions
from shared.storage import Storage
from tests.unit.producer.folders import CAT, lint_and_submit, write, write_objects

GOES_ON = TrainingOptions(start="weights/0123456789abcdef-old.keras", backbone="conv")


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage(str(tmp_path / "store"))


@pytest.fixture
def job(tmp_path: Path, storage: Storage) -> Job:
    """Photos a and b are learned, c chooses the weights, d is measured."""
    for name in "abcd":
        write_objects(tmp_path / "voc", name, CAT)
    for split, names in {"train": "a\nb\n", "val": "c\n", "test": "d\n"}.items():
        write(tmp_path / "voc", f"ImageSets/Main/{split}.txt", names)
    request = Request(dataset=tmp_path / "voc", name="old", spec=JobSpec(), run=None)
    return lint_and_submit(request, storage=storage, data_root=tmp_path).job


def asked(job: Job, storage: Storage, **options: bool) -> None:
    run = RunSpec.model_validate({"run": "old", "job": "old", "incarnation": job.incarnation, **options})
    storage.write(RunPaths("old").request, run.to_json().encode())


def test_test_photos_that_the_network_has_learned_are_told(job: Job, storage: Storage) -> None:
    asked(job, storage)
    text = learned_text(GOES_ON, {"a.jpg": "test", "b.jpg": "train", "c.jpg": "val", "d.jpg": "test"}, storage)
    assert text.startswith("\n1 of 3 photos of val and test have names of photos that old has learned from: if these")
    assert text.endswith("give the same lists, --split, --group-by and --seed as for that run")


def test_photos_that_the_run_before_the_last_has_learned_are_told_too(job: Job, storage: Storage) -> None:
    asked(job, storage)
    later = RunSpec(run="later", job="gone", backbone="conv", start="weights/0123456789abcdef-old.keras")
    storage.write(RunPaths("later").request, later.to_json().encode())
    text = learned_text(TrainingOptions(start="weights/0123456789abcdef-later.keras"), {"a.jpg": "test"}, storage)
    assert text.startswith("\n1 of 1 photo of val and test have names of photos that later has learned from")


def test_the_same_splits_are_nothing_to_tell_and_neither_are_jobs_that_are_gone(job: Job, storage: Storage) -> None:
    asked(job, storage)
    same = splits_of(storage, job)
    assert same == {"a.jpg": "train", "b.jpg": "train", "c.jpg": "val", "d.jpg": "test"}
    assert learned_text(GOES_ON, same, storage) == ""
    assert learned_text(TrainingOptions(), {"a.jpg": "test"}, storage) == learned_text(None, {}, storage) == ""
    storage.remove_tree(JobPaths("old").root)
    assert learned_text(GOES_ON, {"a.jpg": "test"}, storage) == ""


def test_a_run_that_had_learned_val_too_says_so_on_the_same_shards(job: Job, storage: Storage) -> None:
    asked(job, storage, final=True)
    storage.write("weights/0123456789abcdef-old.labels.txt", b"cat\n")
    assert "\n1 of 2 photos of val and test have names of photos that old" in run_intent("two", job, GOES_ON, storage)
