"""Examples -> trained weights: frozen schedule, steps, epochs, validation, checkpoints, for one resumable run."""

import hashlib
import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from shared.errors import StopRequested, TrainingError
from shared.leasing.guard import Guard
from shared.specs.frozen import canonical_json
from shared.specs.run import RunSpec
from shared.storage import Storage
from trainer.data.batch_stream import BatchStream
from trainer.data.shard_pictures import counted_objects
from trainer.data.training_set import TrainingSet
from trainer.evaluation.coco_map import AveragePrecision, average_precision
from trainer.evaluation.measure import detect_all
from trainer.network.detector import make_priors
from trainer.network.postprocess import keras_detector
from trainer.training.checkpoint import Arrays, TrainingProgress, load_checkpoint, save_checkpoint
from trainer.training.epoch_log import EpochSums, epochs_without_better, input_hint, is_better
from trainer.training.monitor import TrainingMonitor
from trainer.training.schedule import PUBLISHED_RATE, Schedule, plan_schedule
from trainer.training.strategy import usual_precision
from trainer.training.time_budget import VALIDATION_SHARE, TimeBudget
from trainer.training.train_step import Learner, in_precision, load_average
from trainer.training.variable_layout import layout_of

logger = logging.getLogger(__name__)

# The most validations, however cheap they are: nobody needs more points on a curve.
MOST_VALIDATIONS: Final = 25

# After how many steps the time is checked within an epoch, which may be longer than the whole training.
LOOK_EVERY: Final = 200

# The time between checkpoints; writing one of `small` takes 0.1 s.
CHECKPOINT_EVERY_S: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """The network with its best averaged weights, and the progress of its training."""

    model: keras.Model
    progress: TrainingProgress


