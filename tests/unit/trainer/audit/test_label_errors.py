"""The audit's method on made-up sets: each kind of wrong label is found first, and what is right is left alone."""

import time
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from trainer.audit.calibration import isotonic, learn_doubt
from trainer.audit.label_errors import find_label_errors, found_share, named_share
from trainer.audit.photos import AuditedPhoto, LabelFinding
from trainer.detections import Detections
from trainer.evaluation.curves import TruthBoxes

LABELS = ("cat", "dog", "owl")
SIDE = 400
Box = tuple[float, float, float, float]


def truth(boxes: list[Box], class_ids: list[int], ignored: tuple[int, ...] = ()) -> TruthBoxes:
    return TruthBoxes(
        boxes=np.array(boxes, np.float32).reshape(-1, 4),
        class_ids=np.array(class_ids, np.int64),
        is_ignored=np.isin(np.arange(len(boxes)), ignored),
    )


def detections(boxes: list[Box], class_ids: list[int], scores: list[float]) -> Detections:
    order = np.argsort(-np.array(scores), kind="stable")
    return Detections(
        boxes=np.array(boxes, np.float32).reshape(-1, 4)[order],
        class_ids=np.array(class_ids, np.int64)[order],
        scores=np.array(scores, np.float32)[order],
    )


def right_photo(number: int, random: np.random.Generator) -> AuditedPhoto:
    """A photo of three objects, each seen about where it is, and some faint detections of nothing."""
    corners = np.array([(20, 30), (230, 40), (120, 250)]) + random.integers(0, 40, (3, 2))
    boxes = [(x, y, x + 90.0, y + 80.0) for x, y in corners.tolist()]
    classes = random.integers(1, 4, 3).tolist()
    seen = [tuple(np.array(box) + random.normal(0, 3, 4)) for box in boxes]
    noise = [tuple(random.uniform(0, 300, 2).repeat(2)[[0, 2, 1, 3]] + [0, 0, 70, 70]) for _ in range(5)]
    return AuditedPhoto(
        file_name=f"{number:03d}.jpg",
        width=SIDE,
        height=SIDE,
        marked=truth(boxes, classes),
        seen=detections(
            [*seen, *noise],
            [*classes, *random.integers(1, 4, 5).tolist()],
            [*random.uniform(0.6, 0.95, 3), *random.uniform(0.01, 0.1, 5)],
        ),
    )


@pytest.fixture
def photos() -> list[AuditedPhoto]:
    random = np.random.default_rng(0)
    return [right_photo(number, random) for number in range(60)]


def with_marked(photo: AuditedPhoto, boxes: NDArray[np.float32], class_ids: NDArray[np.int64]) -> AuditedPhoto:
    return replace(photo, marked=truth([tuple(box) for box in boxes.tolist()], class_ids.tolist()))


def first(photos: list[AuditedPhoto]) -> LabelFinding:
    return find_label_errors(photos, LABELS)[0]


def test_an_object_without_a_box_is_missing(photos: list[AuditedPhoto]) -> None:
    marked = photos[7].marked
    photos[7] = with_marked(photos[7], marked.boxes[1:], marked.class_ids[1:])
    found = first(photos)
    assert (found.kind, found.file_name, found.object_index, found.box) == ("missing", "007.jpg", None, None)
    assert found.proposed_class_id == marked.class_ids[0]
    assert np.allclose(found.proposed_box or (), marked.boxes[0], atol=15)
    assert "nothing is marked here; the model sees" in found.reason


def test_a_box_of_nothing_is_made_up(photos: list[AuditedPhoto]) -> None:
    marked = photos[7].marked
    boxes = np.concatenate([marked.boxes, np.array([[300, 300, 380, 390]], np.float32)])
    photos[7] = with_marked(photos[7], boxes, np.append(marked.class_ids, 1))
    found = first(photos)
    assert (found.kind, found.file_name, found.object_index, found.proposed_box) == ("made_up", "007.jpg", 3, None)
    assert "sees nothing here" in found.reason


