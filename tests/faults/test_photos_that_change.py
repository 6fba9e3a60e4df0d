"""Files of the data set that the workers may not read, or that are not what the submit read any more."""

import csv
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import pytest

from producer.state.status import JobStatus
from tests.cluster import Cluster, assert_common_outcome

pytestmark = pytest.mark.faults
Tell = Callable[[str, JobStatus], None]
OPTIONS = ("--job", "job", "--no-train", "--shard-images", "4")
# Every attempt but the first is made in a child of its own: a few shards and attempts say as much as many.
FEW = ("--job", "job", "--no-train", "--shard-images", "40")
FEW_ATTEMPTS = "3"
# For root no permission is ever missing: without its capabilities it is asked like anybody else.
LIKE_ANYBODY = ("setpriv", "--bounding-set=-all", "--inh-caps=-all")


@pytest.fixture
def folder(cluster: Cluster, copied_voc: Callable[[], Path]) -> Path:
    """A copy of the set, the data root of the cluster."""
    copied = copied_voc()
    cluster.data_root = copied
    return copied


@pytest.fixture
def unprivileged(cluster: Cluster, tmp_path: Path) -> Cluster:
    """The cluster, its processes bound by the permissions of files; skips where that cannot be had."""
    if shutil.which(LIKE_ANYBODY[0]) is None:
        pytest.skip("needs setpriv (util-linux)")
    closed = tmp_path / "closed"
    closed.touch(mode=0o000)
    denied = subprocess.run([*LIKE_ANYBODY, "cat", str(closed)], capture_output=True, text=True, check=False)
    if "Permission denied" not in denied.stderr:
        pytest.skip(f"setpriv does not take the rights away here: {denied.stderr}")
    cluster.prefix = LIKE_ANYBODY
    return cluster


def lint_rows(cluster: Cluster) -> list[dict[str, str]]:
    """The quarantined lines of the job's `lint.csv`."""
    text = cluster.storage().read("jobs/job/lint.csv").decode()
    return [row for row in csv.DictReader(text.splitlines()) if row["rank"] == "quarantined"]


@pytest.mark.parametrize("name", ["JPEGImages/shapes_00005.jpg", "Annotations/shapes_00005.xml"])
def test_a_file_without_read_permission_costs_its_own_pair_only(
    unprivileged: Cluster, folder: Path, tell: Tell, name: str
) -> None:
    (folder / name).chmod(0o000)
    unprivileged.producer("submit", str(folder), *OPTIONS)
    unprivileged.serve()
    unprivileged.worker()
    status = unprivileged.wait_for("job")
    manifest = assert_common_outcome(unprivileged, "job")
    assert (manifest.counters["written"], manifest.counters["quarantined"]) == (39, 1)
    assert [(row["file"], row["found"]) for row in lint_rows(unprivileged)] == [(name, "Permission denied")]
    assert status.attempts == status.shards + 1
    tell(f"{name} without read permission", status)


def test_a_file_that_only_the_workers_may_not_read_is_named_too(
    unprivileged: Cluster, folder: Path, tell: Tell
) -> None:
    name = "JPEGImages/shapes_00005.jpg"
    unprivileged.producer("submit", str(folder), *OPTIONS)
    (folder / name).chmod(0o000)
    unprivileged.serve()
    unprivileged.worker()
    status = unprivileged.wait_for("job")
    assert_common_outcome(unprivileged, "job")
    [row] = lint_rows(unprivileged)
    assert (row["file"], row["kind"], row["found"]) == (name, "image_unreadable", "permission denied")
    tell(f"{name} without read permission since the submit", status)


