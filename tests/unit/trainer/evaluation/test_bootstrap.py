"""Intervals by resampling: equal to pycocotools on the same pictures, and as wide as the pictures are few."""

import time
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from pycocotools.cocoeval import Params

from trainer.detections import Detections, DetectionsById
from trainer.evaluation.bootstrap import RECALLS, interval, precisions, resampled, share_interval
from trainer.evaluation.coco_map import AveragePrecision, average_precision, judge
from trainer.evaluation.measure import Measured, drop_interval, measure


def seen_and_truth(pictures: int, seed: int, classes: int = 3) -> tuple[DetectionsById, dict[str, Any]]:
    """Pictures of a few objects each, some difficult; most found, some badly, with mistakes and scores that tie."""
    rng = np.random.default_rng(seed)
    seen: DetectionsById = {}
    annotations: list[dict[str, Any]] = []
    for image_id in range(1, pictures + 1):
        boxes, class_ids = [], []
        for _ in range(int(rng.integers(0, 6))):
            x, y, w, h = rng.uniform(0, 80), rng.uniform(0, 80), rng.uniform(8, 20), rng.uniform(8, 20)
            own = int(rng.integers(1, classes + 1))
            annotations.append(
                {
                    "id": len(annotations) + 1,
                    "image_id": image_id,
                    "category_id": own,
                    "bbox": [x, y, w, h],
                    "area": w * h,
                    "iscrowd": 0,
                    "ignore": int(rng.random() < 0.15),
                }
            )
            for _ in range(int(rng.integers(0, 3))):
                x0, y0 = x + rng.normal(0, 1.5), y + rng.normal(0, 1.5)
                boxes.append([x0, y0, x0 + w, y0 + h])
                class_ids.append(own if rng.random() < 0.9 else int(rng.integers(1, classes + 1)))
        for _ in range(int(rng.integers(0, 5))):
            x, y = rng.uniform(0, 80, 2)
            boxes.append([x, y, x + 10, y + 10])
            class_ids.append(int(rng.integers(1, classes + 1)))
        scores = np.sort(np.round(rng.random(len(boxes)), 2))[::-1].astype(np.float32)
        seen[image_id] = Detections(
            boxes=np.asarray(boxes, np.float32).reshape(-1, 4), class_ids=np.asarray(class_ids, np.int64), scores=scores
        )
    images = [{"id": image_id, "width": 100, "height": 100} for image_id in seen]
    categories = [{"id": class_id, "name": f"class {class_id}"} for class_id in range(1, classes + 1)]
    return seen, {"images": images, "annotations": annotations, "categories": categories}


def copied(seen: DetectionsById, truth: dict[str, Any], drawn: list[int]) -> tuple[DetectionsById, dict[str, Any]]:
    """The split in which picture `drawn[n]` is the n-th: what a resample stands for."""
    annotations = [
        {**row, "image_id": number, "id": 1000 * number + row["id"]}
        for number, image_id in enumerate(drawn, start=1)
        for row in truth["annotations"]
        if row["image_id"] == image_id
    ]
    images = [{"id": number, "width": 100, "height": 100} for number in range(1, len(drawn) + 1)]
    again = {number: seen[image_id] for number, image_id in enumerate(drawn, start=1)}
    return again, {**truth, "images": images, "annotations": annotations}


def figures_of(found: AveragePrecision) -> list[float]:
    """mAP50, mAP, and the AP50 of each class; nan where it has no object."""
    ap50 = [row["ap50"] for row in found.per_class.values()]
    return [found.map50, found.map, *(float("nan") if one is None else one for one in ap50)]


@pytest.mark.parametrize("seed", range(6))
def test_every_picture_once_is_what_pycocotools_says(seed: int) -> None:
    seen, truth = seen_and_truth(25, seed)
    found, matches = judge(truth, seen)
    once = precisions(matches, np.ones((25, 1), np.float32))
    assert once[:, 0] == pytest.approx(figures_of(found), abs=1e-12, nan_ok=True)


