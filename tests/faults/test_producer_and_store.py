"""Rows 4, 11, 13 and 15 of docs/faults.md: the producer killed, a full or absent store, unreadable pictures."""

import os
import shutil
import struct
import subprocess
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from producer.state.status import JobStatus
from producer.state.stored import job_names
from tests.cluster import Cluster, assert_common_outcome, wait_for_progress, wait_until

pytestmark = pytest.mark.faults
Tell = Callable[[str, JobStatus], None]
OPTIONS = ("--job", "job", "--no-train", "--shard-images", "4")
# Every attempt but the first is made in a child of its own: a few shards and attempts say as much as many.
FEW = ("--job", "job", "--no-train", "--shard-images", "10")
FEW_ATTEMPTS = "3"


@pytest.mark.parametrize("point", ["submit:after_plan", "submit:after_job"])
def test_producer_killed_in_the_middle_of_a_submit(cluster: Cluster, small_voc: Path, tell: Tell, point: str) -> None:
    cluster.serve(VOC_LISTING_S="3")  # who was killed has told nobody
    cluster.worker()
    killed = cluster.producer("submit", str(small_voc), *OPTIONS, check=False, VOC_FAULT=point)
    assert killed.returncode == -9
    if point == "submit:after_plan":
        assert job_names(cluster.storage()) == []
        cluster.producer("submit", str(small_voc), *OPTIONS)
    status = cluster.wait_for("job")
    assert_common_outcome(cluster, "job")
    tell(f"killed the producer at {point}", status)


