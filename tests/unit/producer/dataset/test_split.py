import re
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from producer.dataset.imagesets import SplitLists
from producer.dataset.split import SplitAssignment, assign_splits, seeded_fraction
from shared.errors import OptionError
from shared.jobs.job import Split

SHARES = (80, 10, 10)


def assign(
    images: Sequence[str],
    lists: Sequence[SplitLists] = (),
    duplicates: Sequence[Sequence[int]] = (),
    seed: int = 0,
    shares: tuple[int, int, int] = SHARES,
    group_by: str | None = None,
) -> SplitAssignment:
    return assign_splits(images, lists=lists, duplicates=duplicates, shares=shares, seed=seed, group_by=group_by)


def listed(root: str = "", /, **lines: list[str]) -> SplitLists:
    paths = {name: f"{root}/ImageSets/Main/{name}.txt".lstrip("/") for name in lines}
    return SplitLists(root=root, lines=lines, paths=paths)


def by_stem(assignment: SplitAssignment, images: Sequence[str]) -> dict[str, Split | None]:
    return {image.rpartition("/")[2][:-4]: split for image, split in zip(images, assignment.splits, strict=True)}


DEVKIT = [f"JPEGImages/{stem}.jpg" for stem in "abcdef"]


def test_split_folders_decide_where_there_are_no_lists() -> None:
    images = ["data/images/train/a.jpg", "test/b.jpg", "valid/images/c.jpg", "x/d.jpg", "validation/e.jpg"]
    result = assign(images)
    assert result.splits == ["train", "test", "val", None, "val"]
    assert [(finding.file, finding.kind) for finding in result.findings] == [("x/d.jpg", "outside_split_folders")]


@pytest.mark.parametrize(
    ("train", "test"),
    [
        ("train_images", "test_images"),
        ("Training Set", "Testing Set"),
        ("images-train2017", "images-test"),
        ("train.zip", "test"),
        ("TrainImages", "testSet"),
        ("JPEGImages-trainval", "JPEGImages-test"),
        ("train_val", "test"),
        ("train01", "test_2"),
    ],
)
def test_split_folders_may_say_that_they_hold_images(train: str, test: str) -> None:
    assignment = assign([f"{train}/a.jpg", f"{test}/b.jpg"])
    assert (assignment.splits, assignment.rule) == (["train", "test"], "folders")


@pytest.mark.parametrize("folder", ["train_test", "test drive", "steam-train", "training-wheels", "images"])
def test_a_folder_whose_name_says_more_than_a_split_is_none(folder: str) -> None:
    assignment = assign([f"{folder}/a.jpg", "train/b.jpg"])
    assert assignment.rule == "seeded"


@pytest.mark.parametrize(
    ("folders", "wanted"),
    [
        (["VisDrone-DET-train", "VisDrone-DET-val", "VisDrone-DET-test-dev"], ["train", "val", "test"]),
        (["WIDER_train/images", "WIDER_val/images"], ["train", "val"]),
        (["train_day", "train_night", "test_day", "test_night"], ["train", "train", "test", "test"]),
        (["a/hands_Train", "a/hands_Test", "b/steam-train"], ["train", "test", None]),
    ],
)
def test_folders_beside_each_other_that_differ_in_their_split_decide(folders: list[str], wanted: list[str]) -> None:
    assignment = assign([f"set/{folder}/{index}.jpg" for index, folder in enumerate(folders)])
    assert (assignment.splits, assignment.rule) == (wanted, "folders")


def test_folders_that_name_other_things_beside_their_split_decide_nothing() -> None:
    assert assign(["train_station/a.jpg", "test_tube/b.jpg", "a/x_train/c.jpg", "b/x_test/d.jpg"]).rule == "seeded"


@pytest.mark.parametrize(
    ("inside", "split", "outside"), [("images_test", "test", "images"), ("Train", "train", "eval")]
)
def test_folders_of_a_single_split_are_named_as_their_photos_are_dealt_too(
    inside: str, split: str, outside: str
) -> None:
    images = [f"{inside}/{index}.jpg" for index in range(30)] + [f"{outside}/{index}.jpg" for index in range(30, 40)]
    assignment = assign(images)
    assert assignment.rule == "seeded"
    [finding] = assignment.findings
    assert (finding.file, finding.kind) == (".", "split_folder_alone")
    said = f"30 photos in folders named after {split}, such as {inside}/0.jpg, and 10 in none named after a split"
    assert finding.found == f"{said}, such as {outside}/30.jpg"


def test_one_split_folder_alone_decides_nothing() -> None:
    images = [f"train/{index}.jpg" for index in range(100)]
    assert assign(images).rule == "seeded"
    assert set(assign(images).splits) == {"train", "val", "test"}


