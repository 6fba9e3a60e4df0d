"""TensorFlow Datasets reads a finished job as it is. Opt-in (`pytest -m peers tests/peers`): it installs gigabytes.

`VOC_PEERS_TFDS_ENV` may name an environment that already holds `tensorflow-datasets` and TensorFlow; else one is made.
"""

import json
import os
import subprocess
import venv
from pathlib import Path

import pytest

from producer.dataset_files import dataset_files
from producer.plan import PlanLines, plan_job
from shared.guard import Unguarded
from shared.job import Job, JobSpec
from shared.manifest import JobPaths
from shared.storage import Storage
from worker.shard import write_shard

pytestmark = [pytest.mark.peers, pytest.mark.timeout(3600)]


@pytest.fixture(scope="session")
def tfds_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with TensorFlow Datasets."""
    given = os.environ.get("VOC_PEERS_TFDS_ENV")
    if given:
        return Path(given) / "bin" / "python"
    folder = tmp_path_factory.mktemp("tfds")
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", "tensorflow-cpu", "tensorflow-datasets"], check=True)
    return python


def test_tfds_reads_every_record_even_beside_a_failed_shard(tfds_python: Path, small_voc: Path, tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    spec = JobSpec(image_size=64, shard_images=8)
    planned = plan_job(small_voc, spec=spec, job="peer")
    lines = PlanLines(planned.tasks)
    storage.write_lines(JobPaths("peer").plan, lines)
    job = Job(
        job="peer",
        dataset="",
        folder=small_voc.name,
        spec=spec,
        run=None,
        labels=planned.labels.names,
        splits=planned.split_plans(lines.digests),
        request_digest="0",
    )
    receipts = [
        write_shard(task, job, storage=storage, data_root=small_voc.parent, guard=Unguarded(), attempt=1)
        for task in list(planned.tasks)[1:]
    ]
    manifest = dataset_files(job, receipts, storage)
    assert manifest.failed == (planned.tasks[0].shard,)
    script = Path(__file__).with_name("tfds_read.py")
    done = subprocess.run(
        [tfds_python, script, storage.local_path(JobPaths("peer").root)], check=True, capture_output=True, text=True
    )
    found = json.loads(done.stdout.splitlines()[-1])
    assert found == {
        split: [
            manifest.examples(split),
            sum(shard.objects for shard in shards),
            sorted(pair.image for task in list(planned.tasks)[1:] if task.split == split for pair in task.pairs),
        ]
        for split, shards in manifest.splits.items()
        if shards
    }
