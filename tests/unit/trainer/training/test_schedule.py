from typing import Any, Final

import pytest

from trainer.training.schedule import (
    FROZEN_SHARE,
    LAST_RATE,
    MOST_STEPS,
    PLATEAU,
    PUBLISHED_RATE,
    WARMUP_STEPS,
    Schedule,
    plan_schedule,
)

SCHEDULE = Schedule(steps=1000, steps_per_epoch=26, peak_rate=2e-3, plateau=PLATEAU)


def test_the_rate_warms_up_stays_then_falls_to_its_last_share() -> None:
    rates = [SCHEDULE.rate(step) for step in range(SCHEDULE.steps)]
    peak = rates.index(max(rates))
    assert rates[: peak + 1] == sorted(rates[: peak + 1])
    assert rates[peak:] == sorted(rates[peak:], reverse=True)
    assert rates[WARMUP_STEPS : round(PLATEAU * SCHEDULE.steps)] == [SCHEDULE.peak_rate] * 400
    assert rates[round((1 + PLATEAU) / 2 * SCHEDULE.steps)] == pytest.approx(SCHEDULE.peak_rate / 2, rel=0.05)
    assert rates[-1] == pytest.approx(SCHEDULE.peak_rate * LAST_RATE, rel=0.01)


def test_without_a_plateau_the_rate_falls_from_the_end_of_the_warm_up() -> None:
    at_once = SCHEDULE.model_copy(update={"plateau": 0.0})
    rates = [at_once.rate(step) for step in range(WARMUP_STEPS, at_once.steps)]
    assert rates[0] == at_once.peak_rate
    assert rates[1:] == sorted(rates[1:], reverse=True)
    assert rates[450] == pytest.approx(at_once.peak_rate / 2, rel=0.05)


def test_epochs_as_asked_are_kept_and_the_default_is_bounded() -> None:
    assert plan_schedule(pictures=205, global_batch=8, epochs=10, rate=None).steps == 260
    assert plan_schedule(pictures=100_000, global_batch=8, epochs=None, rate=None).steps == MOST_STEPS
    assert plan_schedule(pictures=3, global_batch=8, epochs=2, rate=None).steps == 2


@pytest.mark.parametrize(
    ("pictures", "steps"), [(8, 400), (30, 400), (60, 800), (138, 1_500), (640, 40 * 80), (100_000, MOST_STEPS)]
)
def test_published_weights_want_fewer_steps(pictures: int, steps: int) -> None:
    found = plan_schedule(pictures=pictures, global_batch=8, epochs=None, rate=None, is_published=True)
    assert found.steps == steps
    asked = plan_schedule(pictures=pictures, global_batch=8, epochs=3, rate=None, is_published=True)
    assert asked.steps == 3 * asked.steps_per_epoch


def test_the_rate_grows_with_the_square_root_of_the_global_batch() -> None:
    one, four = (plan_schedule(pictures=640, global_batch=batch, epochs=1, rate=None) for batch in (8, 32))
    assert four.peak_rate == pytest.approx(2 * one.peak_rate)
    assert plan_schedule(pictures=640, global_batch=32, epochs=1, rate=0.01).peak_rate == 0.01


def test_published_weights_are_frozen_first_and_learn_slowly_later() -> None:
    assert SCHEDULE.published_share(0) == 0
    assert 0 < SCHEDULE.published_share(999) < 1


@pytest.mark.parametrize(("asked", "frozen_steps"), [(None, 225), (0.0, 0), (0.5, 750), (1.0, 1_500)])
def test_published_weights_are_frozen_for_as_long_as_asked(asked: float | None, frozen_steps: int) -> None:
    found = plan_schedule(pictures=138, global_batch=8, epochs=None, rate=None, frozen=asked, is_published=True)
    shares = [found.published_share(step) for step in range(found.steps)]
    assert shares == [0.0] * frozen_steps + [PUBLISHED_RATE] * (1_500 - frozen_steps)


def test_a_checkpoint_of_before_there_was_a_choice_has_the_usual_share() -> None:
    assert Schedule.model_validate(SCHEDULE.model_dump(exclude={"frozen"})).frozen == FROZEN_SHARE