def test_a_moved_box_is_misplaced_and_the_reason_says_by_how_much(photos: list[AuditedPhoto]) -> None:
    marked = photos[7].marked
    boxes = marked.boxes.copy()
    boxes[1, [0, 2]] += 36
    photos[7] = with_marked(photos[7], boxes, marked.class_ids)
    found = first(photos)
    assert (found.kind, found.file_name, found.object_index) == ("misplaced", "007.jpg", 1)
    assert found.proposed_class_id == marked.class_ids[1]
    assert np.allclose(found.proposed_box or (), marked.boxes[1], atol=15)
    assert "left side 3" in found.reason
    assert "px too far right" in found.reason


def test_another_class_is_proposed_where_the_model_sees_it(photos: list[AuditedPhoto]) -> None:
    marked = photos[7].marked
    wrong = marked.class_ids.copy()
    wrong[2] = 1 + wrong[2] % 3
    photos[7] = with_marked(photos[7], marked.boxes, wrong)
    found = first(photos)
    assert (found.kind, found.file_name, found.object_index) == ("wrong_class", "007.jpg", 2)
    assert found.proposed_class_id == marked.class_ids[2]
    assert found.reason.startswith(f"marked {LABELS[wrong[2] - 1]}; the model sees {LABELS[marked.class_ids[2] - 1]}")


def test_a_second_box_of_one_object_is_double(photos: list[AuditedPhoto]) -> None:
    marked = photos[7].marked
    boxes = np.concatenate([marked.boxes, marked.boxes[:1] + 4])
    photos[7] = with_marked(photos[7], boxes, np.append(marked.class_ids, marked.class_ids[0]))
    found = first(photos)
    assert (found.kind, found.file_name) == ("double", "007.jpg")
    assert found.object_index in (0, 3)
    assert found.proposed_box is None


def test_labels_that_are_right_are_hardly_doubted(photos: list[AuditedPhoto]) -> None:
    found = find_label_errors(photos, LABELS)
    assert sum(each.score > 0.5 for each in found) <= 2
    assert all(0 <= each.score <= 1 for each in found)
    assert [each.score for each in found] == sorted((each.score for each in found), reverse=True)
    assert find_label_errors(photos, LABELS) == found


def test_ignored_objects_are_neither_doubted_nor_missing(photos: list[AuditedPhoto]) -> None:
    marked = photos[7].marked
    boxes = [tuple(box) for box in (marked.boxes + np.array([200, 0, 200, 0])).tolist()]
    photos[7] = replace(photos[7], marked=truth(boxes, marked.class_ids.tolist(), ignored=(0, 1, 2)))
    found = [each.object_index for each in find_label_errors(photos, LABELS) if each.file_name == "007.jpg"]
    assert set(found) == {None}, "what the model sees where nothing is marked, and no object"
    seen = replace(photos[8], marked=replace(photos[8].marked, is_ignored=np.ones(3, bool)))
    photos[8] = seen
    assert not [each for each in find_label_errors(photos, LABELS) if each.file_name == "008.jpg" and each.score > 0.2]


def test_a_crowd_with_a_detection_each_is_not_double(photos: list[AuditedPhoto]) -> None:
    box, near = (50.0, 50.0, 150.0, 150.0), (78.0, 50.0, 178.0, 150.0)
    photos[7] = replace(photos[7], marked=truth([box, near], [1, 1]), seen=detections([box, near], [1, 1], [0.9, 0.8]))
    assert not [each for each in find_label_errors(photos, LABELS) if each.file_name == "007.jpg" and each.score > 0.3]


EMPTY = AuditedPhoto(file_name="empty.jpg", width=SIDE, height=SIDE, marked=truth([], []), seen=detections([], [], []))
MARKED = replace(EMPTY, file_name="marked.jpg", marked=truth([(1, 1, 50, 50)], [1]))
SEEN = replace(EMPTY, file_name="seen.jpg", seen=detections([(1, 1, 50, 50)], [1], [0.9]))


@pytest.mark.parametrize("photos", [[], [EMPTY], [MARKED], [SEEN], [EMPTY, MARKED, SEEN]], ids=len)
def test_sets_that_say_nothing_are_no_error(photos: list[AuditedPhoto]) -> None:
    for labels in (LABELS, LABELS[:1]):
        assert all(0 <= each.score <= 1 for each in find_label_errors(photos, labels))


