"""What travels: validated at the door, one canonical form, digests that follow the meaning."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from shared.jobs.job import Job, PathPair, ShardTask, SplitPlan, shard_name
from shared.specs.data import JobSpec
from shared.specs.frozen import canonical_json
from shared.specs.run import RunSpec

PAIR = PathPair(image="JPEGImages/a.jpg", annotation="Annotations/a.xml", source_id=7, fingerprint="0123456789abcdef")


def task(**changes: object) -> ShardTask:
    values = {"job": "job", "split": "train", "index": 1, "count": 3, "pairs": (PAIR,)} | changes
    return ShardTask.model_validate(values)


def job() -> Job:
    splits = {
        "train": SplitPlan(pairs=3, digests=("a", "b", "c")),
        "test": SplitPlan(pairs=1, digests=("d",)),
    }
    return Job.model_validate(
        {
            "job": "job",
            "dataset": "/photos",
            "folder": ".",
            "spec": JobSpec(),
            "run": None,
            "labels": ("x",),
            "splits": splits,
            "request_digest": "e",
        }
    )


@pytest.mark.parametrize("path", ["", "/etc/passwd", "../x", "a/../b", "a//b", "./a", "a/.", "a\0b", "a/" + "b" * 4100])
def test_path_that_could_leave_the_data_root_is_refused(path: str) -> None:
    with pytest.raises(ValidationError):
        PAIR.model_validate(PAIR.model_dump() | {"image": path})


@pytest.mark.parametrize("path", ["a b/ü.jpg", "..a/b..", "a\\b.jpg", "写真/一.png"])
def test_unusual_but_plain_path_is_taken(path: str) -> None:
    assert PAIR.model_validate(PAIR.model_dump() | {"image": path}).image == path


@pytest.mark.parametrize(
    "changes",
    [
        {"index": 3},
        {"index": -1},
        {"split": "other"},
        {"job": "../job"},
        {"job": "Job"},
        {"schema_version": 2},
        {"surplus": 1},
        {"pairs": "text"},
    ],
)
def test_task_that_is_no_line_of_a_plan_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        task(**changes)


def test_digest_is_the_same_after_a_trip_through_json_and_changes_with_the_meaning() -> None:
    first = task()
    assert ShardTask.model_validate_json(first.to_json()).digest() == first.digest()
    assert task(index=2).digest() != first.digest()


def test_shards_are_named_in_the_order_of_splits_and_found_again_by_their_ordinal() -> None:
    asked = job()
    assert asked.shards == [*(shard_name("train", index, 3) for index in range(3)), shard_name("test", 0, 1)]
    assert [asked.ordinal(shard) for shard in asked.shards] == [0, 1, 2, 3]
    assert [asked.task_digest(shard) for shard in asked.shards] == ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    "shard",
    [
        "train-00003-of-00003",
        "val-00000-of-00001",
        "val-00000-of-00000",
        "train-00000-of-00004",
        "train-00000-of-00003\n",
        f"train-{chr(0x660) * 5}-of-00003",  # Arabic digits, which `int` reads too
        "x",
        "",
    ],
)
def test_shard_that_the_job_does_not_have_is_no_key(shard: str) -> None:
    with pytest.raises(KeyError):
        job().ordinal(shard)
    assert not job().has(shard)


@pytest.mark.parametrize(
    "changes",
    [{"source_id": 0}, {"source_id": 2**24}, {"fingerprint": "0123456789abcdef0"}, {"fingerprint": "0123456789ABCDEF"}],
)
def test_a_pair_without_an_id_that_decoders_can_hold_or_without_a_fingerprint_is_refused(
    changes: dict[str, object],
) -> None:
    assert PAIR.model_validate(PAIR.model_dump() | {"source_id": 2**24 - 1})
    with pytest.raises(ValidationError):
        PAIR.model_validate(PAIR.model_dump() | changes)


def test_a_task_has_no_more_pairs_and_shards_than_names_and_memory_allow() -> None:
    assert task(pairs=(PAIR,) * 4096, index=99_999, count=100_000).shard == "train-99999-of-100000"
    for changes in ({"pairs": (PAIR,) * 4097}, {"index": 100_000, "count": 100_001}):
        with pytest.raises(ValidationError):
            task(**changes)


def test_a_job_whose_run_is_of_another_is_refused() -> None:
    run = RunSpec(run="r", job="job", incarnation="0" * 32)
    own = job().model_dump() | {"incarnation": "0" * 32, "run": run}
    assert Job.model_validate(own).run == run
    for changes in ({"run": run.model_copy(update={"job": "other"})}, {"incarnation": "1" * 32}):
        with pytest.raises(ValidationError, match="its run belongs to job"):
            Job.model_validate(own | changes)


def test_a_folder_that_no_file_can_name_is_refused() -> None:
    with pytest.raises(ValidationError, match="rename the folder"):
        Job.model_validate(job().model_dump() | {"dataset": "/photos/caf\udce9"})


def test_class_names_of_a_job_are_respelled_as_those_of_an_xml_also_of_a_job_of_before() -> None:
    spec = {"classes": ["a\nb", " c"], "ignore_classes": ["d\u2028e"], "rename": {"f  g": "a\tb"}}
    raw = job().model_dump(mode="json") | {"labels": ["a\nb", "c"], "spec": spec}
    read = Job.model_validate_json(canonical_json(raw))
    assert (read.labels, read.spec.classes, read.spec.ignore_classes) == (("a b", "c"), ("a b", "c"), ("d e",))
    assert read.spec.rename == {"f g": "a b"}


@pytest.mark.parametrize("split", [(80, 10, 11), (0, 50, 50), (120, -10, -10)])
def test_split_must_sum_to_100_and_leave_something_to_train_on(split: tuple[int, int, int]) -> None:
    with pytest.raises(ValidationError):
        JobSpec(split=split)


@given(st.integers(min_value=1, max_value=200).filter(lambda size: size % 32))
def test_image_size_is_a_multiple_of_the_coarsest_stride(size: int) -> None:
    with pytest.raises(ValidationError):
        JobSpec(image_size=size)


def test_run_without_epochs_lets_the_trainer_choose() -> None:
    assert RunSpec(run="r", job="j").epochs is None


def test_fine_tuning_for_int8_needs_our_own_backbone() -> None:
    assert RunSpec(run="r", job="j", quantize="qat").quantize == "qat"
    with pytest.raises(ValidationError, match="--backbone conv"):
        RunSpec(run="r", job="j", quantize="qat", backbone="mobilenet_v2")
