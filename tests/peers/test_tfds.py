"""TensorFlow Datasets reads a finished job as it is. Opt-in (`pytest -m peers tests/peers`): it installs gigabytes.

`VOC_PEERS_TFDS_ENV` may name an environment that already holds `tensorflow-datasets` and TensorFlow; else one is made.
"""

import json
import subprocess
from pathlib import Path

import pytest

from producer.finalize.dataset_files import dataset_files
from shared.jobs.job import ShardTask
from shared.jobs.paths import JobPaths
from shared.specs.data import JobSpec
from shared.storage import Storage
from tests.peers.environment import python_with, write_job

pytestmark = [pytest.mark.peers, pytest.mark.timeout(3600)]


@pytest.fixture(scope="session")
def tfds_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with TensorFlow Datasets."""
    packages = ["tensorflow-cpu", "tensorflow-datasets"]
    return python_with(packages, variable="VOC_PEERS_TFDS_ENV", folder=tmp_path_factory.mktemp("tfds"))


def test_tfds_reads_every_record_even_beside_a_failed_shard(tfds_python: Path, small_voc: Path, tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    job, receipts = write_job(small_voc, JobSpec(image_size=64, shard_images=8), storage, skip=1)
    manifest = dataset_files(job, receipts, storage)
    assert manifest.failed == (job.shards[0],)
    script = Path(__file__).with_name("tfds_read.py")
    done = subprocess.run(
        [tfds_python, script, storage.local_path(JobPaths("peer").root)], check=True, capture_output=True, text=True
    )
    found = json.loads(done.stdout.splitlines()[-1])
    written = [ShardTask.model_validate_json(line) for line in storage.lines(JobPaths("peer").shown_plan)][1:]
    assert found == {
        split: [
            manifest.examples(split),
            sum(shard.objects for shard in shards),
            sorted(pair.image for task in written if task.split == split for pair in task.pairs),
        ]
        for split, shards in manifest.splits.items()
        if shards
    }
