"""Rows of tf.data on the raw files: naive, each improvement of its guide alone, all of them, and with cache()."""

from functools import partial
from typing import Any

import keras
import tensorflow as tf

from tests.bench.loaders import usual
from tests.bench.loaders.scripts import Fed, labelled_files
from tests.bench.loaders.work import BATCH, WORKERS, Work


def tfdata(
    work: Work, *, interleave: bool = False, mapped: bool = False, prefetch: bool = False, cache: bool = False
) -> Fed:
    """A pipeline over the class folders' files.

    Args:
        work: The pictures.
        interleave: Read files by several parallel cycles instead of one after the other.
        mapped: Decode and resize in parallel.
        prefetch: Make batches ahead of the step.
        cache: Keep what was decoded and resized in memory.
    """
    paths, labels = zip(*labelled_files(work), strict=True)
    files = tf.data.Dataset.from_tensor_slices((list(paths), list(labels)))
    files = files.shuffle(len(paths), seed=0, reshuffle_each_iteration=not cache)
    calls = tf.data.AUTOTUNE if mapped else None
    if interleave:
        read = lambda path, label: tf.data.Dataset.from_tensors((path, label)).map(_read)  # noqa: E731
        contents = files.interleave(read, cycle_length=4 * WORKERS, num_parallel_calls=tf.data.AUTOTUNE)
        contents = contents.apply(tf.data.experimental.assert_cardinality(len(paths)))
    else:
        contents = files.map(_read)
    pictures = contents.map(partial(_decode, work.side), num_parallel_calls=calls)
    if cache:
        pictures = pictures.cache().shuffle(len(paths), seed=0)
    batches = pictures.batch(BATCH, num_parallel_calls=calls).map(_finish(work), num_parallel_calls=calls)
    return Fed(x=batches.prefetch(tf.data.AUTOTUNE) if prefetch else batches)


def _read(path: Any, label: Any) -> tuple[Any, Any]:
    return tf.io.read_file(path), label


def _decode(side: int, content: Any, label: Any) -> tuple[Any, Any]:
    return tf.image.resize(tf.io.decode_jpeg(content, channels=3), (side, side)), label


def _finish(work: Work) -> Any:
    """The usual augmentation over a batch, as the guide maps it, and the scaling."""
    changing = usual.layers() if work.is_augmented else None
    scaling = keras.layers.Rescaling(1 / 255)

    def finish(pictures: Any, labels: Any) -> tuple[Any, Any]:
        return scaling(changing(pictures, training=True) if changing else pictures), labels

    return finish
