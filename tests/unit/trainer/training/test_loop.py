from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from shared.errors import StopRequested, TrainingError
from shared.leasing.guard import Unguarded
from shared.specs.augmentation import Augmentation
from shared.specs.run import RunSpec
from shared.storage import Storage
from tests.unit.trainer.pictures import coco_truth, drawn_examples
from trainer.data.batches import batches_from_memory
from trainer.data.examples import Examples
from trainer.data.training_set import TrainingSet
from trainer.evaluation.coco_map import AveragePrecision
from trainer.network.batch_norm import BatchNorm
from trainer.network.detector import is_backbone
from trainer.training import loop, schedule
from trainer.training.checkpoint import EpochRow
from trainer.training.epoch_log import epochs_without_better
from trainer.training.loop import Trained, Training
from trainer.training.strategy import make_strategy
from trainer.training.time_budget import TimeBudget

SIDE = 64


def training_set(examples: Examples, *, batch: int, seed: int = 0, validation: Examples | None = None) -> TrainingSet:
    return TrainingSet(
        labels=("square", "disc"),
        image_size=SIDE,
        pictures=len(examples),
        fingerprint="drawn",
        batches=lambda step: batches_from_memory(
            examples, batch=batch, recipe=Augmentation(), seed=seed, first_step=step
        ),
        names=lambda rows: [examples.filenames[row] for row in rows],
        validation=validation,
        truth=coco_truth(validation) if validation else {},
    )


def small_network(
    classes: int = 2, order: tuple[int, ...] = (0, 1, 2), heads: str = "out_{name}{number}"
) -> keras.Model:
    """Three normalized convolutions, named by `order`, and outputs of the detector's form on 64 px, by `heads`."""
    pictures = keras.Input((SIDE, SIDE, 3))
    x = pictures
    for number in order:
        x = keras.layers.Conv2D(8, 3, strides=2, padding="same", use_bias=False, name=f"conv{number}")(x)
        x = keras.layers.ReLU(6.0)(BatchNorm(name=f"norm{number}")(x))
    levels = [x, keras.layers.MaxPooling2D(2)(x), keras.layers.MaxPooling2D(4)(x)]
    outputs = {
        name: keras.layers.Concatenate(axis=1)(
            [
                keras.layers.Reshape((-1, size))(
                    keras.layers.Conv2D(size, 1, name=heads.format(name=name, number=number))(level)
                )
                for number, level in enumerate(levels)
            ]
        )
        for name, size in (("boxes", 4), ("scores", classes))
    }
    return keras.Model(pictures, outputs)


