import json
from array import array
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from producer.dataset.lint import LintedFolder, lint_folder
from producer.jobs.plan import PlanLines, ShardTasks, dataset_digest, plan_job
from producer.jobs.sharding import SOURCE_IDS, cut_shards, number_sources
from shared.errors import LintError
from shared.jobs.job import ShardTask
from shared.specs.data import JobSpec
from tests.unit.producer.folders import voc_xml, write, write_pair

ALL_TRAIN = (100, 0, 0)


def make_set(root: Path, count: int) -> Path:
    for index in range(count):
        write_pair(root, f"JPEGImages/{index:04d}.jpg", f"Annotations/{index:04d}.xml")
    return root


def usable(root: Path, **spec: object) -> LintedFolder:
    linted = lint_folder(root, spec=JobSpec.model_validate(spec))
    linted.require_usable()
    return linted


def plan(root: Path, **spec: object) -> ShardTasks:
    return plan_job(usable(root, **spec), job="job")


def digest(root: Path, **spec: object) -> str:
    return dataset_digest(usable(root, **spec))


def test_every_pair_is_in_exactly_one_shard(tmp_path: Path) -> None:
    linted = usable(make_set(tmp_path, 150), shard_images=32)
    tasks = plan_job(linted, job="job")
    planned_pairs = [pair for task in tasks for pair in task.pairs]
    assert sorted(pair.image for pair in planned_pairs) == [f"JPEGImages/{index:04d}.jpg" for index in range(150)]
    assert all(Path(str(pair.annotation)).stem == Path(pair.image).stem for pair in planned_pairs)
    assert len({pair.source_id for pair in planned_pairs}) == 150
    assert Counter(task.split for task in tasks for _ in task.pairs) == {
        split: linted.counts[split] for split in ("train", "val", "test")
    }


def test_tasks_come_in_the_order_of_the_plan_each_time(tmp_path: Path) -> None:
    tasks = plan(make_set(tmp_path, 60), shard_images=8)
    names = [task.shard for task in tasks]
    assert names == sorted(names, key=lambda name: (["train", "val", "test"].index(name.split("-")[0]), name))
    assert [task.shard for task in tasks] == names
    assert len(tasks) == len(names)


def test_plan_lines_are_the_messages_and_give_their_digests(tmp_path: Path) -> None:
    tasks = plan(make_set(tmp_path, 40), shard_images=8)
    lines = PlanLines(tasks)
    texts = list(lines)
    assert [ShardTask.model_validate_json(text) for text in texts] == list(tasks)
    assert lines.digests == [task.digest() for task in tasks]
    plans = tasks.split_plans(lines.digests)
    assert sum(split.pairs for split in plans.values()) == 40
    assert [digest for split in plans.values() for digest in split.digests] == lines.digests


def test_the_same_folder_gives_the_same_plan(tmp_path: Path) -> None:
    one, other = make_set(tmp_path / "one", 30), make_set(tmp_path / "other", 30)
    assert list(PlanLines(plan(one))) == list(PlanLines(plan(other)))
    assert digest(one) == digest(other)


def changed_shards(before: ShardTasks, after: ShardTasks) -> set[str]:
    old = {task.shard: task.digest() for task in before}
    return {task.shard for task in after if old.get(task.shard) != task.digest()}


def test_an_added_picture_changes_its_own_shard_only(tmp_path: Path) -> None:
    before = plan(make_set(tmp_path, 300), split=ALL_TRAIN)
    assert len(before) == 8
    write_pair(tmp_path, "JPEGImages/0077b.jpg", "Annotations/0077b.xml")
    assert len(changed_shards(before, plan(tmp_path, split=ALL_TRAIN))) == 1


@pytest.mark.parametrize("path", ["JPEGImages/0003.jpg", "Annotations/0003.xml"])
def test_a_changed_file_changes_its_shard_and_the_fingerprint(tmp_path: Path, path: str) -> None:
    before = plan(make_set(tmp_path, 200), split=ALL_TRAIN)
    digest_before = digest(tmp_path, split=ALL_TRAIN)
    write(tmp_path, path, voc_xml([("cat", 1, 2, 3, 4)]))
    assert len(changed_shards(before, plan(tmp_path, split=ALL_TRAIN))) == 1
    assert digest_before != digest(tmp_path, split=ALL_TRAIN)


def test_the_fingerprint_sees_size_head_and_tail_of_a_picture(tmp_path: Path) -> None:
    make_set(tmp_path, 3)
    seen = set()
    for content in (b"a" * 20_000, b"a" * 20_001, b"b" + b"a" * 19_999, b"a" * 19_999 + b"b"):
        write(tmp_path, "JPEGImages/0001.jpg", content)
        seen.add(digest(tmp_path, split=ALL_TRAIN))
    assert len(seen) == 4


def test_a_training_split_of_128_has_8_shards(tmp_path: Path) -> None:
    assert len(plan(make_set(tmp_path, 128), split=ALL_TRAIN)) == 8
    (tmp_path / "Annotations/0000.xml").unlink()
    assert len(plan(tmp_path, split=ALL_TRAIN)) == 1


def test_nothing_is_planned_of_a_set_that_lint_refuses(tmp_path: Path) -> None:
    write_pair(tmp_path, "JPEGImages/dog.jpg", "Annotations/dog.xml", voc_xml([("dog", 1, 1, 9, 9)]))
    with pytest.raises(LintError, match=r"class_unknown: class 'cat' is not in --classes"):
        plan(make_set(tmp_path, 3), classes=["dog"])


def test_more_shards_than_a_job_can_have_is_refused() -> None:
    with pytest.raises(LintError, match="100001 pictures at 1 a shard"):
        cut_shards([f"{index}.jpg" for index in range(100_001)], range(100_001), split="train", limit=1, seed=0)


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 700), st.integers(1, 300), st.integers(0, 1000), st.sampled_from(["train", "val"]))
def test_shards_hold_each_picture_once_and_at_most_the_limit(count: int, limit: int, seed: int, split: str) -> None:
    images = [f"{index}.jpg" for index in range(count)]
    shards = cut_shards(images, range(count), split=split, limit=limit, seed=seed)  # type: ignore[arg-type]
    assert sorted(index for shard in shards for index in shard) == list(range(count))
    assert all(1 <= len(shard) <= limit for shard in shards)
    least = max(-(-count // limit), 8 if split == "train" and count >= 128 else 1)
    assert least <= len(shards) <= 2 * least


def test_an_empty_split_has_no_shards() -> None:
    assert cut_shards([], [], split="val", limit=256, seed=0) == []


def test_source_ids_are_unique_and_exact_as_float32() -> None:
    numbers = number_sources(f"{index:06d}.jpg" for index in range(60_000))
    assert len(set(numbers)) == 60_000
    assert min(numbers) >= 1
    assert max(numbers) <= SOURCE_IDS
    assert array("I", map(int, array("f", numbers))) == numbers


def test_an_added_picture_renumbers_almost_no_other() -> None:
    images = [f"{index:06d}.jpg" for index in range(60_000)]
    before = dict(zip(images, number_sources(images), strict=True))
    added = sorted([*images, "012345b.jpg"])
    after = dict(zip(added, number_sources(added), strict=True))
    assert sum(before[image] != after[image] for image in images) <= 1


def test_the_message_is_plain_json(tmp_path: Path) -> None:
    write_pair(tmp_path, "bilder/übung 1.jpg", "bilder/übung 1.xml")
    [line] = PlanLines(plan(tmp_path, split=ALL_TRAIN))
    assert json.loads(line)["pairs"][0]["image"] == "bilder/übung 1.jpg"
