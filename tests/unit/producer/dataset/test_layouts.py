"""Folders as other tools leave them: what lint tells of names, lists and splits that do not fit."""

import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

from shared.errors import LintError
from tests.unit.producer.folders import CAT, findings, kinds, lint, voc_xml, write, write_objects, write_pair


def test_lists_that_name_no_photo_are_the_reason_with_what_to_do(tmp_path: Path) -> None:
    write_objects(tmp_path, "a", CAT)
    write(tmp_path, "ImageSets/Main/train.txt", "a,\n")
    said = r"no picture in train \(the lists in ImageSets/Main decide\); change the lists, or delete them for --split"
    with pytest.raises(LintError, match=said):
        lint(tmp_path).require_usable()


def test_names_of_which_none_is_anothers_are_the_reason(tmp_path: Path) -> None:
    write_pair(tmp_path, "images/a.jpg", "labels/1.xml")
    with pytest.raises(LintError, match="found 1 image, 1 XML file; none has the name of another"):
        lint(tmp_path).require_usable()


def test_xml_that_is_no_voc_is_the_reason_with_the_first_file(tmp_path: Path) -> None:
    write(tmp_path, "MVI_1/img1.jpg", "JPEG")
    write(tmp_path, "xml/MVI_1.xml", "<sequence/>")
    root = "the root element is <sequence>, expected <annotation>: convert it to Pascal VOC"
    with pytest.raises(LintError, match=f"no XML file is one of Pascal VOC, such as xml/MVI_1.xml: {root}"):
        lint(tmp_path).require_usable()
    write(tmp_path, "xml/MVI_2.xml", voc_xml())
    with pytest.raises(LintError, match="2 XML files; none has the name of another"):
        lint(tmp_path).require_usable()


def test_voc_files_without_an_extension_are_told_with_the_command_that_adds_it(tmp_path: Path) -> None:
    folder = tmp_path / "my dogs"
    for stem in ("n02085620_7", "n02085620_9"):
        write_pair(folder, f"Images/pug/{stem}.jpg", f"Annotation/pug/{stem}")
    write(folder, "README", "Stanford Dogs")
    said = (
        "3 files without an extension, such as Annotation/pug/n02085620_7, are Pascal VOC; expected .xml behind their"
    )
    with pytest.raises(LintError, match=said) as refused:
        lint(folder).require_usable()
    subprocess.run(str(refused.value).splitlines()[-1], shell=True, check=True)
    linted = lint(folder)
    linted.require_usable()
    assert [xml for _, xml in linted.pairs] == [f"Annotation/pug/n02085620_{number}.xml" for number in "79"]
    assert (folder / "README").is_file()


def test_archives_in_a_folder_are_to_be_unpacked(tmp_path: Path) -> None:
    write(tmp_path, "images.zip", "PK")
    write(tmp_path, "labels.tar.gz", "")
    with pytest.raises(LintError, match=r"0 XML files, 2 archives; unpack what belongs together into one folder"):
        lint(tmp_path).require_usable()


def test_photos_whose_xml_may_be_in_an_archive_are_not_said_to_need_labels(tmp_path: Path) -> None:
    write(tmp_path, "images/a.jpg", "JPEG")
    write(tmp_path, "annotation.tar", "")
    with pytest.raises(LintError, match="found 1 image, 0 XML files, 1 archive; unpack what belongs together"):
        lint(tmp_path).require_usable()


def test_pictures_of_formats_that_are_not_read_are_named_with_what_to_do(tmp_path: Path) -> None:
    write_pair(tmp_path, "a.AVIF", "a.xml")
    with pytest.raises(LintError, match="1 picture of a format that is not read; convert them to JPEG"):
        lint(tmp_path).require_usable()
    write_objects(tmp_path, "b", CAT)
    told = [(each.kind, each.found) for each in findings(lint(tmp_path))]
    assert ("picture_of_other_format", "1 .avif file") in told


