"""Which picture each line of a split list means, and what a list that cannot be followed becomes."""

from typing import Any

import pytest

from producer.dataset.split import assign_splits
from tests.unit.producer.dataset.test_split import DEVKIT, SHARES, assign, by_stem, listed


def test_lists_are_obeyed_as_they_are() -> None:
    result = assign(DEVKIT, [listed(train=["a", "b"], val=["c"], test=["d"], trainval=["a", "b", "c", "f"])])
    assert by_stem(result, DEVKIT) == {"a": "train", "b": "train", "c": "val", "d": "test", "e": None, "f": None}
    assert result.rule == "lists"
    assert [(finding.file, finding.kind) for finding in result.findings] == [
        ("JPEGImages/e.jpg", "not_listed"),
        ("JPEGImages/f.jpg", "not_listed"),
    ]


@pytest.mark.parametrize(
    ("lists", "wanted"),
    [
        ({"train": ["a"], "trainval": ["a", "b"]}, {"a": "train", "b": "val"}),
        ({"val": ["a"], "trainval": ["a", "b"]}, {"a": "val", "b": "train"}),
        ({"trainval": ["a", "b"], "test": ["c"]}, {"a": "train", "b": "train", "c": "test"}),
    ],
)
def test_trainval_is_read_only_where_train_or_val_is_missing(lists: dict[str, Any], wanted: dict[str, str]) -> None:
    splits = by_stem(assign(DEVKIT, [listed(**lists)]), DEVKIT)
    assert {stem: split for stem, split in splits.items() if split} == wanted


@pytest.mark.parametrize(
    "lists",
    [
        {"train": ["a", "b"], "test": ["b"]},
        {"train": ["a"], "trainval": ["a", "b"], "test": ["b"]},
    ],
)
def test_a_picture_in_two_lists_is_an_error(lists: dict[str, Any]) -> None:
    errors = [finding for finding in assign(DEVKIT, [listed(**lists)]).findings if finding.rank == "error"]
    assert [(finding.file, finding.kind) for finding in errors] == [("JPEGImages/b.jpg", "listed_in_two")]


def test_a_picture_that_a_list_repeats_is_taken_once() -> None:
    assignment = assign(DEVKIT, [listed(train=["a", "b", "b.jpg", "b"], test=["c"])])
    (told,) = [finding for finding in assignment.findings if finding.rank != "dropped"]
    assert (told.rank, told.kind, told.file, told.done) == ("mended", "listed_twice", "JPEGImages/b.jpg", "taken once")
    assert told.found.startswith("3 times in ")
    assert by_stem(assignment, DEVKIT)["b"] == "train"


@pytest.mark.parametrize("line", ["a", "a  1", "a -1", "a.jpg", "a.JPG", "JPEGImages/a.jpg", "D:\\VOC\\a.jpg"])
def test_a_list_line_may_be_a_stem_a_name_a_path_or_carry_a_flag(line: str) -> None:
    assert assign(["JPEGImages/a.jpg"], [listed(train=[line])]).splits == ["train"]


@pytest.mark.parametrize(
    "line", ["JPEGImages/a b.jpg Annotations/a b.xml", "a b.jpeg\ta.XML", "./JPEGImages/a b.JPG a.xml"]
)
def test_a_list_line_may_have_the_xml_behind_the_photo_as_paddledetection_writes_it(line: str) -> None:
    assert assign(["JPEGImages/a b.jpg"], [listed(train=[line])]).splits == ["train"]
    findings = assign(["JPEGImages/c.jpg"], [listed(train=[line])]).findings
    (told,) = [finding.found for finding in findings if finding.kind == "listed_without_pair"]
    assert told.startswith(f"{line}: no such pair")


@pytest.mark.parametrize("line", ['"day 1/a b"', '"day 1/a b"  1', '"day 1/a b.jpg" -1', "day 1/a b.xml"])
def test_a_list_line_may_quote_a_name_as_cvat_does_or_name_the_xml(line: str) -> None:
    images = ["JPEGImages/day 1/a b.jpg", "JPEGImages/day 2/a b.jpg"]
    assert assign(images, [listed(train=[line])]).splits == ["train", None]


def test_a_list_line_may_have_columns_of_numbers_as_those_of_oxford_pets() -> None:
    images, lines = ["images/Bombay_1.jpg", "images/a 12 3.jpg"], ["Bombay_1 1 2 12", "a 12 3"]
    assert assign(images, [listed("", train=lines[:1], test=lines[1:])]).splits == ["train", "test"]
    assert assign(["images/frame.jpg"], [listed("", train=["frame 12"])]).splits == [None]
    only = ["images/a 12 3.jpg"]
    lists = [listed("", train=["a 12 3"])]
    result = assign_splits(["images/a.jpg"], lists=lists, duplicates=[], shares=SHARES, seed=0, unpaired=only)
    assert result.splits == [None]


