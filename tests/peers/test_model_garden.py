"""Other projects' decoders read our shards as they are. Opt-in (`pytest -m peers tests/peers`): it installs gigabytes.

`VOC_PEERS_ENV` may name an environment that already holds `tf-models-official`; else one is made.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from shared.jobs import schema
from shared.jobs.job import ShardTask
from shared.jobs.paths import JobPaths
from shared.leasing.guard import Unguarded
from shared.specs.data import JobSpec
from shared.storage import Storage
from tests.golden.regenerate import GOLDEN, SPECS, golden_job
from tests.path_pairs import path_pair
from tests.peers.environment import python_with, write_job
from tests.quirks.quirks import all_quirks, synthesize_quirks
from tests.unit.worker.pictures import make_job
from worker.record.example import parse_example
from worker.record.tfrecord import read_records
from worker.shard import write_shard

pytestmark = [pytest.mark.peers, pytest.mark.timeout(3600)]

BCCD = Path(os.environ.get("VOC_BCCD", "../shared/data/bccd")).resolve()

# `object_detection/data_decoders/tf_example_decoder.py`, keys_to_features: what it reads, by the type it asks for.
OBJECT_DETECTION_API = {
    "image/encoded": "bytes",
    "image/format": "bytes",
    "image/filename": "bytes",
    "image/key/sha256": "bytes",
    "image/source_id": "bytes",
    "image/height": "int64",
    "image/width": "int64",
    "image/object/bbox/xmin": "float",
    "image/object/bbox/xmax": "float",
    "image/object/bbox/ymin": "float",
    "image/object/bbox/ymax": "float",
    "image/object/class/label": "int64",
    "image/object/class/text": "bytes",
    "image/object/area": "float",
    "image/object/is_crowd": "int64",
    "image/object/difficult": "int64",
}


@pytest.fixture(scope="session")
def peer_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with Model Garden and the TensorFlow that it needs."""
    packages = ["tf-models-official"]
    return python_with(packages, variable="VOC_PEERS_ENV", folder=tmp_path_factory.mktemp("peers"))


def expectation(storage: Storage, key: str) -> dict[str, Any]:
    """What our own reader finds in a shard, in Model Garden's order of corners."""
    records = []
    for record in read_records(storage.read(key), file=key):
        features = parse_example(record)
        corners = [features[name] for name in (schema.YMIN, schema.XMIN, schema.YMAX, schema.XMAX)]
        source_id = features[schema.SOURCE_ID][0]
        assert isinstance(source_id, bytes)
        records.append(
            {
                "source_id": source_id.decode(),
                "size": features[schema.HEIGHT][0],
                "boxes": list(zip(*corners, strict=True)),
                "labels": features[schema.CLASS_LABEL],
                "areas": features[schema.AREA],
                "crowds": features[schema.IS_CROWD],
            }
        )
    return {"tfrecord": storage.url(key), "records": records}


def golden_shards(tmp_path: Path) -> list[dict[str, Any]]:
    shards = []
    for name, spec in SPECS.items():
        (tmp_path / name).mkdir()
        storage = Storage(str(tmp_path / name))
        job, tasks = golden_job(spec)
        for task in tasks:
            write_shard(task, job, storage=storage, data_root=GOLDEN, guard=Unguarded(), attempt=1)
            shards.append(expectation(storage, f"jobs/{job.job}/shards/{task.shard}.tfrecord"))
    return shards


def quirk_shard(tmp_path: Path) -> dict[str, Any]:
    """The planted quirks with difficult objects as crowds."""
    synthesize_quirks(tmp_path / "set")
    quirks = [quirk for quirk in all_quirks() if quirk.image is not None and quirk.xml is not None]
    pairs = [
        path_pair(
            tmp_path / "set",
            f"JPEGImages/{quirk.stem}{quirk.extension}",
            f"Annotations/{quirk.stem}.xml",
            source_id=2**24 - 1 - number,
        )
        for number, quirk in enumerate(quirks)
    ]
    return job_shard(tmp_path, *make_job(*pairs, labels=("circle", "cross", "triangle"), difficult="ignore"))


def job_shard(tmp_path: Path, job: Any, task: ShardTask) -> dict[str, Any]:
    (tmp_path / "store").mkdir()
    storage = Storage(str(tmp_path / "store"))
    write_shard(task, job, storage=storage, data_root=tmp_path, guard=Unguarded(), attempt=1)
    return expectation(storage, f"jobs/{job.job}/shards/{task.shard}.tfrecord")


def agreed(python: Path, shards: list[dict[str, Any]], tmp_path: Path) -> str:
    """What Model Garden says of `shards`; fails where it disagrees with our reader."""
    expected = tmp_path / "expected.json"
    expected.write_text(json.dumps(shards), encoding="utf-8")
    script = Path(__file__).with_name("model_garden.py")
    finished = subprocess.run([python, script, expected], capture_output=True, text=True, timeout=1800)
    print(finished.stdout, file=sys.stderr)
    assert finished.returncode == 0, finished.stderr[-4000:]
    return finished.stdout


def test_model_garden_reads_every_shard_as_we_do(peer_python: Path, tmp_path: Path) -> None:
    shards = [*golden_shards(tmp_path), quirk_shard(tmp_path)]
    assert f"{len(shards)} shards" in agreed(peer_python, shards, tmp_path)


@pytest.mark.skipif(not BCCD.is_dir(), reason="the sample data is not here")
def test_model_garden_reads_every_shard_of_bccd_as_we_do(peer_python: Path, tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    job, receipts = write_job(BCCD, JobSpec(shard_images=32), storage)
    shards = [expectation(storage, JobPaths(job.job).tfrecord(receipt.shard)) for receipt in receipts]
    objects = sum(receipt.objects_written for receipt in receipts)
    assert f"{len(job.shards)} shards, 364 records, {objects} objects" in agreed(peer_python, shards, tmp_path)


def test_keys_and_types_are_those_of_the_object_detection_api() -> None:
    assert {key: schema.FEATURES[key] for key in OBJECT_DETECTION_API} == OBJECT_DETECTION_API