@pytest.mark.parametrize("seed", range(6))
def test_a_resample_is_what_pycocotools_says_of_its_copies(seed: int) -> None:
    seen, truth = seen_and_truth(12, seed)
    drawn = np.random.default_rng(seed).multinomial(12, np.full(12, 1 / 12), 2).T.astype(np.float32)
    found = precisions(judge(truth, seen)[1], drawn)
    for column in range(2):
        ids = [image_id for image_id in seen for _ in range(int(drawn[image_id - 1, column]))]
        again, its_truth = copied(seen, truth, ids)
        expected = average_precision(its_truth, again)
        assert found[:, column] == pytest.approx(figures_of(expected), abs=1e-12, nan_ok=True)


@pytest.mark.parametrize("found", [7, 14, 28, 29, 55, 57, 58, 99])
def test_a_recall_that_no_float_holds_exactly_is_read_as_pycocotools_reads_it(found: int) -> None:
    """Of 29 of 100 the recall times 100 is 28.999999999999996."""
    box = np.array([[0, 0, 10, 10]], np.float32)
    seen = {
        image_id: Detections(
            boxes=box, class_ids=np.ones(1, np.int64), scores=np.array([0.9 if image_id <= found else 0], np.float32)
        ).above(0.5)
        for image_id in range(1, 101)
    }
    row = {"category_id": 1, "bbox": [0, 0, 10, 10], "area": 100, "iscrowd": 0, "ignore": 0}
    truth = {
        "images": [{"id": image_id} for image_id in seen],
        "annotations": [{**row, "id": image_id, "image_id": image_id} for image_id in seen],
        "categories": [{"id": 1, "name": "thing"}],
    }
    average, matches = judge(truth, seen)
    assert precisions(matches, np.ones((100, 1), np.float32))[:, 0] == pytest.approx(figures_of(average), abs=1e-12)


def test_pycocotools_recalls_are_ours() -> None:
    assert np.array_equal(Params("bbox").recThrs, RECALLS)


def test_the_same_split_has_the_same_interval() -> None:
    seen, truth = seen_and_truth(20, 1)
    assert measure(truth, seen).figures == measure(truth, seen).figures


def test_more_pictures_make_it_narrower() -> None:
    few, many = (measure(*reversed(seen_and_truth(count, 3))).figures for count in (15, 240))
    assert few["map50_interval"][0] < few["map50"] < few["map50_interval"][1]
    widths = [row["map50_interval"][1] - row["map50_interval"][0] for row in (few, many)]
    assert widths[1] < widths[0] / 2


def test_two_forms_that_see_the_same_differ_by_nothing() -> None:
    seen, truth = seen_and_truth(20, 2)
    exact = measure(truth, seen)
    assert drop_interval(exact, exact) == (0, 0)
    assert exact.figures["map50_interval"][0] < exact.figures["map50_interval"][1]


def test_the_interval_of_a_loss_is_that_of_the_differences_on_the_same_resamples_in_points() -> None:
    seen, truth = seen_and_truth(40, 2)
    poorer = {image_id: found if image_id % 3 else found.above(2) for image_id, found in seen.items()}
    exact, rounded = measure(truth, seen), measure(truth, poorer)
    both = [resampled(judge(truth, found)[1])[0] for found in (seen, poorer)]
    low, high = drop_interval(exact, rounded)
    assert (low, high) == pytest.approx(np.percentile(100 * (both[0] - both[1]), (2.5, 97.5)), abs=1e-5)
    assert 1 < low < 100 * (exact.figures["map50"] - rounded.figures["map50"]) < high
    assert drop_interval(rounded, exact) == pytest.approx((-high, -low), abs=1e-5)


def test_a_loss_that_is_beyond_what_resamples_say_is_within_its_interval() -> None:
    same = np.full(1000, 0.5)
    exact, rounded = (Measured(figures={"map50": map50}, map50=same) for map50 in (0.8, 0.7))
    assert drop_interval(exact, rounded) == pytest.approx((0, 10))


def test_each_figure_has_the_interval_of_its_own_resamples_and_objects() -> None:
    seen, truth = seen_and_truth(40, 9)
    last = [row for row in truth["annotations"] if row["category_id"] == 3]
    seen = {  # of the third class nothing is wrong
        image_id: Detections(
            boxes=np.concatenate([others.boxes, right]),
            class_ids=np.concatenate([others.class_ids, np.full(len(right), 3)]),
            scores=np.concatenate([others.scores, np.ones(len(right), np.float32)]),
        )
        for image_id, found in seen.items()
        for others in [found[found.class_ids != 3]]
        for right in [corners([row for row in last if row["image_id"] == image_id])]
    }
    figures, samples = measure(truth, seen).figures, resampled(judge(truth, seen)[1])
    for name, row in (("map50", 0), ("map", 1)):
        expected = np.percentile(samples[row], (2.5, 97.5))
        assert figures[f"{name}_interval"] == pytest.approx(list(expected), abs=1e-5)
    *_, third = figures["per_class"].values()
    assert third["ap50"] == pytest.approx(1)
    assert third["ap50_interval"] == pytest.approx([1 - 3 / third["objects"], 1], abs=1e-5)


