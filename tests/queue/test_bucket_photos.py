"""Photos in a bucket of a real S3 server: the plan, the findings and the bytes are those of the same folder."""

import os
import shutil
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import obstore
import pytest

from producer.dataset.lint import LintedFolder, lint_folder
from producer.jobs.plan import PlanLines, plan_job
from producer.state.stored import load_job
from shared.errors import LintError, StorageError
from shared.jobs.identity import read_receipt
from shared.jobs.paths import JobPaths
from shared.specs.data import JobSpec
from shared.storage import BucketFolder, DataFolder, Storage, data_folder
from tests.cluster import REPOSITORY, Cluster, assert_chain, wait_for_progress, wait_until
from tests.object_server import BUCKET, Cutting, Gateway, ObjectServer, gateway_before, wait_until_older
from tests.tiny import make_tiny_voc

QUIRKS = Path(__file__).parents[1] / "golden/quirks"
OPTIONS = ("--job", "job", "--shard-images", "4", "--no-train")


@pytest.fixture
def copied_quirks(tmp_path: Path) -> Path:
    """Pairs of which much is wrong, with lists, folders without photos, hidden files and two equal pictures."""
    folder = tmp_path / "quirks"
    shutil.copytree(QUIRKS, folder)
    for name in ("ImageSets/Main", ".hidden", "SegmentationClass", "deep/er/JPEGImages", "empty.d"):
        (folder / name).mkdir(parents=True)
    (folder / "ImageSets/Main/class_train.txt").write_text("not a list of splits 1\n")
    (folder / ".hidden/a.jpg").write_bytes(b"x")
    (folder / "SegmentationClass/box_over_the_edge.png").write_bytes(b"x")
    (folder / "empty.d/zero.jpg").write_bytes(b"")
    (folder / "notes.txt").write_text("0 0.5 0.5 0.1 0.1\n")
    first = min((folder / "JPEGImages").glob("box_*.jpg"))
    shutil.copyfile(first, folder / "deep/er/JPEGImages/again.jpg")
    shutil.copyfile(folder / f"Annotations/{first.stem}.xml", folder / "deep/er/named otherwise.xml")
    xml = folder / "deep/er/named otherwise.xml"
    xml.write_text(xml.read_text().replace(first.name, "again.jpg"))
    return folder


def told(folder: DataFolder, storage: Storage, **spec: object) -> dict[str, object]:
    """All that lint finds in a folder, and the plan of a job of it."""
    linted: LintedFolder = lint_folder(folder, spec=JobSpec.model_validate(spec))
    lines = PlanLines(plan_job(linted, job="job", incarnation="0" * 32, storage=storage))
    return {
        "plan": list(lines),
        "findings": [finding.to_json() for finding in linted.findings],
        "counts": linted.counts,
        "labels": linted.labels.names,
        "rule": linted.split_rule,
        "boxes": linted.boxes.rows(),
    }


@pytest.mark.parametrize("spec", [{}, {"background": "orphans", "resize": "letterbox"}])
def test_a_set_in_a_bucket_has_the_findings_and_the_plan_of_its_folder(
    copied_quirks: Path, object_server: ObjectServer, tmp_path: Path, spec: dict[str, object]
) -> None:
    url = object_server.upload(copied_quirks, f"{uuid.uuid4().hex}/quirks")
    storage = Storage(str(tmp_path))
    in_folder, in_bucket = told(copied_quirks, storage, **spec), told(data_folder(url), storage, **spec)
    assert in_folder["findings"]
    assert in_bucket == in_folder


def test_lists_of_a_devkit_in_a_bucket_decide_the_splits(
    copied_voc: Callable[[], Path], object_server: ObjectServer, tmp_path: Path
) -> None:
    folder, storage = copied_voc(), Storage(str(tmp_path))
    stems = sorted(path.stem for path in (folder / "JPEGImages").iterdir())
    for name, part in (("train", stems[:25]), ("val", stems[25:30]), ("test", stems[28:])):
        (folder / f"ImageSets/Main/{name}.txt").write_text("\r\n".join(part), encoding="utf-8-sig")
    url = object_server.upload(folder, uuid.uuid4().hex)
    assert told(data_folder(url), storage) == told(folder, storage)


@dataclass
class PhotosInBucket(Cluster):
    """Processes whose store and photos are in a bucket; `store` only has their logs beside it."""

    url: str = ""

    def storage(self) -> Storage:
        """The store."""
        return Storage(f"{self.url}/store")

    @property
    def photos(self) -> str:
        """The photos."""
        return f"{self.url}/data/shapes"


