"""Fixtures of the fault tests: short leases, and a line of what was killed, how often, and the counted outcome."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from producer.jobs.status import JobStatus
from tests.cluster import Broker, Cluster

LEASE_S = 3.0


@pytest.fixture
def cluster(broker: Broker, tmp_path: Path, small_voc: Path) -> Iterator[Cluster]:
    """A cluster on the small set with a lease of 3 s, nothing started yet."""
    made = Cluster(broker=broker, store=tmp_path / "store", data_root=small_voc.parent)
    made.settings["VOC_LEASE_S"] = str(LEASE_S)
    yield made
    made.stop()


@pytest.fixture
def tell(request: pytest.FixtureRequest) -> Callable[[str, JobStatus], None]:
    """Print what was done to the pipeline and how it came out."""

    def say(deed: str, status: JobStatus) -> None:
        print(
            f"\n{request.node.name}: {deed} -> {status.state}, {status.done}/{status.shards} shards, "
            f"{status.failed} failed, {status.attempts} attempts, {status.quarantined} quarantined"
        )

    return say