@pytest.mark.parametrize("mode", [0o000, 0o600], ids=oct)
def test_a_folder_that_may_not_be_entered_fails_its_shards_and_retry_succeeds(
    unprivileged: Cluster, folder: Path, tell: Tell, mode: int
) -> None:
    """With 0600 its names can be listed, but none of its files opened."""
    unprivileged.settings["VOC_ATTEMPTS"] = FEW_ATTEMPTS
    unprivileged.producer("submit", str(folder), *FEW)
    pictures = folder / "JPEGImages"
    pictures.chmod(mode)
    unprivileged.serve()
    unprivileged.worker()
    failed = unprivileged.wait_for("job", ("FAILED",))
    pictures.chmod(0o755)
    assert failed.failed == failed.shards
    assert all("Permission denied" in reason for reason in failed.failures.values()), failed.failures
    unprivileged.producer("retry", "job")
    status = unprivileged.wait_for("job")
    assert assert_common_outcome(unprivileged, "job").counters["quarantined"] == 0
    tell(f"JPEGImages with mode {mode:o}: {failed.failed} shards failed, then readable", status)


def pixels_of(picture: Path) -> np.ndarray:
    """The decoded picture, uint8 [H, W, 3], BGR."""
    pixels = cv2.imread(str(picture))
    assert pixels is not None
    return pixels


def mirror(picture: Path) -> None:
    """Replace a picture by its mirror image, of as many pixels and as many bytes."""
    size = picture.stat().st_size
    _, encoded = cv2.imencode(".jpg", cv2.flip(pixels_of(picture), 1), [cv2.IMWRITE_JPEG_QUALITY, 60])
    assert len(encoded) < size
    picture.write_bytes(encoded.tobytes().ljust(size, b"\0"))  # what follows a JPEG's end is not read


def halve(picture: Path) -> None:
    """Replace a picture by one of half its width and height."""
    assert cv2.imwrite(str(picture), cv2.resize(pixels_of(picture), None, fx=0.5, fy=0.5))


def test_pictures_and_xml_replaced_after_the_submit_are_set_aside_and_named(
    cluster: Cluster, folder: Path, tell: Tell
) -> None:
    cluster.producer("submit", str(folder), *OPTIONS)
    pictures = sorted((folder / "JPEGImages").iterdir())
    mirror(pictures[0])
    halve(pictures[1])
    xml = folder / "Annotations" / f"{pictures[2].stem}.xml"
    xml.write_text(xml.read_text().replace("<xmin>", "<xmin>1"))
    pictures[3].write_bytes(pictures[3].read_bytes())  # written again, as it was
    cluster.serve()
    cluster.worker()
    status = cluster.wait_for("job")
    manifest = assert_common_outcome(cluster, "job")
    assert (manifest.counters["written"], manifest.counters["quarantined"]) == (37, 3)
    rows = lint_rows(cluster)
    assert {(row["file"], row["kind"]) for row in rows} == {
        (f"JPEGImages/{picture.name}", "pair_changed") for picture in pictures[:3]
    }
    assert all("since the submit" in row["found"] and "--job" in row["found"] for row in rows)
    assert status.attempts == status.shards
    tell("replaced 2 pictures and rewrote an XML between submit and conversion", status)

    cluster.producer("submit", str(folder), "--job", "again", *OPTIONS[2:])
    again = cluster.wait_for("again")
    assert assert_common_outcome(cluster, "again").counters["quarantined"] == 0
    assert 0 < again.reused < again.shards
    tell("and submitted again under another name", again)


def test_a_worker_of_another_data_root_fails_its_shards_and_retry_does_them(
    cluster: Cluster, folder: Path, tmp_path: Path, tell: Tell
) -> None:
    """As one that is started without the set's mount, or by hand with the settings of another set."""
    (tmp_path / "elsewhere/JPEGImages").mkdir(parents=True)
    (tmp_path / "elsewhere/Annotations").mkdir()
    cluster.settings["VOC_ATTEMPTS"] = FEW_ATTEMPTS
    cluster.producer("submit", str(folder), *FEW)
    cluster.serve()
    astray = cluster.worker(VOC_DATA_ROOT=str(tmp_path / "elsewhere"))
    failed = cluster.wait_for("job", ("FAILED",))
    assert failed.failed == failed.shards
    assert all("none of the" in why and "VOC_DATA_ROOT" in why for why in failed.failures.values()), failed.failures
    astray.kill()
    cluster.worker()
    cluster.producer("retry", "job")
    status = cluster.wait_for("job")
    assert assert_common_outcome(cluster, "job").counters["quarantined"] == 0
    tell(f"a worker of another data root: {failed.failed} shards failed, then one of the right one", status)
