"""What speaks of a folder as a whole: orphans, class names, formats of others, splits without a picture."""

import re
from pathlib import Path

import pytest

from shared.errors import LintError
from shared.specs.training import FEW_OBJECTS, FEW_PHOTOS, TrainingOptions
from shared.text import LFS_POINTER
from tests.unit.producer.folders import CAT, findings, kinds, lint, voc_xml, write, write_objects, write_pair


def test_orphans_are_named_and_left_out(tmp_path: Path) -> None:
    write_objects(tmp_path, "a", CAT)
    write(tmp_path, "b.jpg")
    write(tmp_path, "c.xml", voc_xml())
    linted = lint(tmp_path)
    assert kinds(linted) == {"image_without_annotation": ["b.jpg"], "annotation_without_image": ["c.xml"]}
    assert linted.pairs == [("a.jpg", "a.xml")]
    assert (linted.counts["images"], linted.counts["annotations"], linted.counts["pairs"]) == (2, 2, 1)


def test_background_orphans_become_pairs_without_xml(tmp_path: Path) -> None:
    write_objects(tmp_path, "b", CAT)
    write(tmp_path, "a.jpg", "a")
    linted = lint(tmp_path, background="orphans")
    assert linted.pairs == [("a.jpg", None), ("b.jpg", "b.xml")]
    assert linted.counts["background"] == 1
    assert [f.done for f in linted.findings if f.kind == "image_without_annotation"] == ["kept as a background example"]


@pytest.mark.parametrize("background", ["orphans", "none"])
def test_a_photo_whose_xml_was_refused_is_no_background_example(tmp_path: Path, background: str) -> None:
    folder = tmp_path / "set"
    write_objects(folder, "b", CAT)
    for stem in "acd":
        write(folder, f"{stem}.jpg", stem)
    (folder / "A.xml").symlink_to(write(tmp_path, "elsewhere.xml", voc_xml()))
    (folder / "c.XML").symlink_to(tmp_path / "nowhere.xml")
    linted = lint(folder, background=background)
    told = [(finding.file, finding.found, finding.done) for finding in linted.findings if finding.rank == "info"]
    assert [row for row in told if row[0] in ("a.jpg", "c.jpg")] == [
        ("a.jpg", "the XML of its name was refused", "left out"),
        ("c.jpg", "the XML of its name was refused", "left out"),
    ]
    assert kinds(linted)["image_without_annotation"] == ["d.jpg"]
    assert linted.pairs == [("b.jpg", "b.xml")] + ([("d.jpg", None)] if background == "orphans" else [])


def test_an_orphan_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    write_objects(tmp_path, "a", CAT)
    write(tmp_path, "b.jpg")
    write(tmp_path, "annotations.xml", "<annotations/>")
    [found] = [finding.found for finding in lint(tmp_path).findings if finding.file == "annotations.xml"]
    assert (
        found == "no picture belongs to it; CVAT's own format, expected Pascal VOC; export it again as Pascal VOC 1.1"
    )


def test_of_two_xml_of_one_photo_the_one_left_out_says_which_was_taken(tmp_path: Path) -> None:
    write_objects(tmp_path, "JPEGImages/a", CAT)
    write(tmp_path, "Annotations/a.xml", voc_xml())
    linted = lint(tmp_path)
    assert linted.pairs == [("JPEGImages/a.jpg", "JPEGImages/a.xml")]
    [finding] = [each for each in linted.findings if each.kind == "annotation_without_image"]
    assert finding.file == "Annotations/a.xml"
    assert finding.found == "JPEGImages/a.jpg, of the same name, goes with JPEGImages/a.xml"


def test_names_that_differ_only_in_case_are_warned_about(tmp_path: Path) -> None:
    write_objects(tmp_path, "a", CAT, ("Cat", 1, 1, 9, 9), ("ÜBER", 1, 1, 9, 8), ("über", 1, 1, 8, 8))
    found = [finding.found for finding in lint(tmp_path).findings if finding.kind == "class_case"]
    assert found == ["class names differ only in case: 'Cat', 'cat'; 'ÜBER', 'über'"]


