"""One pair in, one outcome out: what needs both the annotation and the picture."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.errors import StorageError
from shared.jobs import schema
from shared.jobs.job import PathPair
from shared.placement import clip_box
from tests.unit.worker.pictures import encode, make_recipe, soft_picture, voc_xml, with_orientation, write_pair
from worker.record.example import parse_example
from worker.record.prepare import PreparedExample, Quarantine, prepare_example

WIDE = soft_picture(200, 100)
BOX = (20, 10, 120, 60)


def prepare(tmp_path: Path, image: bytes, xml: bytes | None, *, extension: str = ".jpg", **options: Any) -> Any:
    pair = write_pair(tmp_path / "set", "a", image, xml, extension=extension)
    return prepare_example(pair, recipe=make_recipe(tmp_path, **options))


def kinds(example: PreparedExample) -> list[str]:
    return [finding.kind for finding in example.findings]


def boxes(example: PreparedExample) -> list[tuple[float, float, float, float]]:
    """As fractions, from the record itself."""
    features = parse_example(example.record)
    return list(zip(*(features[key] for key in (schema.XMIN, schema.YMIN, schema.XMAX, schema.YMAX)), strict=True))


def test_pair_becomes_a_record(tmp_path: Path) -> None:
    example = prepare(tmp_path, encode(WIDE), voc_xml(BOX, size=(200, 100)))
    features = parse_example(example.record)
    assert features[schema.FILENAME] == [b"JPEGImages/a.jpg"]
    assert features[schema.SOURCE_ID] == [b"1"]
    assert features[schema.CLASS_LABEL] == [1]
    assert features[schema.AREA] == [pytest.approx(0.5 * 0.5 * 64 * 64)]
    np.testing.assert_allclose(boxes(example), [(0.1, 0.1, 0.6, 0.6)], atol=1e-6)
    assert example.findings == ()


def test_letterboxed_boxes_follow_the_picture(tmp_path: Path) -> None:
    example = prepare(tmp_path, encode(WIDE), voc_xml(BOX, size=(200, 100)), resize="letterbox")
    np.testing.assert_allclose(boxes(example), [(0.1, 0.25 + 0.05, 0.6, 0.25 + 0.3)], atol=1e-6)


def test_size_that_lies_is_counted_and_the_picture_decides(tmp_path: Path) -> None:
    example = prepare(tmp_path, encode(WIDE), voc_xml(BOX, size=(400, 200)))
    assert kinds(example) == ["size_differs"]
    np.testing.assert_allclose(boxes(example), [(0.1, 0.1, 0.6, 0.6)], atol=1e-6)


@pytest.mark.parametrize(
    ("box", "stored", "found"),
    [
        ((-10, -10, 100, 50), [(0, 0, 0.5, 0.5)], ["box_clipped"]),
        ((150, 50, 250, 150), [(0.75, 0.5, 1, 1)], ["box_clipped"]),
        ((100, 50, 201, 101), [(0.5, 0.5, 1, 1)], ["box_clipped"]),
        ((160, 60, 321, 100), [], ["box_outside"]),
        ((300, 10, 400, 60), [], ["box_outside"]),
        ((-50, 0, 0, 50), [], ["box_outside"]),
        ((0, 0, 200, 100), [(0, 0, 1, 1)], []),
        ((-1e308, -1e308, 1e308, 1e308), [], ["box_outside"]),
    ],
)
def test_box_beyond_the_picture_is_clipped_or_dropped_under_a_quarter(
    tmp_path: Path, box: tuple[float, ...], stored: list[tuple[float, ...]], found: list[str]
) -> None:
    example = prepare(tmp_path, encode(WIDE), voc_xml(box, size=(200, 100)))
    assert kinds(example) == found
    assert {finding.class_name for finding in example.findings} <= {"cat"}
    for each in (boxes(example), [np.divide(one.box, example.size) for one in example.objects]):  # record, COCO
        np.testing.assert_allclose(np.reshape(each, (-1, 4)), np.reshape(stored, (-1, 4)), atol=1e-6)


def test_a_photo_that_loses_its_last_box_to_clipping_is_said_to_be_a_picture_of_nothing(tmp_path: Path) -> None:
    outside, thin = (300, 10, 400, 60, "cat"), (5, 5, 5, 9, "cat")
    emptied = prepare(tmp_path, encode(WIDE), voc_xml(outside, thin, size=(200, 100)))
    assert {finding.kind: finding.done for finding in emptied.findings} == {
        "box_zero_area": "object dropped",  # as the submit says it, which reads the XML alone
        "box_outside": "object dropped, the photo stays as a picture of nothing",
    }
    kept = prepare(tmp_path, encode(WIDE), voc_xml(BOX, outside, thin, size=(200, 100)))
    assert {finding.done for finding in kept.findings} == {"object dropped"}


@given(st.lists(st.floats(-500, 500), min_size=4, max_size=4), st.integers(1, 300), st.integers(1, 300))
def test_clipped_box_lies_inside_and_its_remaining_part_is_right(corners: list[float], width: int, height: int) -> None:
    xmin, xmax = sorted(corners[:2])
    ymin, ymax = sorted(corners[2:])
    if xmax - xmin < 1e-3 or ymax - ymin < 1e-3:
        return
    clipped, remaining = clip_box((xmin, ymin, xmax, ymax), (width, height))
    assert 0 <= remaining <= 1
    if remaining:
        assert 0 <= clipped[0] < clipped[2] <= width
        assert 0 <= clipped[1] < clipped[3] <= height
        area = (clipped[2] - clipped[0]) * (clipped[3] - clipped[1])
        assert remaining == pytest.approx(area / ((xmax - xmin) * (ymax - ymin)), rel=1e-6)


def test_box_too_thin_for_a_float32_is_dropped_and_counted(tmp_path: Path) -> None:
    example = prepare(tmp_path, encode(WIDE), voc_xml((150, 10, 150.000001, 60), size=(200, 100)))
    assert kinds(example) == ["box_zero_area"]


def test_class_that_is_not_of_the_job_is_an_error_and_its_object_dropped(tmp_path: Path) -> None:
    example = prepare(tmp_path, encode(WIDE), voc_xml(BOX, (1, 1, 50, 50, "bird"), size=(200, 100)))
    assert [(finding.kind, finding.rank) for finding in example.findings] == [("class_unknown", "error")]
    assert len(example.objects) == 1


def test_a_job_of_before_with_a_line_break_in_a_class_name_goes_on(tmp_path: Path) -> None:
    xml = voc_xml((*BOX, "a\nb"), size=(200, 100))
    example = prepare(tmp_path, encode(WIDE), xml, labels=("a\nb", "cat"))
    assert parse_example(example.record)[schema.CLASS_TEXT] == [b"a b"]
    assert parse_example(example.record)[schema.CLASS_LABEL] == [1]
    assert kinds(example) == ["class_respelled"]


def test_a_job_of_before_with_an_accent_of_its_own_in_a_class_name_goes_on_with_that_name(tmp_path: Path) -> None:
    decomposed = "ve\u0301lo"
    for written in (decomposed, "v\u00e9lo"):
        xml = voc_xml((*BOX, written), size=(200, 100))
        features = parse_example(prepare(tmp_path, encode(WIDE), xml, labels=("cat", decomposed)).record)
        assert features[schema.CLASS_TEXT] == [decomposed.encode()]
        assert features[schema.CLASS_LABEL] == [2]


@pytest.mark.parametrize(("difficult", "flags"), [("keep", ([1], [0])), ("ignore", ([1], [1])), ("drop", ([], []))])
def test_difficult_objects_are_flagged_ignored_or_dropped(
    tmp_path: Path, difficult: str, flags: tuple[list[int], list[int]]
) -> None:
    xml = voc_xml(BOX, size=(200, 100), extra="<difficult>1</difficult>")
    features = parse_example(prepare(tmp_path, encode(WIDE), xml, difficult=difficult).record)
    assert (features[schema.DIFFICULT], features[schema.IS_CROWD]) == flags
    plain = parse_example(prepare(tmp_path, encode(WIDE), voc_xml(BOX, size=(200, 100)), difficult=difficult).record)
    assert (plain[schema.DIFFICULT], plain[schema.IS_CROWD]) == ([0], [0]), "others are learned whatever is asked"


def test_annotation_without_objects_is_a_background_example(tmp_path: Path) -> None:
    example = prepare(tmp_path, encode(WIDE), voc_xml(size=(200, 100)))
    assert boxes(example) == []
    assert example.findings == ()


def test_picture_without_annotation_is_a_background_example(tmp_path: Path) -> None:
    example = prepare(tmp_path, with_orientation(WIDE, 6), None)
    assert boxes(example) == []
    assert kinds(example) == ["exif_turned"]


@pytest.mark.parametrize(
    ("size", "box", "options", "upright_box", "found"),
    [
        ((100, 200), (10, 20, 60, 120), {}, (0.1, 0.1, 0.6, 0.6), "exif_upright"),
        ((200, 100), (20, 10, 120, 60), {}, (0.4, 0.1, 0.9, 0.6), "exif_raw"),
        (None, (20, 10, 120, 60), {}, (0.4, 0.1, 0.9, 0.6), "exif_raw"),
        (None, (10, 20, 60, 120), {}, (0.1, 0.1, 0.6, 0.6), "exif_upright"),
        (None, (10, 20, 60, 70), {}, (0.1, 0.1, 0.6, 0.35), "exif_undecided"),
        (None, (10, 20, 60, 70), {"exif": "raw"}, (0.3, 0.05, 0.8, 0.3), "exif_undecided"),
    ],
)
def test_boxes_of_a_turned_photo_are_taken_in_their_frame(
    tmp_path: Path,
    size: tuple[int, int] | None,
    box: tuple[int, ...],
    options: dict[str, Any],
    upright_box: tuple[float, ...],
    found: str,
) -> None:
    """Orientation 6: 200x100 stored, 100x200 upright; (x, y) raw is (100 - y, x) upright."""
    example = prepare(tmp_path, with_orientation(WIDE, 6), voc_xml(box, size=size), **options)
    assert kinds(example) == (["size_missing", found] if size is None else [found])
    np.testing.assert_allclose(boxes(example), [upright_box], atol=1e-6)


@pytest.mark.parametrize(("image_format", "extension"), [("PNG", ".jpg"), ("JPEG", ".png"), ("WEBP", ".dat")])
def test_wrong_extension_is_read_by_its_bytes_and_the_true_format_named(
    tmp_path: Path, image_format: str, extension: str
) -> None:
    example = prepare(tmp_path, encode(WIDE, image_format), voc_xml(BOX, size=(200, 100)), extension=extension)
    assert [(finding.kind, finding.found) for finding in example.findings] == [
        ("format_differs", f"the bytes are {image_format.lower()}")
    ]


def opencv_file(extension: str, pixels: np.ndarray[Any, Any]) -> bytes:
    return cv2.imencode(extension, pixels)[1].tobytes()


@pytest.mark.parametrize("is_dry", [False, True])
@pytest.mark.parametrize("extension", [".png", ".tiff"])
def test_samples_that_fill_few_of_16_bits_are_told(extension: str, is_dry: bool, tmp_path: Path) -> None:
    told = [
        [(each.kind, each.found) for each in prepare(tmp_path, content, None, extension=extension, dry=is_dry).findings]
        for content in (
            opencv_file(extension, WIDE.astype(np.uint16) * 16),  # of a camera of 12 bits
            opencv_file(extension, 23_000 + WIDE.astype(np.uint16) * 8),  # thermal
            opencv_file(extension, WIDE.astype(np.uint16) * 257),
            opencv_file(extension, WIDE // 16),  # a dark photo of 8 bits is what it is
        )
    ]
    (dark,), (flat,), *others = told
    assert [dark[0], flat[0]] == ["depth_unused"] * 2
    assert dark[1].startswith("16-bit samples that differ so little that 1")
    assert others == [[], []]


@pytest.mark.parametrize(
    ("image", "xml", "kind", "file"),
    [
        (encode(WIDE)[:800], voc_xml(BOX), "image_unreadable", "JPEGImages/a.jpg"),
        (b"", voc_xml(BOX), "image_unreadable", "JPEGImages/a.jpg"),
        (b"<html>404</html>", voc_xml(BOX), "image_unreadable", "JPEGImages/a.jpg"),
        (encode(WIDE), b"<annotation>", "annotation_unreadable", "Annotations/a.xml"),
        (encode(WIDE), b"", "annotation_unreadable", "Annotations/a.xml"),
        (b"", b"", "annotation_unreadable", "Annotations/a.xml"),
    ],
)
def test_unreadable_file_quarantines_the_pair_under_one_finding(
    tmp_path: Path, image: bytes, xml: bytes, kind: str, file: str
) -> None:
    outcome = prepare(tmp_path, image, xml)
    assert isinstance(outcome, Quarantine)
    assert (outcome.finding.rank, outcome.finding.kind, outcome.finding.file) == ("quarantined", kind, file)
    assert outcome.finding.found


def another_picture(folder: Path) -> None:
    """Of as many bytes: what follows a JPEG's end is not read."""
    picture = folder / "JPEGImages/a.jpg"
    size = picture.stat().st_size
    picture.write_bytes(encode(soft_picture(200, 100, seed=9), quality=50).ljust(size, b"\0"))
    assert picture.stat().st_size == size


