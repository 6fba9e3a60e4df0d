"""Photos and store in a container of Azure's emulator: a whole job, a model, the words where something is wrong.

`test_stores.py` holds the contract of a store on the same server. Left out where Azurite is absent (`make azurite`).
"""

import uuid
from pathlib import Path

import obstore
import pytest
from obstore.store import from_url

from shared.storage import Storage
from tests.azure_server import AzureServer, azurite
from tests.cluster import Cluster
from tests.queue.test_bucket_job import TINY
from tests.queue.test_bucket_photos import OPTIONS, PhotosInBucket, assert_same_bytes
from tests.queue.test_doctor_store import commit_check

pytestmark = pytest.mark.skipif(azurite() is None, reason="no Azurite: make azurite")


@pytest.fixture
def bucket(cluster: Cluster, azure_server: AzureServer, small_voc: Path) -> PhotosInBucket:
    """A cluster on the same broker as `cluster`, with a copy of its photos in a container."""
    url = azure_server.url(uuid.uuid4().hex)
    container = from_url(f"{url}/data/shapes", client_options={"allow_http": True})
    for path in sorted(path for path in small_voc.rglob("*") if path.is_file()):
        obstore.put(container, path.relative_to(small_voc).as_posix(), path.read_bytes())
    return PhotosInBucket(
        broker=cluster.broker,
        store=cluster.store.parent / "bucket/logs",
        data_root=cluster.data_root,
        settings={"VOC_STORE": f"{url}/store", "VOC_DATA_ROOT": f"{url}/data"},
        processes=cluster.processes,
        url=url,
    )


def test_a_job_from_container_to_container_has_the_bytes_of_one_from_folder_to_folder(
    cluster: Cluster, bucket: PhotosInBucket, small_voc: Path
) -> None:
    assert_same_bytes(cluster, bucket, small_voc)


@pytest.mark.timeout(600)
def test_a_local_run_in_a_container_ends_with_a_model_and_is_removed(
    bucket: PhotosInBucket, azure_server: AzureServer
) -> None:
    bucket.settings["VOC_BROKER_URL"] = ""
    told = bucket.producer("submit", bucket.photos, *OPTIONS[:-1], *TINY, "--epochs", "1", "--local")
    assert bucket.state("job") == "DONE"
    assert bucket.storage().read("runs/job/model_int8.tflite")[4:8] == b"TFL3"
    secret = azure_server.environment["AZURE_STORAGE_ACCOUNT_KEY"]
    assert secret not in told.stdout + told.stderr
    assert not [key for key in bucket.storage().walk("") if secret.encode() in bucket.storage().read(key)]
    bucket.producer("rm", "job", "--yes")
    assert bucket.storage().list_names("jobs") == []


def test_doctor_finds_that_an_azure_container_can_commit(cluster: Cluster, azure_server: AzureServer) -> None:
    url = azure_server.url(uuid.uuid4().hex)
    assert commit_check(cluster, VOC_STORE=url)["is_well"]
    assert Storage(url).list_names("") == []


@pytest.mark.parametrize(
    ("changed", "container", "words"),
    [
        ({"AZURE_STORAGE_ACCOUNT_KEY": "bm9ib2R5J3M="}, "voc-test", "be allowed to list the bucket"),
        ({"AZURE_STORAGE_ACCOUNT_KEY": ""}, "voc-test", "set AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY"),
        ({}, "nobodys", "is the container's name right"),
        ({"AZURE_ENDPOINT": "http://127.0.0.1:9/tests"}, "voc-test", "does its server answer (AZURE_ENDPOINT)?"),
    ],
    ids=["wrong key", "no key", "no container", "no server"],
)
def test_what_is_wrong_with_a_container_is_said_in_one_line(
    cluster: Cluster, azure_server: AzureServer, changed: dict[str, str], container: str, words: str
) -> None:
    refused = cluster.producer("lint", f"az://{container}/data", check=False, **changed)
    assert refused.returncode == 1
    assert words in refused.stderr
    assert len(refused.stderr.strip().splitlines()) == 1, refused.stderr
    assert "Traceback" not in refused.stderr
