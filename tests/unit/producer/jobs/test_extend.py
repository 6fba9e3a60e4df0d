"""A job of a folder that has grown: most shards are those of the job before, old photos keep their split."""

from array import array
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer.jobs.extend import EarlierShard, extend_cut
from producer.jobs.plan import plan_job
from producer.jobs.sharding import cut_shards, least_shards
from shared.jobs.job import Job, ShardTask
from shared.jobs.paths import JobPaths
from shared.specs.data import JobSpec
from shared.storage import Storage
from tests.tiny import add_tiny_picture, make_tiny_voc
from tests.unit.producer.folders import lint
from tests.unit.producer.jobs.test_reuse import ask, shard_bytes, work

SPEC = JobSpec(image_size=32)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_tiny_voc(tmp_path / "voc", 160)


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage(str(tmp_path / "store"))


def splits_of(storage: Storage, job: Job) -> dict[str, str]:
    """The split of each picture, by its path."""
    lines = storage.lines(JobPaths(job.job).plan(job.incarnation))
    tasks = [ShardTask.model_validate_json(line) for line in lines]
    return {pair.image: task.split for task in tasks for pair in task.pairs}


def grow(folder: Path, first: int, last: int) -> None:
    for number in range(first, last):
        add_tiny_picture(folder, number)


def test_60_photos_more_than_160_leave_most_shards_as_they_are(storage: Storage, folder: Path) -> None:
    first = ask(folder, "first", storage, SPEC).job
    assert len(first.shards) == 10
    work(storage, first, folder)
    grow(folder, 160, 220)
    second = ask(folder, "second", storage, SPEC)
    assert second.reuse is not None
    assert len(second.job.shards) == 10
    assert second.reuse.shards >= 6  # of the 8 of train; val and test are one each
    assert second.reuse.reasons == ("photos were added, changed or removed",)
    assert len(work(storage, second.job, folder)) == 10 - second.reuse.shards
    before, after = splits_of(storage, first), splits_of(storage, second.job)
    assert len(after) == 220
    assert {image: after[image] for image in before} == before


def test_what_is_reused_is_what_a_worker_would_write(storage: Storage, folder: Path) -> None:
    work(storage, ask(folder, "first", storage, SPEC).job, folder)
    grow(folder, 160, 220)
    work(storage, ask(folder, "second", storage, SPEC).job, folder)
    borrowed = shard_bytes(storage, "second")
    shards = storage.local_path(JobPaths("second").shards)
    for path in shards.iterdir():
        path.unlink()
    work(storage, ask(folder, "second", storage, SPEC).job, folder)
    assert shard_bytes(storage, "second") == borrowed


def test_a_folder_that_grows_again_and_again_keeps_few_shards(storage: Storage, folder: Path) -> None:
    work(storage, ask(folder, "grown-0", storage, SPEC).job, folder)
    for times in range(1, 7):
        grow(folder, 120 + 40 * times, 160 + 40 * times)
        grown = ask(folder, f"grown-{times}", storage, SPEC)
        assert grown.reuse is not None
        assert grown.reuse.shards >= len(grown.job.shards) / 2
        assert len(grown.job.shards) <= 12
        work(storage, grown.job, folder)
    assert len(splits_of(storage, grown.job)) == 400


def test_the_same_submit_again_knows_the_extended_job(storage: Storage, folder: Path) -> None:
    ask(folder, "first", storage, SPEC)
    grow(folder, 160, 220)
    second = ask(folder, "second", storage, SPEC).job
    assert ask(folder, "second", storage, SPEC).outcome == "known"
    tasks = plan_job(lint(folder, split=(80, 10, 10), image_size=32), job="second", storage=storage)
    assert [len(task.pairs) for task in tasks] == [
        len(ShardTask.model_validate_json(line).pairs)
        for line in storage.lines(JobPaths("second").plan(second.incarnation))
    ]


@given(
    old=st.integers(1, 600),
    added=st.integers(0, 600),
    removed=st.integers(0, 300),
    limit=st.sampled_from([1, 3, 16, 64, 256]),
)
def test_every_picture_is_in_one_shard_and_no_shard_is_too_large(
    old: int, added: int, removed: int, limit: int
) -> None:
    images = [f"{number:05d}.jpg" for number in range(old + added)]
    before = cut_shards(images, range(old), split="train", limit=limit, seed=0)
    there = range(min(removed, old + added - 1), old + added)
    earlier = [
        EarlierShard(
            members=array("I", (index for index in shard if index in there)),
            is_intact=all(index in there for index in shard),
        )
        for shard in before
    ]
    fresh = cut_shards(images, there, split="train", limit=limit, seed=0)
    least = least_shards(len(there), split="train", limit=limit)
    cut = extend_cut(fresh, earlier, limit=limit, least=least)
    assert sorted(index for shard in cut for index in shard) == list(there)
    assert all(1 <= len(shard) <= limit for shard in cut)
    assert least <= len(cut) <= max(len(fresh), 2 * max(len(fresh), least))
