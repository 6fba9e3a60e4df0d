"""How large boxes become in the stored picture, and boxes that are no pixels."""

from pathlib import Path

import pytest

from producer.dataset.box_sizes import BoxSizes
from producer.terminal.console import Terminal
from producer.terminal.lint_page import lint_report
from shared.annotation.reader import read_annotation
from shared.errors import LintError
from shared.specs.data import JobSpec
from tests.unit.producer.folders import Object, kinds, lint, voc_xml, write_objects, write_pair


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


def test_normalized_boxes_are_named_and_of_no_size_and_stop_a_submit_where_all_are(tmp_path: Path) -> None:
    for number in range(12):
        write_objects(tmp_path, f"a{number}", ("cat", 0.1, 0.2, 0.5, 1), ("cat", 0, 0, 1, 1))
    linted = lint(tmp_path)
    found = kinds(linted)
    assert (len(found["boxes_normalized"]), linted.boxes.tiny) == (12, 0)
    first = next(finding for finding in linted.findings if finding.kind == "boxes_normalized")
    assert "(xmin 0.1, ymin 0.2, xmax 0.5, ymax 1): they look normalized, expected pixels" in first.found
    with pytest.raises(LintError, match=r"the boxes of all 12 files look normalized \(0 to 1\), expected pixels; mult"):
        linted.require_usable()
    write_objects(tmp_path, "b", ("cat", 10, 10, 50, 50))
    mixed = lint(tmp_path)
    mixed.require_usable()
    assert mixed.counts["boxes_normalized"] == 12
    page = Terminal(width=200)
    with page.capture() as shown:
        page.print(lint_report(mixed).render())
    assert "multiply x by the picture's width and y by its height" in shown.get()
    assert "under 4 px" not in shown.get()


def test_boxes_beside_the_corner_are_pixels_where_one_box_is(tmp_path: Path) -> None:
    write_objects(tmp_path, "a", ("cat", 0, 0, 1, 1), ("cat", 0, 0, 40, 40))
    linted = lint(tmp_path)
    assert "boxes_normalized" not in kinds(linted)
    assert linted.boxes.tiny == 1


def write_sized(root: Path, stem: str, size: tuple[int, int], *objects: Object) -> None:
    """A pair whose XML says this size."""
    write_pair(root, f"{stem}.jpg", f"{stem}.xml", voc_xml(objects, size=size))


@pytest.mark.parametrize("coords", ["corner", "voc1"])
def test_boxes_that_look_like_percent_in_every_file_are_told(coords: str, tmp_path: Path) -> None:
    for number in range(5):
        write_sized(tmp_path, f"a{number}", (640, 480), ("cat", 0, 12.5, 100, 60), ("cat", 40, 1, 80, 100))
    write_sized(tmp_path, "b", (640, 480))
    (finding,) = [each for each in lint(tmp_path, voc_coords=coords).findings if each.kind == "boxes_percent"]
    assert finding.found.startswith("the boxes of all 5 files lie between 0 and 100: they look like percent")
    assert finding.done.endswith("multiply x by width / 100 and y by height / 100 of the picture")


def test_small_objects_in_some_files_or_small_pictures_are_not_taken_for_percent(tmp_path: Path) -> None:
    for number in range(9):
        write_sized(tmp_path, f"a{number}", (640, 480), ("cat", 0, 12, 100, 60))
    write_sized(tmp_path, "b", (640, 480), ("cat", 0, 12, 101, 60))
    assert "boxes_percent" not in kinds(lint(tmp_path))
    for number in range(9):
        write_sized(tmp_path / "few", f"a{number}", (640, 480 if number < 4 else 199), ("cat", 0, 12, 100, 60))
    assert "boxes_percent" not in kinds(lint(tmp_path / "few"))


def test_files_that_are_in_no_split_are_not_counted(tmp_path: Path) -> None:
    used = [f"a{number}" for number in range(5)]
    for stem in used:
        write_sized(tmp_path, stem, (640, 480), ("cat", 0, 12.5, 100, 60))
    write_sized(tmp_path, "unused", (640, 480), ("cat", 0, 12.5, 400, 300))
    write_sized(tmp_path, "unused_percent", (640, 480), ("cat", 0, 12.5, 100, 60))
    (tmp_path / "ImageSets" / "Main").mkdir(parents=True)
    (tmp_path / "ImageSets" / "Main" / "train.txt").write_text("\n".join(used))
    boxes = lint(tmp_path).boxes
    assert (boxes.sized_files, boxes.percent_files, sum(boxes.bins.values())) == (5, 5, 5)


def test_normalized_boxes_are_seen_whatever_the_coordinates_begin_with(tmp_path: Path) -> None:
    write_objects(tmp_path, "a", ("cat", 0.1, 0.2, 0.5, 0.9))
    assert "boxes_normalized" in kinds(lint(tmp_path, voc_coords="voc1"))
