"""Sets that are awkward to train on: each is trained for some steps, and its loss falls."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from shared.errors import TrainingError
from shared.jobs.paths import JobPaths
from shared.leasing.guard import Unguarded
from shared.specs.augmentation import Augmentation
from shared.specs.run import RunSpec
from shared.storage import Storage
from tests.unit.trainer.data.test_examples import write_job
from tests.unit.trainer.pictures import coco_truth, drawn_examples
from tests.unit.trainer.training.test_loop import SIDE, small_network, training_set, weights
from trainer.data.batches import batches_from_memory
from trainer.data.examples import Examples
from trainer.data.training_set import load_training_set
from trainer.network.detector import make_priors
from trainer.training.loop import Training
from trainer.training.strategy import make_strategy
from trainer.training.train_step import Learner


def with_boxes(examples: Examples, boxes: list[np.ndarray], labels: list[np.ndarray] | None = None) -> Examples:
    classes = labels or [np.zeros(len(rows), np.int32) for rows in boxes]
    return replace(examples, boxes=tuple(rows.astype(np.float32) for rows in boxes), labels=tuple(classes))


def rare_class() -> Examples:
    """One disc among some thirty squares."""
    examples = drawn_examples(12, most=4)
    labels = [np.zeros_like(rows) for rows in examples.labels]
    labels[0][0] = 1
    return replace(examples, labels=tuple(labels))


def without_boxes() -> Examples:
    return with_boxes(drawn_examples(12), [np.zeros((0, 4))] * 12)


def some_without_boxes() -> Examples:
    examples = drawn_examples(12)
    return with_boxes(examples, [rows if at % 3 == 0 else rows[:0] for at, rows in enumerate(examples.boxes)])


def three_hundred_boxes() -> Examples:
    low = np.random.default_rng(0).uniform(0, 0.85, (300, 2))
    return with_boxes(drawn_examples(4), [np.concatenate([low, low + 0.12], axis=1)] * 4)


def tiny_boxes() -> Examples:
    """Every object is 2 px, a quarter of the finest cell."""
    low = np.random.default_rng(0).uniform(0.1, 0.8, (5, 2))
    return with_boxes(drawn_examples(12), [np.concatenate([low, low + 2 / SIDE], axis=1)] * 12)


@pytest.fixture(scope="module")
def fresh() -> tuple[Learner, dict[str, np.ndarray]]:
    """A learner, traced once for all sets, and its state before it learned anything."""
    spec = batches_from_memory(drawn_examples(1), batch=8, recipe=Augmentation(), seed=0).element_spec
    learner = Learner(small_network, make_priors(SIDE), make_strategy(1), spec)
    return learner, learner.state()


@pytest.mark.parametrize(
    "examples",
    [rare_class, without_boxes, some_without_boxes, three_hundred_boxes, tiny_boxes],
    ids=["rare class", "no boxes", "few boxes", "300 boxes", "tiny boxes"],
)
@pytest.mark.parametrize("mosaic", [0.0, 1.0], ids=["plain", "mosaics"])
def test_an_awkward_set_trains(
    fresh: tuple[Learner, dict[str, np.ndarray]], examples: Callable[[], Examples], mosaic: float
) -> None:
    learner, start = fresh
    learner.restore(start)
    found = examples()
    stream = batches_from_memory(found, batch=8, recipe=Augmentation(mosaic=mosaic), seed=0)
    # One batch again and again: others would be easier or harder.
    batch = next(iter(stream))
    losses = [learner.step(batch, rate=2e-3, number=number) for number in range(40)]
    assert losses[-1].score < losses[0].score
    assert (losses[-1].box > 0) == bool((batch["labels"].numpy() >= 0).any())
    assert all(np.isfinite(values).all() for values in learner.state().values())


def test_a_single_class_in_fewer_pictures_than_a_batch_and_none_to_select_by_trains(tmp_path: Path) -> None:
    examples = drawn_examples(3)
    one_class = with_boxes(examples, list(examples.boxes))
    done = Training(
        RunSpec(run="r", job="j", epochs=20, batch=8),
        replace(training_set(one_class, batch=8), labels=("square",)),
        strategy=make_strategy(1),
        storage=Storage(str(tmp_path)),
        guard=Unguarded(),
        build=lambda: small_network(1),
    ).run()
    assert done.progress.step == 20
    assert done.progress.rows[-1].loss < done.progress.rows[0].loss
    assert done.progress.best_map is None  # the last averaged weights are taken
    assert np.isfinite(weights(done)).all()


@pytest.mark.parametrize(("cache_mb", "has_room"), [(0, False), (0, True)], ids=["streamed", "kept in a file"])
def test_a_loss_that_is_not_finite_names_the_files_whatever_keeps_the_pictures(
    tmp_path: Path, cache_mb: int, has_room: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    examples = drawn_examples(6)
    storage, manifest = write_job(tmp_path, examples)
    storage.write(JobPaths("j").annotations("train"), _json(coco_truth(examples)))
    (tmp_path / "runs" / "r").mkdir(parents=True)
    if not has_room:
        monkeypatch.setattr("trainer.data.examples.FILE_SHARE", 0)  # as on a disk that is full
    spec = RunSpec(run="r", job="j", epochs=50, batch=4).model_copy(update={"learning_rate": 1e30})
    dataset = load_training_set(spec, manifest, storage=storage, batch=4, cache_mb=cache_mb, shards=None)
    with pytest.raises(TrainingError, match=r"its pictures: drawn_\d{3}\.png, drawn_\d{3}\.png"):
        Training(
            spec, dataset, strategy=make_strategy(1), storage=storage, guard=Unguarded(), build=lambda: small_network()
        ).run()


def _json(truth: dict[str, object]) -> bytes:

    return json.dumps(truth).encode()


def test_weights_of_a_published_backbone_stay_while_they_are_frozen(
    fresh: tuple[Learner, dict[str, np.ndarray]],
) -> None:
    # No layer of this network has a name of ours: to the learner all of it is a published backbone.
    learner, start = fresh
    learner.restore(start)
    batch = next(iter(batches_from_memory(drawn_examples(8), batch=8, recipe=Augmentation(), seed=0)))
    learner.step(batch, rate=1e-2, number=0, published_share=0.0)
    np.testing.assert_array_equal(learner.state()["weights"], start["weights"])
    learner.step(batch, rate=1e-2, number=1, published_share=0.3)
    moved = np.abs(learner.state()["weights"] - start["weights"]).max()
    assert 0 < moved < 2e-2