@pytest.fixture
def bucket(cluster: Cluster, object_server: ObjectServer, small_voc: Path) -> PhotosInBucket:
    """A cluster on the same broker as `cluster`, with a copy of its photos in a bucket."""
    name = uuid.uuid4().hex
    return in_bucket(cluster, object_server, name, small_voc)


def in_bucket(cluster: Cluster, server: ObjectServer, name: str, photos: Path) -> PhotosInBucket:
    """A cluster with photos and store below `name`."""
    server.upload(photos, f"{name}/data/shapes")
    url = server.url(name)
    return PhotosInBucket(
        broker=cluster.broker,
        store=cluster.store.parent / "bucket/logs",
        data_root=cluster.data_root,
        settings={"VOC_STORE": f"{url}/store", "VOC_DATA_ROOT": f"{url}/data"},
        processes=cluster.processes,
        url=url,
    )


def written(storage: Storage) -> dict[str, bytes]:
    """The files of the shards, and lint's findings."""
    paths = JobPaths("job")
    keys = [key for key in storage.walk(paths.shards) if key.endswith((".tfrecord", ".coco.json"))]
    return {key: storage.read(key) for key in [*keys, "jobs/job/lint.csv"]}


def counted(storage: Storage) -> Counter[str]:
    """The pairs of each counter, over all receipts."""
    receipts = [read_receipt(storage, load_job(storage, "job"), shard) for shard in load_job(storage, "job").shards]
    counters: Counter[str] = Counter()
    for receipt in receipts:
        assert receipt is not None
        counters.update(written=receipt.written, quarantined=receipt.quarantined)
    return counters


def assert_same_bytes(cluster: Cluster, bucket: PhotosInBucket, photos: Path) -> None:
    """Do a job of the same photos from folder to folder and from bucket to bucket, and hold one against the other."""
    for each, place in ((cluster, str(photos)), (bucket, bucket.photos)):
        processes = [each.worker(slots=2), each.serve()]
        each.producer("submit", place, *OPTIONS)
        each.wait_for("job")
        for process in processes:
            process.kill()
            process.wait()
    assert counted(bucket.storage()) == {"written": 40, "quarantined": 0}
    assert_chain(bucket, "job")
    assert written(bucket.storage()) == written(cluster.storage())


def test_a_job_from_bucket_to_bucket_has_the_bytes_of_one_from_folder_to_folder(
    cluster: Cluster, bucket: PhotosInBucket, small_voc: Path
) -> None:
    assert_same_bytes(cluster, bucket, small_voc)


def test_a_local_run_of_photos_in_a_bucket_writes_into_a_folder(bucket: PhotosInBucket, tmp_path: Path) -> None:
    bucket.settings = {"VOC_BROKER_URL": "", "VOC_STORE": str(tmp_path / "out")}
    bucket.producer("submit", bucket.photos, *OPTIONS, "--local")
    storage = Storage(str(tmp_path / "out"))
    assert counted(storage) == {"written": 40, "quarantined": 0}
    assert load_job(storage, "job").dataset == bucket.photos
    linted = bucket.producer("lint", bucket.photos, "--pixels")
    assert "40" in linted.stdout


def test_a_photo_that_is_gone_or_replaced_since_the_submit_is_set_aside(
    bucket: PhotosInBucket, object_server: ObjectServer
) -> None:
    bucket.producer("submit", bucket.photos, *OPTIONS)
    client, below = object_server.bucket(), bucket.photos.removeprefix(f"s3://{BUCKET}/")
    names = [f"{below}/JPEGImages/shapes_{number:05d}.jpg" for number in range(3)]
    obstore.delete(client, names[0])
    obstore.put(client, names[1], bytes(obstore.get(client, names[2]).bytes()))
    obstore.delete(client, f"{below}/Annotations/shapes_00005.xml")
    bucket.worker()
    bucket.serve()
    status = bucket.wait_for("job")
    assert counted(bucket.storage()) == {"written": 37, "quarantined": 3}
    assert status.attempts == status.shards
    rows = bucket.storage().read("jobs/job/lint.csv").decode()
    assert rows.count("pair_changed") == 3
    assert rows.count("no such file any more") == 2


def test_shards_of_unchanged_photos_in_a_bucket_are_reused_and_those_of_new_ones_are_not(
    bucket: PhotosInBucket, object_server: ObjectServer
) -> None:
    wait_until_older(bucket.photos, bucket.storage())
    bucket.worker()
    bucket.serve()
    bucket.producer("submit", bucket.photos, *OPTIONS)
    bucket.wait_for("job")
    bucket.producer("submit", bucket.photos, "--job", "again", *OPTIONS[2:])
    again = bucket.wait_for("again")
    assert again.reused == again.shards
    client, name = (
        object_server.bucket(),
        bucket.photos.removeprefix(f"s3://{BUCKET}/") + "/JPEGImages/shapes_00005.jpg",
    )
    obstore.put(client, name, bytes(obstore.get(client, name).bytes()))
    bucket.producer("submit", bucket.photos, "--job", "third", *OPTIONS[2:])
    third = bucket.wait_for("third")
    assert third.reused == third.shards - 1


