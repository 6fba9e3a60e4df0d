"""`lint_folder`: names and XML of a whole folder, without a picture read."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from producer.dataset.lint import lint_folder
from producer.dataset.read_pairs import read_pairs
from producer.terminal.lint_page import lint_report
from shared.annotation.parse import parse_xml
from shared.errors import LintError
from shared.specs.data import JobSpec
from tests.unit.producer.folders import CAT, JPEG, findings, kinds, lint, voc_xml, write, write_objects, write_pair

BCCD = Path(os.environ.get("VOC_BCCD", "../shared/data/bccd"))


def test_a_clean_set_has_no_findings(tmp_path: Path) -> None:
    write_objects(tmp_path, "a", CAT, ("dog", 1, 1, 9, 9))
    linted = lint(tmp_path)
    assert not kinds(linted)
    assert linted.labels.names == ("cat", "dog")
    assert linted.class_counts == {"cat": 1, "dog": 1}
    assert linted.counts["class:dog"] == 1


def test_ten_thousand_files_of_any_name_in_one_folder_are_paired_read_and_split(tmp_path: Path) -> None:
    pairs = 5_100
    for index in range(pairs):
        stem = f"фото {index:05d} größe 写真"
        write(tmp_path, f"{stem}.jpg", JPEG + f"{index}".encode())
        write(tmp_path, f"{stem}.xml", voc_xml([("кот 'ñandú'", 1, 1, 50, 50)], filename=f"{stem}.jpg"))
    linted = lint_folder(tmp_path, spec=JobSpec())
    linted.require_usable()
    assert not kinds(linted)
    assert (linted.counts["files"], linted.counts["pairs"]) == (2 * pairs, pairs)
    assert linted.class_counts == {"кот 'ñandú'": pairs}
    assert linted.counts["train"] == pytest.approx(0.8 * pairs, rel=0.03)


def test_an_xml_without_objects_is_background(tmp_path: Path) -> None:
    write_objects(tmp_path, "a", CAT)
    write_objects(tmp_path, "b")
    linted = lint(tmp_path)
    assert (linted.counts["annotated"], linted.counts["background"]) == (1, 1)
    assert not kinds(linted)


def test_an_unreadable_xml_is_named_and_stays_in_the_plan_for_its_receipt(tmp_path: Path) -> None:
    write_objects(tmp_path, "a", CAT)
    write_pair(tmp_path, "b.jpg", "b.xml", b"<annotation><object>")
    linted = lint(tmp_path)
    assert kinds(linted) == {"annotation_unreadable": ["b.xml"]}
    assert "line 1" in findings(linted)[0].found
    assert linted.counts["unreadable"] == 1
    assert len(linted.pairs) == 2


def test_a_picture_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    write_pair(tmp_path, "a.jpg", "a.xml")
    (tmp_path / "a.jpg").unlink()  # after the scan that found it
    [finding] = read_pairs(tmp_path, [("a.jpg", "a.xml")], JobSpec(), lambda *_: None).findings
    assert (finding.file, finding.kind, finding.found) == ("a.jpg", "image_unreadable", "No such file or directory")


def test_an_xml_above_the_size_cap_is_not_read_whole(tmp_path: Path) -> None:
    write_objects(tmp_path, "a", CAT)
    write(tmp_path, "b.jpg", JPEG)
    with open(tmp_path / "b.xml", "wb") as file:
        file.truncate(2**34)
    assert kinds(lint(tmp_path)) == {"annotation_unreadable": ["b.xml"]}


def test_an_unknown_class_stops_the_submit_unless_skipped(tmp_path: Path) -> None:
    write_objects(tmp_path, "a", CAT, ("dog", 1, 1, 9, 9))
    with pytest.raises(LintError, match="class 'dog' is not in --classes"):
        lint(tmp_path, classes=["cat"]).require_usable()
    linted = lint(tmp_path, classes=["cat"], unknown="skip")
    linted.require_usable()
    assert kinds(linted) == {"class_skipped": ["a.xml"]}


def test_a_class_whose_accents_are_written_in_two_ways_is_one_class(tmp_path: Path) -> None:
    write_objects(tmp_path, "a", ("v\u00e9lo", 10, 10, 50, 50))
    write_objects(tmp_path, "b", ("ve\u0301lo", 10, 10, 50, 50))
    for spec in ({}, {"classes": ["ve\u0301lo"]}, {"rename": {"ve\u0301lo": "v\u00e9lo"}}):
        linted = lint(tmp_path, **spec)
        linted.require_usable()
        assert linted.class_counts == {"v\u00e9lo": 2}


def test_a_picture_in_two_lists_stops_the_submit(tmp_path: Path) -> None:
    write_pair(tmp_path, "JPEGImages/a.jpg", "Annotations/a.xml")
    for name in ("train", "test"):
        write(tmp_path, f"ImageSets/Main/{name}.txt", "\ufeffa\r\n\r\n")
    with pytest.raises(
        LintError, match=r"JPEGImages/a\.jpg: listed_in_two: in ImageSets/Main/train\.txt and ImageSets/Main/test\.txt"
    ):
        lint(tmp_path).require_usable()


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16-le", "utf-16-be"])
def test_a_list_in_utf_8_or_in_utf_16_with_its_mark_is_read(tmp_path: Path, encoding: str) -> None:
    for stem in ("фото", "b"):
        write_pair(tmp_path, f"JPEGImages/{stem}.jpg", f"Annotations/{stem}.xml")
    write(tmp_path, "ImageSets/Main/train.txt", "b\n")
    mark = "\ufeff" if "16" in encoding else ""
    write(tmp_path, "ImageSets/Main/val.txt", f"{mark}фото\r\n".encode(encoding))
    linted = lint(tmp_path)
    assert (linted.splits, set(kinds(linted))) == (["train", "val"], {"split_empty"})


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32"])
def test_a_list_in_an_encoding_that_is_not_told_stops_the_submit_and_is_named(tmp_path: Path, encoding: str) -> None:
    write_pair(tmp_path, "JPEGImages/a.jpg", "Annotations/a.xml")
    write(tmp_path, "ImageSets/Main/train.txt", "a\n".encode(encoding))
    with pytest.raises(LintError, match=r"ImageSets/Main/train\.txt: expected a list in UTF-8, found NUL characters"):
        lint(tmp_path)


def test_a_line_of_a_list_in_another_encoding_says_so(tmp_path: Path) -> None:
    for stem in ("a", "ü"):
        write_objects(tmp_path, stem, CAT)
    write(tmp_path, "ImageSets/Main/train.txt", "a\nü\n".encode("latin-1"))
    (found,) = [each.found for each in lint(tmp_path).findings if each.kind == "listed_without_pair"]
    assert found.endswith(": no such pair; the list is not UTF-8, expected UTF-8: save it so")


@pytest.mark.parametrize("line", ['"b', "b,", "b;dog"])
def test_a_line_of_a_list_as_a_spreadsheet_writes_it_says_so(tmp_path: Path, line: str) -> None:
    for stem in ("a", "b"):
        write_objects(tmp_path, stem, CAT)
    write(tmp_path, "ImageSets/Main/train.txt", f"a\n{line}\n")
    (found,) = [each.found for each in lint(tmp_path).findings if each.kind == "listed_without_pair"]
    assert found.endswith("expected a photo's name and nothing else: save the list without quotes, commas and columns")


def test_strict_stops_on_any_finding(tmp_path: Path) -> None:
    write_objects(tmp_path, "a", CAT, ("cat", 5, 5, 5, 9))
    with pytest.raises(LintError, match="box_zero_area"):
        lint(tmp_path).require_usable(strict=True)


def test_a_folder_that_is_not_there_is_a_lint_error(tmp_path: Path) -> None:
    with pytest.raises(LintError, match="expected a folder that can be listed"):
        lint(tmp_path / "nowhere")


def test_boxes_beyond_the_size_in_the_xml_are_told_before_any_picture_is_read(tmp_path: Path) -> None:
    write_objects(tmp_path, "a", CAT, ("cat", -1, 0, 100, 80), ("cat", 0, 0, 100, 80))
    [finding] = [finding for finding in lint(tmp_path).findings if finding.kind == "box_beyond_size"]
    assert (finding.file, finding.object_index) == ("a.xml", 2)


def test_one_box_with_two_classes_is_told(tmp_path: Path) -> None:
    box = (10, 10, 40, 40)
    write_objects(tmp_path, "a", ("cat", *box), ("dog", *box), ("dog", 10, 10, 40, 41))
    [finding] = [finding for finding in lint(tmp_path).findings if finding.kind == "box_of_two_classes"]
    assert (finding.file, finding.object_index, finding.class_name) == ("a.xml", 2, "dog")
    assert finding.found == "the box of object 1, which is a 'cat'"


def test_boxes_that_a_model_has_drawn_are_told(tmp_path: Path) -> None:
    drawn = voc_xml([CAT, ("dog", 1, 1, 9, 9)]).replace(b"</object>", b"<confidence>0.8</confidence></object>", 1)
    write_pair(tmp_path, "a.jpg", "a.xml", drawn)
    write_pair(tmp_path, "b.jpg", "b.xml")
    [finding] = [finding for finding in lint(tmp_path).findings if finding.kind == "boxes_predicted"]
    assert (finding.file, finding.rank, finding.found[:30]) == ("a.xml", "info", "1 object with a <confidence>, ")


def test_a_filename_that_disagrees_is_named_and_the_stem_decides(tmp_path: Path) -> None:
    write_pair(tmp_path, "a.jpg", "a.xml", voc_xml(filename="C:\\old\\b.jpg"))
    write_pair(tmp_path, "b.JPG", "b.xml", voc_xml(filename="D:/pictures/b.jpg"))
    write_pair(tmp_path, "c.jpg", "c.xml", voc_xml(filename="c"))
    linted = lint(tmp_path)
    assert linted.counts["filename_disagrees"] == 1
    [finding] = findings(linted)
    assert (finding.file, finding.rank, finding.kind) == ("a.xml", "info", "filename_disagrees")
    assert finding.found == "<filename> is 'C:\\\\old\\\\b.jpg', the picture is a.jpg"
    assert linted.pairs == [("a.jpg", "a.xml"), ("b.JPG", "b.xml"), ("c.jpg", "c.xml")]


def test_photos_and_xml_whose_names_look_the_same_are_pairs_without_a_finding(tmp_path: Path) -> None:
    for index in range(3):
        composed, apart = f"caf\u00e9{index}", f"cafe\u0301{index}"
        write_pair(tmp_path, f"{apart}.jpg", f"{composed}.xml", voc_xml(filename=f"{composed}.jpg"))
    linted = lint(tmp_path, background="orphans")
    assert (linted.counts["annotated"], kinds(linted)) == (3, {})


@pytest.mark.parametrize("named", [{"filename": "photo.jpg"}, {"path": "C:\\Users\\me\\photo.jpg"}])
def test_filename_and_path_pair_what_the_stem_does_not(tmp_path: Path, named: dict[str, str]) -> None:
    write(tmp_path, "JPEGImages/photo.jpg")
    write(tmp_path, "Annotations/0001.xml", voc_xml(**named))  # type: ignore[arg-type]  # only str arguments are given
    assert lint(tmp_path).pairs == [("JPEGImages/photo.jpg", "Annotations/0001.xml")]


def test_equal_bytes_go_to_one_split(tmp_path: Path) -> None:
    for index in range(40):
        write_pair(tmp_path, f"{index}.jpg", f"{index}.xml")
        write(tmp_path, f"{index}.jpg", f"picture {index % 2}" + "x" * 10_000)
    linted = lint_folder(tmp_path, spec=JobSpec(split=(50, 25, 25)))
    by_bytes = {
        parity: {
            split
            for (image, _), split in zip(linted.pairs, linted.splits, strict=True)
            if int(image[:-4]) % 2 == parity
        }
        for parity in (0, 1)
    }
    assert all(len(splits) == 1 for splits in by_bytes.values())


def test_equal_size_and_ends_are_not_equal_bytes(tmp_path: Path) -> None:
    for index in range(40):
        write_pair(tmp_path, f"{index}.jpg", f"{index}.xml")
        write(tmp_path, f"{index}.jpg", "x" * 6000 + f"{index:04d}" + "x" * 6000)
    assert not [finding for finding in lint_folder(tmp_path, spec=JobSpec()).findings if finding.kind == "group_joined"]


def test_many_pairs_are_read_in_processes_with_the_same_result(tmp_path: Path) -> None:
    for index in range(600):
        write_objects(tmp_path, f"{index:03d}", CAT, ("cat", 5, 5, 5, 5 + index % 7))
    pairs = [(f"{index:03d}.jpg", f"{index:03d}.xml") for index in range(600)]
    alone = read_pairs(tmp_path, pairs, JobSpec(), lambda *_: None, processes=1)
    pooled = read_pairs(tmp_path, pairs, JobSpec(), lambda *_: None, processes=2)
    assert list(pooled.findings) == list(alone.findings)
    assert replace(pooled, findings=alone.findings) == alone
    assert len(alone.findings) == 600


@pytest.mark.skipif(not BCCD.is_dir(), reason="the sample data is not here")
def test_bccd_has_its_known_figures() -> None:
    linted = lint_folder(BCCD, spec=JobSpec())
    linted.require_usable()
    counts = linted.counts
    assert (counts["images"], counts["objects_read"], counts["background"]) == (364, 4888, 0)
    assert [(finding.file, finding.kind) for finding in linted.findings] == [
        ("Annotations/BloodImage_00133.xml", "box_far_larger"),
        ("Annotations/BloodImage_00135.xml", "box_far_larger"),
        ("Annotations/BloodImage_00338.xml", "box_zero_area"),
        ("Annotations/BloodImage_00343.xml", "box_zero_area"),
    ]
    assert (counts["train"], counts["val"], counts["test"]) == (205, 87, 72)
    assert linted.class_counts == {"Platelets": 361, "RBC": 4155 - 2, "WBC": 372}
    assert lint_report(linted).summary() == ("364 images, 0 without objects, 0 corrupt, 2 boxes dropped (2 zero area)")
    written = [
        voc_object.findtext("name")
        for path in sorted(BCCD.glob("Annotations/*.xml"))
        for voc_object in parse_xml(path.read_bytes(), file=path.name).findall("object")
    ]
    assert {name: written.count(name) for name in set(written)} == {"RBC": 4155, "WBC": 372, "Platelets": 361}


def test_several_files_of_one_stem_are_counted_as_what_they_are(tmp_path: Path) -> None:
    for name in ("a.jpg", "a.jpeg", "a.xml"):
        write(tmp_path, name, voc_xml())
    with pytest.raises(LintError, match="found 2 images, 1 XML file;"):
        lint(tmp_path).require_usable()
