import pytest

from trainer.training.checkpoint import TrainingProgress
from trainer.training.epoch_log import input_hint, is_better
from trainer.training.schedule import Schedule


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