def another_xml(folder: Path) -> None:
    (folder / "Annotations/a.xml").write_bytes(voc_xml((21, 10, 120, 60), size=(200, 100)))


@pytest.mark.parametrize("change", [another_picture, another_xml])
def test_pair_that_is_not_what_the_submit_read_is_set_aside(tmp_path: Path, change: Callable[[Path], None]) -> None:
    pair = write_pair(tmp_path / "set", "a", encode(WIDE), voc_xml(BOX, size=(200, 100)))
    change(tmp_path / "set")
    outcome = prepare_example(pair, recipe=make_recipe(tmp_path))
    assert isinstance(outcome, Quarantine)
    assert (outcome.finding.kind, outcome.finding.file) == ("pair_changed", "JPEGImages/a.jpg")
    assert outcome.finding.found.startswith("the picture or its XML (Annotations/a.xml) has changed since the submit")


def test_changed_picture_without_xml_is_named_alone(tmp_path: Path) -> None:
    pair = write_pair(tmp_path / "set", "a", encode(WIDE), None)
    another_picture(tmp_path / "set")
    outcome = prepare_example(pair, recipe=make_recipe(tmp_path))
    assert isinstance(outcome, Quarantine)
    assert outcome.finding.found.startswith("the picture has changed since the submit")


def test_files_written_again_as_they_were_are_no_change(tmp_path: Path) -> None:
    pair = write_pair(tmp_path / "set", "a", encode(WIDE), voc_xml(BOX, size=(200, 100)))
    for path in (pair.image, str(pair.annotation)):
        file = tmp_path / "set" / path
        content = file.read_bytes()
        file.unlink()
        file.write_bytes(content)
    assert isinstance(prepare_example(pair, recipe=make_recipe(tmp_path)), PreparedExample)


