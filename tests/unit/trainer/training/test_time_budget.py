"""A bound in minutes becomes a number of steps; the clock is the test's."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.training.schedule import FROZEN_SHARE, LEARNING_STEP, Schedule
from trainer.training.time_budget import LATE, MEASURED_STEPS, SETTLING_STEPS, VALIDATION_SHARE, TimeBudget

SCHEDULE = Schedule(steps=1000, steps_per_epoch=50, peak_rate=1e-3)


class Clock:
    def __init__(self) -> None:
        self.now_s = 5000.0

    def __call__(self) -> float:
        return self.now_s


def after_steps(
    minutes: float | None, step_s: float, steps: int, *, is_published: bool = False
) -> tuple[TimeBudget, Clock]:
    clock = Clock()
    budget = TimeBudget(minutes, clock, is_published=is_published)
    for _ in range(steps):
        clock.now_s += step_s
        budget.note_step(step_s)
    return budget, clock


def test_without_a_bound_the_schedule_is_known_at_once_and_never_cut() -> None:
    budget, clock = after_steps(None, step_s=1.0, steps=30)
    clock.now_s += 1e9
    assert budget.is_measured(SCHEDULE, 0)
    assert budget.fit(SCHEDULE, 30) == SCHEDULE
    assert not budget.is_late(SCHEDULE, 30)


def test_the_speed_is_known_after_enough_steps_or_all_of_a_short_schedule() -> None:
    budget, _ = after_steps(10, step_s=1.0, steps=MEASURED_STEPS)
    assert [budget.is_measured(SCHEDULE, done) for done in (0, MEASURED_STEPS - 1, MEASURED_STEPS)] == [
        False,
        False,
        True,
    ]
    fresh, _ = after_steps(10, step_s=1.0, steps=3)
    assert fresh.is_measured(SCHEDULE.model_copy(update={"steps": 3}), 3)


def test_an_attempt_that_goes_on_does_not_take_its_first_steps_which_trace_for_the_speed() -> None:
    clock = Clock()
    resumed = TimeBudget(30, clock)
    resumed.resume(600.0)
    for step_s in [25.0] + [0.3] * (SETTLING_STEPS - 1) + [0.3] * SETTLING_STEPS:
        assert not resumed.is_late(SCHEDULE, 500), "its rest takes 150 s, and there are 17 minutes"
        assert not resumed.is_measured(SCHEDULE, 500)
        clock.now_s += step_s
        resumed.note_step(step_s)
    assert resumed.is_measured(SCHEDULE, 500)
    assert resumed.fit(SCHEDULE, 500) == SCHEDULE


def test_a_schedule_gets_the_steps_that_the_time_left_allows() -> None:
    budget, _ = after_steps(10, step_s=2.0, steps=25)
    left_s = 600 * (1 - VALIDATION_SHARE) - 50
    assert budget.fit(SCHEDULE, 25).steps == 25 + int(left_s / 2.0)
    assert budget.rest_s(SCHEDULE, 25) == 2.0 * 975


@given(st.booleans(), st.integers(1, 1000), st.floats(0.01, 10), st.floats(0, 10_000))
def test_a_schedule_fitted_to_time_is_never_longer(
    is_published: bool, done: int, step_s: float, spent_s: float
) -> None:
    budget, clock = after_steps(60, step_s, 2 * SETTLING_STEPS, is_published=is_published)
    clock.now_s += spent_s
    fitted = budget.fit(SCHEDULE, done)
    assert min(done + 1, SCHEDULE.steps) <= fitted.steps <= SCHEDULE.steps
    clock.now_s += 3600
    assert budget.fit(fitted, fitted.steps).steps == fitted.steps


def test_before_the_speed_is_known_nothing_is_cut_or_foretold() -> None:
    budget, clock = after_steps(1, step_s=100.0, steps=SETTLING_STEPS)
    clock.now_s += 1e4
    assert budget.fit(SCHEDULE, SETTLING_STEPS) == SCHEDULE
    assert budget.eta_s(SCHEDULE, SETTLING_STEPS) is None
    assert not budget.is_late(SCHEDULE, SETTLING_STEPS)


def test_the_end_is_foretold_within_the_time_that_is_left() -> None:
    budget, clock = after_steps(10, step_s=1.0, steps=100)
    left_s = 600 * (1 - VALIDATION_SHARE) - 100
    assert budget.eta_s(SCHEDULE, 900) == pytest.approx(100)
    assert budget.eta_s(SCHEDULE, 100) == pytest.approx(left_s)
    clock.now_s += 1e4
    assert budget.eta_s(SCHEDULE, 100) == 0


@pytest.mark.parametrize("schedule", [SCHEDULE, Schedule(steps=400, steps_per_epoch=10, peak_rate=1e-3, fork=100)])
def test_time_that_has_run_out_leaves_one_step_and_none_to_a_schedule_that_is_done(schedule: Schedule) -> None:
    budget, clock = after_steps(10, step_s=1.0, steps=MEASURED_STEPS)
    clock.now_s += 1e4
    assert budget.fit(schedule, 150).steps == 151
    assert budget.fit(schedule, schedule.steps) == schedule
    assert not budget.is_late(schedule, schedule.steps)


def test_the_first_steps_which_trace_are_not_taken_for_the_speed() -> None:
    clock = Clock()
    budget = TimeBudget(60, clock)
    for step_s in [30.0] * SETTLING_STEPS + [1.0] * (MEASURED_STEPS - SETTLING_STEPS):
        clock.now_s += step_s
        budget.note_step(step_s)
    assert budget.rest_s(SCHEDULE, MEASURED_STEPS) == 1.0 * (1000 - MEASURED_STEPS)


def test_the_time_of_earlier_attempts_counts_toward_the_budget() -> None:
    budget, clock = after_steps(10, step_s=1.0, steps=25)
    fresh = budget.fit(SCHEDULE, 25).steps
    budget.resume(100.0)
    assert budget.spent_s == 125.0
    assert budget.fit(SCHEDULE, 25).steps == fresh - 100
    clock.now_s += 1e6
    assert budget.fit(SCHEDULE, 25).steps == 26, "one more step ends it with a low rate"


@pytest.mark.parametrize(("slower", "is_late"), [(LATE * 0.99, False), (LATE * 1.01, True)])
def test_a_frozen_schedule_is_late_when_its_rest_takes_clearly_longer(slower: float, is_late: bool) -> None:
    budget, _ = after_steps(10, step_s=2.0, steps=25)
    frozen = budget.fit(SCHEDULE, 25)
    left_s = 600 * (1 - VALIDATION_SHARE) - 50
    for _ in range(MEASURED_STEPS):
        budget.note_step(slower * left_s / (frozen.steps - 25))
    assert budget.is_late(frozen, 25) == is_late


def test_steps_get_longer_when_a_frozen_backbone_begins_to_learn() -> None:
    clock = Clock()
    budget = TimeBudget(10, clock, is_published=True)
    for _ in range(25):
        clock.now_s += 1.0
        budget.note_step(1.0, is_frozen=True)
    learning = (1 - FROZEN_SHARE) * 1000
    assert budget.rest_s(SCHEDULE, 25) == pytest.approx(FROZEN_SHARE * 1000 - 25 + LEARNING_STEP * learning)
    fitted = budget.fit(SCHEDULE, 25)
    left_s = 600 * (1 - VALIDATION_SHARE) - 25
    assert budget.rest_s(fitted, 25) <= left_s < budget.rest_s(SCHEDULE, 25)
    one_more = fitted.model_copy(update={"steps": fitted.steps + 1})
    assert budget.rest_s(one_more, 25) > left_s


def test_a_backbone_that_stays_frozen_never_takes_longer_steps() -> None:
    budget = TimeBudget(None, Clock(), is_published=True)
    for _ in range(25):
        budget.note_step(1.0, is_frozen=True)
    always = SCHEDULE.model_copy(update={"frozen": 1.0})
    assert budget.rest_s(always, 25) == pytest.approx(always.steps - 25)


def test_the_rest_is_known_while_the_last_steps_were_still_frozen_ones() -> None:
    budget = TimeBudget(None, Clock(), is_published=True)
    for _ in range(MEASURED_STEPS):
        budget.note_step(1.0, is_frozen=True)
    began = round(FROZEN_SHARE * SCHEDULE.steps)
    assert budget.rest_s(SCHEDULE, began) == pytest.approx(LEARNING_STEP * (SCHEDULE.steps - began))
    budget.note_step(LEARNING_STEP)
    assert budget.rest_s(SCHEDULE, began + 1) == pytest.approx(LEARNING_STEP * (SCHEDULE.steps - began - 1))


BRANCHED = Schedule(steps=1_000, steps_per_epoch=10, peak_rate=1e-3, branches=3, fork=100)


@pytest.mark.parametrize(("minutes", "branches", "steps"), [(60, 3, 1_000), (15, 2, 700), (10, 1, 400), (5, 1, 276)])
def test_branches_are_given_up_before_steps_of_the_first(minutes: float, branches: int, steps: int) -> None:
    budget, _ = after_steps(minutes, step_s=1.0, steps=MEASURED_STEPS)
    found = budget.fit(BRANCHED, MEASURED_STEPS)
    assert (found.branches, found.steps) == (branches, steps)


def test_a_late_branch_is_given_up_while_it_is_under_way() -> None:
    budget, clock = after_steps(20, step_s=1.0, steps=750)
    assert not budget.is_late(BRANCHED, 750)
    clock.now_s += 300
    assert budget.is_late(BRANCHED, 750)
    assert budget.fit(BRANCHED, 750) == BRANCHED.with_branches(2)


def test_a_few_slow_steps_after_a_resume_give_up_no_branch() -> None:
    budget, _ = after_steps(20, step_s=10.0, steps=2 * SETTLING_STEPS)
    budget.resume(700.0)
    assert budget.is_late(BRANCHED.with_branches(1), 200), "a schedule without others is shortened at once"
    assert not budget.is_late(BRANCHED, 700)
    for _ in range(MEASURED_STEPS - 2 * SETTLING_STEPS):
        budget.note_step(10.0)
    assert budget.is_late(BRANCHED, 700)


def test_branches_that_are_done_are_kept_however_much_time_they_took() -> None:
    budget, clock = after_steps(20, step_s=1.0, steps=700)
    clock.now_s += 1e4
    assert budget.fit(BRANCHED, 700) == BRANCHED.with_branches(2), "the second is done"
    assert budget.fit(BRANCHED, 750) == BRANCHED.with_branches(2), "the third is under way"
    assert not budget.is_late(BRANCHED, 1_000), "all are done"


def test_a_branch_is_not_given_up_for_the_time_that_validations_took() -> None:
    budget, clock = after_steps(19, step_s=1.0, steps=MEASURED_STEPS)
    assert budget.fit(BRANCHED, MEASURED_STEPS) == BRANCHED
    share = 0.9 * VALIDATION_SHARE * 19 * 60 / BRANCHED.steps
    for step in range(MEASURED_STEPS + 1, BRANCHED.steps + 1):
        clock.now_s += 1.0 + share
        budget.note_step(1.0)
        assert not budget.is_late(BRANCHED, step)
    assert budget.spent_s < 19 * 60
