"""How many steps a run takes, and the learning rate of each: decided once, then frozen in the checkpoint."""

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

# The rate stays at its peak until this share of the steps: the average of the weights makes up for its noise.
PLATEAU: Final = 0.5

# Transfer learning: published weights stay frozen for this share of the steps, unless another is asked for, and then
# learn at this share of the rate.
FROZEN_SHARE: Final = 0.15
PUBLISHED_RATE: Final = 0.3
# A step in which the whole network learns takes this many times as long (docs/measurements/training-step.md).
LEARNING_STEP: Final = 2.7

# Small sets need a number of steps, not of epochs, so the steps of the default epochs are bounded by these.
DEFAULT_EPOCHS: Final = 100
PUBLISHED_EPOCHS: Final = 40
LEAST_STEPS: Final = 3_000
MOST_STEPS: Final = 12_000
# A published backbone has already learned most of what it needs, and its steps take three times as long.
LEAST_PUBLISHED_STEPS: Final = 1_500
# It soon learns a few photos by heart, so this many epochs are enough (docs/decisions/0105).
ENOUGH_EPOCHS: Final = 100
# What follows the frozen steps is trained up to this many times, if there is room (docs/decisions/0106).
MOST_BRANCHES: Final = 3


class Schedule(Frozen):
    """The steps of a run and their learning rates; the rate starts to fall after a share of `plateau` of the steps.

    A published backbone stays frozen for a share of `frozen` of the steps. Old checkpoints, begun without a plateau, do
    not name one.

    With several `branches`, what follows the first `fork` steps is done that many times, each time from the weights at
    the fork and on other pictures, and the mean of the resulting weights is the result (Wortsman et al., Model soups,
    ICML 2022; docs/decisions/0106). `plateau` and `frozen` are then shares of a `lap`, the steps to the end of one
    branch. If the other branches are given up for lack of time, a branch that has begun keeps its `fork`; without
    branches `fork` is 0.
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
        """How many epochs are begun."""
        return math.ceil(self.steps / self.steps_per_epoch)

    @property
    def branch_steps(self) -> int:
        """How many steps each branch has."""
        return (self.steps - self.fork) // self.branches

    @property
    def lap(self) -> int:
        """How many steps lead from the start to the end of one branch; all steps if there is only one."""
        return self.fork + self.branch_steps

    def place(self, step: int) -> int:
        """How many steps the weights that learn at `step` have behind them, from 0 to `lap`."""
        return self.fork + (step - self.fork) % self.branch_steps if self._is_branched(step) else step

    def begins_branch(self, step: int) -> bool:
        """Whether `step` starts a branch, with the weights at the fork."""
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
        """This schedule with what follows the frozen steps done `branches` times, in whole epochs; or unchanged.

        It is unchanged if there are no frozen steps, or no steps after them.
        """
        epoch = self.steps_per_epoch
        fork = math.ceil(self.frozen * self.steps / epoch) * epoch
        branch = math.ceil((self.steps - fork) / epoch) * epoch
        if branches == 1 or fork == 0 or branch <= 0:
            return self
        return self.model_copy(update={"steps": fork + branches * branch, "branches": branches, "fork": fork})

    def with_branches(self, branches: int, done: int = 0) -> "Schedule":
        """This schedule with other branches, after `done` steps; a single one that has begun keeps its fork."""
        steps = self.fork + branches * self.branch_steps
        fork = self.fork if branches > 1 or done > self.fork else 0
        return self.model_copy(update={"steps": steps, "branches": branches, "fork": fork})

    def count(self, step: int) -> int:
        """How many steps the optimizer has behind it at `step`; it starts again with each branch."""
        return self.place(step) - (self.fork if self._is_branched(step) else 0)

    def rate(self, step: int) -> float:
        """The learning rate of `step` (from 0): a linear warm-up, a plateau, then half a cosine."""
        own, steps = self.count(step), self.branch_steps if self._is_branched(step) else self.lap
        warmup = min(WARMUP_STEPS, max(1, steps // 10))
        if own < warmup:
            return self.peak_rate * (own + 1) / warmup
        begin = max(warmup, self.plateau * steps)
        share = min(1.0, max(0.0, own - begin) / max(1.0, steps - begin))
        return self.peak_rate * (LAST_RATE + (1 - LAST_RATE) * (1 + math.cos(math.pi * share)) / 2)

    def is_settled(self, step: int) -> bool:
        """Whether `step` is in the second half: validations before it are of a network that still changes a lot."""
        return 2 * step >= self.steps

    def published_share(self, step: int) -> float:
        """The share of the learning rate that a published backbone gets at `step`: 0 while it is frozen."""
        return 0.0 if self.place(step) < self.frozen_steps(self.steps) else PUBLISHED_RATE

    def frozen_steps(self, steps: int) -> float:
        """For how many of `steps` steps a published backbone stays frozen."""
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
    """The schedule that a run asks for, without regard to its time limit.

    Args:
        pictures: The number of pictures in the training set.
        global_batch: Pictures per step, over all replicas.
        epochs: The requested epochs; None chooses by the size of the set.
        rate: The requested peak learning rate for this global batch; None takes the default for it.
        frozen: The requested share of the steps in which a published backbone stays frozen; None takes the default.
        is_published: Whether the backbone starts with published weights.
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
    """The schedule with as many branches as fit into `LEAST_PUBLISHED_STEPS`."""
    several = schedule.forked(2)
    if several.branches == 1:
        return schedule
    room = (LEAST_PUBLISHED_STEPS - several.fork) // several.branch_steps
    return several.with_branches(min(MOST_BRANCHES, room)) if room > 1 else schedule


def _wanted_steps(steps_per_epoch: int, *, is_published: bool) -> int:
    """How many steps training a new network takes by default, without an upper bound."""
    if not is_published:
        return max(DEFAULT_EPOCHS * steps_per_epoch, LEAST_STEPS)
    enough = max(ENOUGH_EPOCHS * steps_per_epoch, FEWEST_STEPS)
    return max(PUBLISHED_EPOCHS * steps_per_epoch, min(LEAST_PUBLISHED_STEPS, enough))