def test_ten_photos_of_one_class_are_audited(photos: list[AuditedPhoto]) -> None:
    few = [
        replace(
            photo,
            marked=replace(photo.marked, class_ids=np.ones_like(photo.marked.class_ids)),
            seen=replace(photo.seen, class_ids=np.ones_like(photo.seen.class_ids)),
        )
        for photo in photos[:10]
    ]
    few[3] = with_marked(few[3], few[3].marked.boxes[1:], few[3].marked.class_ids[1:])
    found = find_label_errors(few, LABELS[:1])[0]
    assert (found.kind, found.file_name) == ("missing", "003.jpg")


def test_an_increasing_function_nearest_to_the_outcomes() -> None:
    middles, levels = isotonic(np.array([3.0, 1.0, 2.0, 4.0]), np.array([0.0, 0.0, 1.0, 1.0]))
    assert middles.tolist() == [1.0, 2.5, 4.0]
    assert levels.tolist() == [0.0, 0.5, 1.0]


def test_the_share_of_wrong_labels_is_found_from_wrong_ones_made_on_paper() -> None:
    random = np.random.default_rng(0)
    wrong = random.normal(4, 1, 2000)
    values = np.concatenate([random.normal(0, 1, 1900), random.normal(4, 1, 100)])
    doubt = learn_doubt(values, wrong)
    assert doubt(values).sum() == pytest.approx(100, rel=0.25)
    assert doubt(np.array([0.0]))[0] < 0.02
    assert doubt(np.array([5.0]))[0] > 0.9


def test_models_that_learned_nothing_doubt_no_label(photos: list[AuditedPhoto]) -> None:
    """Their noise hits a box now and then; that is no reason to take the surest of it for objects."""
    random = np.random.default_rng(1)

    def noise(photo: AuditedPhoto) -> AuditedPhoto:
        corners = random.uniform(0, 300, (40, 2))
        boxes = np.concatenate([corners, corners + random.uniform(40, 100, (40, 2))], axis=1)
        classes, scores = random.integers(1, 4, 40).tolist(), random.uniform(0.005, 0.03, 40).tolist()
        return replace(photo, seen=detections([tuple(box) for box in boxes.tolist()], classes, scores))

    blind = [noise(photo) for photo in photos]
    assert found_share(blind) == 0.0
    assert max(each.score for each in find_label_errors(blind, LABELS)) < 0.5
    assert found_share(photos) > 0.9


def test_models_that_find_boxes_and_not_their_classes_are_told_from_others(photos: list[AuditedPhoto]) -> None:
    turned = [replace(photo, seen=replace(photo.seen, class_ids=photo.seen.class_ids % 3 + 1)) for photo in photos]
    assert named_share(turned) < 0.1
    assert found_share(turned) > 0.9
    assert named_share(photos) > 0.9
    assert named_share([replace(photo, seen=detections([], [], [])) for photo in photos]) == 1.0


def test_of_two_boxes_on_one_object_one_is_a_double(photos: list[AuditedPhoto]) -> None:
    for number, moved in ((3, 4), (5, -4)):
        marked = photos[number].marked
        boxes = np.concatenate([marked.boxes, marked.boxes[:1] + np.float32(moved)])
        photos[number] = with_marked(photos[number], boxes, np.append(marked.class_ids, marked.class_ids[0]))
    seen_nowhere = [replace(photo, seen=detections([], [], [])) for photo in photos]
    for audited in (photos, seen_nowhere):
        doubles = [each for each in find_label_errors(audited, LABELS) if each.kind == "double"]
        assert sorted(each.file_name for each in doubles) == ["003.jpg", "005.jpg"]


def test_a_photo_of_a_thousand_boxes_on_one_place_takes_no_minutes(photos: list[AuditedPhoto]) -> None:
    boxes = [(20.0 + at / 100, 30.0, 110.0, 110.0) for at in range(1200)]
    photos[3] = replace(photos[3], marked=truth(boxes, [1] * len(boxes)))
    began_s = time.process_time()
    doubles = [each for each in find_label_errors(photos, LABELS) if each.kind == "double"]
    assert len(doubles) > 1000
    assert time.process_time() - began_s < 15  # 0.3 s; it was a minute