def test_a_photo_that_is_cut_short_on_its_way_is_fetched_again(
    bucket: PhotosInBucket, cluster: Cluster, object_server: ObjectServer
) -> None:
    bucket.producer("submit", bucket.photos, *OPTIONS)
    cut: Counter[str] = Counter()
    with gateway_before(object_server, Cutting, cuts=1, cut=cut) as url:
        bucket.worker(AWS_ENDPOINT_URL=url)
        bucket.serve()
        status = bucket.wait_for("job")
    assert len(cut) == 40
    assert status.attempts == status.shards
    assert counted(bucket.storage()) == {"written": 40, "quarantined": 0}


def test_photos_that_never_arrive_fail_their_shards_with_that_reason_and_retry_succeeds(
    cluster: Cluster, object_server: ObjectServer, tmp_path: Path
) -> None:
    """Also by the isolated second attempt: no picture is at fault."""
    bucket = in_bucket(cluster, object_server, uuid.uuid4().hex, make_tiny_voc(tmp_path / "tiny", 4))
    bucket.settings["VOC_ATTEMPTS"] = "2"
    bucket.producer("submit", bucket.photos, *OPTIONS, "--split", "100/0/0")
    with gateway_before(object_server, Cutting, cuts=10_000, cut=Counter()) as url:
        worker = bucket.worker(AWS_ENDPOINT_URL=url)
        bucket.serve()
        failed = bucket.wait_for("job", ("FAILED",))
        worker.kill()
        worker.wait()
    assert failed.failed == failed.shards
    assert all(reason.count(f"cannot read {bucket.photos}/JPEGImages/") == 1 for reason in failed.failures.values())
    bucket.worker(name="second")
    bucket.producer("retry", "job")
    bucket.wait_for("job")
    assert counted(bucket.storage()) == {"written": 4, "quarantined": 0}


