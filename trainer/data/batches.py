"""Decoded examples -> an endless, seeded, resumable stream of augmented training batches, as a `tf.data.Dataset`."""

from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from shared.specs.augmentation import Augmentation
from trainer.data.augment import augment_batch
from trainer.data.examples import SHUFFLE_RECORDS, Examples, draw_rows
from trainer.data.records import decode_picture, local_files, own_cores, parse_records, parse_source_id
from trainer.data.shard_cache import ShardCache
from trainer.tensors import PADDING

# How many batches are made ahead. Two hide the jitter of one; more would only take memory.
PREFETCH: Final = 2

# How many threads make batches while the training step runs on the CPU, which needs the other cores.
THREADS_BESIDE_CPU: Final = 2

# Keeps the random stream of the changes apart from that of the order, which has the same seed.
_CHANGES: Final = 1


def batch_threads() -> int:
    """How many threads make batches: all cores if a GPU trains, otherwise few."""
    return own_cores() if tf.config.list_physical_devices("GPU") else min(THREADS_BESIDE_CPU, own_cores())


def batches_from_memory(
    examples: Examples, *, batch: int, recipe: Augmentation, seed: int, first_step: int = 0
) -> tf.data.Dataset:
    """Endless batches of `examples`, each a pure function of the seed and its step.

    Args:
        examples: The training set.
        batch: Pictures per batch, over all replicas.
        recipe: How to change the pictures.
        seed: The seed of the order and of the changes.
        first_step: The step of the first batch: for a resumed run, the number of steps done.

    Returns:
        A dataset of {"pictures", "boxes", "labels", "rows"} as `trainer.data.examples` describes them.
    """

    def make(step: NDArray[np.int64]) -> tuple[Any, ...]:
        rows = draw_rows(int(step), batch=batch, count=len(examples), seed=seed)
        rng = np.random.default_rng((seed, _CHANGES, int(step)))
        return *augment_batch(examples, rows, recipe=recipe, rng=rng), rows

    steps = tf.data.Dataset.range(first_step, np.iinfo(np.int64).max)
    return _finish(steps.map(_in_graph(make, batch, examples.pictures.shape[1]), num_parallel_calls=batch_threads()))


def batches_from_shards(  # long: a line for each argument
    urls: Sequence[str],
    *,
    batch: int,
    image_size: int,
    recipe: Augmentation,
    seed: int,
    first_step: int = 0,
    cache: ShardCache | None = None,
    without: Collection[int] = (),
) -> tf.data.Dataset:
    """The same stream for a set that does not fit in memory: records are interleaved, shuffled, decoded as they come.

    A mosaic takes its tiles from its own batch. Skipping to `first_step` reads records without decoding them. Records
    with the source ids in `without` are left out.
    """
    threads = batch_threads()
    files = local_files(tf.data.Dataset.from_tensor_slices(list(urls)).shuffle(len(urls), seed=seed), cache)
    records = files.interleave(tf.data.TFRecordDataset, cycle_length=8, num_parallel_calls=threads, deterministic=True)
    if without:
        records = records.filter(_is_none_of(without))
    records = records.shuffle(SHUFFLE_RECORDS, seed=seed).repeat().skip(first_step * batch)

    def make(
        step: NDArray[np.int64],
        encoded: NDArray[np.object_],
        boxes: NDArray[np.float32],
        labels: NDArray[np.int32],
        source_ids: NDArray[np.int64],
    ) -> tuple[Any, ...]:
        named = zip(encoded, source_ids, strict=True)
        pool = Examples(
            pictures=np.stack([decode_picture(picture, f"source id {row}", image_size) for picture, row in named]),
            boxes=tuple(rows[classes != PADDING] for rows, classes in zip(boxes, labels, strict=True)),
            labels=tuple(classes[classes != PADDING] for classes in labels),
            source_ids=source_ids,
            filenames=("",) * batch,
        )
        rng = np.random.default_rng((seed, _CHANGES, int(step)))
        return *augment_batch(pool, np.arange(batch), recipe=recipe, rng=rng), source_ids

    change = _in_graph(make, batch, image_size)

    def parse_and_change(step: Any, serialized: Any) -> dict[str, Any]:
        parsed = parse_records(serialized)
        batch_of: dict[str, Any] = change(step, *(parsed[key] for key in ("encoded", "boxes", "labels", "source_id")))
        return batch_of

    numbered = records.batch(batch, drop_remainder=True).enumerate(start=first_step)
    return _finish(numbered.map(parse_and_change, num_parallel_calls=threads))


def _is_none_of(source_ids: Collection[int]) -> Callable[[Any], Any]:
    """Whether a serialized record has none of these source ids."""
    left_out = np.array(sorted(source_ids), np.int64)
    return lambda record: tf.reduce_all(tf.not_equal(parse_source_id(record), left_out))


def _in_graph(make: Any, batch: int, image_size: int) -> Any:
    """`make` (numpy in, pictures, boxes, labels, rows out) as a function of tensors with known shapes."""

    def call(*tensors: Any) -> dict[str, Any]:
        pictures, boxes, labels, rows = tf.numpy_function(
            make, tensors, (tf.uint8, tf.float32, tf.int32, tf.int64), stateful=False
        )
        return {
            "pictures": tf.ensure_shape(pictures, (batch, image_size, image_size, 3)),
            "boxes": tf.ensure_shape(boxes, (batch, None, 4)),
            "labels": tf.ensure_shape(labels, (batch, None)),
            "rows": tf.ensure_shape(rows, (batch,)),
        }

    return call


def _finish(batches: tf.data.Dataset) -> tf.data.Dataset:
    options = tf.data.Options()
    options.deterministic = True
    # There is nothing to tune here, and dropping a stream would wait for the tuner's next turn: seconds late in a run.
    options.autotune.enabled = False
    options.threading.private_threadpool_size = batch_threads()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return batches.prefetch(PREFETCH).with_options(options)
