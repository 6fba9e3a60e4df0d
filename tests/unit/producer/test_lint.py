import csv
import io
import os
from pathlib import Path

import pytest
from rich.console import Console

from producer.boxsizes import BoxSizes
from producer.lint import LintedFolder, lint_folder
from producer.lint_csv import COLUMNS, lint_rows, merged_findings
from producer.lint_report import lint_report
from producer.plan import plan_job
from producer.reading import read_pairs
from shared.annotation import class_names, read_annotation
from shared.errors import LintError
from shared.job import JobSpec
from shared.manifest import Finding
from tests.unit.producer.folders import Object, voc_xml, write, write_pair

BCCD = Path(os.environ.get("VOC_BCCD", "../shared/data/bccd"))
CAT: Object = ("cat", 10, 10, 50, 50)


def lint(root: Path, **spec: object) -> LintedFolder:
    return lint_folder(root, spec=JobSpec.model_validate({"split": (100, 0, 0), **spec}))


def kinds(linted: LintedFolder) -> dict[str, list[str]]:
    """Kind of finding → the files it names."""
    named: dict[str, list[str]] = {}
    for finding in linted.findings:
        named.setdefault(finding.kind, []).append(finding.file)
    return named


def write_objects(root: Path, stem: str, *objects: Object) -> None:
    write_pair(root, f"{stem}.jpg", f"{stem}.xml", voc_xml(objects))


def test_a_clean_set_has_no_findings(tmp_path: Path) -> None:
    write_objects(tmp_path, "a", CAT, ("dog", 1, 1, 9, 9))
    linted = lint(tmp_path)
    assert not kinds(linted)
    assert linted.labels.names == ("cat", "dog")
    assert linted.class_counts == {"cat": 1, "dog": 1}
    assert linted.counts["class:dog"] == 1


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
    assert "line 1" in linted.findings[0].found
    assert linted.counts["unreadable"] == 1
    assert len(linted.pairs) == 2


def test_an_xml_above_the_size_cap_is_not_read_whole(tmp_path: Path) -> None:
    write_objects(tmp_path, "a", CAT)
    write(tmp_path, "b.jpg", "b")
    with open(tmp_path / "b.xml", "wb") as file:
        file.truncate(2**34)
    assert kinds(lint(tmp_path)) == {"annotation_unreadable": ["b.xml"]}


def test_names_that_differ_only_in_case_are_warned_about(tmp_path: Path) -> None:
    write_objects(tmp_path, "a", CAT, ("Cat", 1, 1, 9, 9), ("ÜBER", 1, 1, 9, 8), ("über", 1, 1, 8, 8))
    found = [finding.found for finding in lint(tmp_path).findings if finding.kind == "class_case"]
    assert found == ["class names differ only in case: 'Cat', 'cat'", "class names differ only in case: 'ÜBER', 'über'"]


def test_classes_are_renamed_ignored_and_chosen(tmp_path: Path) -> None:
    write_objects(tmp_path, "a", CAT, ("Katze", 1, 1, 9, 9), ("dog", 1, 1, 9, 8), ("sky", 0, 0, 9, 8))
    linted = lint(tmp_path, rename={"Katze": "cat"}, ignore_classes=["sky"], classes=["cat", "dog", "bird"])
    assert linted.labels.names == ("bird", "cat", "dog")
    assert linted.class_counts == {"bird": 0, "cat": 2, "dog": 1}
    assert set(kinds(linted)) == {"class_ignored", "class_unseen"}


def test_an_unknown_class_stops_the_submit_unless_skipped(tmp_path: Path) -> None:
    write_objects(tmp_path, "a", CAT, ("dog", 1, 1, 9, 9))
    with pytest.raises(LintError, match="class 'dog' is not in --classes"):
        lint(tmp_path, classes=["cat"]).require_usable()
    linted = lint(tmp_path, classes=["cat"], unknown="skip")
    linted.require_usable()
    assert kinds(linted) == {"class_skipped": ["a.xml"]}