def test_a_server_killed_while_workers_read_photos_and_back_again_loses_nothing(
    cluster: Cluster, copied_voc: Callable[[], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = ObjectServer(tmp_path / "own")
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    server.start()
    try:
        bucket = in_bucket(cluster, server, "job", copied_voc())
        # It looks every second, also when the job is done before the server is killed for the second time.
        services = [bucket.worker(slots=2), bucket.serve(VOC_LISTING_S="1")]
        bucket.producer("submit", bucket.photos, "--job", "job", "--shard-images", "2", "--no-train")
        for done in (2, 8):
            wait_for_progress(bucket, done)
            kill_until_noticed(server, bucket)
            server.start()
        bucket.wait_for("job")
        assert not bucket.status("job").failed
        assert_chain(bucket, "job")
        assert counted(bucket.storage()) == {"written": 40, "quarantined": 0}
        assert [service.poll() for service in services] == [None, None]
    finally:
        server.stop()


def kill_until_noticed(server: ObjectServer, bucket: PhotosInBucket) -> None:
    """Kill the server, and wait until the service says that it is away."""
    refused = len(bucket.events("serve", "store_refuses"))
    server.kill()
    # A request is tried again for 20 s before it is given up.
    wait_until(lambda: len(bucket.events("serve", "store_refuses")) > refused, 90, "the store cannot be read")


def test_a_picture_that_ends_the_process_is_found_by_a_child_that_gets_it_from_its_parent(
    bucket: PhotosInBucket,
) -> None:
    """The first attempt ends a child of the pool: the one that Celery forks in its place reads the bucket too."""
    bucket.producer("submit", bucket.photos, *OPTIONS)
    bucket.worker(VOC_FAULT="poison:segv:shapes_00005.jpg")
    bucket.serve()
    status = bucket.wait_for("job")
    assert counted(bucket.storage()) == {"written": 39, "quarantined": 1}
    assert status.attempts == status.shards + 1
    assert "image_poison" in bucket.storage().read("jobs/job/lint.csv").decode()


def test_a_process_forked_from_one_that_used_a_bucket_says_so_instead_of_hanging(object_server: ObjectServer) -> None:
    program = (
        "import os, sys\n"
        "from shared.errors import StorageError\n"
        "from shared.storage import Storage\n"
        "storage = Storage(sys.argv[1])\n"
        "storage.write('a', b'x')\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    for each in (storage, Storage(sys.argv[1])):\n"
        "        try:\n            each.read('a')\n"
        "        except StorageError as error:\n            print(error, flush=True)\n"
        "    os._exit(0)\n"
        "print(os.waitpid(child, 0)[1], storage.read('a'))\n"
    )
    url = object_server.url(uuid.uuid4().hex)
    done = subprocess.run(
        [sys.executable, "-c", program, url], capture_output=True, text=True, check=True, cwd=REPOSITORY, timeout=60
    )
    refused = f"cannot read {url}/a: this process was forked from one that had used a bucket; only one of the two may"
    assert done.stdout.splitlines() == [refused, refused, "0 b'x'"]


WRONG = [
    ("s3://no-such-bucket/photos", {}, "NoSuchBucket", "is the bucket's name right"),
    ("{url}", {"AWS_SECRET_ACCESS_KEY": "wrong"}, "SignatureDoesNotMatch", "these credentials must be right"),
    ("{url}", {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}, "cannot list", "no credentials were found"),
    ("{url}", {"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}, "cannot list", "does its server answer (AWS_ENDPOINT_URL)?"),
    ("s3://me:word@bucket/photos", {}, "s3://…: expected a folder, or s3://", "credentials come from the environment"),
    ("ftp://host/photos", {}, "ftp://host/photos: expected a folder, or s3://, gs:// or az:// with a bucket", ""),
    ("{url}/absent", {}, "/absent: expected images and Pascal-VOC XML, found nothing (in", "there are: data"),
    ("{url}/data/shapes/JPEGImages", {}, "found 40 images, 0 XML files", "; label"),
    ("{url}/set.tar.gz", {}, "an archive is read from a disk", "download it"),
]


@pytest.mark.parametrize("command", ["lint", "submit"])
@pytest.mark.parametrize(("place", "environment", "found", "advice"), WRONG)
def test_what_is_wrong_with_a_place_is_said_in_one_line(
    bucket: PhotosInBucket, command: str, place: str, environment: dict[str, str], found: str, advice: str
) -> None:
    asked = place.replace("{url}", bucket.url)
    extra = {"VOC_DATA_ROOT": asked, "VOC_STORE": str(bucket.store), **environment, "HOME": str(bucket.store)}
    ended = bucket.producer(command, asked, "--strict", check=False, **extra)
    assert ended.returncode == 1
    said = [line for line in ended.stderr.splitlines() if line.startswith("error: ")] or [ended.stdout]
    assert len(said) == 1
    assert found in said[0]
    assert advice in said[0]
    assert "Traceback" not in ended.stderr
    assert "word" not in ended.stderr.replace("password", "")
    assert os.environ["AWS_SECRET_ACCESS_KEY"] not in ended.stderr


def test_a_folder_where_the_workers_read_a_bucket_and_the_other_way_round_is_refused(
    bucket: PhotosInBucket, small_voc: Path
) -> None:
    ended = bucket.producer("submit", str(small_voc), check=False)
    assert ended.returncode == 1
    assert f"copy it there and submit {bucket.url}/data/shapes, or use --local" in ended.stderr
    ended = bucket.producer("submit", bucket.photos, check=False, VOC_DATA_ROOT=str(small_voc))
    assert ended.returncode == 1
    assert f"set VOC_DATA_ROOT={bucket.photos} for producer and workers" in ended.stderr
    ended = bucket.producer("submit", f"{bucket.url}/store", check=False)
    assert ended.returncode == 1
    assert f"{bucket.url}/store is not below {bucket.url}/data, which the workers read" in ended.stderr


def test_doctor_says_whether_the_photos_can_be_read(bucket: PhotosInBucket) -> None:
    told = bucket.producer("doctor", check=False).stdout
    assert "can be read" in told
    told = bucket.producer("doctor", check=False, VOC_DATA_ROOT="s3://no-such-bucket/x").stdout
    assert "NoSuchBucket" in told


def test_a_photo_that_does_not_arrive_stops_lint_and_blames_no_pair(
    bucket: PhotosInBucket, object_server: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with gateway_before(object_server, Cutting, cuts=10_000, cut=Counter()) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        folder = BucketFolder(f"{bucket.photos}/")  # another client than that of the server itself
        with pytest.raises(StorageError, match=r"cannot read \S+\.jpg: "):
            lint_folder(folder, spec=JobSpec())


def test_an_empty_folder_names_its_neighbours(bucket: PhotosInBucket) -> None:
    with pytest.raises(LintError, match=r"found nothing \(in \S+/data there are: shapes\)"):
        lint_folder(BucketFolder(f"{bucket.url}/data/shape"), spec=JobSpec())


def test_a_gateway_passes_everything_on(bucket: PhotosInBucket, object_server: ObjectServer, tmp_path: Path) -> None:
    with gateway_before(object_server, Gateway) as url:
        told = bucket.producer("lint", bucket.photos, AWS_ENDPOINT_URL=url)
    assert "40" in told.stdout
