"""What only a folder has: temporary files, rights, a mount that vanishes. `tests/queue/test_stores.py` has the rest."""

import errno
import fcntl
import os
import shutil
import stat
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from shared.errors import StorageError
from shared.storage import TEMPORARY_MARK, Storage


def test_half_written_file_is_neither_listed_nor_left(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))

    def broken() -> object:
        yield "one"
        raise ValueError("the source broke")

    with pytest.raises(ValueError, match="broke"):
        storage.write_lines("plan.jsonl", broken())  # type: ignore[arg-type]  # a generator of lines
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("deed", "named"), [("write", "replace"), ("create", "link")])
def test_a_file_is_on_disk_before_it_has_its_name_and_the_name_before_anybody_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deed: str, named: str
) -> None:
    """Otherwise a receipt could outlive a power cut that its shard does not."""
    done: list[str] = []

    def watch(name: str, told: Callable[[Any], str]) -> None:
        call = getattr(os, name)

        def watched(*given: Any) -> None:
            done.append(told(given[0]))
            call(*given)

        monkeypatch.setattr(os, name, watched)

    def synced(descriptor: int) -> str:
        status = os.fstat(descriptor)
        return "folder synced" if stat.S_ISDIR(status.st_mode) else f"{status.st_size} bytes synced"

    watch("fsync", synced)
    watch(named, lambda _: "named")
    getattr(Storage(str(tmp_path)), deed)("a", b"xyz")
    assert done == ["3 bytes synced", "named", "folder synced"]


def test_a_file_may_have_the_longest_name_that_there_is(tmp_path: Path) -> None:
    storage, name = Storage(str(tmp_path)), f"{'ü' * 125}a.xml"
    storage.write(f"proposals/{name}", b"x")
    storage.link(f"proposals/{name}", f"copies/{name}")
    assert storage.read(f"copies/{name}") == b"x"
    assert storage.list_names("proposals") == storage.list_names("copies") == [name]


