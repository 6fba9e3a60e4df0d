import numpy as np
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer.model import decode_boxes, priors
from trainer.targets import TOP_CELLS, Targets, assign, pairwise_iou

ANCHORS = priors(64)
CELLS = len(ANCHORS)
CLASSES = 2


def untrained(batch: int = 1) -> tuple[tf.Tensor, tf.Tensor]:
    scores = tf.fill((batch, CELLS, CLASSES), 0.01)
    return scores, tf.repeat(decode_boxes(tf.zeros((CELLS, 4)), ANCHORS)[None], batch, axis=0)


def assigned(true_boxes: list[list[float]], true_labels: list[int]) -> Targets:
    scores, boxes = untrained()
    return assign(
        scores,
        boxes,
        true_boxes=tf.constant([true_boxes], tf.float32),
        true_labels=tf.constant([true_labels], tf.int32),
        anchors=ANCHORS,
    )


def test_a_box_gets_at_most_the_top_cells_all_inside_it() -> None:
    targets = assigned([[0.2, 0.3, 0.8, 0.9]], [1])
    owned = np.flatnonzero(targets.weights[0].numpy())
    assert 1 <= len(owned) <= TOP_CELLS
    centers = ANCHORS[owned, :2]
    assert ((centers > [0.2, 0.3]) & (centers < [0.8, 0.9])).all()
    assert targets.scores[0].numpy()[:, 0].max() == 0
    np.testing.assert_allclose(targets.boxes[0].numpy()[owned], np.tile([[0.2, 0.3, 0.8, 0.9]], (len(owned), 1)))


def test_the_best_cell_of_a_box_gets_its_best_overlap_as_target() -> None:
    targets = assigned([[0.2, 0.3, 0.8, 0.9]], [1])
    _, boxes = untrained()
    iou = pairwise_iou(tf.constant([[[0.2, 0.3, 0.8, 0.9]]]), boxes)[0, 0].numpy()
    owned = np.flatnonzero(targets.weights[0].numpy())
    np.testing.assert_allclose(targets.weights[0].numpy().max(), iou[owned].max(), rtol=1e-5)


def test_padding_and_an_empty_picture_leave_all_cells_background() -> None:
    targets = assigned([[0.0, 0.0, 0.0, 0.0]], [-1])
    assert targets.weights.numpy().max() == 0
    assert targets.scores.numpy().max() == 0


def test_padding_beyond_the_fullest_picture_changes_nothing() -> None:
    boxes, labels = [[0.2, 0.3, 0.8, 0.9], [0.1, 0.1, 0.3, 0.2]], [1, 0]
    bare, padded = assigned(boxes, labels), assigned([*boxes, *[[0.0] * 4] * 300], [*labels, *[-1] * 300])
    for name in ("scores", "boxes", "weights"):
        np.testing.assert_array_equal(getattr(bare, name).numpy(), getattr(padded, name).numpy())


def test_a_box_behind_padding_is_not_lost() -> None:
    bare = assigned([[0.2, 0.3, 0.8, 0.9]], [1])
    behind = assigned([[0.0] * 4, [0.0] * 4, [0.2, 0.3, 0.8, 0.9]], [-1, -1, 1])
    np.testing.assert_array_equal(bare.scores.numpy(), behind.scores.numpy())


def test_a_box_smaller_than_a_cell_still_gets_one() -> None:
    targets = assigned([[0.405, 0.405, 0.425, 0.425]], [0])
    assert np.count_nonzero(targets.weights[0].numpy()) >= 1


def test_no_cell_serves_two_boxes() -> None:
    targets = assigned([[0.2, 0.2, 0.7, 0.7], [0.3, 0.3, 0.8, 0.8]], [0, 1])
    per_cell = (targets.scores[0].numpy() > 0).sum(axis=1)
    assert per_cell.max() == 1
    assert (targets.scores[0].numpy()[:, 0] > 0).any()
    assert (targets.scores[0].numpy()[:, 1] > 0).any()


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
    boxes = np.array([[min(a, c), min(b, d), max(a, c), max(b, d)] for a, b, c, d in corners], np.float32)[None]
    iou = pairwise_iou(tf.constant(boxes), tf.constant(boxes)).numpy()[0]
    np.testing.assert_allclose(iou, iou.T, atol=1e-6)
    assert iou.min() >= 0
    assert iou.max() <= 1 + 1e-5