@pytest.mark.parametrize("files", [[], ["a.jpg"], ["a.xml"], ["a.jpg", "b.xml", "c.txt"]])
def test_a_folder_without_a_usable_pair_stops_the_submit(tmp_path: Path, files: list[str]) -> None:
    for file in files:
        write(tmp_path, file, voc_xml())
    with pytest.raises(LintError, match="no_usable_pair: no picture with a readable XML"):
        lint(tmp_path).require_usable()


def test_a_set_without_objects_stops_the_submit(tmp_path: Path) -> None:
    write_objects(tmp_path, "a")
    with pytest.raises(LintError, match="no object of any class"):
        lint(tmp_path).require_usable()


def test_lists_that_leave_train_empty_stop_the_submit(tmp_path: Path) -> None:
    write_pair(tmp_path, "JPEGImages/a.jpg", "Annotations/a.xml")
    write(tmp_path, "ImageSets/Main/test.txt", "a\n")
    with pytest.raises(LintError, match="no picture in train"):
        lint(tmp_path).require_usable()


def test_a_picture_in_two_lists_stops_the_submit(tmp_path: Path) -> None:
    write_pair(tmp_path, "JPEGImages/a.jpg", "Annotations/a.xml")
    for name in ("train", "test"):
        write(tmp_path, f"ImageSets/Main/{name}.txt", "\ufeffa\r\n\r\n")
    with pytest.raises(LintError, match=r"JPEGImages/a\.jpg: listed_in_two: in train\.txt and test\.txt"):
        lint(tmp_path).require_usable()


def test_strict_stops_on_any_finding(tmp_path: Path) -> None:
    write_objects(tmp_path, "a", CAT, ("cat", 5, 5, 5, 9))
    with pytest.raises(LintError, match="box_zero_area"):
        plan_job(tmp_path, spec=JobSpec(split=(100, 0, 0)), job="job", strict=True)


def test_a_folder_that_is_not_there_is_a_lint_error(tmp_path: Path) -> None:
    with pytest.raises(LintError, match="expected a folder that can be listed"):
        lint(tmp_path / "nowhere")


def test_boxes_beyond_the_size_in_the_xml_are_told_before_any_picture_is_read(tmp_path: Path) -> None:
    write_objects(tmp_path, "a", CAT, ("cat", -1, 0, 100, 80), ("cat", 0, 0, 100, 80))
    [finding] = [finding for finding in lint(tmp_path).findings if finding.kind == "box_beyond_size"]
    assert (finding.file, finding.object_index) == ("a.xml", 2)


def test_a_filename_that_disagrees_is_counted_and_the_stem_decides(tmp_path: Path) -> None:
    write_pair(tmp_path, "a.jpg", "a.xml", voc_xml(filename="C:\\old\\b.jpg"))
    write_pair(tmp_path, "b.jpg", "b.xml", voc_xml(filename="b.jpg"))
    linted = lint(tmp_path)
    assert linted.counts["filename_disagrees"] == 1
    assert linted.pairs == [("a.jpg", "a.xml"), ("b.jpg", "b.xml")]


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
    assert pooled == alone
    assert len(alone.findings) == 600


@pytest.mark.parametrize(
    ("resize", "wanted"), [("stretch", {"4 to 8 px": 1, "< 4 px": 1}), ("letterbox", {"4 to 8 px": 1, "< 4 px": 1})]
)
def test_box_sizes_are_those_of_the_stored_picture(resize: str, wanted: dict[str, int]) -> None:
    # 640x320 → 320x320: stretched only the width halves, letterboxed both do.
    sizes = BoxSizes()
    boxes = {"stretch": [(0, 0, 8, 4), (0, 0, 7, 40)], "letterbox": [(0, 0, 8, 8), (0, 0, 40, 7)]}[resize]
    xml = voc_xml([("cat", *box) for box in boxes], size=(640, 320))
    sizes.add(read_annotation(xml, file="a.xml", spec=JobSpec()), 320, resize)  # type: ignore[arg-type]
    assert {name: count for name, count in sizes.rows() if count} == wanted
    assert sizes.tiny == 1


