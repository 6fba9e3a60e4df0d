import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer.network.box_ops import Corners, pairwise_iou
from trainer.network.detector import decode_boxes, make_priors
from trainer.network.target_assignment import TOP_CELLS, Targets, assign, claims
from trainer.tensors import IGNORED

PRIORS = make_priors(64)
CELLS = len(PRIORS)
CLASSES = 2


def untrained() -> tuple[tf.Tensor, Corners]:
    return tf.fill((1, CELLS, CLASSES), 0.01), decode_boxes(tf.zeros((1, CELLS, 4)), PRIORS)


def assigned(true_boxes: list[list[float]], true_labels: list[int]) -> Targets:
    scores, boxes = untrained()
    return assign(
        scores,
        boxes,
        true_boxes=tf.constant([true_boxes], tf.float32),
        true_labels=tf.constant([true_labels], tf.int32),
        priors=PRIORS,
    )


def learned(targets: Targets, box: int = 0) -> np.ndarray:
    """The cells that learn one box of the only picture."""
    cells: np.ndarray = targets.cells[0, box].numpy()[targets.weights[0, box].numpy() > 0]
    return cells


def test_a_box_gets_at_most_the_top_cells_all_inside_it() -> None:
    targets = assigned([[0.2, 0.3, 0.8, 0.9]], [1])
    owned = learned(targets)
    assert 1 <= len(owned) <= TOP_CELLS
    centers = PRIORS[owned, :2]
    assert ((centers > [0.2, 0.3]) & (centers < [0.8, 0.9])).all()
    assert targets.scores[0].numpy()[:, 0].max() == 0
    assert set(np.flatnonzero(targets.scores[0, :, 1].numpy())) == set(owned)


def test_the_best_cell_of_a_box_gets_its_best_overlap_as_target() -> None:
    targets = assigned([[0.2, 0.3, 0.8, 0.9]], [1])
    _, boxes = untrained()
    iou = pairwise_iou(tf.constant([[0.2], [0.3], [0.8], [0.9]])[:, None], boxes)[0, 0].numpy()
    best = iou[learned(targets)].max()
    np.testing.assert_allclose(targets.weights.numpy().max(), best, rtol=1e-5)
    np.testing.assert_allclose(targets.scores.numpy().max(), best, rtol=1e-5)


def test_padding_and_an_empty_picture_leave_all_cells_background() -> None:
    targets = assigned([[0.0, 0.0, 0.0, 0.0]], [-1])
    assert targets.weights.numpy().max() == 0
    assert targets.scores.numpy().max() == 0


def test_padding_beyond_the_fullest_picture_changes_nothing() -> None:
    boxes, labels = [[0.2, 0.3, 0.8, 0.9], [0.1, 0.1, 0.3, 0.2]], [1, 0]
    bare, padded = assigned(boxes, labels), assigned([*boxes, *[[0.0] * 4] * 300], [*labels, *[-1] * 300])
    np.testing.assert_array_equal(bare.scores.numpy(), padded.scores.numpy())
    np.testing.assert_array_equal(bare.weights.numpy(), padded.weights.numpy()[:, :2])
    assert padded.weights.numpy()[:, 2:].max() == 0


def test_a_box_behind_padding_is_not_lost() -> None:
    bare = assigned([[0.2, 0.3, 0.8, 0.9]], [1])
    behind = assigned([[0.0] * 4, [0.0] * 4, [0.2, 0.3, 0.8, 0.9]], [-1, -1, 1])
    np.testing.assert_array_equal(bare.scores.numpy(), behind.scores.numpy())


def test_a_box_smaller_than_a_cell_still_gets_one() -> None:
    targets = assigned([[0.405, 0.405, 0.425, 0.425]], [0])
    assert len(learned(targets)) >= 1


def test_no_cell_serves_two_boxes() -> None:
    targets = assigned([[0.2, 0.2, 0.7, 0.7], [0.3, 0.3, 0.8, 0.8]], [0, 1])
    per_cell = (targets.scores[0].numpy() > 0).sum(axis=1)
    assert per_cell.max() == 1
    assert (targets.scores[0].numpy()[:, 0] > 0).any()
    assert (targets.scores[0].numpy()[:, 1] > 0).any()
    assert not set(learned(targets, 0)) & set(learned(targets, 1))


def test_of_two_equal_boxes_the_first_is_learned() -> None:
    targets = assigned([[0.2, 0.3, 0.8, 0.9]] * 2, [1, 1])
    alone = assigned([[0.2, 0.3, 0.8, 0.9]], [1])
    np.testing.assert_array_equal(targets.scores.numpy(), alone.scores.numpy())
    assert len(learned(targets, 1)) == 0


def test_every_cell_in_reach_and_no_other_is_claimed_at_any_level() -> None:
    ymin, xmin, ymax, xmax = 0.1, 0.2, 0.7, 0.6
    y, x = PRIORS[:, 0], PRIORS[:, 1]
    inside = (y > ymin) & (y < ymax) & (x > xmin) & (x < xmax)
    reached = claims(tf.constant([[[ymin, xmin, ymax, xmax]]]), tf.constant([[True]]), PRIORS)[0, 0].numpy()
    np.testing.assert_array_equal(reached, inside)


