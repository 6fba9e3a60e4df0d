"""Two runs on the same photos: the page's interval of a difference is `compare`'s; where it cannot be, it is none."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from producer.page.facts.differences import Difference, difference
from producer.page.facts.resamples import pair_of, read_resamples
from shared.audit.resamples import ResampledSplit
from shared.jobs.paths import RunPaths
from shared.storage import Storage
from tests.unit.trainer.reporting.looked import coco, detections
from tests.unit.trainer.reporting.test_paired import LABELS, Pictures, seen_split
from trainer.evaluation.measure import Measured, measure
from trainer.evaluation.resamples_file import resamples_file
from trainer.reporting.paired import paired


def looked_at(seed: int, right: float) -> Pictures:
    """Forty photos with one to three objects each, of which a model finds a share; it also sees what is not there."""
    photos, model = np.random.default_rng(7), np.random.default_rng(seed)
    pictures = []
    for _ in range(40):
        objects = [
            (4 * at + int(photos.integers(2)), int(photos.integers(1, 3))) for at in range(photos.integers(1, 4))
        ]
        found = [(place, label, float(model.uniform(0.3, 1))) for place, label in objects if model.random() < right]
        if model.random() < 0.5:
            found.append((15, int(model.integers(1, 3)), float(model.uniform(0.1, 0.9))))
        pictures.append((objects, found))
    return pictures


def measured(pictures: Pictures) -> Measured:
    return measure(coco(pictures, LABELS), {at: detections(found) for at, (_, found) in enumerate(pictures, start=1)})


def resampled(pictures: Pictures, start: int = 0) -> bytes:
    return resamples_file(seen_split(pictures, first=start))


FIRST, OTHER = looked_at(1, 0.6), looked_at(2, 0.8)


def of(content: bytes) -> ResampledSplit:
    return ResampledSplit.model_validate_json(content)


def shown(first: Pictures, other: Pictures, name: str, label: str | None) -> Difference:
    """The difference as the page has it."""
    rows = [measured(pictures).figures for pictures in (first, other)]
    rows = rows if label is None else [row["per_class"][label] for row in rows]
    pair = pair_of(of(resampled(first)), of(resampled(other)))
    found = difference(rows[0], rows[1], "ap50" if label else name, pair, label)
    assert found is not None
    return found


def intervaled(found: Difference) -> tuple[float, float, float]:
    return found.points, found.low, found.high


@pytest.mark.parametrize(("name", "label"), [("map50", None), ("ap50", "nine"), ("ap50", "ten")])
def test_the_interval_is_that_of_the_command_compare(name: str, label: str | None) -> None:
    rows = {row.label: row for row in paired(seen_split(FIRST), seen_split(OTHER), ("first", "other")).rows}
    told = rows[label or "mAP50"]
    found = shown(FIRST, OTHER, name, label)
    assert told.points is not None
    assert told.interval is not None
    assert found.is_paired
    assert intervaled(found) == pytest.approx((told.points, *told.interval), abs=0.002)


def test_of_objects_in_a_single_photo_any_difference_may_be() -> None:
    nines, ten = [([(0, 1)], [(0, 1, 0.9)])] * 5, [(4, 2)]
    first, other = ([*nines, (ten, [])], [*nines, (ten, [(4, 2, 0.9)])])
    (row,) = (row for row in paired(seen_split(first), seen_split(other), ("a", "b")).rows if row.label == "ten")
    assert row.points == pytest.approx(100)
    assert row.interval == (-100, 100)
    assert intervaled(shown(first, other, "ap50", "ten")) == pytest.approx((100, -100, 100))


def test_mean_ap_has_its_own_samples() -> None:
    (row,) = (row for row in paired(seen_split(FIRST), seen_split(OTHER), ("a", "b")).rows if row.label == "mAP")
    assert row.points is not None
    assert row.interval is not None
    # No interval of AP at all thresholds is in the figures of a class, but of all of them there is.
    assert intervaled(shown(FIRST, OTHER, "map", None)) == pytest.approx((row.points, *row.interval), abs=0.002)


def test_the_numbers_of_photos_do_not_matter_only_their_names() -> None:
    split = seen_split(FIRST)
    other = {image.id: 1000 - image.id for image in split.images}
    renumbered = split.model_copy(
        update={
            "images": tuple(image.model_copy(update={"id": other[image.id]}) for image in reversed(split.images)),
            "annotations": tuple(row | {"image_id": other[row["image_id"]]} for row in split.annotations),
            "detections": tuple(row | {"image_id": other[row["image_id"]]} for row in split.detections),
        }
    )
    assert resamples_file(renumbered) == resamples_file(split)


def test_on_the_same_photos_it_is_narrower_than_of_two_runs_apart() -> None:
    better = [(objects, [*seen, *((place, label, 0.2) for place, label in objects[:1])]) for objects, seen in FIRST]
    rows = [measured(pictures).figures for pictures in (FIRST, better)]
    apart, together = difference(rows[0], rows[1], "map50"), shown(FIRST, better, "map50", None)
    assert apart is not None
    assert not apart.is_paired
    assert together.high - together.low < 0.8 * (apart.high - apart.low)


def test_runs_of_other_photos_are_no_pair() -> None:
    first, other = of(resampled(FIRST)), of(resampled(OTHER, start=1))
    assert pair_of(first, first) == (first, first)
    assert pair_of(first, other) is None
    assert pair_of(first, None) is None
    assert pair_of(None, first) is None


def test_runs_that_know_other_scenes_are_no_pair() -> None:
    split = seen_split(FIRST)
    images = tuple(image.model_copy(update={"scene": f"video {image.id % 9}"}) for image in split.images)
    of_scenes = of(resamples_file(split.model_copy(update={"images": images})))
    assert pair_of(of_scenes, of_scenes) == (of_scenes, of_scenes)
    assert pair_of(of_scenes, of(resampled(FIRST))) is None
    assert of_scenes.map50 != of(resampled(FIRST)).map50


def test_few_resamples_and_other_numbers_of_them_are_no_pair() -> None:
    first = of(resampled(FIRST))
    few = first.model_copy(update={"map50": first.map50[:50]})
    assert pair_of(few, few) is None
    assert pair_of(first, few) is None
    short = first.model_copy(update={"ap50": {**first.ap50, "nine": first.ap50["nine"][:-1]}})
    row = {"ap50": 0.5, "ap50_interval": [0.4, 0.6]}
    for pair in ((first, short), (first, first.model_copy(update={"ap50": {}}))):
        found = difference(row, row, "ap50", pair, "nine")
        assert found is not None
        assert not found.is_paired


def test_one_photo_has_no_resamples_and_a_class_without_objects_no_figures() -> None:
    assert of(resampled(FIRST[:1])).map50 == ()
    assert set(of(resampled([([(0, 1)], [])] * 5)).ap50["ten"]) == {None}


def changed(**changes: Any) -> bytes:
    return json.dumps(json.loads(resampled(FIRST)) | changes).encode()


@pytest.mark.parametrize(
    "content",
    [b"", b"[" * 50_000, b"null", changed(map50=["<b>"]), changed(map50=[1e999]), changed(more=1), b" " * (5 << 20)],
    ids=lambda content: content[-20:].decode(),
)
def test_a_file_that_is_none_of_ours_is_none(tmp_path: Path, content: bytes) -> None:
    storage = Storage(str(tmp_path))
    storage.write(f"{RunPaths('run').root}/resamples_test.json", content)
    assert read_resamples(storage, "run", "test") is None


def test_a_split_that_is_a_path_is_none(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    storage.write(f"{RunPaths('run').root}/resamples_test.json", resampled(FIRST))
    assert read_resamples(storage, "run", "test") is not None
    assert read_resamples(storage, "run", "../run/resamples_test") is None
    assert read_resamples(storage, "run", "val") is None
