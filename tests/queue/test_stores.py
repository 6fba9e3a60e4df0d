"""The contract of a store, on a folder and on the bucket of a real S3 server."""

import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from shared.errors import StorageError
from shared.storage import Storage
from shared.storage.object_lock import ObjectLocks
from shared.storage.objects import ObjectStorage
from tests.cluster import REPOSITORY
from tests.object_server import ObjectServer

RACERS, ROUNDS = 8, 20
# More than a page of a listing has.
MANY = 2300


@pytest.fixture
def storage(store_root: str) -> Storage:
    made = Storage(store_root)
    made.make_root()
    return made


@pytest.fixture
def objects(object_server: ObjectServer) -> ObjectStorage:
    return ObjectStorage(object_server.url(uuid.uuid4().hex))


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
    assert storage.list_stamps("nothing") == {}
    assert storage.walk("nothing") == {}
    for read in (storage.read, storage.written_at, lambda key: list(storage.lines(key))):
        with pytest.raises(StorageError, match=r"nothing: [Nn]o such"):
            read("nothing")


def test_file_is_created_once(storage: Storage) -> None:
    assert storage.create("jobs/a/job.json", b"first")
    assert not storage.create("jobs/a/job.json", b"second")
    assert storage.read("jobs/a/job.json") == b"first"


RACER = """
import sys
from shared.storage import Storage
storage, racer = Storage(sys.argv[1]), sys.argv[2]
print("ready", flush=True)
for line in sys.stdin:
    print(int(storage.create(f"race/{line.strip()}", racer.encode())), flush=True)
"""


