"""Photos that were made smaller after they were labelled: lint tells it by the first bytes of each."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from producer.finalize.lint_csv import merged_findings
from tests.path_pairs import path_pair
from tests.unit.producer.folders import CAT, findings, lint, voc_xml, write
from tests.unit.worker.pictures import encode, make_recipe, soft_picture, with_orientation
from worker.record.prepare import PreparedExample, prepare_example

HALF, LABELLED = (60, 40), (120, 80)


def write_photo(root: Path, size: tuple[int, int], image_format: str = "JPEG", orientation: int = 1) -> None:
    """A photo of this (width, height) as stored, labelled in another size, its box in the far corner."""
    pixels = soft_picture(*size)
    photo = encode(pixels, image_format) if orientation == 1 else with_orientation(pixels, orientation)
    write(root, "a.jpg", photo)
    write(root, "a.xml", voc_xml([("cat", 70, 50, 110, 75)], size=LABELLED))


def told(root: Path, **spec: Any) -> list[tuple[str, str, str]]:
    return [(each.file, each.kind, each.found) for each in findings(lint(root, **spec)) if "size" in each.kind]


@pytest.mark.parametrize("image_format", ["JPEG", "PNG", "WEBP", "BMP"])
def test_a_photo_smaller_than_its_xml_says_is_named_with_the_boxes_that_it_loses(
    tmp_path: Path, image_format: str
) -> None:
    write_photo(tmp_path, HALF, image_format)
    assert told(tmp_path) == [
        ("a.jpg", "size_differs", "<size> 120x80, the picture is 60x40"),
        ("a.xml", "box_beyond_size", "xmin 70, ymin 50, xmax 110, ymax 75 in a picture of 60x40"),
    ]
    assert lint(tmp_path).counts["emptied"] == 1


def test_a_photo_on_its_side_is_of_either_size(tmp_path: Path) -> None:
    write_photo(tmp_path, (LABELLED[1], LABELLED[0]), orientation=6)
    assert not told(tmp_path)
    write_photo(tmp_path, LABELLED, orientation=6)
    assert not told(tmp_path)


def test_a_photo_that_may_lie_on_its_side_by_what_stands_behind_its_pixels_is_left_to_the_workers(
    tmp_path: Path,
) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (LABELLED[0], LABELLED[1], 3), dtype=np.uint8)
    write(tmp_path, "a.webp", with_orientation(noise, 6, "WEBP", lossless=True))
    write(tmp_path, "a.xml", voc_xml([CAT], size=LABELLED))
    assert not told(tmp_path)
    small = noise[:20, :15]
    write(tmp_path, "a.webp", with_orientation(small, 6, "WEBP", lossless=True))
    assert [kind for _, kind, _ in told(tmp_path)] == ["size_differs", "box_beyond_size"]


def test_a_photo_whose_size_stands_behind_its_first_bytes_is_left_to_the_workers(tmp_path: Path) -> None:
    photo = encode(soft_picture(*HALF))
    write(tmp_path, "a.jpg", photo[:2] + b"\xff\xfe" + (5002).to_bytes(2) + bytes(5000) + photo[2:])
    write(tmp_path, "a.xml", voc_xml([CAT], size=LABELLED))
    assert not told(tmp_path)


def test_lint_and_worker_say_the_same_once(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    write_photo(folder, HALF)
    submitted = list(lint(folder).findings)
    outcome = prepare_example(path_pair(folder, "a.jpg", "a.xml", source_id=1), recipe=make_recipe(tmp_path))
    assert isinstance(outcome, PreparedExample)
    by_worker = [each for each in outcome.findings if each.kind == "size_differs"]
    assert by_worker == [each for each in submitted if each.kind == "size_differs"]
    merged = [each.kind for each in merged_findings(submitted, outcome.findings)]
    assert merged.count("size_differs") == 1
