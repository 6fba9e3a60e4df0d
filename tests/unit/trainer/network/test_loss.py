import numpy as np
import pytest
import tensorflow as tf

from trainer.network.box_ops import generalized_iou
from trainer.network.detector import CENTER_SCALE, SIZE_SCALE, make_priors
from trainer.network.loss import loss_sums
from trainer.tensors import IGNORED, PADDING

PRIORS = make_priors(64)


def encode(box: list[float]) -> np.ndarray:
    """Corners (ymin, xmin, ymax, xmax) against every prior: float32 [A, 4]."""
    center = np.array([(box[0] + box[2]) / 2, (box[1] + box[3]) / 2])
    size = np.array([box[2] - box[0], box[3] - box[1]])
    offset = (center - PRIORS[:, :2]) / PRIORS[:, 2:] * CENTER_SCALE
    return np.concatenate([offset, np.log(size / PRIORS[:, 2:]) * SIZE_SCALE], axis=1).astype(np.float32)


def sums(encoded: np.ndarray, logits: np.ndarray, label: int = 0) -> dict[str, float]:
    found = loss_sums(
        {"boxes": tf.constant(encoded[None]), "scores": tf.constant(logits[None])},
        true_boxes=tf.constant([[BOX]], tf.float32),
        true_labels=tf.constant([[label]], tf.int32),
        priors=PRIORS,
    )
    return {"score": float(found.score), "box": float(found.box), "normalizer": float(found.normalizer)}


BOX = [0.25, 0.25, 0.75, 0.75]


def test_generalized_overlap_is_1_for_equal_and_negative_for_distant_boxes() -> None:
    boxes = tf.constant([[0.0, 0.0, 0.2, 0.2], [0.0, 0.0, 0.2, 0.2]])
    others = tf.constant([[0.0, 0.0, 0.2, 0.2], [0.8, 0.8, 1.0, 1.0]])
    equal, distant = generalized_iou(tf.unstack(boxes, axis=-1), tf.unstack(others, axis=-1)).numpy()
    np.testing.assert_allclose(equal, 1, rtol=1e-5)
    # Union 0.08 in a hull of 1.
    np.testing.assert_allclose(distant, -0.92, rtol=1e-5)


def test_right_boxes_cost_nothing_and_moved_ones_cost_more() -> None:
    logits = np.zeros((len(PRIORS), 2), np.float32)
    right = sums(encode(BOX), logits)
    moved = sums(encode([0.3, 0.25, 0.8, 0.75]), logits)
    assert right["box"] < 1e-3
    assert moved["box"] / moved["normalizer"] > 0.1
    # All cells see the same box, 0.05 too low: 0.45 of 0.55 are shared, and the hull is the union.
    assert moved["box"] == pytest.approx((1 - 0.45 / 0.55) * moved["normalizer"], rel=1e-4)


def test_an_empty_picture_has_a_finite_loss_and_no_box_loss() -> None:
    found = sums(encode(BOX), np.full((len(PRIORS), 2), -4.0, np.float32), label=-1)
    assert found["box"] == 0
    assert found["normalizer"] == 0
    assert 0 < found["score"] < 5


def test_an_ignored_object_is_neither_learned_nor_punished() -> None:
    """Only what is said outside of it costs something."""
    on_it = (np.abs(PRIORS[:, :2] - 0.5) < 0.25).all(axis=1)[:, None]
    logits = np.where(on_it, 6.0, -4.0).astype(np.float32).repeat(2, axis=1)
    found = sums(encode(BOX), logits, label=IGNORED)
    assert (found["box"], found["normalizer"]) == (0, 0)
    np.testing.assert_allclose(found["score"], 2 * (~on_it).sum() * np.log1p(np.exp(-4.0)), rtol=1e-4)
    assert sums(encode(BOX), logits, label=PADDING)["score"] > 10 * found["score"]


def test_wild_outputs_have_a_finite_loss() -> None:
    rng = np.random.default_rng(0)
    found = sums(
        rng.normal(0, 500, (len(PRIORS), 4)).astype(np.float32),
        rng.normal(0, 50, (len(PRIORS), 2)).astype(np.float32),
    )
    assert all(np.isfinite(value) for value in found.values())


def test_the_loss_is_a_sum_so_that_replicas_add_up() -> None:
    rng = np.random.default_rng(0)
    outputs = {
        "boxes": tf.constant(rng.normal(0, 1, (4, len(PRIORS), 4)).astype(np.float32)),
        "scores": tf.constant(rng.normal(-3, 1, (4, len(PRIORS), 2)).astype(np.float32)),
    }
    boxes, labels = tf.constant([[BOX]] * 4, tf.float32), tf.constant([[0], [1], [-1], [0]], tf.int32)

    def total(rows: slice) -> np.ndarray:
        part = {key: value[rows] for key, value in outputs.items()}
        found = loss_sums(part, true_boxes=boxes[rows], true_labels=labels[rows], priors=PRIORS)
        return np.array([found.score, found.box, found.normalizer])

    np.testing.assert_allclose(total(slice(0, 2)) + total(slice(2, 4)), total(slice(0, 4)), rtol=1e-5)


@pytest.mark.parametrize("box", [BOX, [0.5, 0.5, 0.5, 0.5], [0, 0, 0, 0]], ids=["a box", "a point", "padding"])
@pytest.mark.parametrize("spread", [1.0, 500.0])
def test_gradients_are_finite_whatever_the_box_and_the_outputs(box: list[float], spread: float) -> None:
    rng = np.random.default_rng(0)
    encoded = tf.Variable(rng.normal(0, spread, (1, len(PRIORS), 4)).astype(np.float32))
    logits = tf.Variable(rng.normal(0, spread / 10, (1, len(PRIORS), 2)).astype(np.float32))
    label = -1 if box == [0, 0, 0, 0] else 0
    with tf.GradientTape() as tape:
        found = loss_sums(
            {"boxes": encoded, "scores": logits},
            true_boxes=tf.constant([[box]], tf.float32),
            true_labels=tf.constant([[label]], tf.int32),
            priors=PRIORS,
        )
        loss = found.score + found.box
    for gradient in tape.gradient(loss, [encoded, logits], unconnected_gradients=tf.UnconnectedGradients.ZERO):
        assert np.isfinite(gradient.numpy()).all()
