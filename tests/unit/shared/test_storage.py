"""Files appear whole or not at all, on a folder and on an object store."""

from pathlib import Path

import pytest

from shared.errors import StorageError
from shared.storage import TEMPORARY_MARK, Storage


@pytest.fixture(params=["folder", "object store"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    made = Storage(str(tmp_path) if request.param == "folder" else f"memory://{tmp_path.name}-{tmp_path.parent.name}")
    made.make_root()
    return made


def test_written_file_is_read_back_listed_and_removed(storage: Storage) -> None:
    storage.write("jobs/a/job.json", b"{}")
    assert storage.read("jobs/a/job.json") == b"{}"
    assert storage.size_or_none("jobs/a/job.json") == 2
    assert storage.list_names("jobs") == ["a"]
    storage.remove("jobs/a/job.json")
    storage.remove("jobs/a/job.json")
    assert not storage.exists("jobs/a/job.json")


def test_absent_file_is_none_and_absent_folder_is_empty(storage: Storage) -> None:
    assert storage.read_or_none("nothing") is None
    assert storage.size_or_none("nothing") is None
    assert storage.list_names("nothing") == []
    with pytest.raises(StorageError, match="nothing"):
        storage.read("nothing")


def test_file_is_created_once(storage: Storage) -> None:
    assert storage.create("jobs/a/job.json", b"first")
    assert not storage.create("jobs/a/job.json", b"second")
    assert storage.read("jobs/a/job.json") == b"first"


def test_lines_are_streamed_and_ranges_read(storage: Storage) -> None:
    storage.write_lines("plan.jsonl", (f"line {number}" for number in range(3)))
    assert list(storage.lines("plan.jsonl")) == [b"line 0", b"line 1", b"line 2"]
    assert storage.read_range("plan.jsonl", 7, 6) == b"line 1"


def test_removed_tree_is_gone(storage: Storage) -> None:
    storage.write("jobs/a/shards/x", b"x")
    storage.write("jobs/a/job.json", b"x")
    storage.remove_tree("jobs/a")
    storage.remove_tree("jobs/a")
    assert storage.list_names("jobs/a") == []


def test_half_written_file_is_neither_listed_nor_left(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))

    def broken() -> object:
        yield "one"
        raise ValueError("the source broke")

    with pytest.raises(ValueError, match="broke"):
        storage.write_lines("plan.jsonl", broken())  # type: ignore[arg-type]  # a generator of lines
    assert list(tmp_path.iterdir()) == []


def test_staged_file_shows_only_after_its_rename(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    staged = storage.stage("shards/a", b"x")
    assert TEMPORARY_MARK in staged.name
    assert storage.list_names("shards") == []
    storage.publish(staged, "shards/a")
    assert storage.list_names("shards") == ["a"]


def test_temporary_files_of_the_dead_are_removed(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    storage.stage("shards/a", b"x")
    storage.write("shards/b", b"x")
    storage.remove_temporaries("shards")
    storage.remove_temporaries("absent")
    assert [path.name for path in (tmp_path / "shards").iterdir()] == ["b"]


def test_store_that_is_not_there_is_not_made_by_a_write(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="not there"):
        Storage(str(tmp_path / "unmounted")).write("a", b"x")


def test_system_reason_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    with pytest.raises(StorageError, match=r"cannot write .*file/below: "):
        Storage(str(tmp_path)).write("file/below", b"x")