def test_cells_on_an_ignored_object_are_not_judged_unless_they_learn_another() -> None:
    ignored, learned_one = [0.1, 0.1, 0.9, 0.6], [0.3, 0.4, 0.7, 0.9]
    targets = assigned([ignored, learned_one], [IGNORED, 1])
    y, x = PRIORS[:, 0], PRIORS[:, 1]
    inside = (y > 0.1) & (y < 0.9) & (x > 0.1) & (x < 0.6)
    learns = targets.scores[0].numpy().max(axis=-1) > 0
    assert (learns & inside).any()
    np.testing.assert_array_equal(targets.is_judged[0].numpy(), learns | ~inside)
    alone = assigned([learned_one], [1])
    np.testing.assert_array_equal(targets.scores.numpy(), alone.scores.numpy())
    assert alone.is_judged.numpy().all()


def test_three_hundred_boxes_in_a_picture_are_assigned() -> None:
    rng = np.random.default_rng(0)
    low = rng.uniform(0, 0.8, (300, 2))
    boxes = np.concatenate([low, low + rng.uniform(0.05, 0.2, (300, 2))], axis=1)
    targets = assigned(boxes.tolist(), [0] * 300)
    assert np.isfinite(targets.weights.numpy()).all()
    assert targets.weights.numpy().max() <= 1


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(*[st.floats(0, 1, width=32)] * 4), min_size=1, max_size=5))
def test_overlap_is_symmetric_and_between_0_and_1(corners: list[tuple[float, float, float, float]]) -> None:
    boxes = np.array([[min(a, c), min(b, d), max(a, c), max(b, d)] for a, b, c, d in corners], np.float32)
    planes = tf.unstack(tf.constant(boxes[None]), axis=-1)
    iou = pairwise_iou(planes, planes).numpy()[0]
    np.testing.assert_allclose(iou, iou.T, atol=1e-6)
    assert iou.min() >= 0
    assert iou.max() <= 1 + 1e-5


def seeing(seen: dict[int, tuple[float, float]], *, others: float = 0.5) -> tuple[tf.Tensor, Corners]:
    """Scores and boxes of cells: `seen` has the height of a cell's box and its score for class 1, of class 0 `others`.

    All boxes reach from (0.25, 0.25) to the right edge of `BOX`; those of other cells are nowhere.
    """
    scores = np.full((1, CELLS, CLASSES), others, np.float32)
    corners = np.tile(np.array([0, 0, 0.01, 0.01], np.float32), (1, CELLS, 1))
    for cell, (height, score) in seen.items():
        corners[0, cell] = [0.25, 0.25, 0.25 + height, 0.75]
        scores[0, cell, 1] = score
    return tf.constant(scores), tf.unstack(tf.constant(corners), axis=-1)


BOX = [0.25, 0.25, 0.75, 0.75]


def cell_at(y: float, x: float) -> int:
    """The cell of the finest level with this centre."""
    return int(np.abs(PRIORS[: CELLS // 2, :2] - [y, x]).sum(axis=1).argmin())


def weights_by_cell(
    seen: tuple[tf.Tensor, Corners], boxes: list[list[float]], labels: list[int]
) -> list[dict[int, float]]:
    scores, corners = seen
    targets = assign(scores, corners, true_boxes=tf.constant([boxes]), true_labels=tf.constant([labels]), priors=PRIORS)
    return [
        {int(cell): float(weight) for cell, weight in zip(cells, weights, strict=True) if weight > 0}
        for cells, weights in zip(targets.cells[0].numpy(), targets.weights[0].numpy(), strict=True)
    ]


def test_a_cell_fits_by_the_root_of_its_score_and_the_sixth_power_of_its_overlap() -> None:
    near, sure = cell_at(0.4375, 0.4375), cell_at(0.5625, 0.5625)
    (found,) = weights_by_cell(seeing({near: (0.4, 0.1), sure: (0.35, 0.3)}), [BOX], [1])
    expected = {near: 0.8, sure: 0.8 * (0.7**6 * 0.3**0.5) / (0.8**6 * 0.1**0.5)}
    assert found == {cell: pytest.approx(weight, rel=1e-4) for cell, weight in expected.items()}


def test_what_a_cell_says_of_the_boxs_own_class_counts() -> None:
    first, second = cell_at(0.4375, 0.4375), cell_at(0.5625, 0.5625)
    (found,) = weights_by_cell(seeing({first: (0.4, 0.64), second: (0.4, 0.04)}), [BOX], [1])
    assert found == {first: pytest.approx(0.8, rel=1e-4), second: pytest.approx(0.2, rel=1e-4)}


def test_the_best_overlap_is_that_of_a_cell_that_the_box_keeps() -> None:
    """The other box, the upper part of the first, overlaps the shared cell's box by more and keeps the cell."""
    shared, own = cell_at(0.4375, 0.4375), cell_at(0.6875, 0.6875)
    upper = [0.25, 0.25, 0.55, 0.75]
    first, second = weights_by_cell(seeing({shared: (1 / 3, 0.5), own: (0.25, 0.5)}), [BOX, upper], [1, 1])
    assert second == {shared: pytest.approx(0.9, rel=1e-4)}
    assert first == {own: pytest.approx(0.5, rel=1e-4)}
