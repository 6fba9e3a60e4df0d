"""Fixtures of the fault tests: short leases, and a line of what was killed, how often, and the counted outcome.

Lines go to standard error, which the processes of pytest-xdist share with it; their standard output goes nowhere.
"""

import os
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from producer.state.status import JobStatus
from tests.cluster import Broker, Cluster
from tests.object_server import ObjectServer

LEASE_S = 3.0


@pytest.fixture
def store_url(request: pytest.FixtureRequest) -> str:
    """A new folder in a bucket of a real server where `VOC_FAULTS_STORE=bucket`; empty: the store is a folder."""
    if os.environ.get("VOC_FAULTS_STORE", "folder") == "folder":
        return ""
    server: ObjectServer = request.getfixturevalue("object_server")
    return server.url(uuid.uuid4().hex)


@pytest.fixture
def only_folder(store_url: str) -> None:
    """Skip where the store is a bucket."""
    if store_url:
        pytest.skip("mounts, links and strays in folders: no bucket has them")


@pytest.fixture
def cluster(broker: Broker, tmp_path: Path, small_voc: Path, store_url: str) -> Iterator[Cluster]:
    """A cluster on the small set with a lease of 3 s, nothing started yet."""
    made = Cluster(broker=broker, store=tmp_path / "store", data_root=small_voc.parent, url=store_url)
    made.settings["VOC_LEASE_S"] = str(LEASE_S)
    # A host's copies of shards would hide that the bucket's own were changed.
    made.settings["VOC_SHARD_CACHE"] = str(tmp_path / "shard-cache")
    yield made
    made.stop()


@pytest.fixture
def tell(request: pytest.FixtureRequest) -> Callable[[str, JobStatus], None]:
    """Print what was done to the pipeline and how it came out."""

    def say(deed: str, status: JobStatus) -> None:
        print(
            f"\n{request.node.name}: {deed} -> {status.state}, {status.done}/{status.shards} shards, "
            f"{status.failed} failed, {status.attempts} attempts, {status.quarantined} quarantined",
            file=sys.stderr,
        )

    return say
