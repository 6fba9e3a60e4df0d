"""Hosts that share nothing but Redis and a bucket: two Compose projects, a real S3 server, neither mounts a folder."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from shared.errors import StorageError
from shared.jobs.paths import JobPaths, RunPaths
from shared.storage import Storage
from tests.docker.stack import ROOT, Stack, docker, kill_main_process, wait_for
from tests.docker.test_hosts import address_of_this_host, certificate, live_workers

pytestmark = [pytest.mark.docker, pytest.mark.timeout(1800)]

FILES = ("docker-compose.yml", "docker-compose.objects.yml", "docker-compose.hosts.yml")
OPTIONS = ("--job", "small", "--shard-images", "4")
BUCKET = "voc-docker"
TINY = ("--image-size", "64", "--model", "nano", "--max-drop", "100", "--epochs", "2", "--backbone", "conv")


@pytest.fixture(scope="session")
def objects_built(trainer_built: None, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The image of the S3 server."""
    stack = Stack(name="voc-build", folder=tmp_path_factory.mktemp("build"), environment=_variables(""), files=FILES)
    stack.compose("--profile", "objects", "build", "objects", timeout_s=600)


def _variables(address: str) -> dict[str, str]:
    """What a person writes into .env of each host."""
    return {
        "VOC_STORE_URL": f"s3://{BUCKET}/out",
        "VOC_PHOTOS_URL": f"s3://{BUCKET}/photos",
        "VOC_OBJECTS_BIND": address or "127.0.0.1",
        "VOC_BROKER_HOST": address or "host",
        "VOC_BROKER_BIND": address or "127.0.0.1",
        "AWS_ENDPOINT_URL": f"http://{address}:8333",
        "AWS_ACCESS_KEY_ID": "docker-key",
        "AWS_SECRET_ACCESS_KEY": "docker-secret",
        "AWS_REGION": "us-east-1",
    }


@pytest.fixture
def hosts(stack: Stack, objects_built: None) -> Iterator[dict[str, Stack]]:
    """Two hosts, each with folders of its own that stay empty."""
    address = address_of_this_host()
    made = {}
    for name in ("first", "second"):
        folder = stack.folder / name
        folder.mkdir()
        own = {**stack.environment, **_variables(address), "VOC_SECRETS_FOLDER": str(stack.folder / "secrets" / name)}
        made[name] = Stack(name=f"{stack.name}-{name}", folder=folder, environment=own, files=FILES)
    certificate(stack.folder / "secrets/first/redis", address)
    yield made
    for host in made.values():
        host.down()


def test_workers_of_a_host_that_mounts_nothing_write_the_bytes_that_a_folder_gets(
    stack: Stack, hosts: dict[str, Stack], small_set: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = hosts["first"], hosts["second"]
    for name, value in first.environment.items():
        if name.startswith("AWS_"):
            monkeypatch.setenv(name, value)
    first.compose("--profile", "objects", "up", "-d", "--no-build", "objects")
    bucket = Storage(f"s3://{BUCKET}")
    wait_for(lambda: _takes(bucket), within_s=60, what="the S3 server")
    for path in small_set.rglob("*"):
        if path.is_file():
            bucket.write(f"photos/small/{path.relative_to(small_set)}", path.read_bytes())
    storage = Storage(f"s3://{BUCKET}/out")

    first.compose("--profile", "broker", "up", "-d", "--no-build", "redis", "producer", "trainer")
    shutil.copytree(stack.folder / "secrets/first/worker", stack.folder / "secrets/second/worker")
    second.up("--scale", "worker=2", "worker")
    wait_for(
        lambda: live_workers(first) == 3, within_s=120, what="the trainer and both workers, seen by the first host"
    )
    photos = f"s3://{BUCKET}/photos/small"
    first.compose("--profile", "broker", "run", "--rm", "-T", "producer", "submit", photos, *OPTIONS, *TINY)
    wait_for(lambda: _receipts(storage), within_s=120, what="a first shard")
    docker("kill", second.containers("worker")[0])
    kill_main_process(first.containers("objects")[0])
    second.up("--scale", "worker=2", "worker")
    wait_for(lambda: _has(storage, RunPaths("small").run), within_s=900, what="the model")

    local = tmp_path / "local"
    words = ("submit", str(small_set), *OPTIONS, *TINY[:2], "--no-train", "--local", "--store", str(local), "--yes")
    subprocess.run([sys.executable, "-m", "producer", *words], cwd=ROOT, check=True, env=_own_environment())
    assert _shards(storage) == _shards(Storage(str(local)))
    assert storage.exists("runs/small/model_int8.tflite")
    for host in hosts.values():
        assert not [path for path in host.folder.rglob("*") if path.is_file()], "a host has files of its own"


def _takes(bucket: Storage) -> bool:
    """Whether the server takes an object."""
    try:
        bucket.write("answers", b"yes")
    except StorageError:
        return False
    return True


def _has(storage: Storage, key: str) -> bool:
    """Whether the file is there; not while the server is away."""
    with suppress(StorageError):
        return storage.exists(key)
    return False


def _receipts(storage: Storage) -> list[str]:
    return [name for name in storage.list_names(JobPaths("small").shards) if name.endswith(".json")]


def _shards(storage: Storage) -> dict[str, bytes]:
    """The records of each shard."""
    keys = storage.walk(JobPaths("small").shards)
    return {key: storage.read(key) for key in keys if key.endswith(".tfrecord")}


def _own_environment() -> dict[str, str]:
    """This process's, without what would have the local run use the hosts' Redis, photos or store."""
    return {name: value for name, value in os.environ.items() if not name.startswith("VOC_")}
