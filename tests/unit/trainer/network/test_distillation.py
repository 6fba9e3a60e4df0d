import numpy as np
import pytest
import tensorflow as tf

from tests.unit.trainer.network.test_loss import BOX, PRIORS, encode
from trainer.network.distillation import BOX_CELLS, distilled_sums

CLASSES = 3


def outputs(box: list[float], logits: np.ndarray) -> dict[str, tf.Tensor]:
    """Of one picture, every cell of which says `box`."""
    return {"boxes": tf.constant(encode(box)[None]), "scores": tf.constant(logits[None].astype(np.float32))}


def some_logits(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(-3, 2, (len(PRIORS), CLASSES))


def test_who_agrees_with_the_teacher_has_no_loss() -> None:
    own = outputs(BOX, some_logits(0))
    sums = distilled_sums(own, own, PRIORS)
    assert float(sums.score) == pytest.approx(0, abs=1e-3)
    assert float(sums.box) == pytest.approx(0, abs=1e-3)
    assert float(sums.normalizer) > 1


def test_scores_cost_their_divergence_and_boxes_count_by_the_teachers_confidence() -> None:
    own, theirs = some_logits(1), some_logits(2)
    sums = distilled_sums(outputs([0.0, 0.0, 0.5, 0.5], own), outputs([0.0, 0.0, 0.5, 1.0], theirs), PRIORS)
    p, q = 1 / (1 + np.exp(-theirs)), 1 / (1 + np.exp(-own))
    divergence = p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q))
    assert float(sums.score) == pytest.approx(divergence.sum(), rel=1e-4)
    surest = np.sort(p.max(axis=1))[-BOX_CELLS:].sum()
    assert float(sums.normalizer) == pytest.approx(surest, rel=1e-5)
    # Half of the teacher's box, in a hull that is the teacher's box: GIoU 0.5.
    assert float(sums.box) == pytest.approx(0.5 * surest, rel=1e-3)


def test_the_teacher_gets_no_gradient() -> None:
    theirs, own = outputs(BOX, some_logits(3)), outputs([0.1, 0.2, 0.6, 0.9], some_logits(4))
    with tf.GradientTape() as tape:
        tape.watch([*theirs.values(), *own.values()])
        sums = distilled_sums(own, theirs, PRIORS)
        loss = sums.score + sums.box + sums.normalizer
    found = tape.gradient(loss, [*theirs.values(), *own.values()])
    assert found[:2] == [None, None]
    assert all(np.abs(gradient).max() > 0 for gradient in found[2:])
