"""What a run learns from and selects by, of the splits of its job."""

import json
from pathlib import Path
from typing import Any

import pytest

from shared.jobs.manifest import Manifest
from shared.jobs.paths import JobPaths
from shared.specs.run import RunSpec
from shared.storage import Storage
from tests.unit.trainer.data.test_examples import write_job
from tests.unit.trainer.pictures import coco_truth, drawn_examples
from trainer.data.training_set import TrainingSet, load_training_set


def job_with_val(store: Path, *, is_difficult: bool) -> tuple[Storage, Manifest]:
    """A job whose validation photos are those of training; `is_difficult`: every object there."""
    examples = drawn_examples(6)
    storage, manifest = write_job(store, examples)
    shards = manifest.splits["train"]
    truth = coco_truth(examples)
    rows = [row | {"ignore": int(is_difficult)} for row in truth["annotations"]]
    storage.write(JobPaths("j").annotations("val"), json.dumps({**truth, "annotations": rows}).encode())
    return storage, manifest.model_copy(update={"splits": {"train": shards, "val": shards}})


def loaded(storage: Storage, manifest: Manifest, **asked: Any) -> TrainingSet:
    spec = RunSpec(run="r", job="j", **asked)
    (storage.local_path("runs/r")).mkdir(parents=True, exist_ok=True)
    return load_training_set(spec, manifest, storage=storage, batch=2, cache_mb=100, shards=None)


def test_a_run_selects_by_val_and_with_final_learns_from_it(tmp_path: Path) -> None:
    storage, manifest = job_with_val(tmp_path, is_difficult=False)
    usual, final = loaded(storage, manifest), loaded(storage, manifest, final=True)
    assert (usual.pictures, usual.validation and len(usual.validation)) == (6, 6)
    assert len(usual.truth["annotations"]) > 0
    assert (final.pictures, final.validation, final.truth) == (12, None, {})


@pytest.mark.parametrize("patience", [None, 5])
def test_a_run_selects_by_nothing_where_no_object_of_val_counts(tmp_path: Path, patience: int | None) -> None:
    """Each validation would say 0: fine-tuning kept its first weights by it, and `--patience` ended the training."""
    found = loaded(*job_with_val(tmp_path, is_difficult=True), patience=patience)
    assert (found.pictures, found.validation, found.truth) == (6, None, {})