@contextmanager
def racing(program: str, root: str) -> Iterator[Callable[[str], list[str]]]:
    """Processes of `program` that are asked all at once; what each has answered, in their order."""
    command = [sys.executable, "-c", program, root]
    racers = [
        subprocess.Popen(
            [*command, str(number)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1, cwd=REPOSITORY
        )
        for number in range(RACERS)
    ]

    def ask(line: str) -> list[str]:
        for racer in racers:
            assert racer.stdin is not None
            racer.stdin.write(f"{line}\n")
        return [racer.stdout.readline().strip() for racer in racers if racer.stdout is not None]

    try:
        for racer in racers:
            assert racer.stdout is not None
            assert racer.stdout.readline() == "ready\n"
        yield ask
    finally:
        for racer in racers:
            racer.kill()
            racer.communicate()


def test_of_eight_processes_that_create_one_file_exactly_one_wins(store_root: str, storage: Storage) -> None:
    with racing(RACER, store_root) as ask:
        for each_round in range(ROUNDS):
            told = ask(str(each_round))
            assert sorted(told) == ["0"] * (RACERS - 1) + ["1"]
            assert storage.read(f"race/{each_round}") == str(told.index("1")).encode()


@pytest.mark.parametrize("megabytes", [0, 1, 40])
def test_lines_whose_source_breaks_leave_nothing(storage: Storage, megabytes: int) -> None:
    def broken() -> Iterator[str]:
        for _ in range(megabytes):
            yield "x" * 1_000_000
        raise ValueError("the source broke")

    with pytest.raises(ValueError, match="broke"):
        storage.write_lines("plan.jsonl", broken())
    assert storage.list_names("") == []
    storage.write_lines("plan.jsonl", ["old"])
    with pytest.raises(ValueError, match="broke"):
        storage.write_lines("plan.jsonl", broken())
    assert storage.read("plan.jsonl") == b"old\n"


@pytest.mark.parametrize("count", [0, 3, 300_000])
def test_lines_are_streamed(storage: Storage, count: int) -> None:
    storage.write_lines("plan.jsonl", (f"line {number} ü\r" + "x" * (number % 90) for number in range(count)))
    lines = storage.lines("plan.jsonl")
    for number in range(count):
        assert next(lines) == f"line {number} ü\r".encode() + b"x" * (number % 90)
    assert next(lines, None) is None
    storage.write("plan.jsonl", b"a\n\nb")
    assert list(storage.lines("plan.jsonl")) == [b"a", b"", b"b"]


def test_ranges_are_read_up_to_the_end(storage: Storage) -> None:
    storage.write("plan.jsonl", b"line 0\nline 1\nline 2\n")
    assert storage.read_range("plan.jsonl", 7, 6) == b"line 1"
    assert storage.read_range("plan.jsonl", 14, 100) == b"line 2\n"
    assert storage.read_range("plan.jsonl", 100, 5) == b""
    storage.write("empty", b"")
    assert storage.read_range("empty", 0, 5) == b""
    assert storage.read("empty") == b""


def test_a_large_file_is_read_back(storage: Storage) -> None:
    content = bytes(range(256)) * 100_000
    storage.write("shard", content)
    assert storage.read("shard") == content


def test_staged_files_show_only_when_they_are_published(storage: Storage) -> None:
    with storage.staged({"shards/a": b"x", "shards/b": b"y"}) as publish:
        assert storage.list_names("shards") == []
        publish()
        assert storage.list_names("shards") == ["a", "b"]
    assert storage.read("shards/b") == b"y"


def test_what_was_begun_gives_its_result_or_its_error(storage: Storage) -> None:
    storage.write("there", b"1")
    there, absent = (storage.begin(partial(storage.read, key)) for key in ("there", "absent"))
    with pytest.raises(StorageError, match=r"absent: [Nn]o such"):
        absent()
    assert there() == b"1"


def test_in_a_bucket_what_was_begun_goes_on_beside_the_next_request(objects: ObjectStorage) -> None:
    # Each of the two waits until the other one is there too.
    meet = threading.Barrier(2)
    results = [objects.begin(partial(meet.wait, timeout=20)) for _ in range(2)]
    assert sorted(result() for result in results) == [0, 1]


def test_staged_files_reach_a_bucket_side_by_side_and_an_error_of_one_is_raised(
    object_server: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage, meet, write = Storage(object_server.url(uuid.uuid4().hex)), threading.Barrier(2), ObjectStorage.write

    def write_with_another(self: ObjectStorage, key: str, chunks: Iterable[bytes]) -> None:
        meet.wait(timeout=20)
        if key == "a":
            raise OSError("no room")
        time.sleep(0.2)
        write(self, key, chunks)

    monkeypatch.setattr(ObjectStorage, "write", write_with_another)
    with (
        pytest.raises(StorageError, match=r"cannot write .*/a: no room"),
        storage.staged({"a": b"1", "b": b"2"}) as publish,
    ):
        publish()
    # It had come to its end before the error was told.
    assert storage.read("b") == b"2"


def test_a_linked_file_is_read_under_both_names_and_stays_when_one_is_replaced(storage: Storage) -> None:
    storage.write("a", b"x")
    storage.link("a", "b")
    storage.link("a", "b")
    storage.write("a", b"y")
    assert (storage.read("a"), storage.read("b")) == (b"y", b"x")
    with pytest.raises(StorageError, match=r"cannot copy absent to .*/c: "):
        storage.link("absent", "c")
    assert storage.list_names("") == ["a", "b"]


def test_a_replaced_file_has_another_stamp(storage: Storage) -> None:
    storage.write("shards/a", b"x")
    looked_at, listed = storage.stamp_or_none("shards/a"), storage.list_stamps("shards")
    assert listed == {"a": looked_at}
    assert storage.walk("") == {"shards/a": looked_at}
    assert listed["a"].size_bytes == 1
    storage.write("shards/a", b"y")
    assert storage.stamp_or_none("shards/a") not in (None, looked_at)
    assert storage.list_stamps("shards") != listed


def test_a_file_was_written_now(storage: Storage) -> None:
    storage.write("a", b"x")
    assert abs(storage.written_at("a") - time.time()) < 5


def test_removed_tree_is_gone_and_its_neighbour_stays(storage: Storage) -> None:
    for key in ("jobs/a/shards/x", "jobs/a/job.json", "jobs/ab/job.json"):
        storage.write(key, b"x")
    assert storage.has_files("jobs/a")
    storage.remove_tree("jobs/a")
    storage.remove_tree("jobs/a")
    assert not storage.has_files("jobs/a")
    assert storage.walk("jobs/a") == storage.list_stamps("jobs/a") == {}
    assert list(storage.walk("jobs")) == ["jobs/ab/job.json"]


def test_a_listing_has_more_names_than_a_page_and_all_can_be_removed(storage: Storage) -> None:
    names = [f"{number:06d}.json" for number in range(MANY)]
    for name in names:
        storage.create(f"shards/{name}", b"")
    assert storage.list_names("shards") == names
    assert list(storage.list_stamps("shards")) == names
    assert len(storage.walk("")) == MANY
    storage.remove_tree("shards")
    assert storage.list_names("shards") == []


def test_a_listing_sees_what_another_process_has_written_and_removed(store_root: str, storage: Storage) -> None:
    def elsewhere(code: str) -> None:
        command = [
            sys.executable,
            "-c",
            f"import sys; from shared.storage import Storage; s = Storage(sys.argv[1]); {code}",
        ]
        subprocess.run([*command, store_root], check=True, cwd=REPOSITORY)

    storage.write("shards/a", b"x")
    assert storage.list_names("shards") == ["a"]
    elsewhere("s.remove('shards/a'); s.write('shards/b', b'y')")
    assert storage.list_names("shards") == list(storage.list_stamps("shards")) == ["b"]
    assert not storage.exists("shards/a")
    assert storage.read("shards/b") == b"y"


def test_a_lock_is_one_process_s_until_it_leaves_it(store_root: str, storage: Storage) -> None:
    other = Storage(store_root)
    storage.write("jobs/a/job.json", b"x")
    assert not storage.is_locked("jobs/a/local.lock")
    for _ in range(2):
        with storage.locked("jobs/a/local.lock") as is_ours:
            assert is_ours is not None
            assert is_ours()
            assert storage.is_locked("jobs/a/local.lock")
            assert other.is_locked("jobs/a/local.lock")
            with other.locked("jobs/a/local.lock") as is_theirs:
                assert is_theirs is None
            assert is_ours()
        assert not other.is_locked("jobs/a/local.lock")


HOLDER = """
import sys, time
from shared.storage import Storage
with Storage(sys.argv[1]).locked("jobs/a/local.lock") as is_ours:
    print(is_ours is not None, flush=True)
    time.sleep(100)
"""


@pytest.mark.timeout(120)
def test_the_lock_of_a_killed_process_is_taken_over(store_root: str, storage: Storage) -> None:
    storage.write("jobs/a/job.json", b"x")
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, store_root], stdout=subprocess.PIPE, cwd=REPOSITORY)
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"True\n"
    with storage.locked("jobs/a/local.lock") as is_ours:
        assert is_ours is None
    holder.kill()
    holder.communicate()
    with storage.locked("jobs/a/local.lock") as is_ours:
        assert is_ours is not None


