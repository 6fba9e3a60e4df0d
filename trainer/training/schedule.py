"""How many steps a run takes and the learning rate of each: decided once, then frozen in the checkpoint."""

import math
from typing import Final

from pydantic import Field

from shared.specs.frozen import Frozen
from shared.specs.training import CONTINUED_RATE, CONTINUED_STEPS, FEWEST_STEPS

# AdamW's rate at a global batch of 8; with a larger batch it grows by the square root, as Adam's noise does
# (Malladi et al., On the SDEs and Scaling Rules for Adaptive Gradient Algorithms, NeurIPS 2022).
BASE_RATE: Final = 2e-3
BASE_BATCH: Final = 8

# The rate falls to this share at the end.
LAST_RATE: Final = 0.01

WARMUP_STEPS: Final = 100

# Share of the steps until which the rate stays at its peak: the average of the weights makes up for its noise.
PLATEAU: Final = 0.5

# Transfer learning: published weights stay frozen for this share of the steps, unless another is asked for, and then
# learn at this share of the rate.
FROZEN_SHARE: Final = 0.15
PUBLISHED_RATE: Final = 0.3
# A step in which all of it learns takes so many times as long (docs/measurements/training-step.md).
LEARNING_STEP: Final = 2.7

# Small sets need steps, not epochs: as many as an epoch count gives, within these.
DEFAULT_EPOCHS: Final = 100
PUBLISHED_EPOCHS: Final = 40
LEAST_STEPS: Final = 3_000
MOST_STEPS: Final = 12_000
# A published backbone has learned most of it already, and its steps take three times as long.
LEAST_PUBLISHED_STEPS: Final = 1_500
# It soon knows a few photos by heart: so many epochs of them are enough (docs/decisions/0105).
ENOUGH_EPOCHS: Final = 100
# So many times what follows the frozen steps is learned, where there is room for it (docs/decisions/0106).
MOST_BRANCHES: Final = 3


