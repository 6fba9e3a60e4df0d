"""Copies of a bucket's shards, fetched from a real server: whole, shared, bounded, and never trusted blindly."""

import hashlib
import os
import shutil
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from shared.errors import ShardError, StorageError
from shared.jobs.manifest import Manifest
from shared.jobs.paths import JobPaths
from shared.storage import Storage
from tests.cluster import wait_until
from tests.object_server import ObjectServer, Trouble, Troubled, gateway_before
from tests.unit.trainer.data.test_examples import SIDE, write_job
from tests.unit.trainer.pictures import UNCHANGED, drawn_examples
from trainer.data.batches import batches_from_shards
from trainer.data.examples import check_shards, read_examples, shard_urls
from trainer.data.shard_cache import ShardCache, shard_cache
from trainer.settings import CacheFolder

SHARDS = 4
ALL = 10**9


def uploaded(server: ObjectServer, folder: Path, shards: int = SHARDS) -> tuple[Storage, Manifest]:
    """A job of so many shards in a new folder of the bucket, and its manifest."""
    local, manifest = write_job(folder / "written", drawn_examples(3 * shards), shards)
    storage = Storage(server.url(uuid.uuid4().hex))
    for key in local.walk("."):
        storage.write(key.removeprefix("./"), local.read(key))
    return storage, manifest


@pytest.fixture
def job(object_server: ObjectServer, tmp_path: Path) -> tuple[Storage, Manifest]:
    return uploaded(object_server, tmp_path)


def cache_of(storage: Storage, manifest: Manifest, folder: Path, most_bytes: int = ALL) -> ShardCache:
    cache = shard_cache(storage, manifest, CacheFolder(path=folder, most_bytes=most_bytes))
    assert cache is not None
    return cache


def test_a_buckets_shards_are_read_as_those_of_a_folder(job: tuple[Storage, Manifest], tmp_path: Path) -> None:
    storage, manifest = job
    check_shards(storage, manifest)
    local = Storage(str(tmp_path / "written"))
    assert shard_cache(local, manifest, CacheFolder(path=tmp_path / "unused", most_bytes=ALL)) is None
    assert not (tmp_path / "unused").exists()
    wanted = read_examples(shard_urls(local, manifest, ["train"]), SIDE)
    urls = shard_urls(storage, manifest, ["train"])
    cache = cache_of(storage, manifest, tmp_path / "cache")
    found = read_examples(urls, SIDE, cache=cache)
    np.testing.assert_array_equal(found.pictures, wanted.pictures)
    assert found.filenames == wanted.filenames
    storage.remove_tree("jobs")  # a copy is all that is needed from now on
    again = read_examples(urls, SIDE, cache=cache_of(storage, manifest, tmp_path / "cache"))
    np.testing.assert_array_equal(again.pictures, wanted.pictures)


@pytest.mark.parametrize("harm", ["flipped", "cut", "absent"])
def test_a_shard_that_differs_from_the_manifest_gets_no_name(
    job: tuple[Storage, Manifest], tmp_path: Path, harm: str
) -> None:
    storage, manifest = job
    hurt = manifest.splits["train"][2]
    key = f"{JobPaths('j').shards}/{hurt.file}"
    content = storage.read(key)
    harms: dict[str, Callable[[], None]] = {
        "flipped": lambda: storage.write(key, bytes([content[0] ^ 1]) + content[1:]),
        "cut": lambda: storage.write(key, content[:100]),
        "absent": lambda: storage.remove(key),
    }
    harms[harm]()
    cache = cache_of(storage, manifest, tmp_path / "cache")
    with pytest.raises(ShardError, match=hurt.file) as error:
        read_examples(shard_urls(storage, manifest, ["train"]), SIDE, cache=cache)
    assert "Traceback" not in str(error.value)
    assert cache.take_failure() is None, "it was told, and is no reason of what fails later"

    def others() -> list[str]:
        """What is neither a whole copy nor says which copies are in use."""
        names = (path.name for path in (tmp_path / "cache").iterdir())
        return [name for name in names if not name.endswith(".tfrecord") and not name.startswith(".in-use-")]

    # Other shards are fetched at the same time, and may still be on their way.
    wait_until(lambda: not others(), 30, "every fetch has ended")
    assert not (tmp_path / "cache" / f"{hurt.sha256}.tfrecord").exists()


def test_a_copy_whose_bytes_have_changed_is_fetched_again(job: tuple[Storage, Manifest], tmp_path: Path) -> None:
    storage, manifest = job
    urls = shard_urls(storage, manifest, ["train"])
    path = Path(cache_of(storage, manifest, tmp_path)(urls[0]))
    good = path.read_bytes()
    path.write_bytes(good[:-1] + b"x")
    assert Path(cache_of(storage, manifest, tmp_path)(urls[0])).read_bytes() == good


