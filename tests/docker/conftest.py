"""Fixtures: images built once, a project of its own for each test, nothing left behind."""

import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docker.photos import large_photos, small_photos
from tests.docker.stack import Stack


@pytest.fixture(scope="session", autouse=True)
def _engine() -> None:
    if shutil.which("docker") is None or subprocess.run(["docker", "info"], capture_output=True).returncode:
        pytest.skip("no Docker engine")


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The images of producer and worker, of the code as it is."""
    stack = Stack(name="voc-build", folder=tmp_path_factory.mktemp("build"))
    stack.compose("build", "producer", "worker", timeout_s=1200)


@pytest.fixture(scope="session")
def trainer_built(built: None, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The trainer's image, of the code as it is."""
    Stack(name="voc-build", folder=tmp_path_factory.mktemp("build")).compose("build", "trainer", timeout_s=1800)


@pytest.fixture(scope="session")
def monitoring_built(built: None, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The images of profile `monitoring`."""
    stack = Stack(name="voc-build", folder=tmp_path_factory.mktemp("build"))
    stack.compose("--profile", "monitoring", "build", "flower", "tensorboard", "prometheus", timeout_s=1200)


@pytest.fixture
def stack(tmp_path: Path, built: None) -> Iterator[Stack]:
    """A project that is not up yet; whatever it starts ends with the test."""
    (tmp_path / "data").mkdir()
    (tmp_path / "out").mkdir()
    # A person's own ids; root's are not, the services run as 1000 then.
    ids = {"VOC_UID": str(os.getuid()), "VOC_GID": str(os.getgid())} if os.getuid() else {}
    own = Stack(name=f"voc-test-{uuid.uuid4().hex[:8]}", folder=tmp_path, environment={"VOC_TICK_S": "0.5", **ids})
    try:
        yield own
    finally:
        own.down()


@pytest.fixture(scope="session")
def large_set(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """768 photos of 12 megapixels."""
    folder = tmp_path_factory.mktemp("large") / "large"
    large_photos(folder, 768)
    return folder


@pytest.fixture(scope="session")
def small_set(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """48 made-up photos of three classes."""
    folder = tmp_path_factory.mktemp("small") / "small"
    small_photos(folder, 48)
    return folder


@pytest.fixture(scope="session")
def medium_set(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """256 photos of 12 megapixels: 16 shards of 16."""
    folder = tmp_path_factory.mktemp("medium") / "large"
    large_photos(folder, 256)
    return folder
