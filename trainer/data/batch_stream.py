"""A training set's streams of batches -> the batch of each step, spread over the replicas."""

from collections.abc import Iterator

import tensorflow as tf

from trainer.data.training_set import TrainingSet
from trainer.tensors import Tensor


class BatchStream:
    """The batches of one run, step by step.

    Args:
        dataset: What to learn from.
        strategy: The replicas over which each batch is spread.
        mosaic_until: The share of the steps after which `dataset.opening` gives way to `dataset.batches`.
    """

    def __init__(self, dataset: TrainingSet, strategy: tf.distribute.Strategy, mosaic_until: float) -> None:
        self._dataset, self._strategy, self._mosaic_until = dataset, strategy, mosaic_until
        self._batches: Iterator[Tensor] | None = None
        self._is_opening: bool | None = None

    @property
    def element_spec(self) -> Tensor:
        """The form of every batch, for `tf.function`."""
        return self._spread(0, is_opening=False).element_spec

    def batch(self, step: int, share: float) -> Tensor:
        """The batch of `step` (from 0) after `share` of the training is done; call it for one step after another.

        Raises:
            ShardError: A shard is not what the manifest says.
            StorageError: The bucket does not answer.
        """
        is_opening = self._dataset.opening is not None and share < self._mosaic_until
        if self._batches is None or is_opening != self._is_opening:
            self._batches, self._is_opening = iter(self._spread(step, is_opening=is_opening)), is_opening
        try:
            return next(self._batches)
        except tf.errors.OpError:
            reason = self._dataset.why_unread()
            if reason is None:
                raise
            raise reason from None

    def _spread(self, first_step: int, *, is_opening: bool) -> Tensor:
        opening = self._dataset.opening
        source = opening if is_opening and opening is not None else self._dataset.batches
        stream = source(first_step)
        if self._strategy.num_replicas_in_sync == 1:
            return stream
        return self._strategy.experimental_distribute_dataset(stream)
