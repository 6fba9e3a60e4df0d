import numpy as np
import pytest

from tests.unit.trainer.pictures import coco_truth, drawn_examples
from trainer.data.examples import Examples
from trainer.detections import Detections, DetectionsById
from trainer.evaluation.coco_map import average_precision


def perfect(examples: Examples) -> DetectionsById:
    side = examples.pictures.shape[1]
    return {
        int(source_id): Detections(
            boxes=boxes[:, [1, 0, 3, 2]] * np.float32(side),
            class_ids=labels.astype(np.int64) + 1,
            scores=np.linspace(0.9, 0.8, len(labels), dtype=np.float32),
        )
        for source_id, boxes, labels in zip(examples.source_ids, examples.boxes, examples.labels, strict=True)
    }


def nothing() -> Detections:
    return Detections(
        boxes=np.zeros((0, 4), np.float32), class_ids=np.zeros(0, np.int64), scores=np.zeros(0, np.float32)
    )


def test_perfect_detections_have_a_precision_of_1() -> None:
    examples = drawn_examples(6)
    found = average_precision(coco_truth(examples), perfect(examples))
    assert found.map50 == pytest.approx(1)
    assert found.map == pytest.approx(1)
    assert [found.per_class[name]["ap50"] for name in ("square", "disc")] == pytest.approx([1, 1])


def test_no_detections_have_a_precision_of_0() -> None:
    found = average_precision(coco_truth(drawn_examples(3)), {image_id: nothing() for image_id in (1, 2, 3)})
    assert (found.map50, found.map) == (0, 0)
    assert found.per_class == {"square": {"ap50": 0, "ap": 0}, "disc": {"ap50": 0, "ap": 0}}


@pytest.mark.parametrize("is_seen", [True, False])
def test_a_class_without_objects_has_no_figure(is_seen: bool) -> None:
    examples = drawn_examples(4)
    truth = coco_truth(examples)
    truth["categories"].append({"id": 3, "name": "star"})
    found = average_precision(
        truth, perfect(examples) if is_seen else {image_id: nothing() for image_id in range(1, 5)}
    )
    assert found.per_class["star"] == {"ap50": None, "ap": None}
    assert found.per_class["disc"]["ap50"] == pytest.approx(float(is_seen))


def test_wrong_classes_find_nothing() -> None:
    examples = drawn_examples(4)
    swapped = {
        image_id: Detections(boxes=found.boxes, class_ids=3 - found.class_ids, scores=found.scores)
        for image_id, found in perfect(examples).items()
    }
    assert average_precision(coco_truth(examples), swapped).map50 < 0.2


@pytest.mark.parametrize("broken", ["boxes", "scores"])
def test_what_is_no_number_finds_nothing(broken: str) -> None:
    """To pycocotools a box of NaN overlaps every object."""
    examples = drawn_examples(4)
    diverged = {
        image_id: Detections(
            boxes=found.boxes * np.float32(np.nan if broken == "boxes" else 1),
            class_ids=found.class_ids,
            scores=found.scores * np.float32(np.nan if broken == "scores" else 1),
        )
        for image_id, found in perfect(examples).items()
    }
    assert average_precision(coco_truth(examples), diverged).map50 == 0


def test_a_missed_difficult_object_does_not_count() -> None:
    examples = drawn_examples(4)
    truth = coco_truth(examples)
    truth["annotations"][0]["ignore"] = 1
    missing = perfect(examples)
    missing[1] = missing[1][np.arange(len(missing[1].scores)) > 0]
    assert average_precision(truth, missing).map50 == pytest.approx(1)
    assert average_precision(truth, perfect(examples)).map50 == pytest.approx(1)
    assert average_precision(coco_truth(examples), missing).map50 < 1


def test_pictures_that_nothing_looked_at_are_not_judged() -> None:
    examples = drawn_examples(4)
    seen = {image_id: found for image_id, found in perfect(examples).items() if image_id <= 2}
    assert average_precision(coco_truth(examples), seen).map50 == pytest.approx(1)
    seen[3] = nothing()
    assert average_precision(coco_truth(examples), seen).map50 < 0.9