def test_equal_bytes_across_lists_are_named() -> None:
    result = assign(DEVKIT, [listed(train=["a", "b"], test=["c", "d"])], duplicates=[[0, 1, 3]])
    found = [(f.file, f.found) for f in result.findings if f.kind == "duplicate_across_splits"]
    assert found == [("JPEGImages/d.jpg", "in test, the same bytes as JPEGImages/a.jpg in train")]


def test_copies_of_one_photo_go_to_one_split() -> None:
    images = [f"p{photo:03d}_jpg.rf.{copy:032x}.jpg" for photo in range(60) for copy in range(5)]
    splits = assign(images).splits
    assert all(len(set(splits[start : start + 5])) == 1 for start in range(0, 300, 5))
    assert len(set(splits)) == 3


def test_seeded_shares_are_kept() -> None:
    images = [f"{index}.jpg" for index in range(5000)]
    counts = Counter(assign(images, shares=(70, 20, 10)).splits)
    assert counts["train"] == pytest.approx(3500, abs=130)
    assert counts["val"] == pytest.approx(1000, abs=115)
    assert assign(images, shares=(100, 0, 0)).splits == ["train"] * 5000


def test_another_seed_is_another_split() -> None:
    images = [f"{index}.jpg" for index in range(200)]
    assert assign(images, seed=1).splits != assign(images, seed=2).splits
    assert assign(images, seed=1).splits == assign(images, seed=1).splits


def test_fractions_never_change() -> None:
    assert seeded_fraction(0, "a") == 0.7245166689781861
    assert seeded_fraction(7, "é") == 0.9187165580278004


stems = st.lists(st.text("abcd", min_size=1, max_size=4), unique=True, min_size=1, max_size=40)


@settings(deadline=None)
@given(stems, stems, st.integers(0, 2**31 - 1))
def test_added_pictures_move_no_other(before: list[str], added: list[str], seed: int) -> None:
    old = sorted(f"{stem}.jpg" for stem in before)
    new = sorted({*old, *(f"{stem}.jpg" for stem in added)})
    after = by_stem(assign(new, seed=seed), new)
    assert by_stem(assign(old, seed=seed), old).items() <= after.items()


@settings(deadline=None)
@given(stems, st.data(), st.integers(0, 100))
def test_equal_bytes_never_straddle_and_who_moves_is_named(names: list[str], data: st.DataObject, seed: int) -> None:
    images = sorted(f"{stem}.jpg" for stem in names)
    groups = data.draw(st.lists(st.sets(st.integers(0, len(images) - 1)).map(sorted), max_size=4))
    alone, together = assign(images, seed=seed), assign(images, duplicates=groups, seed=seed)
    assert all(len({together.splits[index] for index in group}) <= 1 for group in groups)
    moved = {
        image[:-4] for image, one, other in zip(images, alone.splits, together.splits, strict=True) if one != other
    }
    assert moved == {finding.file[:-4] for finding in together.findings if finding.kind == "group_joined"}


CLIPS = [f"{day}/clip{clip}_{frame:04d}.jpg" for day in ("mo", "tu") for clip in range(20) for frame in range(5)]


@pytest.mark.parametrize(
    ("pattern", "groups"),
    [
        (r"(clip\d+)_", {f"clip{clip}": 10 for clip in range(20)}),
        (r"(.*)_\d+$", {f"{day}/clip{clip}": 5 for day in ("mo", "tu") for clip in range(20)}),
        (r"^(?:mo|tu)", {"mo": 100, "tu": 100}),
        (r"^(mo)?.*clip(\d)_", {f"{day}/{clip}": 5 for day in ("mo", "") for clip in range(10)}),
    ],
)
def test_photos_in_which_the_expression_finds_the_same_go_to_one_split(pattern: str, groups: dict[str, int]) -> None:
    assignment = assign(CLIPS, group_by=pattern)
    by_text: dict[str, list[Split | None]] = {}
    for image, split in zip(CLIPS, assignment.splits, strict=True):
        found = re.search(pattern, image[:-4])
        text = "/".join(part or "" for part in found.groups() or [found[0]]) if found else ""
        by_text.setdefault(text, []).append(split)
    assert {text: len(splits) for text, splits in by_text.items() if text in groups} == groups
    assert all(len({*by_text[text]}) == 1 for text in groups)
    alone = {text: assign([f"{text}.jpg"]).splits[0] for text in groups if "/" not in text}
    assert alone == {text: by_text[text][0] for text in alone}, "it is dealt by that text, whatever else there is"