class Schedule(Frozen):
    """The steps of a run and their learning rates; the rate starts to fall after `plateau` of the steps.

    A published backbone stays as it is for `frozen` of the steps. A checkpoint without a plateau was begun without one.

    With several `branches` what comes after the first `fork` steps is done so many times, each time from the weights of
    the fork and on other pictures, and the mean of their weights is the result (Wortsman et al., Model soups, ICML
    2022; docs/decisions/0106). `plateau` and `frozen` are then shares of a `lap`: the way to the end of one branch.
    Where the others are given up for want of time, a branch that has begun is still one: `fork` is 0 without any.
    """

    steps: int
    steps_per_epoch: int
    peak_rate: float
    plateau: float = Field(default=0.0, ge=0, le=1)
    frozen: float = Field(default=FROZEN_SHARE, ge=0, le=1)
    branches: int = Field(default=1, ge=1)
    fork: int = 0

    @property
    def epochs(self) -> int:
        """Epochs begun."""
        return math.ceil(self.steps / self.steps_per_epoch)

    @property
    def branch_steps(self) -> int:
        """How many steps each branch has."""
        return (self.steps - self.fork) // self.branches

    @property
    def lap(self) -> int:
        """How many steps lead from the beginning to the end of one branch; all, where there is one."""
        return self.fork + self.branch_steps

    def place(self, step: int) -> int:
        """How many steps the weights have behind them that learn at `step`, from 0 to `lap`."""
        return self.fork + (step - self.fork) % self.branch_steps if self._is_branched(step) else step

    def begins_branch(self, step: int) -> bool:
        """Whether `step` is to begin with the weights of the fork."""
        return self._is_branched(step) and step < self.steps and self.place(step) == self.fork

    def branch(self, step: int) -> int:
        """Which branch `step` is in, from 1; 0 before them, and in a schedule without a fork."""
        return (step - self.fork) // self.branch_steps + 1 if self._is_branched(step) else 0

    def finished_branches(self, step: int) -> int:
        """How many branches are done after `step` steps; 0 without a fork."""
        return max(0, self.branch(step) - 1)

    def ends_branch(self, step: int) -> bool:
        """Whether the last of `step` steps ended a branch."""
        return self.finished_branches(step) > self.finished_branches(step - 1)

    def forked(self, branches: int) -> "Schedule":
        """The same with what follows the frozen steps done `branches` times, all in whole epochs; or as it is.

        Without frozen steps, or without others, there is nothing to do again.
        """
        epoch = self.steps_per_epoch
        fork = math.ceil(self.frozen * self.steps / epoch) * epoch
        branch = math.ceil((self.steps - fork) / epoch) * epoch
        if branches == 1 or fork == 0 or branch <= 0:
            return self
        return self.model_copy(update={"steps": fork + branches * branch, "branches": branches, "fork": fork})

    def with_branches(self, branches: int, done: int = 0) -> "Schedule":
        """The same with other branches, after `done` steps: the only one, if it has begun, keeps its fork."""
        steps = self.fork + branches * self.branch_steps
        fork = self.fork if branches > 1 or done > self.fork else 0
        return self.model_copy(update={"steps": steps, "branches": branches, "fork": fork})

    def count(self, step: int) -> int:
        """How many steps the optimizer has behind it at `step`: it begins anew with each branch."""
        return self.place(step) - (self.fork if self._is_branched(step) else 0)

    def rate(self, step: int) -> float:
        """Learning rate of `step` (from 0): a linear warm-up, a plateau, then half a cosine."""
        own, steps = self.count(step), self.branch_steps if self._is_branched(step) else self.lap
        warmup = min(WARMUP_STEPS, max(1, steps // 10))
        if own < warmup:
            return self.peak_rate * (own + 1) / warmup
        begin = max(warmup, self.plateau * steps)
        share = min(1.0, max(0.0, own - begin) / max(1.0, steps - begin))
        return self.peak_rate * (LAST_RATE + (1 - LAST_RATE) * (1 + math.cos(math.pi * share)) / 2)

    def is_settled(self, step: int) -> bool:
        """Whether `step` is in the second half: validations before it are of a network that still changes much."""
        return 2 * step >= self.steps

    def published_share(self, step: int) -> float:
        """Share of the learning rate that weights of a published backbone get at `step`: frozen, then unfrozen."""
        return 0.0 if self.place(step) < self.frozen_steps(self.steps) else PUBLISHED_RATE

    def frozen_steps(self, steps: int) -> float:
        """How many of `steps` steps a published backbone stays as it is."""
        return self.fork or self.frozen * steps

    def _is_branched(self, step: int) -> bool:
        return 0 < self.fork <= step


def plan_schedule(
    *,
    pictures: int,
    global_batch: int,
    epochs: int | None,
    rate: float | None,
    frozen: float | None = None,
    is_published: bool = False,
    is_continued: bool = False,
    may_branch: bool = False,
) -> Schedule:
    """The schedule that a run asks for, without regard to time.

    Args:
        pictures: In the training set.
        global_batch: Pictures of a step, over all replicas.
        epochs: As asked; None chooses by the size of the set.
        rate: Peak learning rate as asked, for this global batch; None takes the default for it.
        frozen: Share of the steps in which a published backbone stays as it is, as asked; None takes the default.
        is_published: Whether the backbone begins with published weights.
        is_continued: Whether the whole network has been trained before.
        may_branch: Whether a published backbone may learn in several branches.
    """
    steps_per_epoch = max(1, round(pictures / global_batch))
    if epochs is not None:
        steps = epochs * steps_per_epoch
    else:
        steps = min(_wanted_steps(steps_per_epoch, is_published=is_published), MOST_STEPS)
        steps = max(math.ceil(CONTINUED_STEPS * steps), FEWEST_STEPS) if is_continued else steps
    usual = BASE_RATE * (CONTINUED_RATE if is_continued else 1.0)
    peak = usual * math.sqrt(global_batch / BASE_BATCH) if rate is None else rate
    schedule = Schedule(
        steps=steps,
        steps_per_epoch=steps_per_epoch,
        peak_rate=peak,
        plateau=PLATEAU,
        frozen=FROZEN_SHARE if frozen is None else frozen,
    )
    is_default = is_published and not is_continued and epochs is None
    return _branched(schedule) if may_branch and is_default else schedule


def _branched(schedule: Schedule) -> Schedule:
    """With as many branches as `LEAST_PUBLISHED_STEPS` have room for."""
    several = schedule.forked(2)
    if several.branches == 1:
        return schedule
    room = (LEAST_PUBLISHED_STEPS - several.fork) // several.branch_steps
    return several.with_branches(min(MOST_BRANCHES, room)) if room > 1 else schedule


def _wanted_steps(steps_per_epoch: int, *, is_published: bool) -> int:
    """How many steps a training of a new network takes by default, without an upper bound."""
    if not is_published:
        return max(DEFAULT_EPOCHS * steps_per_epoch, LEAST_STEPS)
    enough = max(ENOUGH_EPOCHS * steps_per_epoch, FEWEST_STEPS)
    return max(PUBLISHED_EPOCHS * steps_per_epoch, min(LEAST_PUBLISHED_STEPS, enough))