def test_labelled_photos_are_not_said_to_need_labels(tmp_path: Path) -> None:
    write_pair(tmp_path, "a.jpg", "a.xml", b"<annotation>")
    with pytest.raises(LintError, match=r"1 XML file; the other findings say why, the first: a\.xml: malformed XML"):
        lint(tmp_path).require_usable()


def test_a_class_that_only_the_test_has_is_said_to_be_never_learned(tmp_path: Path) -> None:
    write_objects(tmp_path, "train/a", CAT)
    write_objects(tmp_path, "valid/b", ("dog", 1, 1, 9, 9))
    write_objects(tmp_path, "test/c", CAT, ("dog", 1, 1, 9, 9), ("dog", 2, 2, 9, 9))
    [finding] = findings(lint(tmp_path))
    assert (finding.kind, finding.class_name) == ("class_not_in_train", "dog")
    decide = "the folders train, val and test decide"
    assert finding.found == f"no object of class 'dog' in train, 1 in val and 2 in test ({decide})"
    assert finding.done == "kept, and never learned; move photos between these folders, each with its XML"


def test_a_class_of_photos_that_no_list_names_is_not_missed_in_train(tmp_path: Path) -> None:
    write_objects(tmp_path, "a", CAT)
    write_objects(tmp_path, "b", ("dog", 1, 1, 9, 9))
    write(tmp_path, "ImageSets/Main/train.txt", "a\n")
    assert "class_not_in_train" not in kinds(lint(tmp_path))


@pytest.mark.parametrize("xml", [voc_xml(filename="other.jpg"), b"<annotation>"])
def test_an_xml_named_after_the_whole_name_of_its_photo_belongs_to_it(tmp_path: Path, xml: bytes) -> None:
    write_pair(tmp_path, "img/a.jpg", "ann/a.jpg.xml", xml)
    assert lint(tmp_path).pairs == [("img/a.jpg", "ann/a.jpg.xml")]


def test_lists_of_single_classes_alone_are_said_to_decide_nothing(tmp_path: Path) -> None:
    write_objects(tmp_path, "a", CAT)
    write(tmp_path, "ImageSets/Main/cat_train.txt", "a.jpg 1\n")
    write(tmp_path, "ImageSets/Main/cat_val.txt", "a.jpg -1\n")
    [finding] = findings(lint(tmp_path))
    assert (finding.file, finding.kind) == ("ImageSets/Main/cat_train.txt", "list_not_read")
    assert finding.found == "a list of a split? 2 lists here, each of a single class, and none of a whole split"
    write(tmp_path, "ImageSets/Main/train.txt", "a\n")
    assert "list_not_read" not in kinds(lint(tmp_path))


@pytest.mark.parametrize("path", ["ImageSets/Segmentation/train.txt", "splits.json", "set_split.csv", "train_list.mat"])
def test_lists_in_another_place_or_form_are_told_where_splits_are_dealt(tmp_path: Path, path: str) -> None:
    for stem in "ab":
        write_objects(tmp_path, f"train/{stem}", CAT)
    write(tmp_path, path, "a\n")
    assert kinds(lint(tmp_path)) == {"list_not_read": [path]}
    write_objects(tmp_path, "valid/c", CAT)
    assert "list_not_read" not in kinds(lint(tmp_path))


@pytest.mark.parametrize(("numbers", "is_told"), [(range(20), True), (range(18), False), ([0] * 20, False)])
def test_texts_that_are_written_as_class_names_are_told(tmp_path: Path, numbers: Iterable[int], is_told: bool) -> None:
    for place, number in enumerate(numbers):
        write_objects(tmp_path, f"p{place}", (f"AB {number:03d}", 1, 1, 9, 9), CAT)
    told = [each.found for each in lint(tmp_path).findings if each.kind == "class_names_many"]
    assert told == (["21 classes, 20 of them of a single object, such as 'AB 000'"] if is_told else [])