def test_the_copies_used_longest_ago_go_first_and_the_bucket_keeps_all(
    job: tuple[Storage, Manifest], tmp_path: Path
) -> None:
    storage, manifest = job
    before = storage.walk("jobs")
    urls = shard_urls(storage, manifest, ["train"])
    most = sum(shard.size_bytes for shard in manifest.splits["train"]) - 1
    copies = [Path(cache_of(storage, manifest, tmp_path, most)(url)) for url in urls[:3]]
    cache = cache_of(storage, manifest, tmp_path, most)  # another process: the first one's files are not in use
    for age_s, path in zip((3000, 2000, 1000), copies, strict=True):
        os.utime(path, (time.time() - age_s,) * 2)
    cache(urls[0])  # used just now
    cache(urls[3])
    assert [path.exists() for path in copies] == [True, False, True]
    assert storage.walk("jobs") == before
    assert Path(cache(urls[1])).exists()


def test_a_stream_goes_on_with_room_for_one_shard(object_server: ObjectServer, tmp_path: Path) -> None:
    """Far more shards than TensorFlow may be about to open: copies come and go while it reads, for two epochs."""
    storage, manifest = uploaded(object_server, tmp_path, shards=120)
    urls = shard_urls(storage, manifest, ["train"])
    stream: dict[str, object] = {"batch": 4, "image_size": SIDE, "recipe": UNCHANGED, "seed": 1}
    local = shard_urls(Storage(str(tmp_path / "written")), manifest, ["train"])
    wanted = [batch["rows"] for batch in batches_from_shards(local, **stream).take(180).as_numpy_iterator()]  # type: ignore[arg-type]
    cache = cache_of(storage, manifest, tmp_path / "cache", manifest.splits["train"][0].size_bytes)
    found = batches_from_shards(urls, **stream, cache=cache).take(180)  # type: ignore[arg-type]
    for rows, batch in zip(wanted, found.as_numpy_iterator(), strict=True):
        np.testing.assert_array_equal(batch["rows"], rows)
    assert len(list((tmp_path / "cache").glob("*.tfrecord"))) < 120


def test_two_trainers_share_a_folder(job: tuple[Storage, Manifest], tmp_path: Path) -> None:
    storage, manifest = job
    urls = shard_urls(storage, manifest, ["train"]) * 5
    caches = [cache_of(storage, manifest, tmp_path) for _ in range(2)]
    with ThreadPoolExecutor(8) as pool:
        paths = [set(pool.map(cache, urls)) for cache in caches]
    assert paths[0] == paths[1]
    copies = {path.name for path in tmp_path.glob("*.tfrecord")}
    assert copies == {f"{shard.sha256}.tfrecord" for shard in manifest.splits["train"]}
    # What one of them has handed out is not the other one's to remove.
    tight = cache_of(storage, manifest, tmp_path, 1)
    tight._make_room(1)
    assert {path.name for path in tmp_path.glob("*.tfrecord")} == copies


def test_copies_that_are_kept_at_once_take_no_more_than_the_room_there_is(
    job: tuple[Storage, Manifest], tmp_path: Path
) -> None:
    """Each of them needs room for itself, made by another copy's removal, in whatever thread or trainer it is."""
    threads, size, folder, taken = 8, 2 << 20, tmp_path / "cache", list[int]()
    caches = [cache_of(*job, folder, 2 * threads * size) for _ in range(threads)]

    def look() -> None:
        taken.append(sum(path.stat().st_size for path in folder.glob("*.tfrecord")))

    together = threading.Barrier(threads, action=look)

    def keep(number: int) -> None:
        for each_round in range(5):
            caches[number]._keep(folder / f"{each_round}-{number}.tfrecord", bytes(size))
            together.wait()

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(keep, range(threads)))
    assert taken == [min(rounds, 2) * threads * size for rounds in range(1, 6)]


def test_a_server_that_is_away_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = ObjectServer(tmp_path / "own")
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    server.start()
    try:
        storage, manifest = uploaded(server, tmp_path)
        urls = shard_urls(storage, manifest, ["train"])
        cache = cache_of(storage, manifest, tmp_path / "cache")
        server.kill()
        back = threading.Timer(1, server.start)
        back.start()
        assert Path(cache(urls[0])).is_file()
        back.join()
    finally:
        server.stop()


def test_a_folder_that_takes_no_copy_is_named(job: tuple[Storage, Manifest], tmp_path: Path) -> None:
    storage, manifest = job
    cache = cache_of(storage, manifest, tmp_path / "cache")
    shutil.rmtree(tmp_path / "cache")
    (tmp_path / "cache").write_bytes(b"")
    with pytest.raises(StorageError, match="cache"):
        cache(shard_urls(storage, manifest, ["train"])[0])


def test_a_byte_that_changes_on_the_way_is_found_and_the_shard_asked_for_again(
    object_server: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage, manifest = uploaded(object_server, tmp_path)
    trouble = Trouble(kind="flipped", methods=frozenset({"GET"}), part=".tfrecord")
    with gateway_before(object_server, Troubled, trouble=trouble) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        by_gateway = Storage(storage.root)
        cache = cache_of(by_gateway, manifest, tmp_path / "cache")
        for key in shard_urls(by_gateway, manifest, ["train"]):
            copy = Path(cache(key))
            assert hashlib.sha256(copy.read_bytes()).hexdigest() == copy.stem
    assert sum(trouble.times.values()) == SHARDS
