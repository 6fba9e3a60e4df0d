"""Findings as a person reads them: the page, its JSON, `lint.csv`."""

import csv
import io
from pathlib import Path

from rich.console import Console

from producer.dataset.lint import LintedFolder
from producer.finalize.lint_csv import COLUMNS, lint_rows, merged_findings
from producer.terminal.lint_page import lint_report
from shared.command import hint
from shared.jobs.findings import Finding
from shared.storage import Storage
from tests.unit.producer.folders import CAT, lint, write_objects, write_pair


def lint_pair(root: Path) -> LintedFolder:
    """Of a clean folder."""
    for index in range(20):
        write_objects(root, f"{index}", CAT)
    return lint(root)


def finding(file: str, kind: str, index: int | None = None, rank: str = "dropped") -> Finding:
    return Finding.model_validate(
        {"file": file, "object_index": index, "rank": rank, "kind": kind, "found": "f", "done": "d"}
    )


def test_merged_findings_have_nothing_twice() -> None:
    zero, beyond = finding("a.xml", "box_zero_area", 1), finding("a.xml", "box_beyond_size", 2)
    clipped = finding("a.xml", "box_clipped", 2)
    assert list(merged_findings([zero, beyond], [zero, clipped])) == [zero, clipped]


def test_lint_csv_survives_any_name() -> None:
    names = ['a "b", c.xml', "neue\nzeile.xml", "\x1b[31m\u2028.xml", "größe.xml", "-.xml"]
    lines = list(lint_rows(finding(name, "box_zero_area", 3) for name in names))
    assert "\n".join(lines).splitlines() == lines
    rows = list(csv.reader(lines))
    assert rows[0] == list(COLUMNS)
    assert [row[0] for row in rows[1:]] == [
        'a "b", c.xml',
        r"neue\nzeile.xml",
        r"\x1b[31m\u2028.xml",
        "größe.xml",
        "-.xml",
    ]
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
    assert "splits (seeded): 2 train / 0 val / 0 test" in page
    assert "annotation_unreadable" in page
    assert "1 box under 4 px" in page
    assert page.index("(quarantined)") < page.index("(dropped)")
    assert "      1 box_zero_area (dropped): object dropped\n        a.xml: object 2: xmin 5" in page
    assert "128 to 256 px" in page
    assert "≥ 256 px" not in page


def test_the_page_of_ten_thousand_findings_is_as_short_as_of_one(tmp_path: Path) -> None:
    linted = lint_pair(tmp_path)
    pages = []
    for count in (1, 10_000):
        console = Console(width=80, record=True, file=io.StringIO())
        console.print(lint_report(linted, [finding("a.xml", "box_zero_area", 3)] * count).render())
        pages.append(console.export_text())
    assert len(pages[1].splitlines()) == len(pages[0].splitlines()) < 20
    assert " 10,000 box_zero_area" in pages[1]


def test_files_that_are_set_aside_are_named_up_to_three(tmp_path: Path) -> None:
    console = Console(width=80, record=True, file=io.StringIO())
    broken = [finding(f"{name}.jpg", "image_unreadable", None, "quarantined") for name in "abcd"]
    console.print(lint_report(lint_pair(tmp_path), broken).render())
    page = console.export_text()
    assert "        and b.jpg, c.jpg …" in page
    assert "if it is damaged, copy it" in page


def test_what_stops_a_submit_is_told_in_full(tmp_path: Path) -> None:
    console = Console(width=60, record=True, file=io.StringIO())
    stopping = finding("a.xml", "class_unknown", 3, "error").model_copy(update={"found": "word " * 40})
    console.print(lint_report(lint_pair(tmp_path), [stopping]).render())
    assert console.export_text().count("word") == 40


def test_the_next_steps_are_those_still_to_do(tmp_path: Path) -> None:
    linted = lint_pair(tmp_path)
    assert lint_report(linted).next_steps(tmp_path, pixels=False, listed=False) == (
        f"next: {hint('submit', tmp_path, '--split', '100/0/0')}\n--pixels opens every picture too"
    )
    stopping = finding("a.xml", "class_unknown", 3, "error")
    assert lint_report(linted, [stopping]).next_steps(tmp_path, pixels=False, listed=True) == (
        "1 finding of rank error: a submit would stop\nonce that is fixed, --pixels opens every picture"
    )


def test_a_strict_lint_says_why_it_fails_and_names_no_next_step(tmp_path: Path) -> None:
    linted = lint_pair(tmp_path)
    steps = lint_report(linted, [finding("a.xml", "box_zero_area", 3)]).next_steps(
        tmp_path, pixels=False, listed=True, strict=True
    )
    assert steps == "--strict: 1 finding, and none is allowed\n--pixels opens every picture too"


def test_the_next_step_carries_the_store(tmp_path: Path) -> None:
    steps = lint_report(lint_pair(tmp_path)).next_steps(
        tmp_path, pixels=False, listed=False, store=Storage(str(tmp_path / "elsewhere"))
    )
    assert steps.splitlines()[0].endswith(f"--store {tmp_path}/elsewhere")


def test_the_report_as_json_has_the_first_finding_of_each_kind(tmp_path: Path) -> None:
    write_objects(tmp_path, "a", CAT, ("cat", 5, 5, 5, 9))
    as_dict = lint_report(lint(tmp_path)).to_dict()
    by_kind = {entry["kind"]: entry for entry in as_dict["findings"]}
    assert by_kind["box_zero_area"]["first"]["object_index"] == 2
    assert as_dict["class_counts"] == {"cat": 1}
