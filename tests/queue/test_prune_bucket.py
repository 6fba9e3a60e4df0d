"""`prune` of a store in a bucket, on a real server: the same rules as in a folder (`tests/unit/…/test_tidy.py`)."""

import json
import uuid
from pathlib import Path

import pytest

from producer.doctor import disk
from producer.finalize.dataset_files import dataset_files
from producer.jobs.submit import Request, further_run
from shared.jobs.identity import read_receipt
from shared.jobs.paths import RunPaths
from shared.specs.data import JobSpec
from shared.specs.training import TrainingOptions
from shared.storage import Storage
from tests.object_server import ObjectServer
from tests.tiny import make_tiny_voc
from tests.unit.producer.cli.test_tidy import call, finish
from tests.unit.producer.folders import lint_and_submit
from tests.unit.producer.jobs.test_reuse import work


@pytest.fixture
def storage(object_server: ObjectServer, tmp_path: Path) -> Storage:
    """A job `done` with a run that is done and another, `kept`, that is not."""
    storage, folder = Storage(object_server.url(uuid.uuid4().hex)), make_tiny_voc(tmp_path / "voc", 12)
    request = Request(dataset=folder, name="done", spec=JobSpec(image_size=32), run=TrainingOptions())
    job = lint_and_submit(request, storage=storage, data_root=folder).job
    work(storage, job, folder)
    assert job.run is not None
    storage.write(RunPaths("done").request, job.run.to_json().encode())
    dataset_files(job, [receipt for shard in job.shards if (receipt := read_receipt(storage, job, shard))], storage)
    finish(storage, "done", "done")
    further_run(job, "kept", TrainingOptions(model="nano"), storage)
    storage.write("runs/kept/checkpoints/step-000000001.npz", bytes(900))
    return storage


def test_prune_removes_the_checkpoints_of_finished_runs_in_a_bucket(storage: Storage) -> None:
    before = storage.walk("")
    shown = json.loads(call(storage.root, "prune", "--json").stdout)
    assert {each["key"]: (each["kind"], each["size_bytes"]) for each in shown["found"]} == {
        "runs/done/checkpoints": ("checkpoints", 5_000_000),
        "runs/done/tensorboard": ("tensorboard", 70_000),
    }
    assert storage.walk("") == before
    assert "5.1 MB freed" in call(storage.root, "prune", "--yes").stdout
    gone = {"runs/done/checkpoints/step-000000009.npz", "runs/done/tensorboard/e"}
    assert storage.walk("").keys() == before.keys() - gone
    assert "nothing to prune" in call(storage.root, "prune").stdout
    assert json.loads(call(storage.root, "status", "done", "--json").stdout)["state"] == "DONE"


def test_what_is_younger_than_a_day_stays_in_a_bucket(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    disk.prune(storage, disk.prunable(storage))
    before = storage.walk("").keys()
    leftovers = {"weights/unused.h5": 2000, "jobs/done/plan-" + "a" * 32 + ".jsonl": 500}
    for key, size in leftovers.items():
        storage.write(key, bytes(size))
    orphan = {"runs/left/request.json": b'{"run":"left","job":"gone"}', "runs/left/model.keras": bytes(4000)}
    for key, content in orphan.items():
        storage.write(key, content)
    assert disk.prunable(storage) == []
    monkeypatch.setattr(disk, "SAFE_S", -3600.0)
    found = disk.prunable(storage)
    sizes = {"runs/left": sum(map(len, orphan.values())), **leftovers}
    assert {each.key: each.size_bytes for each in found} == sizes
    disk.prune(storage, found)
    assert storage.walk("").keys() == before