def test_staged_files_that_are_not_published_are_removed(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    with storage.staged({"shards/a": b"x", "shards/b": b"y"}):
        assert [TEMPORARY_MARK in path.name for path in (tmp_path / "shards").iterdir()] == [True, True]
    assert list((tmp_path / "shards").iterdir()) == []


def test_staged_files_replace_a_link_that_leads_in_a_circle(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "a")
    with Storage(str(tmp_path)).staged({"a": b"x"}) as publish:
        publish(lambda: None)
    assert (tmp_path / "a").read_bytes() == b"x"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_temporary_files_of_the_dead_are_removed(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    storage.write("shards/b", b"x")
    (tmp_path / f"shards/a{TEMPORARY_MARK}host-1").write_bytes(b"half")
    (tmp_path / f"shards/c{TEMPORARY_MARK}host-1").mkdir()
    storage.remove_temporaries("shards")
    storage.remove_temporaries("absent")
    storage.remove_temporaries("shards/b")
    assert [path.name for path in (tmp_path / "shards").iterdir()] == ["b"]


def test_store_that_is_not_there_is_not_made_by_a_write(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="not there"):
        Storage(str(tmp_path / "unmounted")).write("a", b"x")


def test_system_reason_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    with pytest.raises(StorageError, match=r"cannot write .*file/below: "):
        Storage(str(tmp_path)).write("file/below", b"x")


def test_a_full_disk_is_told_with_what_to_do(tmp_path: Path) -> None:
    def full() -> Iterator[str]:
        yield "x"
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(StorageError, match=r"No space left on device; make room, then do the same again$"):
        Storage(str(tmp_path)).write_lines("file", full())
    assert list(tmp_path.iterdir()) == []


def _is_groups(path: Path) -> bool:
    """Whether its group may write it."""
    return bool(path.stat().st_mode & stat.S_IWGRP)


def test_shared_folder_and_its_files_are_the_groups_where_the_store_says_so(tmp_path: Path) -> None:
    storage, shards = Storage(str(tmp_path)), tmp_path / "jobs/a/shards"
    (tmp_path / "jobs").mkdir(mode=0o755)
    (tmp_path / "jobs").chmod(0o2755)
    storage.write("jobs/a/plan.jsonl", b"x")
    storage.make_shared_folder("jobs/a/shards")
    before = os.umask(0o077)
    try:
        storage.write("jobs/a/shards/x", b"x")
        storage.write_lines("jobs/a/shards/y", ["y"])
        storage.create("jobs/a/shards/z", b"z")
    finally:
        os.umask(before)
    storage.write("jobs/a/job.json", b"{}")
    assert stat.S_IMODE(shards.stat().st_mode) == 0o2775
    assert [stat.S_IMODE((shards / name).stat().st_mode) for name in "xyz"] == [0o660] * 3
    assert not any(_is_groups(tmp_path / key) for key in ("jobs", "jobs/a", "jobs/a/plan.jsonl", "jobs/a/job.json"))


def test_shared_folder_of_a_job_begun_before_is_the_groups_too(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    storage.write("jobs/a/plan.jsonl", b"x")
    (tmp_path / "jobs/a/shards").mkdir()
    (tmp_path / "jobs").chmod(0o2755)
    storage.make_shared_folder("jobs/a/shards")
    storage.make_shared_folder("jobs/a/shards")
    assert stat.S_IMODE((tmp_path / "jobs/a/shards").stat().st_mode) == 0o2775


def test_shared_folder_gives_nobody_a_right_elsewhere(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    storage.write("jobs/a/plan.jsonl", b"x")
    storage.make_shared_folder("jobs/a/shards")
    storage.write("jobs/a/shards/x", b"x")
    assert stat.S_IMODE((tmp_path / "jobs/a/shards").stat().st_mode) == stat.S_IMODE((tmp_path / "jobs").stat().st_mode)
    assert not _is_groups(tmp_path / "jobs/a/shards/x")


def test_shared_folder_is_not_made_where_the_store_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="not there"):
        Storage(str(tmp_path / "unmounted")).make_shared_folder("jobs/a/shards")


def test_a_file_system_without_links_is_named_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:  # as Linux does on exFAT
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", refuse)
    storage = Storage(str(tmp_path / "store"))
    storage.make_root()
    with pytest.raises(StorageError, match=r"store/jobs/a: expected a file system with hard links .*found one without"):
        storage.create("jobs/a/job.json", b"{}")
    assert storage.list_names("jobs/a") == []


@pytest.mark.parametrize("number", [errno.EPERM, errno.EMLINK, errno.EXDEV, errno.ENOTSUP])
def test_a_file_that_cannot_be_linked_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def refuse(*_: object) -> None:  # another user's file, too many names, another disk, a share without links
        raise OSError(number, os.strerror(number))

    storage = Storage(str(tmp_path))
    storage.write("a", b"x")
    monkeypatch.setattr(os, "link", refuse)
    storage.link("a", "copies/b")
    assert storage.read("copies/b") == b"x"
    assert storage.list_names("copies") == os.listdir(tmp_path / "copies") == ["b"]


def test_a_store_stays_where_it_was_when_the_process_goes_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    roots = {Storage(root).root for root in ("out", "./out", "~/out", f"file://{tmp_path}/out", f"{tmp_path}/out")}
    assert roots == {str(tmp_path / "out")}


def test_a_file_in_place_of_the_store_is_named(tmp_path: Path) -> None:
    (tmp_path / "out").write_bytes(b"x")
    with pytest.raises(StorageError, match=r"out: expected a folder for the store, found a file$"):
        Storage(str(tmp_path / "out"))


def test_only_files_are_listed_and_what_is_half_written_is_none(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    storage.write("shards/a", b"x")
    (tmp_path / f"shards/b{TEMPORARY_MARK}host-1").write_bytes(b"half")
    (tmp_path / "shards/folder").mkdir()
    (tmp_path / "shards/loop").symlink_to(tmp_path / "shards/loop")
    (tmp_path / "shards/link").symlink_to(tmp_path / "shards/a")
    assert storage.list_names("shards") == ["a", "folder", "link", "loop"]
    assert storage.list_stamps("shards").keys() == {"a"}
    assert storage.walk("shards").keys() == {"shards/a", f"shards/b{TEMPORARY_MARK}host-1"}
    for key in ("shards/folder", "shards/loop", "shards/a/below"):
        assert storage.read_or_none(key) is None
        assert storage.stamp_or_none(key) is None
    assert storage.list_names("shards/a") == []
    assert storage.list_stamps("shards/a") == {}
    assert not storage.is_locked("shards/a/below")
    storage.remove_tree("shards/a/below")


def test_a_file_that_vanishes_while_a_folder_is_listed_counts_as_absent(tmp_path: Path) -> None:
    storage, ended = Storage(str(tmp_path)), threading.Event()
    names = [f"shards/{number}" for number in range(20)]

    def come_and_go() -> None:
        while not ended.is_set():
            for deed in (lambda name: (tmp_path / name).touch(), storage.remove):
                for name in names:
                    deed(name)

    storage.write("shards/stays", b"x")
    other = threading.Thread(target=come_and_go)
    other.start()
    try:
        for _ in range(300):
            assert "stays" in storage.list_stamps("shards")
            assert "shards/stays" in storage.walk("")
    finally:
        ended.set()
        other.join()


def test_a_file_that_is_there_and_cannot_be_read_is_an_error_and_not_absent(tmp_path: Path) -> None:
    (tmp_path / "broken").symlink_to("/proc/self/mem")  # its read fails with EIO, as a broken disk's does
    with pytest.raises(StorageError, match=r"cannot read .*broken: Input/output error$"):
        Storage(str(tmp_path)).read_or_none("broken")


def test_a_file_has_another_stamp_after_each_write_of_the_same_bytes(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    stamps = []
    for _ in range(5):
        storage.write("a", b"x")
        os.utime(tmp_path / "a", ns=(0, 0))  # a clock as coarse as can be: the inode alone tells them apart
        stamps.append(storage.stamp_or_none("a"))
    assert all(before != after for before, after in pairwise(stamps))
    os.utime(tmp_path / "a", ns=(0, 1))  # and a file that was written into has the same inode
    assert storage.stamp_or_none("a") != stamps[-1]


def test_a_mark_tells_of_the_folder_and_of_those_inside_it(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    storage.write("jobs/a/shards/x", b"x")
    marks = [storage.marks_of("jobs", ["a", "none"], "shards")]
    for folder in ("jobs/a/shards", "jobs/a"):
        os.utime(tmp_path / folder, ns=(0, 7))
        marks.append(storage.marks_of("jobs", ["a", "none"], "shards"))
    assert len({mark["a"] for mark in marks}) == 3
    assert [mark["none"] for mark in marks] == [None] * 3


def test_a_tree_that_is_being_removed_is_at_once_no_longer_there_under_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = Storage(str(tmp_path))
    storage.write("jobs/a/job.json", b"x")
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / "jobs/a/link").symlink_to(outside)

    def killed(path: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            storage.remove_tree("jobs/a")
    assert storage.list_names("jobs") == []
    (aside,) = os.listdir(tmp_path / "jobs")
    assert TEMPORARY_MARK in aside
    storage.remove_temporaries("jobs")
    assert os.listdir(tmp_path / "jobs") == []
    assert outside.is_dir()


def test_a_link_to_a_folder_is_removed_and_not_what_it_leads_to(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path / "store"))
    storage.make_root()
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos/a.jpg").write_bytes(b"x")
    (tmp_path / "store/jobs").symlink_to(tmp_path / "photos")
    storage.remove_tree("jobs")
    assert not (tmp_path / "store/jobs").is_symlink()
    assert (tmp_path / "photos/a.jpg").exists()


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.EROFS, "; make it writable, or name another store"),
        (errno.EACCES, "; give this user the right to write there, or name another store"),
        (errno.EIO, ""),
    ],
)
def test_a_store_that_cannot_be_written_is_told_with_what_to_do(tmp_path: Path, number: int, remedy: str) -> None:
    def broken() -> Iterator[str]:
        yield "x"
        raise OSError(number, os.strerror(number))

    with pytest.raises(StorageError, match=f"cannot write .*/file: {os.strerror(number)}{remedy}$"):
        Storage(str(tmp_path)).write_lines("file", broken())


def test_whoever_looks_at_a_lock_neither_holds_it_nor_keeps_it_from_being_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = Storage(str(tmp_path))
    with (tmp_path / "lock").open("w") as looker:
        fcntl.flock(looker, fcntl.LOCK_SH)  # as `is_locked` does for a moment
        assert not storage.is_locked("lock")
        monkeypatch.setattr(time, "sleep", lambda _: fcntl.flock(looker, fcntl.LOCK_UN))
        with storage.locked("lock") as is_ours:
            assert is_ours is not None


def test_a_file_system_without_locks_is_told_to_whoever_needs_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:  # as a network share may
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    storage = Storage(str(tmp_path))
    told = r"cannot lock .*lock: No locks available; --local needs a store on a file system with locks$"
    with pytest.raises(StorageError, match=told), storage.locked("lock"):
        pass
    assert not storage.is_locked("lock")
