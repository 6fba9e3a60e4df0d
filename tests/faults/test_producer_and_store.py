"""Rows 4, 11, 13 and 15 of FAULTS: the producer killed, a full or absent store, pictures that cannot be read."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from producer.state import JobStatus, job_names
from tests.cluster import Cluster, assert_common_outcome, wait_for_progress, wait_until

pytestmark = pytest.mark.faults
Tell = Callable[[str, JobStatus], None]
OPTIONS = ("--job", "job", "--no-train", "--shard-images", "4")


@pytest.mark.parametrize("point", ["submit:after_plan", "submit:after_job"])
def test_producer_killed_in_the_middle_of_a_submit(cluster: Cluster, small_voc: Path, tell: Tell, point: str) -> None:
    cluster.serve()
    cluster.worker()
    killed = cluster.producer("submit", str(small_voc), *OPTIONS, check=False, VOC_FAULT=point)
    assert killed.returncode == -9
    if point == "submit:after_plan":
        assert job_names(cluster.storage()) == []
        cluster.producer("submit", str(small_voc), *OPTIONS)
    status = cluster.wait_for("job", timeout_s=90)
    assert_common_outcome(cluster, "job")
    tell(f"killed the producer at {point}", status)


def test_reconciler_killed_twice_and_at_the_manifest(cluster: Cluster, small_voc: Path, tell: Tell) -> None:
    marker = cluster.store.parent / "marker"
    service = cluster.serve(VOC_FAULT=f"job:after_manifest@{marker}")
    cluster.worker()
    cluster.producer("submit", str(small_voc), *OPTIONS)
    for kill in range(2):
        wait_for_progress(cluster, kill)
        service.kill()
        service = cluster.serve(VOC_FAULT=f"job:after_manifest@{marker}")
    wait_until(marker.exists, 60, "the reconciler dies after the manifest")
    cluster.serve()
    status = cluster.wait_for("job")
    assert_common_outcome(cluster, "job")
    tell("killed the reconciler 3 times", status)


@contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[None]:
    """Mount a file system of a few megabytes at `folder`; skips where this process may not mount."""
    folder.mkdir(parents=True)
    mount = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)], check=False)
    if mount.returncode != 0:
        pytest.skip("needs the right to mount a tmpfs")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def test_full_disk_fails_with_that_reason_and_retry_succeeds(cluster: Cluster, small_voc: Path, tell: Tell) -> None:
    with small_disk(cluster.store, 8):
        cluster.serve()
        cluster.worker()
        filler = cluster.store / "filler"
        cluster.producer("submit", str(small_voc), *OPTIONS)
        with open(filler, "wb") as file:
            os.posix_fallocate(file.fileno(), 0, 7_600_000)
        status = cluster.wait_for("job", ("FAILED",), timeout_s=90)
        assert any("No space left" in reason for reason in status.failures.values()), status.failures
        assert not [path for path in cluster.store.rglob("*") if ".tmp-" in path.name]
        filler.unlink()
        cluster.producer("retry", "job")
        again = cluster.wait_for("job", timeout_s=90)
        assert_common_outcome(cluster, "job")
        tell(f"full disk: {len(status.failures)} shards failed, then room", again)
        cluster.stop()


def test_absent_data_root_fails_with_that_reason_and_retry_succeeds(
    cluster: Cluster, copied_voc: Callable[[], Path], tell: Tell
) -> None:
    folder = copied_voc()
    cluster.data_root = folder.parent
    cluster.producer("submit", str(folder), *OPTIONS)
    moved = folder.rename(folder.with_name("unmounted"))
    cluster.serve()
    cluster.worker()
    status = cluster.wait_for("job", ("FAILED",), timeout_s=90)
    assert status.failed == status.shards
    assert "absent" in next(iter(status.failures.values()))
    moved.rename(folder)
    cluster.producer("retry", "job")
    again = cluster.wait_for("job", timeout_s=90)
    assert_common_outcome(cluster, "job")
    tell("data root absent, then back", again)


def test_unreadable_pairs_are_quarantined_and_named(
    cluster: Cluster, copied_voc: Callable[[], Path], tell: Tell
) -> None:
    folder = copied_voc()
    cluster.data_root = folder.parent
    pictures = sorted((folder / "JPEGImages").iterdir())
    pictures[0].write_bytes(pictures[0].read_bytes()[:500])
    pictures[1].write_bytes(b"no picture at all")
    (folder / "Annotations" / f"{pictures[2].stem}.xml").write_text("<annotation><object>")
    cluster.serve()
    cluster.worker()
    cluster.producer("submit", str(folder), *OPTIONS)
    status = cluster.wait_for("job")
    assert_common_outcome(cluster, "job")
    lint = cluster.storage().read("jobs/job/lint.csv").decode()
    for picture in pictures[:3]:
        assert picture.stem in lint
    tell("2 corrupt pictures, 1 broken XML", status)
    shutil.rmtree(folder)
