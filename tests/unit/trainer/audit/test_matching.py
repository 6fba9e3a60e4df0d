"""Which marked box has which detection, and what matched detections say of a score."""

from collections.abc import Sequence

import numpy as np
import pytest

from trainer.audit.calibration import Trust, by_size, learn_doubt, learn_recalls, learn_trust
from trainer.audit.matching import Matched, match
from trainer.audit.photos import AuditedPhoto
from trainer.detections import Detections
from trainer.evaluation.curves import TruthBoxes

Row = tuple[float, float, float, float]


def photo(marked: Sequence[Row], seen: Sequence[tuple[Row, int, float]], ignored: Sequence[int] = ()) -> Matched:
    """A photo whose marked boxes are of class 1; detections are (box, class, score), in any order."""
    ordered = sorted(seen, key=lambda each: -each[2])
    return match(
        AuditedPhoto(
            file_name="a.jpg",
            width=200,
            height=200,
            marked=TruthBoxes(
                boxes=np.array(marked, np.float32).reshape(-1, 4),
                class_ids=np.ones(len(marked), np.int64),
                is_ignored=np.isin(np.arange(len(marked)), ignored),
            ),
            seen=Detections(
                boxes=np.array([box for box, _, _ in ordered], np.float32).reshape(-1, 4),
                class_ids=np.array([class_id for _, class_id, _ in ordered], np.int64),
                scores=np.array([score for _, _, score in ordered], np.float32),
            ),
        )
    )


HERE, MOVED, THERE = (0.0, 0.0, 50.0, 50.0), (25.0, 0.0, 75.0, 50.0), (100.0, 100.0, 150.0, 150.0)


def test_a_box_has_the_detection_that_hits_it_whatever_its_class() -> None:
    one = photo([HERE, THERE], [(THERE, 2, 0.9), (HERE, 1, 0.4)])
    assert one.met.tolist() == [1, 0]
    assert one.by_box.tolist() == [1, 0]
    assert not one.is_new.any()


def test_a_surer_detection_on_the_same_place_stands_for_the_others() -> None:
    nearly = (1.0, 1.0, 51.0, 51.0)
    one = photo([HERE], [(HERE, 1, 0.3), (nearly, 2, 0.8), (nearly, 3, 0.2)])
    assert one.seen.scores.tolist() == pytest.approx([0.8])
    assert one.by_box.tolist() == [0]


def test_a_detection_beside_a_box_without_one_is_near_it_and_not_new() -> None:
    one = photo([HERE], [(MOVED, 1, 0.9)])
    assert (one.met.tolist(), one.near.tolist(), one.by_box.tolist()) == ([-1], [0], [0])
    assert not one.is_new.any()


def test_a_detection_beside_a_box_that_has_one_is_new() -> None:
    one = photo([HERE], [(HERE, 1, 0.9), (MOVED, 1, 0.5)])
    assert one.near.tolist() == [-1, -1]
    assert one.is_new.tolist() == [False, True]


@pytest.mark.parametrize(("marked", "seen"), [([], []), ([HERE], []), ([], [(HERE, 1, 0.5)])])
def test_nothing_marked_or_nothing_seen_is_matched_to_nothing(
    marked: list[Row], seen: list[tuple[Row, int, float]]
) -> None:
    one = photo(marked, seen)
    assert one.by_box.tolist() == [-1] * len(marked)
    assert one.is_new.tolist() == [True] * len(seen)


def test_a_score_is_worth_as_often_as_it_is_marked_relative_to_the_surest() -> None:
    # A tenth of the labels is missing; half of the detections of a low score are of nothing.
    sure = [photo([HERE] if at % 10 else [], [(HERE, 1, 0.9)]) for at in range(200)]
    faint = [photo([HERE] if at % 2 else [], [(HERE, 1, 0.3)]) for at in range(200)]
    trust = learn_trust([*sure, *faint])
    high, low = trust(np.array([0.9, 0.3], np.float32))
    assert high == pytest.approx(1.0, abs=0.02)
    assert low == pytest.approx(0.5 / 0.9, abs=0.05)


def test_ignored_boxes_teach_nothing_of_a_score() -> None:
    marked = [photo([HERE], [(HERE, 1, 0.9)]) for _ in range(50)]
    crowds = [photo([HERE], [(HERE, 1, 0.9)], ignored=[0]) for _ in range(50)]
    assert learn_trust([*marked, *crowds])(np.array([0.9], np.float32))[0] == 1.0
    assert learn_trust(crowds)(np.array([0.9], np.float32))[0] == 0.0


def test_where_nothing_was_learned_nothing_is_trusted() -> None:
    nothing = Trust(scores=np.zeros(0), chances=np.zeros(0))
    assert nothing(np.array([0.1, 0.9], np.float32)).tolist() == [0.0, 0.0]
    assert learn_doubt(np.zeros(0), np.ones(3))(np.ones(2)).tolist() == [0.0, 0.0]
    assert learn_recalls(np.zeros(0), np.zeros(0))(np.ones(2)).tolist() == [0.0, 0.0]


def test_recall_is_that_of_boxes_of_about_the_same_size() -> None:
    sizes = np.repeat([1.0, 9.0], 100)
    recalls = learn_recalls(sizes, np.repeat([0.2, 1.0], 100))
    assert recalls(np.array([1.0, 9.0])) == pytest.approx([0.2, 1.0], abs=0.02)


def test_usual_values_are_medians_of_boxes_of_a_size() -> None:
    sizes = np.arange(80.0)
    usual = by_size(np.where(sizes < 40, 1.0, 3.0), sizes)
    assert usual.tolist() == [1.0] * 40 + [3.0] * 40
    assert by_size(np.zeros(0), np.zeros(0)).tolist() == []


def test_doubt_grows_with_the_value_and_stays_a_probability() -> None:
    random = np.random.default_rng(1)
    doubt = learn_doubt(random.normal(0, 1, 500), random.normal(2, 1, 500))
    chances = doubt(np.linspace(-4, 6, 50))
    assert (np.diff(chances) >= 0).all()
    assert chances.min() >= 0
    assert chances.max() <= 1


def test_labels_that_are_all_alike_are_not_doubted_by_a_measure_that_cannot_tell() -> None:
    same = np.zeros(100)
    assert learn_doubt(same, same)(np.zeros(1))[0] == pytest.approx(1.0, abs=0.05), "every label may be wrong"