FEW: Final[dict[str, Any]] = {"global_batch": 8, "epochs": None, "rate": None, "is_published": True, "may_branch": True}


@pytest.mark.parametrize(
    ("pictures", "branches", "steps"), [(8, 3, 1_080), (30, 3, 1_080), (40, 3, 1_350), (60, 2, 1_480), (142, 1, 1_500)]
)
def test_few_photos_are_learned_in_several_branches_within_the_usual_steps(
    pictures: int, branches: int, steps: int
) -> None:
    found = plan_schedule(pictures=pictures, **FEW)
    assert (found.branches, found.steps) == (branches, steps)
    ends = [step for step in range(found.steps + 1) if found.ends_branch(step)]
    begins = [step for step in range(found.steps) if found.begins_branch(step)]
    assert len(ends) == len(begins) == (branches if branches > 1 else 0)
    assert all(step % found.steps_per_epoch == 0 for step in (*begins, *ends)), "whole epochs, with a validation each"
    alone = plan_schedule(pictures=pictures, **FEW | {"may_branch": False})
    assert alone.steps <= found.lap < alone.steps + 2 * found.steps_per_epoch


@pytest.mark.parametrize(
    "asked", [{"epochs": 100}, {"is_continued": True}, {"is_published": False}, {"frozen": 0.0}, {"frozen": 1.0}]
)
def test_with_epochs_or_from_or_nothing_frozen_there_are_no_branches(asked: dict[str, Any]) -> None:
    assert plan_schedule(pictures=30, **FEW | asked).branches == 1


def test_each_branch_is_a_training_of_its_own_from_the_fork() -> None:
    found = plan_schedule(pictures=30, **FEW)
    first, second, third = (
        range(found.fork + at * found.branch_steps, found.fork + (at + 1) * found.branch_steps) for at in range(3)
    )
    assert third.stop == found.steps
    for of in (found.rate, found.count, found.place, found.published_share):
        assert [of(step) for step in first] == [of(step) for step in second] == [of(step) for step in third]
    assert [found.count(step) for step in first] == list(range(found.branch_steps))
    assert [found.published_share(step) for step in range(found.fork)] == [0.0] * found.fork
    assert {found.published_share(step) for step in first} == {PUBLISHED_RATE}
    assert found.rate(first.stop - 1) == pytest.approx(found.peak_rate * LAST_RATE, rel=0.05)


def test_a_branch_begins_at_its_border_and_none_behind_the_last() -> None:
    found = Schedule(steps=70, steps_per_epoch=10, peak_rate=0.1, branches=3, fork=10)
    assert [step for step in range(found.steps + 1) if found.begins_branch(step)] == [10, 30, 50]
    assert [step for step in range(1, found.steps + 1) if found.ends_branch(step)] == [30, 50, 70]


def test_branches_are_given_up_from_the_last_to_the_second() -> None:
    found = plan_schedule(pictures=30, **FEW)
    two, one = found.with_branches(2), found.with_branches(1)
    assert (two.branches, two.steps, two.fork) == (2, found.steps - found.branch_steps, found.fork)
    assert (one.branches, one.steps) == (1, found.lap)
    assert [two.rate(step) for step in range(two.steps)] == [found.rate(step) for step in range(two.steps)]


def test_a_branch_that_has_begun_keeps_its_course_when_the_others_are_given_up() -> None:
    found = plan_schedule(pictures=30, **FEW)
    begun = found.with_branches(1, found.fork + 1)
    assert (begun.branches, begun.steps, begun.fork) == (1, found.lap, found.fork)
    for of in (begun.rate, begun.count, begun.branch, begun.published_share):
        assert [of(step) for step in range(found.lap)] == [getattr(found, of.__name__)(s) for s in range(found.lap)]
    assert begun.ends_branch(found.lap)
    assert found.with_branches(1, found.fork) == found.with_branches(1), "it has not begun"


def test_a_checkpoint_of_before_there_were_branches_has_one() -> None:
    assert Schedule.model_validate(SCHEDULE.model_dump(exclude={"branches", "fork"})) == SCHEDULE
