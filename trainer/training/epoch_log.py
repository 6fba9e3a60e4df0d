"""Sums over an epoch's steps -> its line in `results.csv`, and a hint to a person about slow input."""

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from trainer.training.checkpoint import EpochRow, TrainingProgress
from trainer.training.schedule import Schedule
from trainer.training.train_step import StepLosses

# If less than this share of the time is spent in steps, a person should look at the input.
BUSY_ENOUGH: Final = 0.95

# With fewer validation objects, a validation may be the best by luck (docs/decisions/0078).
_FEW_VALIDATED: Final = 100

# Steps are that busy if the input alone could deliver this many times as much as they take (docs/decisions/0035).
INPUT_AIR: Final = 1.3


@dataclass(slots=True)
class EpochSums:
    """Sums over the steps of an epoch so far: losses, and seconds spent on waiting for batches and on working."""

    steps: int = 0
    total: float = 0.0
    score: float = 0.0
    box: float = 0.0
    waited_s: float = 0.0
    worked_s: float = 0.0

    def add(self, losses: StepLosses, *, waited_s: float, worked_s: float) -> None:
        """Add one step."""
        self.steps += 1
        self.total += losses.total
        self.score += losses.score
        self.box += losses.box
        self.waited_s += waited_s
        self.worked_s += worked_s

    @property
    def mean_loss(self) -> float:
        """The mean loss of the steps so far; 0 before the first."""
        return self.total / max(1, self.steps)

    @property
    def busy(self) -> float:
        """The share of the time spent in steps, not on waiting for batches; 1 before the first step."""
        spent_s = self.waited_s + self.worked_s
        return self.worked_s / spent_s if spent_s > 0 else 1.0

    def row(self, schedule: Schedule, *, step: int, batch: int) -> EpochRow:
        """The line of the epoch that ended after `step` steps, of `batch` pictures each."""
        spent_s, steps = max(self.waited_s + self.worked_s, 1e-9), max(1, self.steps)
        return EpochRow(
            epoch=math.ceil(step / schedule.steps_per_epoch),
            step=step,
            seconds=round(spent_s, 3),
            loss=self.total / steps,
            loss_score=self.score / steps,
            loss_box=self.box / steps,
            learning_rate=schedule.rate(step - 1),
            images_per_s=round(self.steps * batch / spent_s, 2),
            busy=round(self.busy, 4),
            branch=schedule.branch(step - 1),
        )

    def to_array(self) -> NDArray[np.float32]:
        """The sums for a checkpoint: [steps, total, score, box, waited_s, worked_s]."""
        return np.array(astuple(self), np.float32)

    @classmethod
    def from_array(cls, sums: NDArray[np.float32]) -> "EpochSums":
        """The inverse of `to_array`."""
        steps, *others = sums.tolist()
        return cls(int(steps), *others)


def results_csv(rows: Sequence[EpochRow]) -> bytes:
    """`results.csv`: one line per epoch, with empty fields for what was not measured."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(EpochRow.model_fields), lineterminator="\n")
    writer.writeheader()
    writer.writerows(row.model_dump() for row in rows)
    return text.getvalue().encode()


def epochs_without_better(rows: Sequence[EpochRow]) -> int:
    """How many epochs ago the validation mAP last exceeded all before it; an equal one is not better."""
    best, best_epoch = -1.0, 0
    for row in rows:
        if row.val_map is not None and row.val_map > best:
            best, best_epoch = row.val_map, row.epoch
    return rows[-1].epoch - best_epoch if rows else 0


def is_better(progress: TrainingProgress, schedule: Schedule, figure: float, objects: int) -> bool:
    """Whether the weights just validated should be exported instead of those of the best validation so far.

    If the validation split has few objects, a validation in the first half counts only until there is one in the second
    half: otherwise a lucky early one would win over everything learned later. With several branches, the mean of more
    branches wins in that case.

    Args:
        progress: The run's progress, with `step` at this validation.
        schedule: The run's schedule.
        figure: The mAP of this validation.
        objects: The number of objects in the validation split.
    """
    if progress.best_map is None:
        return True
    is_higher, best_step = figure >= progress.best_map, progress.best_epoch * schedule.steps_per_epoch
    if objects >= _FEW_VALIDATED:
        return is_higher
    if schedule.fork > 0:
        more = schedule.finished_branches(progress.step) - schedule.finished_branches(best_step)
        return more > 0 or (is_higher and schedule.finished_branches(progress.step) == 0)
    return is_higher or (schedule.is_settled(progress.step) and not schedule.is_settled(best_step))


def input_hint(busy: float, images_per_s: float) -> str | None:
    """How much the input slows the training down and what to do about it; None if it does not.

    Args:
        busy: The share of the time that was spent in steps.
        images_per_s: The speed, with steps and waiting together.
    """
    if busy >= BUSY_ENOUGH:
        return None
    taken = images_per_s / max(busy, 1e-3)
    return (
        f"busy {busy:.2f}, {BUSY_ENOUGH - busy:.2f} below {BUSY_ENOUGH}: the steps could take {taken:.0f} images/s, "
        f"the input gave {images_per_s:.0f}. Keep decoded pictures in memory (VOC_CACHE_MB), give the trainer "
        f"{INPUT_AIR * taken / max(images_per_s, 1e-3):.1f} times the cores, or a faster disk for the store"
    )