def test_classes_are_renamed_ignored_and_chosen(tmp_path: Path) -> None:
    write_objects(tmp_path, "a", CAT, ("Katze", 1, 1, 9, 9), ("dog", 1, 1, 9, 8), ("sky", 0, 0, 9, 8))
    linted = lint(tmp_path, rename={"Katze": "cat"}, ignore_classes=["sky"], classes=["cat", "dog"])
    assert linted.labels.names == ("cat", "dog")
    assert linted.class_counts == {"cat": 2, "dog": 1}
    assert set(kinds(linted)) == {"class_ignored"}


def test_an_asked_class_without_a_usable_box_stays_in_the_label_map(tmp_path: Path) -> None:
    write_objects(tmp_path, "a", CAT, ("bird", 1, 1, 1, 9))
    linted = lint(tmp_path, classes=["cat", "bird"])
    assert linted.class_counts == {"bird": 0, "cat": 1}
    assert "class_unseen" in kinds(linted)


@pytest.mark.parametrize("files", [[], ["a.jpg"], ["a.xml"], ["a.jpg", "b.xml", "c.txt"]])
def test_a_folder_without_a_usable_pair_stops_the_submit(tmp_path: Path, files: list[str]) -> None:
    for file in files:
        write(tmp_path, file, voc_xml())
    with pytest.raises(LintError, match="no picture with a readable XML"):
        lint(tmp_path).require_usable()


@pytest.mark.parametrize(
    ("other", "wanted"),
    [
        ("labels/a.txt", "found 1 image, 0 XML files, 1 .txt (YOLO?), only Pascal-VOC XML is read"),
        ("a.json", "1 .json (COCO, labelme or Vott?)"),
        ("set00.mat", "1 .mat (MATLAB?), only Pascal-VOC XML is read"),
        ("notes.md", "found 1 image, 0 XML files; label them"),
    ],
)
def test_a_folder_of_another_format_is_told_so(tmp_path: Path, other: str, wanted: str) -> None:
    write(tmp_path, "images/a.jpg")
    write(tmp_path, other)
    [reason] = [finding.found for finding in lint(tmp_path).findings if finding.rank == "error"]
    assert re.search(wanted.replace("(", r"\(").replace(")", r"\)").replace("?", r"\?"), reason)


def test_splits_without_a_picture_are_one_finding(tmp_path: Path) -> None:
    write_objects(tmp_path, "a", CAT)
    [finding] = findings(lint(tmp_path, split=(80, 10, 10)))
    assert (finding.kind, finding.found) == ("split_empty", "no picture in val and test (dealt by --split and --seed)")


def test_a_set_without_objects_stops_the_submit(tmp_path: Path) -> None:
    write_objects(tmp_path, "a")
    with pytest.raises(LintError, match="no XML has an object; draw boxes"):
        lint(tmp_path).require_usable()


def test_lists_that_leave_train_empty_stop_the_submit(tmp_path: Path) -> None:
    write_pair(tmp_path, "JPEGImages/a.jpg", "Annotations/a.xml")
    write(tmp_path, "ImageSets/Main/test.txt", "a\n")
    with pytest.raises(LintError, match="no picture in train"):
        lint(tmp_path).require_usable()


def test_a_class_of_left_out_photos_only_is_no_class(tmp_path: Path) -> None:
    write_objects(tmp_path, "a", CAT)
    write_objects(tmp_path, "b", ("dog", 10, 10, 50, 50))
    write(tmp_path, "ImageSets/Main/train.txt", "a\n")
    linted = lint(tmp_path)
    assert (linted.labels.names, linted.class_counts) == (("cat",), {"cat": 1})
    assert sum(count for _, count in linted.boxes.rows()) == 1


