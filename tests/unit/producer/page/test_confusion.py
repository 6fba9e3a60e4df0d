"""What was taken for what, in plain Python as the report has it with numpy, and precision over recall."""

import re
from typing import Any

import numpy as np
import pytest

from producer.page.facts.confusion import Confusion, confusion_of, precision_recall
from shared.audit.seen import SeenSplit
from shared.jobs.versioned import read_stored
from tests.unit.producer.page.measured import FILES, LABELS, seen, seen_file, there
from trainer.detections import Detections
from trainer.evaluation.curves import confusion, truth_by_image
from trainer.evaluation.detections_file import choose, read_detections


def parsed(content: bytes) -> Confusion:
    return confusion_of(read_stored(SeenSplit, content, "x"))


def random_file(seed: int, photos: int = 40) -> bytes:
    """Photos with objects, and detections near them, beside them and nowhere, of two classes."""
    draw = np.random.default_rng(seed)
    objects, detections = [], []
    for photo in range(photos):
        for _ in range(draw.integers(0, 5)):
            box = [*draw.uniform(0, 60, 2), *draw.uniform(10, 40, 2)]
            objects.append(there(photo, int(draw.integers(1, 3)), box, ignore=int(draw.random() < 0.15)))
            for _ in range(draw.integers(0, 4)):
                near = [value + draw.normal(0, 5) for value in box]
                detections.append(seen(photo, int(draw.integers(1, 3)), round(float(draw.random()), 5), near))
        detections.append(seen(photo, 1, round(float(draw.random()), 5), [*draw.uniform(0, 80, 2), 12, 12]))
    images = [{"id": photo + 7, "file_name": f"{photo:03d}.jpg"} for photo in range(photos)]
    objects = [{**row, "id": at, "iscrowd": 0, "area": 1.0} for at, row in enumerate(objects, start=1)]
    return seen_file(objects, detections, images=images)


def as_arrays(content: bytes) -> tuple[dict[int, Detections], dict[int, Any]]:
    """The same file as the report has it, photos by their place."""
    split = read_detections(content, "detections_test.json")
    chosen = choose(split, list(split.photos()), list(split.labels))
    return chosen.seen, truth_by_image(chosen.truth)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("least", [0.0, 0.3, 0.44, 0.7, 1.0])
def test_counts_are_those_of_the_report(seed: int, least: float) -> None:
    content = random_file(seed)
    detections, truth = as_arrays(content)
    assert parsed(content).counts(least) == confusion(detections, truth, len(LABELS), least).tolist()


@pytest.mark.parametrize("seed", range(4))
def test_every_count_has_photos_behind_it_and_no_more_than_that(seed: int) -> None:
    found = parsed(random_file(seed))
    for least in (0.1, 0.6):
        for at, row in enumerate(found.counts(least)):
            for to, count in enumerate(row):
                files = found.files((at, to), least)
                assert (len(files) > 0) == (count > 0)
                boxes = found.boxes((at, to), least)
                assert {file for file in boxes if boxes[file]} == files
                turns = found.turns((at, to)).values()
                assert sum(turn < least if to == len(LABELS) else turn >= least for turn in turns) == len(files)
                assert len(files) <= count


def test_a_threshold_moves_counts_into_missed() -> None:
    found = parsed(seen_file())
    # Rows: a cat, a dog, nothing; columns: seen as a cat, as a dog, not at all.
    assert found.counts(0.5) == [[1, 0, 1], [1, 0, 0], [2, 0, 0]]
    assert found.counts(0.85) == [[1, 0, 1], [0, 0, 1], [0, 0, 0]]
    assert found.counts(0.95) == [[0, 0, 2], [0, 0, 1], [0, 0, 0]]


def test_a_cell_names_its_photos_and_says_what_it_is() -> None:
    found = parsed(seen_file())
    assert found.files((1, 0), 0.5) == {FILES[0]}
    assert found.files((0, 2), 0.5) == {FILES[1]}
    assert found.files((2, 0), 0.5) == {FILES[1], FILES[2]}
    assert found.files((1, 0), 0.85) == frozenset()
    assert [found.words(cell) for cell in ((0, 0), (0, 2), (2, 0), (1, 0))] == [
        "cat found",
        "cat missed",
        "cat made up, or badly placed",
        f"{LABELS[1]} taken for cat",
    ]


@pytest.mark.parametrize(
    ("there", "seen", "cell"),
    [
        ("0", "1", (0, 1)),
        ("2", "0", (2, 0)),
        ("0", "2", (0, 2)),
        ("2", "2", None),
        ("3", "0", None),
        ("-1", "0", None),
        ("", "0", None),
        ("0", "", None),
        ("²", "0", None),
        ("9" * 5000, "0", None),
        ("<b>", "0", None),
    ],
)
def test_an_address_names_a_cell_or_none(there: str, seen: str, cell: tuple[int, int] | None) -> None:
    assert parsed(seen_file()).cell(there, seen) == cell


def test_precision_over_recall_goes_down_with_each_wrong_one() -> None:
    drawn = precision_recall([{"name": "cat", "objects": 4, "right": [0.9, 0.7], "wrong": [0.8, 0.1]}])
    assert drawn is not None
    points = [tuple(map(float, pair.split(","))) for pair in drawn.curves[0].points.split()]
    xs, ys = [x for x, _ in points], [y for _, y in points]
    assert xs == sorted(xs)
    assert len(points) == 4
    # 1 of 1, 1 of 2, 2 of 3, 2 of 4 right; the box grows downwards.
    assert ys[0] < ys[2] < ys[1] == ys[3]
    assert xs[1] == xs[0] < xs[2] == xs[3]


def test_curves_are_of_the_classes_with_the_most_objects() -> None:
    rows = [{"name": f"c{n}", "objects": n, "right": [0.9, 0.5], "wrong": []} for n in range(9)]
    drawn = precision_recall(rows)
    assert drawn is not None
    assert [curve.name for curve in drawn.curves] == ["c8", "c7", "c6", "c5", "c4"]
    assert precision_recall([{"name": "cat", "objects": 3, "right": [], "wrong": []}]) is None
    assert re.fullmatch(r"precision over recall, %", drawn.title)


def test_thresholds_are_marked_on_the_curve_and_recall_goes_to_100() -> None:
    rows = [{"name": "cat", "objects": 4, "right": [0.9, 0.7], "wrong": [0.8, 0.1]}]
    drawn = precision_recall(rows, [0.75, 0.5, 0.95, 0.6])
    assert drawn is not None
    assert [text for _, _, text in drawn.marks] == ["0.75", "0.50, 0.60"], "nothing is seen from 0.95 on"
    points = [tuple(map(float, pair.split(","))) for pair in drawn.curves[0].points.split()]
    assert [mark[:2] for mark in drawn.marks] == [points[1], points[2]]
    assert drawn.x_lines[-1][1] == "100"
    other = precision_recall([*rows, rows[0] | {"name": "dog", "objects": 5}], [0.75, 0.5])
    assert other is not None
    assert [text for _, _, text in other.marks] == ["0.75", "0.75"], "of several classes the first one only"
