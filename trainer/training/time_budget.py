"""A limit in minutes and the speed so far -> how many steps a schedule may have."""

import math
import statistics
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from typing import Final

from trainer.training.schedule import LEARNING_STEP, Schedule

# How many steps are done before a budget is turned into a number of steps.
MEASURED_STEPS: Final = 25
# The first steps of each attempt trace the graph and warm caches. As many more are needed before a schedule is cut by
# their speed.
SETTLING_STEPS: Final = 5

# The share of the budget that validation may take.
VALIDATION_SHARE: Final = 0.08

# A frozen schedule is shortened again if its remaining steps would take this many times the time left.
LATE: Final = 1.1


class TimeBudget:
    """The clock of a training loop over all its attempts; the speed is that of this attempt.

    Args:
        minutes: The limit of the loop; None is no limit.
        clock: Returns seconds from any starting point.
        is_published: Whether a published backbone may be frozen at first; steps in which it learns take longer.
    """

    def __init__(
        self, minutes: float | None, clock: Callable[[], float] = time.monotonic, *, is_published: bool = False
    ) -> None:
        self.minutes = minutes
        self._is_published = is_published
        self._clock = clock
        self._started_s = clock()
        self._settling = SETTLING_STEPS
        self._step_times_s: deque[float] = deque(maxlen=MEASURED_STEPS - SETTLING_STEPS)

    def resume(self, spent_s: float) -> None:
        """Count the time that earlier attempts spent."""
        self._started_s -= spent_s

    def note_step(self, step_s: float, *, is_frozen: bool = False) -> None:
        """Note the time of one step, converted to that of a step in which the whole network learns."""
        if self._settling:
            self._settling -= 1
            return
        self._step_times_s.append(step_s * (LEARNING_STEP if is_frozen else 1.0))

    @property
    def spent_s(self) -> float:
        """Seconds of training so far, all attempts together."""
        return self._clock() - self._started_s

    def rest_s(self, schedule: Schedule, done: int) -> float:
        """Seconds that the remaining steps will take at the latest speed; 0 before that is known."""
        return self._step_s * self._learning_steps(schedule, schedule.steps, done) if self._step_times_s else 0.0

    def eta_s(self, schedule: Schedule, done: int) -> float | None:
        """Seconds until the end of the loop, within the budget; None before the speed is known."""
        return max(0.0, min(self.rest_s(schedule, done), self._left_s(schedule))) if self._step_times_s else None

    def is_measured(self, schedule: Schedule, done: int) -> bool:
        """Whether enough steps are done to know the speed, or the speed does not matter."""
        return self.minutes is None or done >= schedule.steps or (done >= MEASURED_STEPS and self._is_steady)

    def is_late(self, schedule: Schedule, done: int) -> bool:
        """Whether the rest of `schedule` would take clearly longer than the time left."""
        # A branch that is given up is lost, so a busy moment after a resume must not decide that.
        enough = SETTLING_STEPS if schedule.branches == 1 else MEASURED_STEPS - SETTLING_STEPS
        is_known = len(self._step_times_s) >= enough
        return is_known and self.rest_s(schedule, done) > LATE * max(0.0, self._left_s(schedule))

    def fit(self, schedule: Schedule, done: int) -> Schedule:
        """`schedule` shortened to the time left, never lengthened; whole branches are given up before single steps."""
        if self.minutes is None or not self._step_times_s:
            return schedule
        while schedule.branches > 1 and self.rest_s(schedule, done) > max(0.0, self._left_s(schedule)):
            schedule = schedule.with_branches(schedule.branches - 1, done)
        if schedule.branches > 1:
            return schedule
        within = self._left_s(schedule) / self._step_s
        ends = range(done + 1, schedule.steps + 1)
        affordable = bisect_right(ends, within, key=lambda steps: self._learning_steps(schedule, steps, done))
        # At least one more step, but never more than the schedule has: a late run must come to an end.
        return schedule.model_copy(update={"steps": min(schedule.steps, done + max(1, affordable))})

    @property
    def _is_steady(self) -> bool:
        return len(self._step_times_s) >= SETTLING_STEPS

    @property
    def _step_s(self) -> float:
        return statistics.median(self._step_times_s)

    def _learning_steps(self, schedule: Schedule, steps: int, done: int) -> float:
        """The steps from `done` to `steps`, counted in steps in which the whole network learns."""
        frozen = max(0.0, schedule.frozen_steps(steps) - done) if self._is_published else 0.0
        return frozen / LEARNING_STEP + steps - done - frozen

    def _left_s(self, schedule: Schedule) -> float:
        """Seconds left, with the share for validation set aside.

        A branch cannot be shortened, so with several branches the unused part of the validations' share counts too.
        """
        if self.minutes is None:
            return math.inf
        whole_s = self.minutes * 60
        if schedule.branches > 1:
            return (whole_s - self.spent_s) * (1 - VALIDATION_SHARE)
        return whole_s * (1 - VALIDATION_SHARE) - self.spent_s
