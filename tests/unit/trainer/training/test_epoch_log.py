import pytest

from trainer.training.checkpoint import TrainingProgress
from trainer.training.epoch_log import EpochSums, input_hint, is_better
from trainer.training.schedule import Schedule
from trainer.training.train_step import StepLosses


def test_an_epoch_that_the_time_cut_short_has_its_number_and_the_means_of_its_steps() -> None:
    sums = EpochSums()
    for total in (1.0, 2.0):
        sums.add(StepLosses(total=total, score=total / 4, box=total / 2), waited_s=0.5, worked_s=1.5)
    row = sums.row(Schedule(steps=22, steps_per_epoch=10, peak_rate=0.1), step=22, batch=8)
    assert (row.epoch, row.step, row.loss, row.loss_score, row.loss_box) == (3, 22, 1.5, 0.375, 0.75)
    assert (row.seconds, row.images_per_s, row.busy) == (4.0, 4.0, 0.75)


def test_an_epoch_without_a_step_has_no_loss_and_is_busy() -> None:
    assert (EpochSums().mean_loss, EpochSums().busy) == (0.0, 1.0)


def test_a_busy_accelerator_gets_no_hint() -> None:
    assert input_hint(0.95, 100.0) is None


def test_the_hint_says_by_how_much_the_input_misses_and_what_to_do() -> None:
    hint = input_hint(0.5, 200.0)
    assert hint is not None
    assert "busy 0.50, 0.45 below 0.95" in hint
    assert "400 images/s, the input gave 200" in hint
    assert "2.6 times the cores" in hint
    assert "VOC_CACHE_MB" in hint


@pytest.mark.parametrize(
    ("step", "best_epoch", "figure", "objects", "expected"),
    [
        (10, 0, 0.1, 4, True),  # the first
        (40, 2, 0.2, 4, False),  # worse, both in the first half
        (40, 2, 0.3, 4, True),
        (50, 2, 0.2, 4, True),  # the first of the second half, of few objects
        (60, 5, 0.2, 4, False),  # worse than one of the second half
        (60, 5, 0.4, 4, True),
        (50, 2, 0.2, 100, False),  # of many objects the best is the best
    ],
)
def test_a_lucky_early_validation_of_few_objects_does_not_win(
    step: int, best_epoch: int, figure: float, objects: int, *, expected: bool
) -> None:
    schedule = Schedule(steps=100, steps_per_epoch=10, peak_rate=0.1)
    best = 0.3 if best_epoch else None
    progress = TrainingProgress(identity="", seed=0, step=step, best_map=best, best_epoch=best_epoch)
    assert is_better(progress, schedule, figure, objects) is expected


@pytest.mark.parametrize(
    ("step", "best_epoch", "figure", "objects", "expected"),
    [
        (30, 2, 0.4, 4, True),  # in the first branch
        (40, 2, 0.2, 4, True),  # its end
        (50, 4, 0.9, 4, False),  # in the second: luck, of few objects
        (70, 4, 0.2, 4, True),  # the mean of two
        (70, 4, 0.2, 100, False),  # of many objects the best is the best
        (50, 4, 0.9, 100, True),
    ],
)
def test_the_mean_of_more_branches_wins_where_validation_objects_are_few(
    step: int, best_epoch: int, figure: float, objects: int, *, expected: bool
) -> None:
    schedule = Schedule(steps=100, steps_per_epoch=10, peak_rate=0.1, branches=3, fork=10)
    progress = TrainingProgress(identity="", seed=0, step=step, best_map=0.3, best_epoch=best_epoch)
    assert is_better(progress, schedule, figure, objects) is expected
