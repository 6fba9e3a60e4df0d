"""`lint.csv` by page, kind and class: nothing lost, nothing twice, and a damaged line is named."""

from pathlib import Path

import pytest

from producer.finalize.lint_csv import lint_rows
from producer.page.facts.findings import PAGE, FindingsTable, FindingsTables
from shared.errors import FormatError, PlanError
from shared.jobs.findings import Finding
from shared.storage import Storage

KINDS = ("box_clipped", "class_typo", "image_unreadable")
# As any class may be called; one that needs quotes in a CSV, and findings without one.
CLASSES = ("king", 'king, "of" hearts', "", "queen")


def findings(count: int) -> list[Finding]:
    return [
        Finding(
            file=f"photos/{number:06d}.jpg",
            object_index=number % 5 or None,
            rank="info",
            kind=KINDS[number % 3],
            found=f'number {number}, "quoted", of class {"quen" if number % 7 == 0 else "king"}\nand a line',
            done="kept",
            class_name=CLASSES[number % 4],
        )
        for number in range(count)
    ]


def table(count: int) -> FindingsTable:
    return FindingsTable("".join(f"{line}\n" for line in lint_rows(findings(count))).encode(), "lint.csv")


def test_pages_hold_every_finding_once() -> None:
    read = table(120)
    shown = [row for page in (1, 2, 3) for row in read.page(page)[0]]
    assert [row.file for row in shown] == [finding.file for finding in findings(120)]
    assert [row.object_index for row in shown] == [finding.object_index for finding in findings(120)]
    assert len(read.page(1)[0]) == PAGE
    assert read.page(4) == ([], 120)


def test_a_kind_and_a_word_leave_those_that_have_both() -> None:
    read = table(120)
    assert dict(read.counts) == dict.fromkeys(KINDS, 40)
    rows, total = read.page(1, kind="class_typo", text="QUEN")
    expected = [number for number in range(120) if number % 3 == 1 and number % 7 == 0]
    assert ([row.file for row in rows], total) == ([f"photos/{n:06d}.jpg" for n in expected], len(expected))
    assert read.page(1, kind="no_such_kind") == ([], 0)


@pytest.mark.parametrize(("place", "name"), [(place, name) for place, name in enumerate(CLASSES) if name])
def test_a_class_leaves_the_findings_about_its_objects_with_or_without_a_kind(place: int, name: str) -> None:
    read = table(120)
    assert dict(read.class_counts) == dict.fromkeys(filter(None, CLASSES), 30)
    rows, total = read.page(1, class_name=name)
    assert ({row.class_name for row in rows}, total) == ({name}, 30)
    assert [row.number for row in rows] == [number for number in range(120) if number % 4 == place]
    rows, total = read.page(1, class_name=name, kind="box_clipped", text="number")
    assert [row.number for row in rows] == [number for number in range(120) if number % 4 == place and number % 3 == 0]
    assert read.page(1, class_name="no such class") == ([], 0)


def test_what_a_version_without_classes_wrote_is_read_and_has_none() -> None:
    of_before = FindingsTable(
        b'file,object,rank,kind,found,done\na.xml,2,mended,box_clipped,"cat, far",clipped\na.xml,,quarantined,x,y,z\n',
        "",
    )
    assert dict(of_before.counts) == {"box_clipped": 1, "x": 1}
    assert (of_before.class_counts, of_before.aside) == ([], [("x", 1)])
    (row, other), total = of_before.page(1)
    assert (row.found, row.object_index, row.class_name, other.object_index, total) == ("cat, far", 2, "", None, 2)
    assert of_before.page(1, class_name="cat") == ([], 0)


def test_files_that_never_were_of_a_pair_are_no_photos_that_were_set_aside() -> None:
    lines = (
        "a.xml,,quarantined,annotation_unreadable,malformed XML,pair quarantined,",
        "b\\xfc.jpg,,quarantined,name_not_utf8,a name that is not UTF-8,refused,",
        '"c.jpg",,quarantined,ambiguous_stem,"a/c.xml, b/c.xml",left out,',
    )
    read = FindingsTable("\n".join(["file,object,rank,kind,found,done,class", *lines, ""]).encode(), "lint.csv")
    assert read.aside == [("annotation_unreadable", 1)]
    assert dict(read.counts) == {"annotation_unreadable": 1, "name_not_utf8": 1, "ambiguous_stem": 1}


def test_text_of_a_finding_is_what_was_found() -> None:
    assert table(1).row(0).found.startswith('number 0, "quoted", of class quen')


def test_a_number_that_is_none_and_a_damaged_line_are_named() -> None:
    read = FindingsTable(b"file,object,rank,kind,found,done\na,b,c\n", "lint.csv")
    with pytest.raises(FormatError, match=r"lint\.csv: line 2 has 3 cells, 6 were expected"):
        read.row(0)
    with pytest.raises(PlanError, match="has 1 finding, and no number 7"):
        read.row(7)


def test_a_table_is_read_again_when_its_file_has_changed(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    tables = FindingsTables(storage)
    assert tables.get("job") is None
    for count in (3, 5):
        storage.write("jobs/job/lint.csv", "".join(f"{line}\n" for line in lint_rows(findings(count))).encode())
        found = tables.get("job")
        assert found is not None
        assert len(found) == count
        assert tables.get("job") is found
