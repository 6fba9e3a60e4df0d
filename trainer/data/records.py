"""Shard files -> parsed records, and their pictures' bytes -> pixels."""

import os
from collections.abc import Iterator, Sequence
from typing import Any, Final

import cv2
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from shared.errors import ShardError
from shared.jobs import schema
from trainer.data.shard_cache import FETCHES, ShardCache
from trainer.tensors import IGNORED

# How many records one call parses; one by one, TensorFlow's overhead takes as long as decoding (docs/decisions/0035).
READ_RECORDS: Final = 128

_CORNERS: Final = (schema.YMIN, schema.XMIN, schema.YMAX, schema.XMAX)
_FEATURES: Final = {
    schema.ENCODED: tf.io.FixedLenFeature([], tf.string),
    schema.FILENAME: tf.io.FixedLenFeature([], tf.string),
    schema.SOURCE_ID: tf.io.FixedLenFeature([], tf.string),
    **{key: tf.io.FixedLenSequenceFeature([], tf.float32, allow_missing=True) for key in _CORNERS},
    # Class ids count from 1, so 0 is padding.
    schema.CLASS_LABEL: tf.io.FixedLenSequenceFeature([], tf.int64, allow_missing=True, default_value=0),
    schema.IS_CROWD: tf.io.FixedLenSequenceFeature([], tf.int64, allow_missing=True, default_value=0),
}


def own_cores() -> int:
    """How many cores this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def parse_records(records: Any) -> dict[str, Any]:
    """Serialized Examples [B] -> tensors, the pictures still encoded.

    Returns:
        "encoded" and "filename", strings [B]; "source_id" int64 [B]; "boxes" float32 [B, N, 4], (ymin, xmin, ymax,
        xmax) fractions; "labels" int32 [B, N] from 0, `PADDING` in padding, `IGNORED` for crowds.
    """
    parsed = tf.io.parse_example(records, _FEATURES)
    classes = tf.cast(parsed[schema.CLASS_LABEL], tf.int32) - 1
    return {
        "encoded": parsed[schema.ENCODED],
        "boxes": tf.stack([parsed[key] for key in _CORNERS], axis=2),
        "labels": tf.where(parsed[schema.IS_CROWD] > 0, IGNORED, classes),
        "source_id": tf.strings.to_number(parsed[schema.SOURCE_ID], tf.int64),
        "filename": parsed[schema.FILENAME],
    }


def parse_source_id(record: Any) -> Any:
    """The source id, int64, of one serialized Example."""
    parsed = tf.io.parse_single_example(record, {schema.SOURCE_ID: _FEATURES[schema.SOURCE_ID]})
    return tf.strings.to_number(parsed[schema.SOURCE_ID], tf.int64)


def decode_picture(encoded: bytes, name: str, image_size: int) -> NDArray[np.uint8]:
    """The stored picture `encoded` as uint8 [H, W, 3], RGB; by OpenCV, which takes half of TensorFlow's time.

    Raises:
        ShardError: It cannot be decoded, or its side is not `image_size` pixels.
    """
    flags = cv2.IMREAD_COLOR_RGB | cv2.IMREAD_IGNORE_ORIENTATION
    picture = cv2.imdecode(np.frombuffer(encoded, np.uint8), flags) if encoded else None
    if picture is None:
        raise ShardError(f"{name}: its picture cannot be decoded")
    if picture.shape != (image_size, image_size, 3):
        raise ShardError(f"{name}: expected a picture of {image_size} px, found shape {picture.shape}")
    return picture  # type: ignore[return-value]  # 8 bit


def local_files(urls: tf.data.Dataset, cache: ShardCache | None) -> tf.data.Dataset:
    """The paths of the shards at `urls`, in their order; shards in a bucket are fetched ahead of the reader."""
    if cache is None:
        return urls

    def fetch(url: bytes) -> bytes:
        return cache(url.decode()).encode()

    return urls.map(
        lambda url: tf.ensure_shape(tf.numpy_function(fetch, [url], tf.string), ()),
        num_parallel_calls=FETCHES,
        deterministic=True,
    ).prefetch(1)


def record_groups(urls: Sequence[str], cache: ShardCache | None = None) -> Iterator[dict[str, NDArray[Any]]]:
    """All records of `urls`, in their order, as `parse_records` returns them, `READ_RECORDS` at a time.

    Raises:
        ShardError: A record is damaged, or a shard is not what the manifest says.
        StorageError: The bucket does not answer.
    """
    files = local_files(tf.data.Dataset.from_tensor_slices(list(urls)), cache)
    groups = tf.data.TFRecordDataset(files).batch(READ_RECORDS).map(parse_records).prefetch(2)
    try:
        yield from groups.as_numpy_iterator()
    except tf.errors.OpError as error:
        if cache is not None and (failure := cache.take_failure()) is not None:
            raise failure from None
        raise ShardError(f"{urls[0]} and its like: a record cannot be read: {error.message}") from error
