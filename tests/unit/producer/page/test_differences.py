"""Differences between runs: their intervals, and the photos that show them."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from producer.page.facts.differences import difference, most_different
from producer.page.facts.seen import SeenRun, read_seen
from shared.storage import Storage
from tests.unit.producer.page.measured import DETECTIONS, FILES, Row, seen, seen_file


def row(value: object, interval: object) -> dict[str, object]:
    return {"ap50": value, "ap50_interval": interval}


def test_a_difference_has_the_interval_of_both() -> None:
    found = difference(row(0.5, [0.4, 0.6]), row(0.8, [0.7, 0.85]), "ap50")
    assert found is not None
    assert found.points == pytest.approx(30)
    assert found.low == pytest.approx(30 - 100 * math.hypot(0.1, 0.1))
    assert found.high == pytest.approx(30 + 100 * math.hypot(0.05, 0.1))
    assert found.is_sure


def test_a_run_that_is_worse_has_the_same_difference_below_zero() -> None:
    first, other = row(0.5, [0.4, 0.6]), row(0.8, [0.7, 0.85])
    up, down = difference(first, other, "ap50"), difference(other, first, "ap50")
    assert up is not None
    assert down is not None
    assert (down.points, down.low, down.high) == pytest.approx((-up.points, -up.high, -up.low))


def test_runs_that_are_alike_differ_by_nothing_that_is_sure() -> None:
    found = difference(row(0.5, [0.4, 0.6]), row(0.5, [0.4, 0.6]), "ap50")
    assert found is not None
    assert (found.points, found.is_sure) == (0, False)


@pytest.mark.parametrize(
    "other",
    [
        {},
        row(None, [0, 1]),
        row("0.5", [0, 1]),
        row(0.5, None),
        row(0.5, [0.1]),
        row(0.5, ["<b>", 1]),
        row(0.5, 3),
        row(0.0, [0.0, 1.0]) | {"objects": 0},
    ],
    ids=str,
)
def test_without_figures_there_is_no_difference(other: dict[str, object]) -> None:
    whole = row(0.5, [0.4, 0.6])
    assert difference(whole, other, "ap50") is None
    assert difference(other, whole, "ap50") is None


class Runs:
    """Runs of a store by what they saw."""

    def __init__(self, folder: Path) -> None:
        self._storage, self._count = Storage(str(folder)), 0

    def saw(self, detections: Sequence[Row], **changes: Any) -> SeenRun:
        self._count += 1
        name = f"run{self._count}"
        self._storage.write(f"runs/{name}/detections_test.json", seen_file(detections=detections, **changes))
        return read_seen(self._storage, name)


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    return Runs(tmp_path)


def test_photos_in_which_runs_differ_come_first_and_others_not_at_all(runs: Runs) -> None:
    without_first = runs.saw([row for row in DETECTIONS if row["image_id"] != 7])
    better = runs.saw([*DETECTIONS, seen(0, 2, 0.95, (60, 60, 20, 20))])
    chosen = most_different([(without_first, 0.5), (better, 0.5)], 6)
    assert [[photo.file_name for photo in photos] for photos in chosen] == [[FILES[0], FILES[0]]]
    assert chosen[0][0].mistakes(0.5) - chosen[0][1].mistakes(0.5) == 1
    assert most_different([(better, 0.5), (better, 0.5)], 6) == []


def test_a_run_is_held_to_its_own_threshold(runs: Runs) -> None:
    run = runs.saw(DETECTIONS)
    chosen = most_different([(run, 0.99), (run, 0.5)], 6)
    assert {photos[0].file_name for photos in chosen} == {FILES[1], FILES[2]}


def test_only_photos_that_all_runs_saw_are_held_against_one_another(runs: Runs) -> None:
    images = [{"id": 7, "file_name": "photos/other.jpg"}, {"id": 8, "file_name": FILES[1]}]
    first = runs.saw(DETECTIONS)
    second = runs.saw([seen(1, 1, 0.9, (10, 10, 20, 20))], images=images)
    chosen = most_different([(first, 0.5), (second, 0.5)], 6)
    assert [[photo.file_name for photo in photos] for photos in chosen] == [[FILES[1], FILES[1]]]
    assert most_different([(first, 0.5), (second, 0.5)], 0) == []


def test_photos_that_have_only_their_name_in_common_show_no_difference(runs: Runs) -> None:
    without_first = runs.saw([row for row in DETECTIONS if row["image_id"] != 7])
    better = runs.saw([*DETECTIONS, seen(0, 2, 0.95, (60, 60, 20, 20))])
    pair = [(without_first, 0.5), (better, 0.5)]
    assert most_different(pair, 6)
    assert most_different(pair, 6, {FILES[0]}) == []
