"""What a run finds of another version: refused with a text that says what to do, never trained on."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shared.errors import TrainingError, VersionError
from shared.jobs.job import Job
from shared.jobs.manifest import Manifest
from shared.specs.data import JobSpec
from shared.specs.run import RunSpec
from shared.storage import Storage
from tests.unit.trainer.training.test_loop import trained
from trainer.run import manifest_of

MANIFEST: dict[str, Any] = {
    "job": "cells",
    "request_digest": "d",
    "labels": ["cell"],
    "image_size": 320,
    "resize": "stretch",
    "splits": {},
    "failed": [],
    "counters": {},
    "class_counts": {},
}


def _rewrite_checkpoint(store: Path, **changes: Any) -> None:
    """Change entries of the checkpoints of run `r`; `meta` is a JSON text."""
    for path in (store / "runs/r/checkpoints").glob("*.npz"):
        with np.load(path) as stored:
            arrays: dict[str, Any] = {name: stored[name] for name in stored.files}
        meta = json.loads(arrays["meta"].tobytes()) | changes.pop("meta", {})
        np.savez(path, **{**arrays, **changes, "meta": np.frombuffer(json.dumps(meta).encode(), np.uint8)})


@pytest.mark.parametrize(("version", "age"), [(0, "an older"), (2, "a newer")])
def test_a_manifest_of_another_version_is_refused(tmp_path: Path, version: int, age: str) -> None:
    storage = Storage(str(tmp_path))
    asked = RunSpec(run="cells", job="cells")
    job = Job(
        job="cells",
        dataset="",
        folder=".",
        spec=JobSpec(),
        run=asked,
        labels=("cell",),
        splits={},
        request_digest="d",
    )
    storage.write("jobs/cells/job.json", job.to_json().encode())
    storage.write("jobs/cells/manifest.json", Manifest.model_validate(MANIFEST).to_json().encode())
    assert manifest_of(asked, storage).labels == ("cell",)
    storage.write("jobs/cells/manifest.json", json.dumps({**MANIFEST, "schema_version": version}).encode())
    with pytest.raises(VersionError, match=rf"manifest\.json: schema version {version}, .* written by {age} version"):
        manifest_of(asked, storage)


def test_a_checkpoint_of_another_version_or_network_is_refused(tmp_path: Path) -> None:
    trained(tmp_path, epochs=1)
    _rewrite_checkpoint(tmp_path, weights=np.zeros(7, np.float32))
    with pytest.raises(TrainingError, match="the checkpoint has 7 weights, this version's network"):
        trained(tmp_path, epochs=1)
    _rewrite_checkpoint(tmp_path, meta={"schema_version": 2})
    with pytest.raises(VersionError, match=r"step-\d+\.npz: schema version 2, .* a newer version"):
        trained(tmp_path, epochs=1)