def test_each_photo_of_a_repeated_name_is_dealt_by_itself_when_grouped_by_its_path() -> None:
    images = [f"{day}/{index}.jpg" for day in ("mo", "tu") for index in range(100)]
    by_name, by_path = assign(images), assign(images, group_by=".+")
    assert [finding.kind for finding in by_name.findings] == ["names_repeat"]
    assert not list(by_path.findings)
    assert by_name.splits[:100] == by_name.splits[100:]
    assert by_path.splits[:100] != by_path.splits[100:]


def test_copies_accents_and_equal_bytes_go_with_their_group() -> None:
    images = ["caf\u00e9_1_jpg.rf.0f.jpg", "cafe\u0301_2.jpg", "bar_1.jpg", "bar_2.jpg"]
    for seed in range(30):
        splits = assign(images, duplicates=[[1, 2]], seed=seed, group_by="^(.*e\u0301|bar)_[0-9]$").splits
        assert len({*splits}) == 1


def test_photos_that_the_expression_does_not_find_are_dealt_by_name_and_counted() -> None:
    images = [*CLIPS, "other.jpg"]
    assignment = assign(images, group_by="(clip.*)_")
    [finding] = assignment.findings
    assert (finding.kind, finding.done) == ("group_not_found", "each is dealt by its own name")
    assert finding.found == "--group-by (clip.*)_: finds nothing in 1 of 201 photos, such as other.jpg"
    assert assignment.splits[-1] == assign(["other.jpg"]).splits[0]


@pytest.mark.parametrize("pattern", ["scene", "x*"])
def test_an_expression_that_finds_nothing_is_refused(pattern: str) -> None:
    wanted = f"--group-by {pattern}: finds nothing in 200 of 200 photos, such as mo/clip0_0000.jpg; expected what"
    with pytest.raises(OptionError, match=f"^{re.escape(wanted)}"):
        assign(CLIPS, group_by=pattern)


def test_the_seed_is_named_that_comes_nearest_to_the_shares_with_no_split_empty() -> None:
    few = [f"clip{clip}_{frame}.jpg" for clip in range(4) for frame in range(9)]
    found = assign(few, group_by="clip.")
    assert {*found.splits} == {"train", "val"}
    assert found.fuller_seed is not None
    dealt = Counter(assign(few, group_by="clip.", seed=found.fuller_seed).splits)
    assert dealt == {"train": 18, "val": 9, "test": 9}, "the nearest to 80/10/10 that four groups of nine can be"
    assert assign(CLIPS).fuller_seed is None
    assert assign(few, group_by="clip", shares=(80, 10, 10)).fuller_seed is None, "one group is in one split"
    assert assign(few, group_by="clip.", shares=(100, 0, 0)).fuller_seed is None


def test_groups_that_lists_put_into_two_splits_are_named_once_for_each() -> None:
    images = ["a_1.jpg", "a_2.jpg", "a_3.jpg", "a_4.jpg", "b_1.jpg"]
    lists = [listed(train=["a_1"], val=["a_2", "a_3"], test=["b_1"])]
    rows = [each for each in assign(images, lists, group_by="(.)_").findings if each.kind != "not_listed"]
    [row] = rows
    assert (row.file, row.kind) == ("a_2.jpg", "group_across_splits")
    assert row.found == "2 photos in val of the same group a as a_1.jpg in train"


@pytest.mark.parametrize("rule", ["folders", "lists"])
def test_copies_of_one_photo_in_two_splits_are_named(rule: str) -> None:
    images = ["train/a_jpg.rf.0f.jpg", "train/b_jpg.rf.11.jpg", "valid/a_jpg.rf.2c.jpg", "valid/c.jpg"]
    lists = [listed(train=["a_jpg.rf.0f", "b_jpg.rf.11"], val=["a_jpg.rf.2c", "c"])] if rule == "lists" else ()
    assignment = assign(images, lists)
    [finding] = assignment.findings
    assert (assignment.rule, finding.file, finding.kind) == (rule, "valid/a_jpg.rf.2c.jpg", "copies_across_splits")
    assert finding.found == "in val, made from the same photo a as train/a_jpg.rf.0f.jpg in train"


def test_names_that_a_camera_gives_again_are_named_once() -> None:
    images = [f"{day}/IMG_{index}.jpg" for day in ("monday", "tuesday") for index in range(3)]
    [finding] = assign(images).findings
    assert (finding.kind, finding.file) == ("names_repeat", ".")
    assert finding.found == "6 photos have 3 names, such as monday/IMG_0.jpg and tuesday/IMG_0.jpg"
    assert "to keep each folder, such as the frames of a video, together: --group-by '(.*)/'" in finding.done
    by_folder = assign(images, group_by="(.*)/").splits
    assert len({*by_folder[:3]}) == len({*by_folder[3:]}) == 1
    assert not list(assign(["a_jpg.rf.1.jpg", "a_jpg.rf.2.jpg"]).findings)
