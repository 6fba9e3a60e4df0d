"""A whole job in a bucket of a real S3 server: the same bytes as in a folder, and clear words where that ends."""

import json
import os
import subprocess
import sys
import uuid
from dataclasses import dataclass
from pathlib import Path

import pytest

from producer.state.local_lock import lock_for_local_run
from producer.state.stored import load_job
from shared.jobs.identity import read_receipt
from shared.jobs.manifest import Manifest
from shared.jobs.paths import JobPaths, RunPaths
from shared.jobs.receipts import check_shard
from shared.storage import Storage
from tests.cluster import Cluster, assert_chain, kill_tree, wait_for_progress, wait_until
from tests.object_server import ObjectServer, Trouble, Troubled, gateway_before

OPTIONS = ("--job", "job", "--shard-images", "4", "--no-train")
TINY = ("--image-size", "64", "--model", "nano", "--max-drop", "100", "--backbone", "conv")


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
    again = bucket.producer("status", "job", check=False, VOC_BROKER_URL="")
    assert (again.returncode, again.stdout) == (1, "")
    assert "no job 'job'" in again.stderr


def test_a_second_local_run_of_a_job_in_a_bucket_is_refused_in_one_line(bucket: BucketCluster, small_voc: Path) -> None:
    bucket.producer("submit", str(small_voc), *OPTIONS)
    with lock_for_local_run(bucket.storage(), "job") as require_lock:
        ended = bucket.producer("submit", str(small_voc), *OPTIONS, "--local", check=False, VOC_BROKER_URL="")
        require_lock()
    assert ended.returncode == 1
    errors = [line for line in ended.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1
    assert f"another --local command works on it already (it holds {bucket.url}/jobs/job/local.lock)" in errors[0]


@pytest.mark.timeout(600)
def test_a_run_in_a_bucket_goes_on_on_a_host_that_has_never_seen_it(
    bucket: BucketCluster, small_voc: Path, tmp_path: Path
) -> None:
    bucket.settings["VOC_RUN_LEASE_S"] = "10"
    bucket.worker()
    bucket.serve()
    hosts = {name: host(tmp_path / name) for name in ("first", "second")}
    marker = tmp_path / "died"
    first = bucket.trainer(name="first", VOC_FAULT=f"run:after_checkpoint@{marker}", **hosts["first"])
    bucket.producer("submit", str(small_voc), *OPTIONS[:-1], *TINY, "--epochs", "6")
    wait_until(marker.exists, 300, "the first trainer has died after a checkpoint")
    kill_tree(first.pid)
    bucket.trainer(name="second", **hosts["second"])
    assert bucket.wait_for("job", states=("FAILED", "DONE"), timeout_s=300).state == "DONE"
    assert_chain(bucket, "job")
    resumed = bucket.events("second", "training_resumed")
    assert [event["step"] > 0 for event in resumed] == [True]
    names = bucket.storage().walk(RunPaths("job").root)
    for wanted in ("model_int8.tflite", "report.html", "results.png", "saved_model/saved_model.pb"):
        assert f"{RunPaths('job').root}/{wanted}" in names
    assert any("tensorboard/events" in name for name in names)
    assert "Traceback" not in bucket.text("second")
    # All commands on the run work from the bucket, on a third host.
    third = host(tmp_path / "third")
    for words in (("evaluate", "job", "--split", "val"), ("export", "job", "--max-drop", "100"), ("compare", "job")):
        ended = subprocess.run(
            [sys.executable, "-m", "trainer", *words],
            env=bucket.environment("trainer", **third),
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr
    assert bucket.state("job") == "DONE"
    model, photos = f"{bucket.url}/{RunPaths('job').root}/model_int8.tflite", str(small_voc / "JPEGImages")
    command = [sys.executable, "-m", "trainer", "predict", model, photos, "--json"]
    seen = subprocess.run(
        command, env=bucket.environment("trainer", **third), capture_output=True, text=True, check=True
    )
    assert len(json.loads(seen.stdout)["images"]) == 40


def host(folder: Path) -> dict[str, str]:
    """The environment of a host of its own: a home and a place for temporary files that nobody else has."""
    made = {name: folder / name for name in ("home", "tmp")}
    for each in made.values():
        each.mkdir(parents=True)
    return {"HOME": str(made["home"]), "TMPDIR": str(made["tmp"])}


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
        wait_until(lambda: bucket.events("serve", "store_refuses"), 180, "the service cannot read the store")
        assert [service.poll() for service in services] == [None, None]
        server.start()
        bucket.wait_for("job")
        assert not bucket.status("job").failed
        assert_chain(bucket, "job")
        assert [service.poll() for service in services] == [None, None]
    finally:
        server.stop()


def test_watch_looks_again_where_the_store_refuses_until_it_answers(
    bucket: BucketCluster, small_voc: Path, object_server: ObjectServer
) -> None:
    bucket.producer("submit", str(small_voc), *OPTIONS)
    trouble = Trouble()
    with gateway_before(object_server, Troubled, trouble=trouble) as url:
        watching = bucket.start("watch", ["-m", "producer", "watch", "job"], user="producer", AWS_ENDPOINT_URL=url)
        wait_until(lambda: "waiting: 0 of" in bucket.text("watch"), 30, "the job is watched")
        trouble.kind = "denied"
        wait_until(lambda: "trying again until the store answers" in bucket.text("watch"), 30, "the refusal is said")
        assert watching.poll() is None
        trouble.kind = ""
        bucket.serve()
        bucket.worker()
        assert watching.wait(60) == 0
    assert bucket.text("watch").count("trying again until the store answers") <= 3


def test_status_says_what_refuses_the_service(
    bucket: BucketCluster, small_voc: Path, object_server: ObjectServer
) -> None:
    bucket.producer("submit", str(small_voc), *OPTIONS)
    trouble = Trouble()

    def why() -> str:
        return str(bucket.status("job").why)

    with gateway_before(object_server, Troubled, trouble=trouble) as url:
        bucket.serve(AWS_ENDPOINT_URL=url)
        wait_until(lambda: "waits for a worker" in why(), 30, "the service makes rounds")
        trouble.kind = "denied"
        bucket.broker.ledger().client.set("voc:leader", "another", ex=1)  # who leads again lists the whole store
        wait_until(lambda: "the store refuses `serve`" in why(), 90, "the refusal is told")
        assert "the store refuses `serve`: cannot" in why(), "and what it could not do"
        trouble.kind = ""
        wait_until(lambda: "waits for a worker" in why(), 60, "it makes rounds again")


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