def test_producer_killed_while_it_takes_shards_over(cluster: Cluster, small_voc: Path, tell: Tell) -> None:
    cluster.serve(VOC_LISTING_S="3")
    cluster.worker()
    cluster.producer("submit", str(small_voc), *OPTIONS)
    cluster.wait_for("job")
    again = ("submit", str(small_voc), "--job", "again", *OPTIONS[2:])
    killed = cluster.producer(*again, check=False, VOC_FAULT="submit:after_reuse_of_one")
    assert killed.returncode == -9
    status = cluster.wait_for("again")
    first, second = (assert_common_outcome(cluster, job) for job in ("job", "again"))
    assert second.splits == first.splits
    assert "already done, 11 shards, nothing to do" in cluster.producer(*again).stderr
    tell("killed the producer after one shard was taken over from another job", status)


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
    mount("-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder))
    try:
        yield
    finally:
        unmount(folder)


def mount(*words: str) -> None:
    """mount(8); skips where this process may not mount."""
    if subprocess.run(["mount", *words], check=False).returncode != 0:
        pytest.skip("needs the right to mount")


def unmount(folder: Path) -> None:
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.fixture
def mounted(only_folder: None, cluster: Cluster, tmp_path: Path) -> Iterator[Path]:
    """The cluster's store as a mount of the folder returned."""
    real = tmp_path / "disk"
    real.mkdir()
    cluster.store.mkdir()
    mount("--bind", str(real), str(cluster.store))
    yield real
    cluster.stop()
    unmount(cluster.store)


def test_read_only_store_fails_with_that_reason_and_retry_succeeds(
    cluster: Cluster, mounted: Path, small_voc: Path, tell: Tell
) -> None:
    cluster.settings["VOC_ATTEMPTS"] = FEW_ATTEMPTS
    cluster.producer("submit", str(small_voc), *FEW)
    cluster.serve()  # begun on a read-only store it would end at once, with that reason
    wait_until(lambda: cluster.under_way(cluster.scope("job")).queued, 30, "the service knows the job")
    mount("-o", "remount,bind,ro", str(cluster.store))
    cluster.worker()
    wait_until(lambda: cluster.events("serve", "store_refuses"), 180, "a shard is given up, which cannot be noted")
    assert "Read-only file system" in str(cluster.status("job").last_error)
    mount("-o", "remount,bind,rw", str(cluster.store))
    failed = cluster.wait_for("job", ("FAILED",))
    assert all("Read-only file system" in reason for reason in failed.failures.values()), failed.failures
    cluster.producer("retry", "job", "--failed")
    status = cluster.wait_for("job")
    assert_common_outcome(cluster, "job")
    tell(f"read-only store: {failed.failed} shards failed, then writable", status)


def test_store_that_vanishes_and_comes_back_only_delays_the_job(
    cluster: Cluster, mounted: Path, small_voc: Path, tell: Tell
) -> None:
    cluster.serve(VOC_LISTING_S="3")
    cluster.worker()
    cluster.producer("submit", str(small_voc), "--job", "job", "--no-train", "--shard-images", "1")
    wait_for_progress(cluster, 2)
    unmount(cluster.store)
    time.sleep(4)
    mount("--bind", str(mounted), str(cluster.store))
    done = cluster.status("job").done
    status = cluster.wait_for("job")
    assert_common_outcome(cluster, "job")
    tell(f"the store's mount gone for 4 s at {done} shards", status)


@pytest.mark.usefixtures("only_folder")
def test_full_disk_fails_with_that_reason_and_retry_succeeds(cluster: Cluster, small_voc: Path, tell: Tell) -> None:
    cluster.settings["VOC_ATTEMPTS"] = FEW_ATTEMPTS
    with small_disk(cluster.store, 8):
        filler = cluster.store / "filler"
        cluster.producer("submit", str(small_voc), *FEW)
        with open(filler, "wb") as file:
            os.posix_fallocate(file.fileno(), 0, 7_600_000)
        cluster.serve()
        cluster.worker()
        status = cluster.wait_for("job", ("FAILED",))
        assert any("No space left" in reason for reason in status.failures.values()), status.failures
        assert not [path for path in cluster.store.rglob("*") if ".tmp-" in path.name]
        filler.unlink()
        cluster.producer("retry", "job")
        again = cluster.wait_for("job")
        assert_common_outcome(cluster, "job")
        tell(f"full disk: {len(status.failures)} shards failed, then room", again)
        cluster.stop()


def test_absent_data_root_fails_with_that_reason_and_retry_succeeds(
    cluster: Cluster, copied_voc: Callable[[], Path], tell: Tell
) -> None:
    cluster.settings["VOC_ATTEMPTS"] = FEW_ATTEMPTS
    folder = copied_voc()
    cluster.data_root = folder.parent
    cluster.producer("submit", str(folder), *FEW)
    moved = folder.rename(folder.with_name("unmounted"))
    cluster.serve()
    cluster.worker()
    status = cluster.wait_for("job", ("FAILED",))
    assert status.failed == status.shards
    assert "absent" in next(iter(status.failures.values()))
    moved.rename(folder)
    cluster.producer("retry", "job")
    again = cluster.wait_for("job")
    assert_common_outcome(cluster, "job")
    tell("data root absent, then back", again)


def png_of(width: int, height: int) -> bytes:
    """A PNG whose header says `width` x `height` pixels, and that holds nothing else."""
    header = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + header + struct.pack(">I", zlib.crc32(header))


ENTITY_BOMB = """<!DOCTYPE annotation [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>
<annotation><filename>&b;</filename><object><name>circle</name></object></annotation>"""
STRANGER = """<!DOCTYPE annotation [<!ENTITY a SYSTEM "file:///etc/passwd">]>
<annotation><filename>&a;</filename></annotation>"""


def test_unreadable_pairs_are_quarantined_and_named(
    cluster: Cluster, copied_voc: Callable[[], Path], tell: Tell
) -> None:
    folder = copied_voc()
    cluster.data_root = folder
    pictures = sorted((folder / "JPEGImages").iterdir())
    pictures[0].write_bytes(pictures[0].read_bytes()[:500])
    pictures[1].write_bytes(b"no picture at all")
    pictures[2].write_bytes(png_of(60_000, 60_000))
    for picture, xml in zip(pictures[3:6], ("<annotation><object>", ENTITY_BOMB, STRANGER), strict=True):
        (folder / "Annotations" / f"{picture.stem}.xml").write_text(xml)
    cluster.producer("submit", str(folder), *OPTIONS)
    # After the submit, which refuses links that leave the data root: the worker looks again.
    outside = cluster.store.parent / "outside.jpg"
    shutil.copyfile(pictures[7], outside)
    pictures[6].unlink()
    pictures[6].symlink_to(outside)
    cluster.serve()
    cluster.worker()
    status = cluster.wait_for("job")
    manifest = assert_common_outcome(cluster, "job")
    assert manifest.counters["quarantined"] == 7
    lint = cluster.storage().read("jobs/job/lint.csv").decode()
    for picture in pictures[:7]:
        assert picture.stem in lint
    tell("2 corrupt pictures, a bomb, 3 hostile XML, a link out of the data root", status)