def test_who_looks_at_a_lock_tells_a_holder_that_beats_from_one_that_died(objects: ObjectStorage) -> None:
    looker = ObjectLocks(objects, dead_s=1.0)
    with ObjectLocks(objects, beat_s=0.1).held("lock") as is_ours:
        assert is_ours is not None
        for _ in range(15):
            assert looker.is_held("lock")
            time.sleep(0.2)
    assert not looker.is_held("lock")
    assert objects.swap("dead", b"its holder was killed", None)
    assert looker.is_held("dead")
    time.sleep(1.1)
    assert not looker.is_held("dead")


def test_of_those_who_take_over_a_dead_lock_one_wins_and_the_old_holder_notices(objects: ObjectStorage) -> None:
    """A holder that stood still: its beats come too late for those who wait."""
    stood_still = ObjectLocks(objects, beat_s=2.5)
    got: list[bool] = []

    def take() -> None:
        with ObjectLocks(objects, beat_s=0.1, dead_s=1.0).held("lock") as is_ours:
            got.append(is_ours is not None)
            time.sleep(2 if is_ours else 0)

    with stood_still.held("lock") as is_ours:
        assert is_ours is not None
        racers = [threading.Thread(target=take) for _ in range(4)]
        for racer in racers:
            racer.start()
        for racer in racers:
            racer.join()
        assert sorted(got) == [False, False, False, True]
        deadline = time.monotonic() + 5
        while is_ours() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not is_ours()
    assert objects.find("lock") is not None


def test_a_version_is_swapped_once(objects: ObjectStorage) -> None:
    first = objects.swap("lock", b"1", None)
    assert first is not None
    assert objects.swap("lock", b"2", None) is None
    second = objects.swap("lock", b"3", first)
    assert second is not None
    assert objects.swap("lock", b"4", first) is None
    found = objects.find("lock")
    assert found is not None
    assert (found.content, found.version) == (b"3", second)
    objects.remove("lock")
    assert objects.swap("lock", b"5", second) is None
    assert objects.find("lock") is None


SWAPPER = """
import sys
from shared.storage.objects import ObjectStorage
objects, racer = ObjectStorage(sys.argv[1]), sys.argv[2]
print("ready", flush=True)
for line in sys.stdin:
    number, etag = line.split()
    print(int(objects.swap("lock", f"{racer} {number}".encode(), {"e_tag": etag}) is not None), flush=True)
"""


def test_of_eight_processes_that_replace_one_version_exactly_one_wins(objects: ObjectStorage) -> None:
    """No two of them write the same bytes: these would be one version."""
    with racing(SWAPPER, objects.root) as ask:
        for number in range(ROUNDS // 2):
            seen = objects.find("lock")
            version = seen.version if seen is not None else objects.swap("lock", b"", None)
            assert version is not None
            told = ask(f"{number} {version['e_tag']}")
            assert sorted(told) == ["0"] * (RACERS - 1) + ["1"]
            found = objects.find("lock")
            assert found is not None
            assert found.content == f"{told.index('1')} {number}".encode()


def test_a_server_that_is_away_is_a_storage_error_and_back_again_none(
    tmp_path: Path, object_server: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = ObjectServer(tmp_path)
    for name, value in own.environment.items():
        monkeypatch.setenv(name, value)
    own.start()
    try:
        storage = Storage(own.url("store"))
        storage.write("jobs/a", b"kept")
        own.kill()
        started = time.monotonic()
        with pytest.raises(StorageError, match=r"^cannot read s3://\S+: [^\n]+$"):
            storage.read_or_none("jobs/a")
        with pytest.raises(StorageError, match=r"^cannot list s3://\S+: [^\n]+$"):
            storage.list_names("jobs")
        assert time.monotonic() - started < 60
        own.start()
        assert storage.read("jobs/a") == b"kept"
        assert storage.create("jobs/b", b"x")
        assert storage.list_names("jobs") == ["a", "b"]
    finally:
        own.stop()


def test_wrong_keys_are_a_storage_error_that_does_not_tell_them(
    object_server: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not-the-secret")
    storage = Storage(object_server.url("x"))
    with pytest.raises(StorageError, match=r"^cannot write s3://\S+/x/a: \S[^\n]+$") as refused:
        storage.write("a", b"x")
    assert "secret" not in str(refused.value).lower().replace("secretaccesskey", "")