class Training:
    """A run under way: the learner, its progress, and the network in which its averaged weights are judged."""

    def __init__(
        self,
        spec: RunSpec,
        dataset: TrainingSet,
        *,
        strategy: tf.distribute.Strategy,
        storage: Storage,
        guard: Guard,
        build: Callable[[], keras.Model],
    ) -> None:
        """Build the network.

        Args:
            spec: The run.
            dataset: What to learn from.
            strategy: The replicas to train on.
            storage: Where its checkpoints are kept.
            guard: Asked before every step.
            build: Makes the network with its initial weights.
        """
        self._spec, self._dataset, self._storage, self._guard = spec, dataset, storage, guard
        self._strategy = strategy
        self._batch = spec.batch * strategy.num_replicas_in_sync
        keras.utils.set_random_seed(spec.seed)
        priors = make_priors(dataset.image_size)
        self._stream = BatchStream(dataset, strategy, spec.augmentation.mosaic_until)
        precision = spec.precision or usual_precision(spec.backbone)
        self._learner = Learner(lambda: in_precision(precision, build), priors, strategy, self._stream.element_spec)
        self._layout = layout_of(self._learner.model)
        self._model = build()
        self._detect = keras_detector(self._model, priors)
        self._progress = _beginning(spec, dataset, self._batch, precision)
        self._best: NDArray[np.float32] | None = None
        # For a run with branches: the weights that each starts with, and the mean of the finished ones.
        self._fork: NDArray[np.float32] | None = None
        self._mean: NDArray[np.float32] | None = None
        self._objects = counted_objects(dataset.truth)
        self._epoch = EpochSums()
        self._budget = TimeBudget(spec.loop_minutes, is_published=spec.is_taught and spec.start is None)
        self._monitor = TrainingMonitor(storage, spec.run, dataset.labels)
        self._saved_s = time.monotonic()

    def run(self) -> Trained:
        """Train a detector to the end of its schedule, from its newest checkpoint if it has one.

        Returns:
            The trained network, with the weights of the best validation, or the last ones if there was none.

        Raises:
            TrainingError: The loss is not finite; the batch's files are named.
            StopRequested: The process was asked to stop; a checkpoint is saved.
        """
        self._resume()
        began = self._progress.step
        if began == 0:
            self._monitor.show_batches((self._dataset.opening or self._dataset.batches)(0))
        while not self._is_done():
            self._advance()
            self._step()
            self._freeze_schedule()
            if self._is_epoch_end():
                self._keep_to_time()
                self._end_epoch()
            elif self._progress.step % LOOK_EVERY == 0:
                self._keep_to_time()
            if time.monotonic() - self._saved_s > CHECKPOINT_EVERY_S:
                self._save()
        self._save()
        step = self._progress.step
        if step > began:  # a training that had already ended need not report or stop
            seconds = round(self._budget.spent_s, 1)
            self._guard.advance(phase="train", step=step, steps=step, trained=step, seconds=seconds)
        load_average(self._model, self._judged() if self._best is None else self._best)
        return Trained(model=self._model, progress=self._progress)

    def _resume(self) -> None:
        found = load_checkpoint(self._storage, self._spec.run, self._progress, self._layout)
        if found is None:
            return
        self._progress, arrays = found
        self._best, self._fork, self._mean = (arrays.pop(name, None) for name in ("best", "fork", "mean"))
        self._epoch = EpochSums.from_array(arrays.pop("epoch"))
        self._learner.restore(arrays)
        self._budget.resume(self._progress.spent_s)
        logger.info("training_resumed", extra={"run": self._spec.run, "step": self._progress.step})

    def _save(self) -> None:
        self._guard.require_wanted()
        arrays: Arrays = {**self._learner.state(), "epoch": self._epoch.to_array()}
        own = {"best": self._best, "fork": self._fork, "mean": self._mean}
        arrays |= {name: weights for name, weights in own.items() if weights is not None}
        self._update(spent_s=self._budget.spent_s)
        save_checkpoint(self._storage, self._spec.run, self._progress, arrays, self._layout)
        self._saved_s = time.monotonic()

    def _update(self, **fields: Any) -> None:
        self._progress = self._progress.model_copy(update=fields)

    @property
    def _schedule(self) -> Schedule:
        """The frozen schedule or, before there is one, the requested schedule without regard to time."""
        return self._progress.schedule or plan_schedule(
            pictures=self._dataset.pictures,
            global_batch=self._batch,
            epochs=self._spec.epochs,
            rate=self._spec.learning_rate,
            frozen=self._spec.freeze,
            is_published=self._spec.is_taught,
            is_continued=self._spec.start is not None,
            # A fold's detector is not kept, so branches are not worth it, and patience would end the first branch.
            may_branch=not self._spec.fold and self._spec.patience is None,
        )

    def _advance(self) -> None:
        """Tell the guard how far we are; if it asks us to stop, save first."""
        schedule, step = self._schedule, self._progress.step
        shown: dict[str, float | int | str] = {
            "phase": "train",
            "epoch": step // schedule.steps_per_epoch + 1,
            "step": step,
            "seconds": round(self._budget.spent_s, 1),
        }
        if self._progress.schedule is not None:  # until then the number of steps is not known
            shown |= {"epochs": schedule.epochs, "steps": schedule.steps}
            branch = schedule.branch(step)
            shown |= {"branch": branch, "branches": schedule.branches} if branch else {}
        eta_s = self._budget.eta_s(schedule, step)
        if eta_s is not None:
            shown["eta_s"] = round(eta_s)
        if self._epoch.steps:  # at the start of an epoch the guard keeps the loss of the previous one
            shown |= {"loss": round(self._epoch.mean_loss, 4), "busy": round(self._epoch.busy, 3)}
        measured = [row for row in self._progress.rows if row.val_map is not None]
        if measured:
            last = measured[-1]
            shown["val_epoch"] = last.epoch
            shown |= {"val_map50": round(last.val_map50 or 0, 4), "val_map": round(last.val_map or 0, 4)}
        try:
            self._guard.advance(**shown)
        except StopRequested:
            self._save()
            raise

    def _step(self) -> None:
        step, schedule = self._progress.step, self._schedule
        if schedule.begins_branch(step):
            self._fork = self._learner.average() if self._fork is None else self._fork
            self._learner.begin(self._fork)
        asked_s = time.monotonic()
        batch = self._stream.batch(step, schedule.place(step) / schedule.lap)
        began_s = time.monotonic()
        share = self._published_share(step)
        losses = self._learner.step(batch, rate=schedule.rate(step), number=schedule.count(step), published_share=share)
        if not math.isfinite(losses.total):
            raise TrainingError(f"the loss of step {step} is {losses.total}; its pictures: {self._names(batch)}")
        ended_s = time.monotonic()
        self._budget.note_step(ended_s - asked_s, is_frozen=share == 0)
        self._epoch.add(losses, waited_s=began_s - asked_s, worked_s=ended_s - began_s)
        self._update(step=step + 1)

    def _published_share(self, step: int) -> float:
        """The share of the rate for a taught backbone; a network that was trained before is not frozen again."""
        if not self._spec.is_taught:
            return 1.0
        return PUBLISHED_RATE if self._spec.start is not None else self._schedule.published_share(step)

    def _names(self, batch: dict[str, Any]) -> str:
        rows = [local.numpy() for local in self._strategy.experimental_local_results(batch["rows"])]
        return ", ".join(self._dataset.names(np.concatenate(rows)))

    def _freeze_schedule(self) -> None:
        """Once the speed is known, fix the number of steps."""
        schedule, step = self._schedule, self._progress.step
        if self._progress.schedule is not None or not self._budget.is_measured(schedule, step):
            return
        self._update(schedule=self._budget.fit(schedule, step))
        logger.info("schedule_frozen", extra={"run": self._spec.run, **self._schedule.model_dump()})

    def _keep_to_time(self) -> None:
        """Shorten the frozen schedule if the machine became much slower; the rate still falls to its final value."""
        frozen, step = self._progress.schedule, self._progress.step
        if frozen is not None and self._budget.is_late(frozen, step):
            self._update(schedule=self._budget.fit(frozen, step))
            logger.warning("schedule_shortened", extra={"run": self._spec.run, **self._schedule.model_dump()})

    def _is_epoch_end(self) -> bool:
        step, schedule = self._progress.step, self._schedule
        return step % schedule.steps_per_epoch == 0 or step == schedule.steps

    def _end_epoch(self) -> None:
        """Validate if it is time to, keep the weights if they are the best, and write the epoch's line."""
        schedule, step = self._schedule, self._progress.step
        if schedule.ends_branch(step):
            self._mean = _with_one_more(self._mean, self._learner.average(), schedule.finished_branches(step))
        row = self._epoch.row(schedule, step=step, batch=self._batch)
        self._epoch = EpochSums()
        if self._is_validation(row.epoch):
            precision = self._validate()
            row = row.model_copy(update={"val_map50": precision.map50, "val_map": precision.map})
            if is_better(self._progress, schedule, precision.map, self._objects):
                self._best = self._judged()
                self._update(best_map=precision.map, best_epoch=row.epoch)
        self._update(rows=(*self._progress.rows, row))
        self._guard.require_wanted()
        self._monitor.note_epoch(self._progress.rows, is_last=step >= schedule.steps)
        logger.info(
            "epoch", extra={"run": self._spec.run, **row.model_dump(), "hint": input_hint(row.busy, row.images_per_s)}
        )

    def _is_validation(self, epoch: int) -> bool:
        """Whether to validate: at the end of training or a branch, and as often as `VALIDATION_SHARE` allows."""
        count, schedule = len(self._dataset.validation or ()), self._schedule
        step = self._progress.step
        if count == 0 or step == schedule.steps or schedule.ends_branch(step):
            return count > 0
        # Counted in forward passes, a picture costs three in a training step, and two in a validation: one for the
        # pass, one for NMS and the mAP.
        share = VALIDATION_SHARE * schedule.steps * self._batch * 3 / (count * 2)
        every = math.ceil(schedule.epochs / min(MOST_VALIDATIONS, max(1.0, share)))
        return bool(epoch % every == 0)

    def _judged(self) -> NDArray[np.float32]:
        """The weights to judge now: averaged over steps and, at the end of a branch, over the finished branches."""
        # A run that has ended may have given up its last branch for lack of time.
        is_mean = self._schedule.ends_branch(self._progress.step) or self._progress.step > self._schedule.steps
        return self._learner.average() if self._mean is None or not is_mean else self._mean

    def _validate(self) -> AveragePrecision:
        validation = self._dataset.validation
        if validation is None:
            raise TrainingError("there is no validation split")
        load_average(self._model, self._judged())
        found = detect_all(self._detect, validation.shard_pictures(), batch=self._spec.batch)
        self._monitor.show_validation(validation, found, self._progress.step)
        return average_precision(self._dataset.truth, found)

    def _is_done(self) -> bool:
        progress, spec = self._progress, self._spec
        if progress.step >= self._schedule.steps:
            return True
        if not progress.rows:
            return False
        last = progress.rows[-1]
        # Weights are selected at validations, so a run ends at one too.
        if last.val_map is None or last.step != progress.step:
            return False
        # The weights that reached it must be the exported ones, which need not be so within a branch (`is_better`).
        if spec.stop_at_map is not None and last.val_map >= spec.stop_at_map and last.epoch == progress.best_epoch:
            return True
        return spec.patience is not None and epochs_without_better(progress.rows) >= spec.patience


def _with_one_more(mean: NDArray[np.float32] | None, weights: NDArray[np.float32], count: int) -> NDArray[np.float32]:
    """The mean of `count` vectors, of which `weights` is the last and `mean` is the mean of the others."""
    return weights if mean is None else mean + (weights - mean) / np.float32(count)


def _beginning(spec: RunSpec, dataset: TrainingSet, batch: int, precision: str) -> TrainingProgress:
    """The progress before the first step; its identity is a digest of the request and the data."""
    asked = spec.model_dump(mode="json", exclude={"max_drop", "quantize", "nms", "kind"})
    facts = {**asked, "labels": dataset.labels, "fingerprint": dataset.fingerprint, "global_batch": batch}
    identity = hashlib.sha256(canonical_json(facts).encode()).hexdigest()
    return TrainingProgress(identity=identity, manifest=dataset.fingerprint, seed=spec.seed, precision=precision)