def test_xml_that_cannot_be_read_any_more_says_why(tmp_path: Path) -> None:
    pair = write_pair(tmp_path / "set", "a", encode(WIDE), voc_xml(BOX))
    (tmp_path / "set/Annotations/a.xml").write_bytes(b"<annotation>")
    outcome = prepare_example(pair, recipe=make_recipe(tmp_path))
    assert isinstance(outcome, Quarantine)
    assert outcome.finding.kind == "annotation_unreadable"


def test_bomb_is_quarantined_under_the_cap_of_the_job(tmp_path: Path) -> None:
    outcome = prepare(tmp_path, encode(WIDE), voc_xml(BOX), max_pixels=19_999)
    assert isinstance(outcome, Quarantine)
    assert "200x100 pixels, at most 19999" in outcome.finding.found


def test_missing_file_is_quarantined_and_a_missing_or_empty_folder_is_the_stores_error(tmp_path: Path) -> None:
    photos = tmp_path / "set/photos"
    photos.mkdir(parents=True)
    pair = PathPair(image="photos/a.jpg", annotation=None, source_id=1, fingerprint="0" * 16)
    outcome = prepare_example(pair, recipe=make_recipe(tmp_path))
    assert isinstance(outcome, Quarantine)
    assert (outcome.finding.kind, outcome.finding.found) == ("pair_changed", "no such file any more")
    photos.rename(tmp_path / "set/others")
    with pytest.raises(StorageError, match="photos: this folder of the data set is absent; mount it"):
        prepare_example(pair, recipe=make_recipe(tmp_path))
    (tmp_path / "set/others").rmdir()
    with pytest.raises(StorageError, match="set: the folder of the data set is absent or empty; mount it"):
        prepare_example(pair, recipe=make_recipe(tmp_path))
    (tmp_path / "set").rmdir()
    with pytest.raises(StorageError, match="set: the folder of the data set is absent or empty; mount it"):
        prepare_example(pair, recipe=make_recipe(tmp_path))