def test_only_objects_of_photos_that_are_in_a_split_are_counted(tmp_path: Path) -> None:
    outside = ("cat", 200, 200, 250, 250)
    for stem in "abc":
        write_objects(tmp_path, stem, CAT, ("cat", 20, 20, 40, 40), ("cat", 5, 5, 5, 9))
    for stem in "de":
        write_objects(tmp_path, stem, outside)
    write(tmp_path, "ImageSets/Main/train.txt", "a\nb\nd\n")
    counts = lint(tmp_path).counts
    assert (counts["objects_read"], counts["objects_kept"], counts["emptied"]) == (7, 5, 1)
    assert (counts["train"], counts["left_out"], counts["annotated"], counts["class:cat"]) == (3, 2, 5, 5)


def test_the_backbone_is_chosen_by_the_objects_of_photos_that_a_list_names(tmp_path: Path) -> None:
    listed = FEW_PHOTOS // 10
    for index in range(4 * listed):  # twice too many objects for it in all, half as many as may be in the list
        write_objects(tmp_path, f"{index}", *(("cat", at, 1, at + 20, 50) for at in range(FEW_OBJECTS // listed // 2)))
    assert TrainingOptions().with_backbone(lint(tmp_path).counts, None).backbone == "conv"
    write(tmp_path, "ImageSets/Main/train.txt", "\n".join(map(str, range(listed))))
    assert TrainingOptions().with_backbone(lint(tmp_path).counts, None).backbone == "efficientnet_lite0"


def test_a_set_is_small_by_the_photos_that_can_be_used_and_are_in_a_split(tmp_path: Path) -> None:
    for index in range(30):
        write_objects(tmp_path, f"{index:02d}", CAT)
    write(tmp_path, "ImageSets/Main/train.txt", "\n".join(f"{index:02d}" for index in range(19)))
    write(tmp_path, "00.xml", "<annotation>")
    write(tmp_path, "29.xml", "<annotation>")
    assert [finding.found for finding in lint(tmp_path).findings if finding.kind == "set_small"] == ["18 photos"]


def test_a_set_whose_objects_are_all_of_photos_that_no_list_names_is_not_said_to_have_none(tmp_path: Path) -> None:
    write_objects(tmp_path, "a", CAT)
    write_objects(tmp_path, "b")
    write(tmp_path, "ImageSets/Main/train.txt", "b\n")
    with pytest.raises(LintError, match="no object can be used; the other findings say why"):
        lint(tmp_path).require_usable()


def test_a_split_that_the_folder_decides_is_said_not_to_be_used(tmp_path: Path) -> None:
    write_objects(tmp_path, "a", CAT)
    write(tmp_path, "ImageSets/Main/train.txt", "a\n")
    told = {finding.kind: finding.found for finding in lint(tmp_path, split=(50, 25, 25)).findings}
    assert told["split_not_used"] == "--split is not used: the lists in ImageSets/Main decide"
    assert "split_not_used" not in {finding.kind for finding in lint(tmp_path, split=(80, 10, 10)).findings}


def test_a_seed_that_deals_no_split_is_said_to_be_of_shards_and_training(tmp_path: Path) -> None:
    write_objects(tmp_path, "a", CAT)
    write(tmp_path, "ImageSets/Main/train.txt", "a\n")
    linted = lint(tmp_path, seed=7)
    [told] = [finding for finding in linted.findings if finding.kind == "seed_deals_nothing"]
    assert told.found == "--seed deals no splits: the lists in ImageSets/Main decide"
    assert linted.counts["split_by_lists"] == 1
    assert "seed_deals_nothing" not in kinds(lint(tmp_path))
    (tmp_path / "ImageSets/Main/train.txt").unlink()
    assert "seed_deals_nothing" not in kinds(lint(tmp_path, seed=7))


def test_two_typos_of_a_third_name_have_one_remedy_and_ignoring_all_classes_is_none(tmp_path: Path) -> None:
    names = ["racoon", "Racoon", *["raccoon"] * 5]
    for index, name in enumerate(names):
        write_objects(tmp_path, f"p{index}", (name, 10, 10, 50, 50))
    told = {finding.kind: finding.done for finding in lint(tmp_path).findings}
    assert "class_case" not in told
    assert told["class_typo"].count("=raccoon") == 2
    assert "--ignore-classes" not in told["class_small"]


def test_of_many_small_classes_some_are_named_and_all_are_counted(tmp_path: Path) -> None:
    for index in range(30):
        write_objects(tmp_path, f"p{index}", (f"PLATE-{index:02}", 10, 10, 50, 50))
    [found] = [finding.found for finding in lint(tmp_path).findings if finding.kind == "class_small"]
    assert found.startswith("PLATE-00 (1), PLATE-01 (1)")
    assert found.endswith("PLATE-09 (1) and 20 more of 30")


def test_no_command_is_proposed_that_would_take_a_class_with_a_comma_for_two(tmp_path: Path) -> None:
    for index in range(10):
        write_objects(tmp_path, f"p{index}", CAT)
    write_objects(tmp_path, "few", ("person, sitting", 10, 10, 50, 50), ("dog", 10, 10, 50, 50))
    [told] = [finding.done for finding in lint(tmp_path).findings if finding.kind == "class_small"]
    assert "`" not in told
    assert told.endswith("--ignore-classes, which takes a name with a comma only by a new name that --rename gave it")
    asked = {"rename": ["person, sitting=sitting"], "ignore_classes": "sitting,dog"}  # as it is typed
    assert lint(tmp_path, **asked).class_counts == {"cat": 10}


def test_each_object_of_a_rare_typo_is_named_with_file_and_class_with_or_without_a_size(tmp_path: Path) -> None:
    for index in range(20):
        write_objects(tmp_path, f"p{index}", ("raccoon", 10, 10, 50, 50))
    write_objects(tmp_path, "two", ("raccoon", 10, 10, 50, 50), ("racoon", 1, 1, 9, 9), ("racoon", 20, 20, 40, 40))
    unsized = re.sub("<size>.*?</size>", "", (tmp_path / "two.xml").read_text(), flags=re.DOTALL)
    write(tmp_path, "unsized.xml", unsized.replace("racoon", "raccon"))
    write(tmp_path, "unsized.jpg", "another")
    told = [finding for finding in lint(tmp_path).findings if finding.kind == "class_typo"]
    assert [(finding.file, finding.object_index, finding.class_name, finding.found) for finding in told] == [
        ("two.xml", 2, "racoon", "racoon (2), did you mean raccoon (22)?"),
        ("two.xml", 3, "racoon", "racoon (2), did you mean raccoon (22)?"),
        ("unsized.xml", 2, "raccon", "raccon (2), did you mean raccoon (22)?"),
        ("unsized.xml", 3, "raccon", "raccon (2), did you mean raccoon (22)?"),
    ]
    assert {finding.done for finding in told} == {
        "kept apart; to join them: `--rename raccon=raccoon --rename racoon=raccoon`"
    }


def test_a_typo_of_more_than_ten_objects_is_one_finding_and_those_that_no_list_names_are_none(tmp_path: Path) -> None:
    for index in range(11):
        write_objects(
            tmp_path, f"p{index}", *[("raccoon", 10, 10, 50 + at, 50) for at in range(6)], ("racoon", 1, 1, 9, 9)
        )
    told = [finding for finding in lint(tmp_path).findings if finding.kind == "class_typo"]
    assert [(finding.file, finding.object_index, finding.class_name) for finding in told] == [(".", None, "racoon")]
    write(tmp_path, "ImageSets/Main/train.txt", "p1\np2\n")
    told = [finding for finding in lint(tmp_path).findings if finding.kind == "class_typo"]
    assert [(finding.file, finding.object_index) for finding in told] == [("p1.xml", 7), ("p2.xml", 7)]


def test_a_photo_whose_only_box_is_dropped_is_said_to_be_a_picture_of_nothing(tmp_path: Path) -> None:
    write_objects(tmp_path, "a", ("cat", 5, 5, 5, 9))
    write_objects(tmp_path, "b", CAT, ("cat", 5, 5, 5, 9))
    done = [finding.done for finding in lint(tmp_path).findings if finding.kind == "box_zero_area"]
    assert done == ["object dropped, the photo stays as a picture of nothing", "object dropped"]


def test_a_rounded_corner_is_not_beyond_the_picture(tmp_path: Path) -> None:
    write_objects(tmp_path, "a", ("cat", 10, 10, 100.00024, 50))
    assert "box_beyond_size" not in kinds(lint(tmp_path))


def test_why_no_object_can_be_used_is_told_by_what_was_asked(tmp_path: Path) -> None:
    write_objects(tmp_path, "a", ("cat", 5, 5, 5, 9))
    with pytest.raises(
        LintError, match=r"no object can be used; the other findings say why, the first: a\.xml: xmin 5"
    ):
        lint(tmp_path).require_usable()
    with pytest.raises(LintError, match="no object of any class that is asked for"):
        lint(tmp_path, classes=("cat",)).require_usable()


def test_splits_count_the_photos_that_can_be_used(tmp_path: Path) -> None:
    for stem in "abc":
        write_objects(tmp_path, stem, CAT)
    write(tmp_path, "a.xml", "<annotation>")
    write(tmp_path, "b.jpg", b"")
    found = lint(tmp_path)
    assert (found.counts["pairs"], found.counts["train"], found.counts["left_out"]) == (3, 1, 0)
    [empty] = [finding for finding in found.findings if finding.kind == "image_unreadable"]
    assert (empty.file, empty.rank, empty.found) == ("b.jpg", "quarantined", "the file is empty")


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (
            LFS_POINTER + b"v1\noid sha256:00\nsize 9\n",
            "a pointer of Git LFS instead of the picture: `git lfs pull` fetch",
        ),
        (b"<!DOCTYPE html>404", "not an image this project reads: a text file (HTML or XML)"),
    ],
)
def test_files_that_are_no_pictures_are_told_without_opening_them_and_not_as_copies(
    tmp_path: Path, content: bytes, found: str
) -> None:
    for stem in "abc":
        write_objects(tmp_path, stem, CAT)
    for stem in "bc":
        write(tmp_path, f"{stem}.jpg", content)
        write(tmp_path, f"{stem}.xml", voc_xml([("dog", 1, 1, 30, 30 + ord(stem))]))
    linted = lint(tmp_path)
    told = [finding for finding in linted.findings if finding.rank == "quarantined"]
    assert [(finding.file, finding.kind) for finding in told] == [(f"{stem}.jpg", "image_unreadable") for stem in "bc"]
    assert told[0].found.startswith(found)
    assert not {"duplicate", "duplicate_conflicting"} & set(kinds(linted))
    assert linted.counts["train"] == 1


@pytest.mark.parametrize(("given", "what", "other"), [("a", "XML files", "annots"), ("annots", "photos", "JPEGImages")])
def test_who_names_one_half_of_a_set_is_told_where_the_other_is(
    tmp_path: Path, given: str, what: str, other: str
) -> None:
    write_pair(tmp_path, "JPEGImages/a.jpg", "annots/a.xml")
    write(tmp_path, "a/a.jpg", "")
    with pytest.raises(LintError, match=f"the {what} are in {tmp_path}/{other}: give {tmp_path}, which has both"):
        lint(tmp_path / given).require_usable()


def test_a_set_whose_photos_are_all_set_aside_is_refused_and_so_is_a_train_without_one(tmp_path: Path) -> None:
    for stem in "ab":
        write_pair(tmp_path, f"train/{stem}.jpg", f"train/{stem}.xml")
        write(tmp_path, f"train/{stem}.jpg", LFS_POINTER)
    said = r"every photo is set aside; the other findings say why, the first: train/a\.jpg: a pointer of Git LFS"
    with pytest.raises(LintError, match=said):
        lint(tmp_path).require_usable()
    write_pair(tmp_path, "valid/c.jpg", "valid/c.xml")
    linted = lint(tmp_path)
    [finding] = [each for each in linted.findings if each.rank == "error"]
    assert (finding.kind, finding.done) == ("nothing_to_learn", "the submit is stopped, unless it is --no-train")
    assert (
        finding.found
        == "every photo in train (the folders train, val and test decide) is set aside; the other findings say why"
    )


def _marked(*objects: tuple[str, bool]) -> bytes:
    """An XML with objects, some of which are marked difficult; all are of one box but for its width."""
    parts = [
        f"<object><name>{name}</name><difficult>{int(mark)}</difficult>"
        f"<bndbox><xmin>1</xmin><ymin>1</ymin><xmax>{20 + at}</xmax><ymax>30</ymax></bndbox></object>"
        for at, (name, mark) in enumerate(objects)
    ]
    return f"<annotation><size><width>100</width><height>80</height></size>{''.join(parts)}</annotation>".encode()


def test_a_class_whose_every_object_is_difficult_is_told(tmp_path: Path) -> None:
    write_pair(tmp_path, "train/a.jpg", "train/a.xml", _marked(("cat", False), ("dog", True), ("emu", True)))
    write_pair(tmp_path, "test/b.jpg", "test/b.xml", _marked(("cat", False), ("dog", False), ("emu", True)))
    told: dict[str, list[tuple[str, str | None]]] = {how: [] for how in ("keep", "ignore", "drop")}
    for how, rows in told.items():
        rows += [(each.kind, each.class_name) for each in findings(lint(tmp_path, difficult=how)) if each.class_name]
    assert told["keep"] == [("class_difficult", "emu")]
    assert told["ignore"] == [("class_difficult", "dog"), ("class_difficult", "emu")]
    dropped = [row for row in told["drop"] if row[0] != "difficult_dropped"]
    assert dropped == [("class_not_in_train", "dog"), ("class_unseen", "emu")]
    [dog, _] = [each for each in findings(lint(tmp_path, difficult="ignore")) if each.kind == "class_difficult"]
    assert dog.found == "1 object of class 'dog' in train, all of them marked difficult"
    assert dog.done == "never learned, as --difficult ignore asks; to learn them: `--difficult keep`"


def test_a_training_set_of_difficult_objects_alone_is_nothing_to_learn_if_they_are_ignored(tmp_path: Path) -> None:
    write_pair(tmp_path, "train/a.jpg", "train/a.xml", _marked(("cat", True)))
    write_pair(tmp_path, "test/b.jpg", "test/b.xml", _marked(("cat", False)))
    lint(tmp_path).require_usable()
    ignoring = lint(tmp_path, difficult="ignore")
    with pytest.raises(
        LintError, match="every object in train is marked difficult, and --difficult ignore learns none"
    ):
        ignoring.require_usable()
    ignoring.require_usable(is_learned=False)


def test_a_test_set_alone_is_in_the_way_of_a_training_only(tmp_path: Path) -> None:
    write_objects(tmp_path, "a", CAT)
    write(tmp_path, "ImageSets/Main/test.txt", "a\n")
    linted = lint(tmp_path)
    with pytest.raises(LintError, match="no picture in train"):
        linted.require_usable()
    linted.require_usable(is_learned=False)
    [done] = [finding.done for finding in linted.findings if finding.kind == "nothing_to_learn"]
    assert done == "the submit is stopped, unless it is --no-train"


def test_a_class_without_a_usable_object_is_said_to_be_unknown_to_the_model(tmp_path: Path) -> None:
    write_objects(tmp_path, "a", CAT, ("bird", 1, 1, 1, 9), ("sky", 1, 1, 1, 9), ("Ape", 1, 1, 1, 9))
    linted = lint(tmp_path, ignore_classes=["sky"], rename={"Ape": "ape"})
    told = [(each.class_name, each.done) for each in linted.findings if each.kind == "class_unseen"]
    assert told == [(name, "not in the label map: the model will not know it") for name in ("ape", "bird")]