def test_boxes_of_unknown_size_are_counted_apart() -> None:
    sizes = BoxSizes()
    sizes.add(read_annotation(voc_xml(size=None), file="a.xml", spec=JobSpec()), 320, "stretch")
    assert (sizes.unsized, sizes.tiny) == (1, 0)


def finding(file: str, kind: str, index: int | None = None, rank: str = "dropped") -> Finding:
    return Finding.model_validate(
        {"file": file, "object_index": index, "rank": rank, "kind": kind, "found": "f", "done": "d"}
    )


def test_merged_findings_have_nothing_twice() -> None:
    zero, beyond = finding("a.xml", "box_zero_area", 1), finding("a.xml", "box_beyond_size", 2)
    clipped = finding("a.xml", "box_clipped", 2)
    assert list(merged_findings([zero, beyond], [zero, clipped])) == [zero, clipped]


def test_lint_csv_survives_any_name() -> None:
    names = ['a "b", c.xml', "neue\nzeile.xml", "größe.xml", "-.xml"]
    text = "\n".join(lint_rows(finding(name, "box_zero_area", 3) for name in names))
    rows = list(csv.reader(io.StringIO(text, newline="")))
    assert rows[0] == list(COLUMNS)
    assert [row[0] for row in rows[1:]] == names
    assert rows[1][1:4] == ["3", "dropped", "box_zero_area"]


def test_the_report_is_one_sentence_bars_and_kinds(tmp_path: Path) -> None:
    write_objects(tmp_path, "a", CAT, ("cat", 5, 5, 5, 9), ("dog", 1, 1, 2, 2))
    write_objects(tmp_path, "b")
    write_pair(tmp_path, "c.jpg", "c.xml", b"no")
    report = lint_report(lint(tmp_path))
    assert report.summary() == "3 images, 1 without objects, 1 corrupt, 1 box dropped (1 zero area)"
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(report.render())
    page = console.export_text()
    assert "splits (seeded): 3 train / 0 val / 0 test" in page
    assert "annotation_unreadable" in page
    assert "1 box under 4 px" in page
    assert page.index("quarantined") < page.index("dropped  ")


def test_the_report_as_json_has_the_first_finding_of_each_kind(tmp_path: Path) -> None:
    write_objects(tmp_path, "a", CAT, ("cat", 5, 5, 5, 9))
    as_dict = lint_report(lint(tmp_path)).to_dict()
    by_kind = {entry["kind"]: entry for entry in as_dict["findings"]}
    assert by_kind["box_zero_area"]["first"]["object_index"] == 2
    assert as_dict["class_counts"] == {"cat": 1}


@pytest.mark.skipif(not BCCD.is_dir(), reason="the sample data is not here")
def test_bccd_has_its_known_figures() -> None:
    planned = plan_job(BCCD, spec=JobSpec(), job="bccd")
    counts = planned.counts
    assert (counts["images"], counts["objects_read"], counts["background"]) == (364, 4888, 0)
    assert [(finding.file, finding.kind) for finding in planned.findings] == [
        ("Annotations/BloodImage_00338.xml", "box_zero_area"),
        ("Annotations/BloodImage_00343.xml", "box_zero_area"),
    ]
    assert (counts["train"], counts["val"], counts["test"]) == (205, 87, 72)
    assert planned.linted.class_counts == {"Platelets": 361, "RBC": 4155 - 2, "WBC": 372}
    assert lint_report(planned.linted).summary() == (
        "364 images, 0 without objects, 0 corrupt, 2 boxes dropped (2 zero area)"
    )
    written = [
        name
        for path in sorted(BCCD.glob("Annotations/*.xml"))
        for name in class_names(path.read_bytes(), file=path.name)
    ]
    assert {name: written.count(name) for name in set(written)} == {"RBC": 4155, "WBC": 372, "Platelets": 361}