def trained(
    store: Path,
    *,
    replicas: int = 1,
    batch: int = 4,
    guard: Any = None,
    epochs: int | None = 2,
    build: Callable[[], keras.Model] = small_network,
    **more: Any,
) -> Trained:
    store.mkdir(exist_ok=True)
    spec = RunSpec(run="r", job="j", model="nano", epochs=epochs, batch=batch // replicas, **more)
    return Training(
        spec,
        training_set(drawn_examples(12), batch=batch, validation=drawn_examples(5, seed=1)),
        strategy=make_strategy(replicas),
        storage=Storage(str(store)),
        guard=guard or Unguarded(),
        build=build,
    ).run()


def weights(of: Trained) -> np.ndarray[Any, Any]:
    return np.concatenate([np.ravel(value) for value in of.model.get_weights()])


class StopsAfter:
    def __init__(self, steps: int) -> None:
        self.left = steps

    def advance(self, **progress: float | int | str) -> None:
        self.left -= 1
        if self.left < 0:
            raise StopRequested("asked to stop")

    def before_publish(self) -> None:
        pass

    def require_wanted(self) -> None:
        pass


def test_a_resumed_run_ends_like_an_unbroken_one(tmp_path: Path) -> None:
    unbroken = trained(tmp_path / "unbroken", epochs=3)
    for steps in (2, 3):
        with pytest.raises(StopRequested):
            trained(tmp_path / "broken", epochs=3, guard=StopsAfter(steps))
    resumed = trained(tmp_path / "broken", epochs=3)
    np.testing.assert_allclose(weights(resumed), weights(unbroken), atol=1e-6)
    assert [row.epoch for row in resumed.progress.rows] == [row.epoch for row in unbroken.progress.rows]
    assert resumed.progress.rows[-1].loss == pytest.approx(unbroken.progress.rows[-1].loss, rel=1e-4)


def test_a_finished_run_is_not_trained_again(tmp_path: Path) -> None:
    first = trained(tmp_path)
    again = trained(tmp_path, guard=StopsAfter(1))  # told once that all steps are done; a step would ask before
    np.testing.assert_array_equal(weights(again), weights(first))


def test_a_checkpoint_of_another_request_is_refused(tmp_path: Path) -> None:
    trained(tmp_path, epochs=1)
    with pytest.raises(TrainingError, match="another request"):
        trained(tmp_path, epochs=1, learning_rate=0.5)


def test_a_loss_that_is_not_finite_stops_with_the_names_of_its_pictures(tmp_path: Path) -> None:
    wild = RunSpec(run="r", job="j", model="nano", epochs=50, batch=4).model_copy(update={"learning_rate": 1e30})
    with pytest.raises(TrainingError, match=r"drawn_\d{3}\.png"):
        Training(
            wild,
            training_set(drawn_examples(12), batch=4),
            strategy=make_strategy(1),
            storage=Storage(str(tmp_path)),
            guard=Unguarded(),
            build=small_network,
        ).run()


def test_time_bounds_the_steps_and_the_rate_still_ends_low(tmp_path: Path) -> None:
    done = trained(tmp_path, epochs=100_000, max_minutes=0.05)
    assert done.progress.schedule is not None
    assert done.progress.step == done.progress.schedule.steps < 10_000
    # From step 25 on the schedule is cut to the time that is left, to 26 steps at least.
    assert done.progress.rows[-1].learning_rate < 0.03 * done.progress.schedule.peak_rate


@pytest.mark.parametrize("precision", ["mixed_bfloat16", "mixed_float16"])
def test_mixed_precision_trains_to_finite_float32_weights(tmp_path: Path, precision: str) -> None:
    done = trained(tmp_path, epochs=1, precision=precision)
    assert np.isfinite(weights(done)).all()
    assert weights(done).dtype == np.float32


def test_a_run_goes_on_where_another_precision_is_usual(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainer.training.loop.usual_precision", lambda backbone: "mixed_bfloat16")
    with pytest.raises(StopRequested):
        trained(tmp_path / "moved", guard=StopsAfter(3))
    monkeypatch.setattr("trainer.training.loop.usual_precision", lambda backbone: "float32")
    moved, unmoved = trained(tmp_path / "moved"), trained(tmp_path / "unmoved")
    assert [row.epoch for row in moved.progress.rows] == [row.epoch for row in unmoved.progress.rows]
    assert (moved.progress.precision, unmoved.progress.precision) == ("mixed_bfloat16", "float32")
    assert moved.progress.rows[-1].loss == pytest.approx(unmoved.progress.rows[-1].loss, rel=0.05)
    assert not np.array_equal(weights(moved), weights(unmoved))  # it was another precision indeed


def test_training_stops_after_the_asked_epochs_without_a_better_precision(tmp_path: Path) -> None:
    done = trained(tmp_path, epochs=200, patience=3, learning_rate=1e-9)
    assert epochs_without_better(done.progress.rows) >= 3
    assert done.progress.step < 600


def test_an_equal_precision_is_no_better_one() -> None:
    def row(epoch: int, val_map: float | None) -> EpochRow:
        numbers = dict.fromkeys(("step", "seconds", "loss", "loss_score", "loss_box"), 0)
        return EpochRow(epoch=epoch, learning_rate=0, images_per_s=0, busy=1, val_map=val_map, **numbers)

    rows = [row(1, None), row(2, 0.5), row(3, 0.5), row(4, None), row(5, 0.4)]
    assert [epochs_without_better(rows[:count]) for count in range(6)] == [0, 1, 0, 1, 2, 3]
    assert epochs_without_better([*rows, row(6, 0.6)]) == 0


def test_training_stops_when_the_asked_precision_is_reached(tmp_path: Path) -> None:
    done = trained(tmp_path, epochs=50, stop_at_map=1e-6)
    assert done.progress.step < 150
    assert (done.progress.rows[-1].val_map or 0) >= 1e-6


@pytest.mark.parametrize(("freeze", "learns"), [(1.0, False), (0.0, True)])
def test_a_backbone_learns_in_no_step_in_which_it_is_frozen(tmp_path: Path, freeze: float, learns: bool) -> None:
    def build() -> keras.Model:
        keras.utils.set_random_seed(0)
        return small_network(heads="{name}_{number}")  # as the detector names what is not its backbone

    fresh = {value.path: value.numpy() for value in build().trainable_variables}
    done = trained(tmp_path, build=build, backbone="efficientnet_lite0", freeze=freeze)
    changed = {value.path for value in done.model.trainable_variables if (value.numpy() != fresh[value.path]).any()}
    assert {path for path in changed if not is_backbone(path)}, "the heads learn"
    assert bool({path for path in changed if is_backbone(path)}) == learns


def test_a_machine_that_becomes_slower_within_a_long_epoch_is_noticed_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "LOOK_EVERY", 2)
    monkeypatch.setattr(TimeBudget, "is_late", lambda _, plan, step: step == 4)  # within the second epoch of 3 steps
    monkeypatch.setattr(
        TimeBudget, "fit", lambda _, plan, step: plan.model_copy(update={"steps": 5 if step > 3 else 9})
    )
    done = trained(tmp_path, epochs=3, max_minutes=None)
    assert done.progress.step == 5
    assert [(row.epoch, row.step) for row in done.progress.rows] == [(1, 3), (2, 5)]


@pytest.fixture
def _few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Branches of 26 steps after 6, three of them, as a test has time for."""
    monkeypatch.setattr(schedule, "FEWEST_STEPS", 32)
    monkeypatch.setattr(schedule, "ENOUGH_EPOCHS", 1)
    monkeypatch.setattr(schedule, "PUBLISHED_EPOCHS", 1)
    monkeypatch.setattr(schedule, "FROZEN_SHARE", 6 / 32)
    monkeypatch.setattr(schedule, "LEAST_PUBLISHED_STEPS", 90)


@pytest.mark.usefixtures("_few_steps")
def test_the_mean_of_all_branches_is_the_result_whether_the_run_is_broken_or_not(tmp_path: Path) -> None:
    unbroken = trained(tmp_path / "unbroken", epochs=None, distil=True)
    plan = unbroken.progress.schedule
    assert plan is not None
    assert (plan.branches, plan.fork, plan.steps) == (3, 6, 87)
    with np.load(newest_checkpoint(tmp_path / "unbroken")) as stored:
        mean, last, fork = stored["mean"], stored["average"], stored["fork"]
    np.testing.assert_array_equal(flat(unbroken), mean)
    assert np.abs(mean - last).max() > 1e-4
    assert np.abs(mean - fork).max() > 1e-2
    for steps in (4, 20, 27, 30):  # before the fork, in the first branch, in the second, in the third
        with pytest.raises(StopRequested):
            trained(tmp_path / "broken", epochs=None, distil=True, guard=StopsAfter(steps))
    resumed = trained(tmp_path / "broken", epochs=None, distil=True)
    np.testing.assert_allclose(flat(resumed), mean, atol=1e-6)
    ends = [row.step for row in unbroken.progress.rows if row.val_map is not None]
    assert {33, 60, 87} <= set(ends)
    assert unbroken.progress.best_epoch == plan.epochs


@pytest.mark.usefixtures("_few_steps")
@pytest.mark.parametrize(("late", "whole", "branch"), [(72, 2, 3), (60, 2, 2), (42, 1, 2), (30, 1, 1)])
def test_a_branch_without_time_is_given_up_and_the_mean_of_the_others_is_the_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late: int, whole: int, branch: int
) -> None:
    monkeypatch.setattr(TimeBudget, "is_late", lambda _, plan, step: step == late and plan.branches == 3)
    cut = lambda _, plan, step: plan.with_branches(whole, step) if step == late else plan  # noqa: E731 - a stand-in
    monkeypatch.setattr(TimeBudget, "fit", cut)
    done = trained(tmp_path, epochs=None, distil=True)
    plan, end = done.progress.schedule, 6 + 27 * whole
    assert (done.progress.step, plan.steps if plan else 0) == (max(late, end), end)
    assert done.progress.rows[-1].branch == branch
    with np.load(newest_checkpoint(tmp_path)) as stored:
        np.testing.assert_array_equal(flat(done), stored["mean"])
        assert (np.abs(stored["mean"] - stored["average"]).max() > 0) == (late > end or whole > 1)


@pytest.mark.usefixtures("_few_steps")
@pytest.mark.parametrize(("reached", "ended"), [(24, 24), (48, 87), (60, 60)])  # in the first, the second, at its end
def test_a_run_ends_at_a_precision_that_the_weights_have_which_are_exported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reached: int, ended: int
) -> None:
    def found(training: Training) -> AveragePrecision:
        return AveragePrecision(map50=0.9, map=0.9 if training._progress.step == reached else 0.1, per_class={})

    monkeypatch.setattr(Training, "_validate", found)
    done = trained(tmp_path, epochs=None, distil=True, stop_at_map=0.5)
    assert done.progress.step == ended
    assert done.progress.best_epoch == done.progress.rows[-1].epoch


def newest_checkpoint(store: Path) -> Path:
    return max((store / "runs/r/checkpoints").glob("*.npz"))


def flat(of: Trained) -> np.ndarray[Any, Any]:
    """As `Learner.average` has them."""
    variables = [*of.model.trainable_variables, *of.model.non_trainable_variables]
    return np.concatenate([np.ravel(variable.numpy()) for variable in variables])