def test_link_out_of_the_data_root_is_refused_and_one_inside_is_followed(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    pair = write_pair(outside, "a", encode(WIDE), voc_xml(BOX, size=(200, 100)))
    root.mkdir()
    (root / "set").symlink_to(outside)
    outcome = prepare_example(pair, recipe=make_recipe(root))
    assert isinstance(outcome, Quarantine)
    assert "leads out of the data root" in outcome.finding.found
    (root / "set").unlink()
    outside.rename(root / "elsewhere")
    (root / "set").symlink_to(root / "elsewhere")
    assert isinstance(prepare_example(pair, recipe=make_recipe(root)), PreparedExample)


def test_pipe_folder_and_loop_in_place_of_a_picture_do_not_block(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    folder.mkdir()
    os.mkfifo(folder / "pipe.jpg")
    (folder / "folder.jpg").mkdir()
    (folder / "loop.jpg").symlink_to("loop.jpg")
    for name in ("pipe.jpg", "folder.jpg", "loop.jpg", "long" * 100 + ".jpg"):
        pair = PathPair(image=name, annotation=None, source_id=1, fingerprint="0" * 16)
        outcome = prepare_example(pair, recipe=make_recipe(tmp_path))
        assert isinstance(outcome, Quarantine)
        assert outcome.finding.kind == "image_unreadable"


def test_dry_job_checks_the_picture_and_writes_no_record(tmp_path: Path) -> None:
    example = prepare(tmp_path, encode(WIDE), voc_xml((150, 50, 250, 150), size=(200, 100)), dry=True)
    assert example.record == b""
    assert kinds(example) == ["box_clipped"]
    assert isinstance(prepare(tmp_path, encode(WIDE)[:900], voc_xml(BOX), dry=True), Quarantine)


def test_the_input_is_never_touched(tmp_path: Path) -> None:
    image, xml = with_orientation(WIDE, 6, "TIFF"), voc_xml(BOX)
    prepare(tmp_path, image, xml, extension=".tiff")
    assert (tmp_path / "set/JPEGImages/a.tiff").read_bytes() == image
    assert (tmp_path / "set/Annotations/a.xml").read_bytes() == xml