def corners(rows: list[dict[str, Any]]) -> NDArray[np.float32]:
    return np.array([[x, y, x + w, y + h] for x, y, w, h in (row["bbox"] for row in rows)], np.float32).reshape(-1, 4)


def test_a_split_without_a_mistake_is_as_sure_as_it_has_objects() -> None:
    _, truth = seen_and_truth(30, 4, classes=1)
    seen = {
        image["id"]: Detections(boxes=boxes, class_ids=np.ones(len(boxes), np.int64), scores=np.ones(len(boxes), "f"))
        for image in truth["images"]
        for boxes in [corners([row for row in truth["annotations"] if row["image_id"] == image["id"]])]
    }
    figures = measure(truth, seen).figures
    assert figures["objects"] != figures["pictures"]
    for name in ("map50_interval", "map_interval"):
        assert figures[name] == pytest.approx([1 - 3 / figures["objects"], 1], abs=1e-5)


def test_two_pictures_with_objects_say_something() -> None:
    seen, truth = seen_and_truth(2, 4)
    assert {row["image_id"] for row in truth["annotations"]} == {1, 2}
    assert measure(truth, seen).figures["map50_interval"] != [0, 1]


def test_resamples_of_the_same_photos_are_the_same_in_whatever_order_they_were_judged() -> None:
    seen, truth = seen_and_truth(12, 3)
    names = {image_id: f"{(7 * image_id) % 13:02d}.jpg" for image_id in seen}
    order = [image_id for image_id, _ in sorted(names.items(), key=lambda item: item[1][::-1])]
    again, its_truth = copied(seen, truth, order)
    first = resampled(judge(truth, seen)[1], 40, names=[names[image_id] for image_id in seen])
    second = resampled(judge(its_truth, again)[1], 40, names=[names[image_id] for image_id in order])
    assert [names[image_id] for image_id in order] != sorted(names.values())
    assert np.nanmax(np.abs(first - second)) < 0.02, "equal scores count in the order of the photos"
    assert np.nanmax(np.abs(first - resampled(judge(truth, seen)[1], 40))) > 0.1


def test_copies_of_the_same_photos_are_no_surer_than_the_photos_if_they_are_known_as_scenes() -> None:
    seen, truth = seen_and_truth(20, 6)
    frames, their_truth = copied(seen, truth, [image_id for image_id in seen for _ in range(5)])
    alone, matches = resampled(judge(truth, seen)[1], 40), judge(their_truth, frames)[1]
    together = resampled(matches, 40, scenes=[f"video {image_id}" for image_id in seen for _ in range(5)])
    assert np.nanmax(np.abs(together - alone)) < 0.03, "the order of equal scores differs"
    assert resampled(matches, 40)[0].std() < 0.7 * alone[0].std()


def test_scenes_are_drawn_alike_in_whatever_order_their_photos_were_judged() -> None:
    seen, truth = seen_and_truth(12, 3)
    scenes = {image_id: "video" if image_id in (2, 5, 11) else "" for image_id in seen}
    order = [image_id for image_id in seen if image_id % 2] + [image_id for image_id in seen if image_id % 2 == 0]
    again, its_truth = copied(seen, truth, order)
    first, second = (
        resampled(judge(*given)[1], 40, names=[f"{at:02d}" for at in ids], scenes=[scenes[at] for at in ids])
        for given, ids in (((truth, seen), [*seen]), ((its_truth, again), order))
    )
    assert np.nanmax(np.abs(first - second)) < 0.02, "equal scores count in the order of the photos"


def test_one_scene_says_nothing_about_others() -> None:
    seen, truth = seen_and_truth(10, 5)
    for image in truth["images"]:
        image["scene"] = "video"
    only = measure(truth, seen)
    assert (only.figures["pictures"], only.figures["scenes"]) == (10, 1)
    assert only.figures["map50_interval"] == [0, 1]
    truth["images"][0]["scene"] = "another"
    assert measure(truth, seen).figures["scenes"] == 2
    assert measure(truth, seen).figures["map50_interval"] != [0, 1]


