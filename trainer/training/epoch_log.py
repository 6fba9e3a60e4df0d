"""Sums over an epoch's steps -> its line of `results.csv` and what a person is told about the input."""

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

# When less than this share of the time is spent in steps, a person should look at the input.
BUSY_ENOUGH: Final = 0.95

# Of fewer validation objects, one validation may be the best by luck (docs/decisions/0078).
FEW_OBJECTS: Final = 100

# The steps are that busy when the input alone could deliver this many times what they take (docs/decisions/0035).
INPUT_AIR: Final = 1.3


@dataclass(slots=True)
class EpochSums:
    """Sums over the steps of an epoch so far: losses, and seconds spent waiting for batches and working on them."""

    steps: int = 0
    total: float = 0.0
    score: float = 0.0
    box: float = 0.0
    waited_s: float = 0.0
    worked_s: float = 0.0

    def add(self, losses: StepLosses, *, waited_s: float, worked_s: float) -> None:
        """Count one step."""
        self.steps += 1
        self.total += losses.total
        self.score += losses.score
        self.box += losses.box
        self.waited_s += waited_s
        self.worked_s += worked_s

    @property
    def mean_loss(self) -> float:
        """Mean loss of the steps so far; 0 before the first."""
        return self.total / max(1, self.steps)

    @property
    def busy(self) -> float:
        """Share of the time that was spent in steps, not in waiting for batches; 1 before the first."""
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
        """For the checkpoint: [steps, total, score, box, waited_s, worked_s]."""
        return np.array(astuple(self), np.float32)

    @classmethod
    def from_array(cls, sums: NDArray[np.float32]) -> "EpochSums":
        """Back from `to_array`."""
        steps, *others = sums.tolist()
        return cls(int(steps), *others)


def results_csv(rows: Sequence[EpochRow]) -> bytes:
    """`results.csv`: one line for each epoch, empty where nothing was measured."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(EpochRow.model_fields), lineterminator="\n")
    writer.writeheader()
    writer.writerows(row.model_dump() for row in rows)
    return text.getvalue().encode()


def epochs_without_better(rows: Sequence[EpochRow]) -> int:
    """Epochs since the validation mAP last rose above all before it; an equal one is none the better."""
    best, best_epoch = -1.0, 0
    for row in rows:
        if row.val_map is not None and row.val_map > best:
            best, best_epoch = row.val_map, row.epoch
    return rows[-1].epoch - best_epoch if rows else 0


def is_better(progress: TrainingProgress, schedule: Schedule, figure: float, objects: int) -> bool:
    """Whether the weights just validated are to be exported rather than those of the best validation so far.

    Where the validation split has few objects, a validation of the first half counts only until there is one of the
    second half: a lucky early one would win over all that were learnt later. With several branches, the mean of more of
    them wins there.

    Args:
        progress: With `step` at this validation.
        schedule: Of the run.
        figure: mAP of this validation.
        objects: Of the validation split.
    """
    if progress.best_map is None:
        return True
    is_higher, best_step = figure >= progress.best_map, progress.best_epoch * schedule.steps_per_epoch
    if objects >= FEW_OBJECTS:
        return is_higher
    if schedule.fork > 0:
        more = schedule.finished_branches(progress.step) - schedule.finished_branches(best_step)
        return more > 0 or (is_higher and schedule.finished_branches(progress.step) == 0)
    return is_higher or (schedule.is_settled(progress.step) and not schedule.is_settled(best_step))


def input_hint(busy: float, images_per_s: float) -> str | None:
    """By how much the input holds the training up and what to do about it; None when it does not.

    Args:
        busy: Share of the time that was spent in steps.
        images_per_s: Of steps and waiting together.
    """
    if busy >= BUSY_ENOUGH:
        return None
    taken = images_per_s / max(busy, 1e-3)
    return (
        f"busy {busy:.2f}, {BUSY_ENOUGH - busy:.2f} below {BUSY_ENOUGH}: the steps could take {taken:.0f} images/s, "
        f"the input gave {images_per_s:.0f}. Keep decoded pictures in memory (VOC_CACHE_MB), give the trainer "
        f"{INPUT_AIR * taken / max(images_per_s, 1e-3):.1f} times the cores, or a faster disk for the store"
    )
