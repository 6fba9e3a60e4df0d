"""`write_shard`: every pair in one counter, the receipt last, the same bytes twice, nothing left behind."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from shared.annotation.reader import MAX_OBJECTS
from shared.errors import LeaseLost, StopRequested, StorageError
from shared.jobs.identity import read_receipt
from shared.jobs.job import PathPair
from shared.jobs.receipts import ShardReceipt, check_shard
from shared.leasing.guard import Unguarded
from shared.storage import Storage
from tests.unit.worker.pictures import encode, make_job, soft_picture, voc_xml, write_pair
from worker.record.example import parse_example
from worker.record.prepare import PreparedExample, prepare_example, recipe_of
from worker.record.tfrecord import read_records
from worker.shard import write_shard

BOX = (20, 10, 120, 60)


class RecordingGuard:
    """Notes what it was asked, and raises on the call named by the test."""

    def __init__(self, raise_at: str = "", error: type[Exception] = StopRequested) -> None:
        self.asked: list[str] = []
        self.raise_at, self.error = raise_at, error

    def advance(self, **progress: float | int | str) -> None:
        self._ask(f"advance {progress['images']}")

    def before_publish(self) -> None:
        self._ask("before_publish")

    def require_wanted(self) -> None:
        self._ask("require_wanted")

    def _ask(self, what: str) -> None:
        self.asked.append(what)
        if what == self.raise_at:
            raise self.error("asked to")


@pytest.fixture
def store(tmp_path: Path) -> Storage:
    (tmp_path / "store").mkdir()
    return Storage(str(tmp_path / "store"))


@pytest.fixture
def pairs(tmp_path: Path) -> list[PathPair]:
    folder = tmp_path / "set"
    return [
        write_pair(folder, "a", encode(soft_picture(200, 100)), voc_xml(BOX, (0, 0, 50, 50, "dog"), size=(200, 100))),
        write_pair(folder, "b", encode(soft_picture(80, 90, seed=1)), voc_xml(size=(80, 90))),
        write_pair(folder, "c", encode(soft_picture(99, 99))[:700], voc_xml(BOX)),
        write_pair(
            folder, "d", encode(soft_picture(64, 64, seed=2)), voc_xml((5, 5, 5, 20), (5, 5, 60, 70), size=(64, 64))
        ),
        write_pair(folder, "e", encode(soft_picture(64, 64, seed=3)), b"<annotation>"),
    ]


Write = Callable[..., ShardReceipt]


@pytest.fixture
def write(tmp_path: Path, store: Storage, pairs: list[PathPair]) -> Write:
    def write(**arguments: object) -> ShardReceipt:
        job, task = make_job(*pairs)
        defaults = {"storage": store, "data_root": tmp_path, "guard": Unguarded(), "attempt": 1}
        return write_shard(task, job, **(defaults | arguments))  # type: ignore[arg-type]  # as each test says

    return write


def files(store: Storage) -> list[str]:
    return sorted(path.name for path in Path(store.root).rglob("*") if path.is_file())


def test_each_pair_is_in_exactly_one_counter(write: Write) -> None:
    receipt = write()
    assert (receipt.written, receipt.quarantined, receipt.background) == (3, 2, 1)
    assert (receipt.objects_read, receipt.objects_written) == (4, 3)
    assert receipt.class_counts == {"cat": 2, "dog": 1}
    assert receipt.counters == {
        "annotation_unreadable": 1,
        "box_clipped": 1,
        "box_zero_area": 1,
        "image_unreadable": 1,
    }
    quarantined = [finding.file for finding in receipt.findings if finding.rank == "quarantined"]
    assert quarantined == ["JPEGImages/c.jpg", "Annotations/e.xml"]
    assert list(map(len, receipt.hashes)) == [64, 64, 0, 64, 0], "in the order of the pairs"
    dropped = sum(finding.rank == "dropped" for finding in receipt.findings)
    assert receipt.objects_read == receipt.objects_written + dropped


def test_shard_holds_the_written_pairs_in_order(write: Write, store: Storage) -> None:
    write()
    content = store.read("jobs/job/shards/train-00000-of-00001.tfrecord")
    examples = [parse_example(record) for record in read_records(content, file="x")]
    assert [example["image/filename"] for example in examples] == [[f"JPEGImages/{s}.jpg".encode()] for s in "abd"]


def test_sidecar_is_coco_in_stored_pixels(write: Write, store: Storage) -> None:
    write()
    sidecar = json.loads(store.read("jobs/job/shards/train-00000-of-00001.coco.json"))
    assert sidecar["images"] == [
        {"id": number, "file_name": f"JPEGImages/{stem}.jpg", "width": 64, "height": 64}
        for number, stem in ((1, "a"), (2, "b"), (4, "d"))
    ]
    assert [annotation["bbox"] for annotation in sidecar["annotations"]] == [
        [6.4, 6.4, 32.0, 32.0],
        [0.0, 0.0, 16.0, 32.0],
        [5.0, 5.0, 55.0, 59.0],
    ]
    assert [annotation["category_id"] for annotation in sidecar["annotations"]] == [1, 2, 1]
    assert [annotation["image_id"] for annotation in sidecar["annotations"]] == [1, 1, 4]
    assert len({annotation["id"] for annotation in sidecar["annotations"]}) == 3


@pytest.mark.parametrize(("difficult", "crowds"), [("keep", [0, 0, 0]), ("ignore", [0, 0, 1])])
def test_sidecar_and_receipt_tell_difficult_objects_from_ignored_ones_and_lost_photos(
    tmp_path: Path, store: Storage, difficult: str, crowds: list[int]
) -> None:
    """A difficult object counts in no figure whether it is learned or not; a photo that lost its objects is empty."""
    folder, picture = tmp_path / "set", encode(soft_picture(200, 100))
    hard = voc_xml(BOX, size=(200, 100), extra="<difficult>1</difficult>")
    plain = voc_xml(BOX, (0, 0, 50, 50), size=(200, 100))
    pairs = [
        write_pair(folder, "a", picture, plain),
        write_pair(folder, "b", picture, hard),
        write_pair(folder, "c", picture, voc_xml((300, 10, 360, 60), size=(200, 100))),
    ]
    job, task = make_job(*pairs, difficult=difficult)
    receipt = write_shard(task, job, storage=store, data_root=tmp_path, guard=Unguarded(), attempt=1)
    rows = json.loads(store.read("jobs/job/shards/train-00000-of-00001.coco.json"))["annotations"]
    assert [row["ignore"] for row in rows] == [0, 0, 1]
    assert [row["iscrowd"] for row in rows] == crowds
    assert [row["image_id"] for row in rows] == [1, 1, 2]
    assert len({row["id"] for row in rows}) == 3
    assert min(row["id"] for row in rows) > 0, "pycocotools takes 0 for no object"
    assert (receipt.class_counts, receipt.objects_written, receipt.objects_read) == ({"cat": 3}, 3, 4)
    assert (receipt.written, receipt.background) == (3, 1)


def test_receipt_proves_the_files(write: Write, store: Storage, pairs: list[PathPair]) -> None:
    receipt = write(attempt=3)
    job, _ = make_job(*pairs)
    assert receipt == read_receipt(store, job, "train-00000-of-00001")
    assert receipt.attempt == 3
    check_shard(store, receipt, with_digest=True)
    sidecar = store.read("jobs/job/shards/train-00000-of-00001.coco.json")
    assert receipt.annotations_sha256 == hashlib.sha256(sidecar).hexdigest()
    assert receipt.task_digest == job.task_digest("train-00000-of-00001")


def test_writing_twice_gives_the_same_bytes(write: Write, store: Storage) -> None:
    first = write()
    content = {
        name: path.read_bytes() for path in Path(store.root).rglob("*") if path.is_file() for name in [path.name]
    }
    assert write() == first
    assert content == {path.name: path.read_bytes() for path in Path(store.root).rglob("*") if path.is_file()}


def test_guard_is_asked_after_each_picture_and_before_the_names(write: Write) -> None:
    guard = RecordingGuard()
    write(guard=guard)
    assert guard.asked == [f"advance {done}" for done in range(1, 6)] + ["before_publish", "before_publish"]


class LookingGuard(RecordingGuard):
    """Notes which files are there when it is asked whether to publish, and refuses from the time `refuse_from` on."""

    def __init__(self, store: Storage, refuse_from: int = 99) -> None:
        super().__init__()
        self.store, self.refuse_from, self.seen = store, refuse_from, list[list[str]]()

    def before_publish(self) -> None:
        self.seen.append(self.store.list_names("jobs/job/shards"))
        if len(self.seen) >= self.refuse_from:
            raise LeaseLost("another worker has it")


RECORDS = ["train-00000-of-00001.coco.json", "train-00000-of-00001.tfrecord"]


def test_the_receipt_gets_its_name_when_all_that_it_proves_is_there(write: Write, store: Storage) -> None:
    guard = LookingGuard(store)
    write(guard=guard)
    assert guard.seen == [[], RECORDS]
    assert files(store) == sorted([*RECORDS, "train-00000-of-00001.json"])


def test_a_lease_lost_between_the_files_and_the_receipt_leaves_no_receipt(write: Write, store: Storage) -> None:
    with pytest.raises(LeaseLost):
        write(guard=LookingGuard(store, refuse_from=2))
    assert files(store) == RECORDS


def test_nothing_of_another_worker_is_replaced_by_one_that_has_lost_its_lease(
    write: Write, store: Storage, pairs: list[PathPair]
) -> None:
    theirs = write(attempt=2)
    for refuse_from in (2, 3, 4, 5):
        with pytest.raises(LeaseLost):
            write(attempt=1, guard=LookingGuard(store, refuse_from=refuse_from))
        assert read_receipt(store, make_job(*pairs)[0], "train-00000-of-00001") == theirs


@pytest.mark.parametrize(("at", "error"), [("advance 2", StopRequested), ("before_publish", LeaseLost)])
def test_work_that_is_stopped_leaves_no_file(write: Write, store: Storage, at: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        write(guard=RecordingGuard(at, error))
    assert files(store) == []


def test_outcomes_may_be_made_elsewhere(tmp_path: Path, write: Write, pairs: list[PathPair]) -> None:
    """The seam for the isolated child: the same outcomes give the same receipt."""
    recipe = recipe_of(make_job(*pairs)[0], tmp_path)
    made = {pair.image: prepare_example(pair, recipe=recipe) for pair in pairs}
    assert write(prepare=lambda pair: made[pair.image]) == write()
    assert sum(isinstance(outcome, PreparedExample) for outcome in made.values()) == 3


def test_dry_job_writes_only_its_receipt(tmp_path: Path, store: Storage, pairs: list[PathPair]) -> None:
    job, task = make_job(*pairs, dry=True)
    receipt = write_shard(task, job, storage=store, data_root=tmp_path, guard=Unguarded(), attempt=1)
    assert files(store) == ["train-00000-of-00001.json"]
    assert (receipt.size_bytes, receipt.sha256, receipt.annotations_sha256) == (None, None, None)
    assert (receipt.written, receipt.quarantined, receipt.counters["box_clipped"]) == (3, 2, 1)


def test_a_dry_job_whose_lease_is_lost_leaves_no_receipt(tmp_path: Path, store: Storage, pairs: list[PathPair]) -> None:
    job, task = make_job(*pairs, dry=True)
    with pytest.raises(LeaseLost):
        write_shard(task, job, storage=store, data_root=tmp_path, guard=LookingGuard(store, refuse_from=1), attempt=1)
    assert files(store) == []


def test_no_two_annotations_of_a_job_have_one_id_however_many_a_photo_has(tmp_path: Path, store: Storage) -> None:
    many = [(x, y, x + 1, y + 1) for x in range(100) for y in range(MAX_OBJECTS // 100)]
    pairs = [
        write_pair(tmp_path / "set", stem, encode(soft_picture(100, 100)), voc_xml(*boxes, size=(100, 100)))
        for stem, boxes in (("a", many), ("b", [(1, 1, 9, 9)]))
    ]
    job, task = make_job(*pairs)
    write_shard(task, job, storage=store, data_root=tmp_path, guard=Unguarded(), attempt=1)
    rows = json.loads(store.read("jobs/job/shards/train-00000-of-00001.coco.json"))["annotations"]
    assert len({row["id"] for row in rows}) == len(rows) == MAX_OBJECTS + 1


def test_empty_task_gives_an_empty_shard(tmp_path: Path, store: Storage) -> None:
    (tmp_path / "set").mkdir()
    job, task = make_job()
    receipt = write_shard(task, job, storage=store, data_root=tmp_path, guard=Unguarded(), attempt=1)
    assert (receipt.written, receipt.size_bytes) == (0, 0)
    check_shard(store, receipt, with_digest=True)


def test_absent_data_set_fails_the_shard(tmp_path: Path, write: Write, store: Storage) -> None:
    (tmp_path / "set").rename(tmp_path / "gone")
    with pytest.raises(StorageError, match="the folder of the data set is absent"):
        write()
    assert files(store) == []


def test_a_data_root_that_leads_to_another_set_fails_the_shard(tmp_path: Path, write: Write, store: Storage) -> None:
    photos = sorted(path for path in (tmp_path / "set").rglob("*") if path.is_file())
    for path in photos:
        path.rename(path.with_name(f"other-{path.name}"))
    told = (
        "set: none of the 5 pairs of this shard is there as it was submitted, such as .*: no such file any more; set "
    )
    with pytest.raises(StorageError, match=told):
        write()
    assert files(store) == []
    for path in (path for path in photos if path.stem == "a"):
        path.with_name(f"other-{path.name}").rename(path)
    receipt = write()
    assert (receipt.written, receipt.quarantined, receipt.counters["pair_changed"]) == (1, 4, 4)
