"""A bound in minutes and the speed seen so far -> how many steps a schedule may have."""

import math
import statistics
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from typing import Final

from trainer.training.schedule import LEARNING_STEP, Schedule

# Steps done before a budget is turned into a number of steps.
MEASURED_STEPS: Final = 25
# The first of each attempt trace and warm caches. So many more are needed before a schedule is cut by their speed.
SETTLING_STEPS: Final = 5

# Share of the budget that validation may take.
VALIDATION_SHARE: Final = 0.08

# A schedule frozen on a quiet machine is shortened again when its rest would take this much longer than is left.
LATE: Final = 1.1


class TimeBudget:
    """The clock of a training loop, over all of its attempts; the speed is that of this one.

    Args:
        minutes: Bound of the loop; None is no bound.
        clock: Seconds from any start on.
        is_published: Whether a published backbone may be frozen at first: steps in which it learns take longer.
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
        """Count what earlier attempts spent."""
        self._started_s -= spent_s

    def note_step(self, step_s: float, *, is_frozen: bool = False) -> None:
        """Count one step, as what it would take if all of the network learned."""
        if self._settling:
            self._settling -= 1
            return
        self._step_times_s.append(step_s * (LEARNING_STEP if is_frozen else 1.0))

    @property
    def spent_s(self) -> float:
        """Seconds of training so far, all attempts together."""
        return self._clock() - self._started_s

    def rest_s(self, schedule: Schedule, done: int) -> float:
        """Seconds that the steps left will take at the speed of the last ones; 0 before it is known."""
        return self._step_s * self._learning_steps(schedule, schedule.steps, done) if self._step_times_s else 0.0

    def eta_s(self, schedule: Schedule, done: int) -> float | None:
        """Seconds until the end of the loop, within the budget; None before the speed is known."""
        return max(0.0, min(self.rest_s(schedule, done), self._left_s(schedule))) if self._step_times_s else None

    def is_measured(self, schedule: Schedule, done: int) -> bool:
        """Whether enough steps are done to know the speed, or none is needed."""
        return self.minutes is None or done >= schedule.steps or (done >= MEASURED_STEPS and self._is_steady)

    def is_late(self, schedule: Schedule, done: int) -> bool:
        """Whether the rest of `schedule` takes clearly longer than what is left."""
        # A branch that is given up is lost: a busy spell after a resume is no reason.
        enough = SETTLING_STEPS if schedule.branches == 1 else MEASURED_STEPS - SETTLING_STEPS
        is_known = len(self._step_times_s) >= enough
        return is_known and self.rest_s(schedule, done) > LATE * max(0.0, self._left_s(schedule))

    def fit(self, schedule: Schedule, done: int) -> Schedule:
        """`schedule` shortened to the time left; never longer. Branches are given up before steps of the first are."""
        if self.minutes is None or not self._step_times_s:
            return schedule
        while schedule.branches > 1 and self.rest_s(schedule, done) > max(0.0, self._left_s(schedule)):
            schedule = schedule.with_branches(schedule.branches - 1, done)
        if schedule.branches > 1:
            return schedule
        within = self._left_s(schedule) / self._step_s
        ends = range(done + 1, schedule.steps + 1)
        affordable = bisect_right(ends, within, key=lambda steps: self._learning_steps(schedule, steps, done))
        # Otherwise a late run would get one more step after each step.
        return schedule.model_copy(update={"steps": min(schedule.steps, done + max(1, affordable))})

    @property
    def _is_steady(self) -> bool:
        return len(self._step_times_s) >= SETTLING_STEPS

    @property
    def _step_s(self) -> float:
        return statistics.median(self._step_times_s)

    def _learning_steps(self, schedule: Schedule, steps: int, done: int) -> float:
        """How many steps in which all of it learns last as long as those from `done` on, if it ended at `steps`."""
        frozen = max(0.0, schedule.frozen_steps(steps) - done) if self._is_published else 0.0
        return frozen / LEARNING_STEP + steps - done - frozen

    def _left_s(self, schedule: Schedule) -> float:
        """Seconds left, validation set aside.

        A branch cannot be shortened, so for the last of several what validations have not taken so far counts too.
        """
        if self.minutes is None:
            return math.inf
        whole_s = self.minutes * 60
        if schedule.branches > 1:
            return (whole_s - self.spent_s) * (1 - VALIDATION_SHARE)
        return whole_s * (1 - VALIDATION_SHARE) - self.spent_s
