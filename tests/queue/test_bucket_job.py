"""A whole job in a bucket of a real S3 server: the same bytes as in a folder, and clear words where that ends."""

import os
import uuid
from dataclasses import dataclass
from pathlib import Path

import pytest

from producer.jobs.local_lock import lock_for_local_run
from producer.jobs.status import load_job
from shared.jobs.identity import read_receipt
from shared.jobs.manifest import Manifest
from shared.jobs.paths import JobPaths, RunPaths
from shared.jobs.receipts import check_shard
from shared.storage import Storage
from tests.cluster import Cluster, assert_chain, wait_for_progress, wait_until
from tests.object_server import ObjectServer

OPTIONS = ("--job", "job", "--shard-images", "4", "--no-train")


@dataclass
class BucketCluster(Cluster):
    """Processes whose store is a bucket; `store` only has their logs beside it."""

    url: str = ""

    def storage(self) -> Storage:
        """The store."""
        return Storage(self.url)


@pytest.fixture
def bucket(cluster: Cluster, object_server: ObjectServer) -> BucketCluster:
    """A cluster on the same broker as `cluster`, with a store in a bucket."""
    url = object_server.url(uuid.uuid4().hex)
    return BucketCluster(
        broker=cluster.broker,
        store=cluster.store.parent / "bucket/logs",
        data_root=cluster.data_root,
        settings={"VOC_STORE": url},
        processes=cluster.processes,
        url=url,
    )


def written(storage: Storage) -> dict[str, object]:
    """The manifest, the shards' files and what their receipts say, without the identity of the job."""
    job, paths = load_job(storage, "job"), JobPaths("job")
    files = (key for key in storage.walk(paths.shards) if key.endswith((".tfrecord", ".coco.json")))
    found: dict[str, object] = {key: storage.read(key) for key in files}
    for shard in job.shards:
        receipt = read_receipt(storage, job, shard)
        assert receipt is not None
        check_shard(storage, receipt, with_digest=True)
        found[shard] = receipt.model_copy(update={"incarnation": "", "task_digest": ""})
    return {**found, "manifest": storage.read(paths.manifest).replace(job.incarnation.encode(), b"")}


def test_a_job_in_a_bucket_has_the_bytes_of_one_in_a_folder(
    cluster: Cluster, bucket: BucketCluster, small_voc: Path
) -> None:
    for each, name in ((cluster, "folder"), (bucket, "bucket")):
        processes = [each.worker(slots=2, name=f"{name}-worker"), each.serve()]
        each.producer("submit", str(small_voc), *OPTIONS)
        each.wait_for("job")
        for process in processes:
            process.kill()
            process.wait()
    storage = bucket.storage()
    manifest = Manifest.model_validate_json(storage.read(JobPaths("job").manifest))
    assert sum(manifest.examples(split) for split in manifest.splits) == 40
    assert_chain(bucket, "job")
    assert written(storage) == written(cluster.storage())


def test_a_local_run_in_a_bucket_writes_its_shards_and_is_listed_and_removed(
    bucket: BucketCluster, small_voc: Path
) -> None:
    bucket.producer("submit", str(small_voc), *OPTIONS, "--local", VOC_BROKER_URL="")
    assert bucket.state("job") == "DONE"
    assert "job" in bucket.producer("list", VOC_BROKER_URL="").stdout
    again = bucket.producer("submit", str(small_voc), *OPTIONS, "--local", VOC_BROKER_URL="")
    assert "40" in again.stderr + again.stdout
    bucket.producer("rm", "job", "--yes", VOC_BROKER_URL="")
    assert bucket.storage().walk("jobs") == {}


def test_a_second_local_run_of_a_job_in_a_bucket_is_refused_in_one_line(bucket: BucketCluster, small_voc: Path) -> None:
    bucket.producer("submit", str(small_voc), *OPTIONS)
    with lock_for_local_run(bucket.storage(), "job") as require_lock:
        ended = bucket.producer("submit", str(small_voc), *OPTIONS, "--local", check=False, VOC_BROKER_URL="")
        require_lock()
    assert ended.returncode == 1
    errors = [line for line in ended.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1
    assert f"another --local command works on it already (it holds {bucket.url}/jobs/job/local.lock)" in errors[0]


def test_a_run_in_a_bucket_fails_with_one_line_that_says_what_to_do(bucket: BucketCluster, small_voc: Path) -> None:
    bucket.worker()
    bucket.serve()
    bucket.trainer()
    bucket.producer("submit", str(small_voc), *OPTIONS[:-1], "--epochs", "1")
    status = bucket.wait_for("job", states=("FAILED", "DONE"))
    assert status.state == "FAILED"
    reason = str(bucket.storage().read_or_none(RunPaths("job").failed))
    assert "training reads shards from a local folder" in reason
    assert "Traceback" not in bucket.text("trainer")


def test_a_server_that_is_killed_in_the_middle_of_a_job_and_comes_back_delays_it(
    bucket: BucketCluster, small_voc: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = ObjectServer(tmp_path / "own")
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    server.start()
    try:
        services = [bucket.worker(), bucket.serve()]
        bucket.producer("submit", str(small_voc), *OPTIONS)
        wait_for_progress(bucket, 2)
        server.kill()
        wait_until(lambda: bucket.events("serve", "store_refuses"), 60, "the service cannot read the store")
        assert [service.poll() for service in services] == [None, None]
        server.start()
        bucket.wait_for("job")
        assert not bucket.status("job").failed
        assert_chain(bucket, "job")
        assert [service.poll() for service in services] == [None, None]
    finally:
        server.stop()


def test_nothing_of_the_credentials_is_written_or_told(bucket: BucketCluster, small_voc: Path) -> None:
    secret = os.environ["AWS_SECRET_ACCESS_KEY"].encode()
    bucket.worker()
    bucket.serve()
    told = bucket.producer("submit", str(small_voc), *OPTIONS).stdout
    bucket.wait_for("job")
    told += bucket.producer("status", "job", "--json").stdout + bucket.producer("doctor", check=False).stdout
    storage = bucket.storage()
    assert secret not in told.encode()
    assert not [key for key in storage.walk("") if secret in storage.read(key)]
    assert not [log.name for log in bucket.store.parent.glob("*.log") if secret in log.read_bytes()]