def test_a_stem_with_a_space_and_a_digit_is_not_taken_for_a_flag() -> None:
    images = ["scan 1.jpg", "scan.jpg"]
    assert assign(images, [listed(train=["scan 1"], test=["scan"])]).splits == ["train", "test"]


@pytest.mark.parametrize("line", ["scan 1", "JPEGImages/scan 1"])
def test_a_photo_without_a_pair_whose_stem_ends_with_a_digit_is_not_taken_for_another_with_a_flag(line: str) -> None:
    lists, photos = [listed(train=[line])], ["JPEGImages/scan.jpg"]
    result = assign_splits(
        photos, lists=lists, duplicates=[], shares=SHARES, seed=0, unpaired=["JPEGImages/scan 1.jpg"]
    )
    assert result.splits == [None]
    assert [each.found for each in result.findings if each.kind == "listed_without_pair"] == [f"{line}: no such pair"]


def test_a_line_without_a_pair_is_named_with_its_list() -> None:
    findings = assign(DEVKIT, [listed("", train=["a", "nobody"])]).findings
    assert [(f.file, f.found) for f in findings if f.kind == "listed_without_pair"] == [
        ("ImageSets/Main/train.txt", "nobody: no such pair")
    ]


def test_a_line_that_could_mean_two_pictures_is_not_used() -> None:
    result = assign(["one/a.jpg", "two/a.jpg", "two/b.jpg"], [listed(train=["a", "b"])])
    assert result.splits == [None, None, "train"]
    assert [f.found for f in result.findings if f.kind == "list_ambiguous"] == ["a: could mean one/a.jpg, two/a.jpg"]


@pytest.mark.parametrize("line", ["two/a", "two/a.jpg", "JPEGImages/two/a.jpg", "D:\\VOC\\JPEGImages\\two\\a.jpg"])
def test_folders_in_a_line_tell_pictures_of_one_stem_apart(line: str) -> None:
    images = ["JPEGImages/one/a.jpg", "JPEGImages/two/a.jpg"]
    result = assign(images, [listed(train=[line], val=["one/a"])])
    assert result.splits == ["val", "train"]


@pytest.mark.parametrize("line", ["caf\u00e9", "cafe\u0301", "cafe\u0301.jpg", "cafe\u0301 1", "e\u0301/caf\u00e9.jpg"])
@pytest.mark.parametrize("image", ["\u00e9/caf\u00e9.jpg", "\u00e9/cafe\u0301.jpg"])
def test_a_list_line_means_a_picture_however_its_accents_are_written(image: str, line: str) -> None:
    assert assign([image], [listed(train=[line])]).splits == ["train"]


def test_folders_tell_pictures_of_one_stem_apart_however_their_accents_are_written() -> None:
    images = ["a/caf\u00e9.jpg", "\u00e9/caf\u00e9.jpg"]
    assert assign(images, [listed(train=["e\u0301/cafe\u0301"])]).splits == [None, "train"]


def test_of_two_pictures_that_look_the_same_a_line_means_the_one_that_it_spells() -> None:
    images = ["cafe\u0301.jpg", "caf\u00e9.jpg"]
    assert assign(images, [listed(train=["cafe\u0301"], val=["caf\u00e9.jpg"])]).splits == ["train", "val"]


def test_jpegimages_goes_before_other_folders_of_the_same_stem() -> None:
    assert assign(["JPEGImages/a.jpg", "old/a.jpg"], [listed(train=["a"])]).splits == ["train", None]


def test_each_devkit_folder_has_its_own_lists() -> None:
    images = ["VOC2007/JPEGImages/a.jpg", "VOC2012/JPEGImages/a.jpg", "extra/b.jpg"]
    result = assign(images, [listed("VOC2007", train=["a"]), listed("VOC2012", test=["a"])])
    assert result.splits == ["train", "test", None]
    [left_out] = result.findings
    assert (left_out.file, left_out.kind) == ("extra/b.jpg", "not_listed")
    assert left_out.found == "in no list of train, val, test or trainval"  # it may be in default.txt, as CVAT writes it


def test_a_line_that_names_a_photo_without_a_pair_means_no_other_of_its_name() -> None:
    images = ["day2/1.jpg", "day2/2.jpg"]
    lists = [listed(train=["day2/2"], test=["/data/day1/1.jpg"])]
    by_list = assign_splits(images, lists=lists, duplicates=[], shares=SHARES, seed=0, unpaired=["day1/1.jpg"])
    assert by_list.splits == [None, "train"]
    told = [(each.kind, each.found) for each in by_list.findings if each.kind == "listed_without_pair"]
    assert told == [("listed_without_pair", "/data/day1/1.jpg: day1/1.jpg is in no pair")]
    # Where no such photo is there, the folder was moved, and the name alone counts.
    assert assign(images, lists).splits == ["test", "train"]
    bare = assign_splits(
        images, lists=[listed(test=["1"])], duplicates=[], shares=SHARES, seed=0, unpaired=["day1/1.jpg"]
    )
    assert bare.splits[0] == "test"