def test_scenes_are_not_counted_where_each_photo_shows_its_own() -> None:
    seen, truth = seen_and_truth(4, 5)
    truth["images"][0]["scene"], truth["images"][1]["scene"] = "a", "b"
    assert "scenes" not in measure(truth, seen).figures


def test_one_picture_says_nothing_about_others() -> None:
    seen, truth = seen_and_truth(1, 5)
    only = measure(truth, seen)
    assert only.figures["map50_interval"] == only.figures["map_interval"] == [0, 1]
    assert drop_interval(only, only) == (-100, 100)


def test_objects_of_a_single_picture_say_nothing_about_others() -> None:
    """Of class 1 all objects lie in the first of 20 pictures; half of them are found."""
    seen, truth = seen_and_truth(20, seed=1)
    for row in truth["annotations"]:
        row["category_id"] = 1 if row["image_id"] == 1 else 2
    figures = measure(truth, seen).figures
    first, second, _ = figures["per_class"].values()
    assert first["objects"] > 1
    assert first["ap50_interval"] == [0.0, 1.0]
    assert second["ap50_interval"][0] > 0
    assert 0 < figures["map50_interval"][0] < figures["map50_interval"][1] < 1

    truth["annotations"] = [row for row in truth["annotations"] if row["image_id"] == 1]
    figures = measure(truth, seen).figures
    assert figures["map50_interval"] == figures["map_interval"] == [0.0, 1.0]


def test_objects_of_two_classes_in_a_single_picture_say_nothing_about_others() -> None:
    seen, truth = seen_and_truth(20, seed=1)
    truth["annotations"] = [row for row in truth["annotations"] if row["image_id"] == 1]
    figures = measure(truth, seen).figures
    assert 0 < figures["map"] < figures["map50"] < 1
    assert figures["map50_interval"] == figures["map_interval"] == [0.0, 1.0]


def test_without_objects_nothing_is_known() -> None:
    seen, truth = seen_and_truth(8, 6)
    found = measure({**truth, "annotations": []}, seen).figures
    assert (found["map50"], found["objects"], found["map50_interval"]) == (0, 0, [0, 1])


def test_figures_count_pictures_and_objects_that_are_to_be_found() -> None:
    seen, truth = seen_and_truth(30, 7)
    found = measure(truth, seen).figures
    counted = [row for row in truth["annotations"] if not row["ignore"]]
    assert (found["pictures"], found["objects"]) == (30, len(counted))
    of_first = [row for row in counted if row["category_id"] == 1]
    assert found["per_class"]["class 1"]["objects"] == len(of_first)


def test_a_figure_is_within_its_interval() -> None:
    assert interval(0.9, np.full(10, 0.8)) == (0.8, 0.9)
    assert interval(0.5, np.array([np.nan, 0.4, 0.6])) == pytest.approx((0.405, 0.595))


@pytest.mark.parametrize(
    ("figure", "objects", "expected"),
    [(1.0, 4, (0.25, 1)), (1.0, 2, (0, 1)), (1.0, 300, (0.99, 1)), (0.0, 4, (0, 0.75)), (0.5, 4, (0.5, 0.5))],
)
def test_without_a_mistake_the_rule_of_three_bounds_it(
    figure: float, objects: int, expected: tuple[float, float]
) -> None:
    assert share_interval(figure, np.full(1000, figure), objects) == pytest.approx(expected)


def test_where_some_resamples_have_a_mistake_they_say_how_wide_it_is() -> None:
    assert share_interval(0.95, np.linspace(0.9, 1, 1001), 4) == pytest.approx((0.9025, 0.9975))
    assert share_interval(0.99, np.array([0.9] * 500 + [1.0] * 500), 4) == pytest.approx((0.9, 1))
    assert share_interval(0.01, np.array([0.0] * 500 + [0.1] * 500), 4) == pytest.approx((0, 0.1))


def test_a_thousand_pictures_take_seconds() -> None:
    seen, truth = seen_and_truth(1000, 8)
    matches = judge(truth, seen)[1]
    start = time.process_time()
    resampled(matches)
    assert time.process_time() - start < 10
