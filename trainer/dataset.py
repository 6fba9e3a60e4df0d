"""Shards of a finished job -> batches for training and evaluation.

Stands between the manifest and the model on the route. A batch has one layout everywhere: "pictures" uint8
[B, H, W, 3] RGB; "boxes" float32 [B, N, 4], (ymin, xmin, ymax, xmax) as fractions of the picture; "labels" int32
[B, N], class from 0, -1 where a row is padding; "rows" int64 [B], the pictures' places in their split.
"""

import logging
import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from shared import schema
from shared.errors import ShardError, TrainingError
from shared.job import Split
from shared.manifest import JobPaths, Manifest, check_file
from shared.storage import Storage

logger = logging.getLogger(__name__)

# Share of the free memory that decoded pictures may take; the network's activations and the page cache want the rest.
CACHE_SHARE: Final = 0.4

# Share of the free disk that they may take instead: two trainers may look at the same time.
FILE_SHARE: Final = 0.4

Cache = Literal["memory", "file", "none"]

# Pictures drawn from at random where they are not kept.
SHUFFLE_RECORDS: Final = 2048

_FEATURES: Final = {
    schema.ENCODED: tf.io.FixedLenFeature([], tf.string),
    schema.FILENAME: tf.io.FixedLenFeature([], tf.string),
    schema.SOURCE_ID: tf.io.FixedLenFeature([], tf.string),
    **{key: tf.io.VarLenFeature(tf.float32) for key in (schema.YMIN, schema.XMIN, schema.YMAX, schema.XMAX)},
    schema.CLASS_LABEL: tf.io.VarLenFeature(tf.int64),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Examples:
    """Decoded pictures with their boxes, held in memory.

    `pictures` uint8 [M, H, W, 3] RGB; `boxes` M float32 arrays [n, 4], (ymin, xmin, ymax, xmax) as fractions;
    `labels` M int32 arrays [n], from 0; `source_ids` int64 [M]; `filenames` M names.
    """

    pictures: NDArray[np.uint8]
    boxes: tuple[NDArray[np.float32], ...]
    labels: tuple[NDArray[np.int32], ...]
    source_ids: NDArray[np.int64]
    filenames: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.filenames)


def check_shards(storage: Storage, manifest: Manifest) -> None:
    """Hold every shard of the job against the manifest, byte for byte.

    Raises:
        ShardError: A shard is absent or differs.
        TrainingError: The job has no picture to train on.
    """
    paths = JobPaths(manifest.job)
    for shards in manifest.splits.values():
        for shard in shards:
            check_file(storage, f"{paths.shards}/{shard.file}", shard.size_bytes, shard.sha256)
    if manifest.examples("train") == 0:
        raise TrainingError(f"job {manifest.job}: the train split has no picture")


def shard_urls(storage: Storage, manifest: Manifest, splits: Sequence[Split]) -> list[str]:
    """Where the records of `splits` lie, in the manifest's order."""
    folder = JobPaths(manifest.job).shards
    return [storage.url(f"{folder}/{shard.file}") for split in splits for shard in manifest.splits.get(split, ())]


def choose_cache(needed_bytes: int, *, cache_mb: int, folder: Path | None) -> Cache:
    """Where decoded pictures are kept: memory where they fit, else a file, else nowhere; says so in the log.

    Args:
        needed_bytes: Size of all of them, decoded.
        cache_mb: Most that may be kept in memory, in MB.
        folder: Where a file may be made; None where none may.
    """
    memory = min(cache_mb * 10**6, int(free_memory_bytes() * CACHE_SHARE))
    disk = 0 if folder is None else int(shutil.disk_usage(folder).free * FILE_SHARE)
    kept: Cache = "memory" if needed_bytes <= memory else "file" if needed_bytes <= disk else "none"
    sizes = {"needed_mib": needed_bytes >> 20, "memory_allowed_mib": memory >> 20, "file_allowed_mib": disk >> 20}
    logger.info("dataset_cache", extra={"kept": kept, **sizes})
    return kept


def picture_file(folder: Path, count: int, image_size: int) -> NDArray[np.uint8]:
    """Room for `count` decoded pictures in a file of `folder`: a writable uint8 array [count, H, W, 3].

    The file has no name any more when this returns: the system frees it when the process ends, however it ends.
    """
    shape = (count, image_size, image_size, 3)
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".pictures-") as file:
        if hasattr(os, "posix_fallocate"):
            # A full disk is an error here; while a mapped page is written it would be a SIGBUS.
            os.posix_fallocate(file.fileno(), 0, int(np.prod(shape)))
        return np.memmap(file.name, np.uint8, "w+", shape=shape)


def free_memory_bytes() -> int:
    """Memory that this process may still take, by the machine and by its control group, in bytes."""
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limit, used = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")
    if limit.exists() and used.exists() and (text := limit.read_text().strip()) != "max":
        free = min(free, int(text) - int(used.read_text()))
    return free


def parse_record(record: Any) -> dict[str, Any]:
    """One serialized Example -> picture, boxes, labels, source_id, filename, as tensors."""
    parsed = tf.io.parse_single_example(record, _FEATURES)
    corners = [tf.sparse.to_dense(parsed[key]) for key in (schema.YMIN, schema.XMIN, schema.YMAX, schema.XMAX)]
    return {
        "picture": tf.io.decode_image(parsed[schema.ENCODED], channels=3, expand_animations=False),
        "boxes": tf.stack(corners, axis=1),
        "labels": tf.cast(tf.sparse.to_dense(parsed[schema.CLASS_LABEL]), tf.int32) - 1,
        "source_id": tf.strings.to_number(parsed[schema.SOURCE_ID], tf.int64),
        "filename": parsed[schema.FILENAME],
    }


def read_examples(urls: Sequence[str], image_size: int, room: NDArray[np.uint8] | None = None) -> Examples:
    """Read and decode all records of `urls`, in their order.

    Args:
        urls: Of the shards.
        image_size: Side of their pictures in pixels.
        room: Where to put the pictures, uint8 [M, H, W, 3] for all M of them; None makes room in memory.

    Raises:
        ShardError: A record is damaged or its picture has another size, or there are not M.
    """
    records = tf.data.TFRecordDataset(list(urls)).map(parse_record, num_parallel_calls=tf.data.AUTOTUNE)
    found: list[dict[str, Any]] = []
    pictures: list[NDArray[np.uint8]] = []
    try:
        for example in records.as_numpy_iterator():
            picture = _checked(example.pop("picture"), example["filename"].decode(), image_size)
            if room is None:
                pictures.append(picture)
            else:
                room[len(found)] = picture
            found.append(example)
    except (tf.errors.OpError, IndexError) as error:
        reason = error.message if isinstance(error, tf.errors.OpError) else "more records than the manifest says"
        raise ShardError(f"{urls[0]} and its like: record {len(found)} cannot be read: {reason}") from error
    if room is None:
        room = np.stack(pictures) if pictures else np.zeros((0, image_size, image_size, 3), np.uint8)
    return Examples(
        pictures=room,
        boxes=tuple(example["boxes"] for example in found),
        labels=tuple(example["labels"] for example in found),
        source_ids=np.array([example["source_id"] for example in found], np.int64),
        filenames=tuple(example["filename"].decode() for example in found),
    )


def _checked(picture: NDArray[np.uint8], name: str, image_size: int) -> NDArray[np.uint8]:
    if picture.shape != (image_size, image_size, 3):
        raise ShardError(f"{name}: expected a picture of {image_size} px, found shape {picture.shape}")
    return picture


def draw_rows(step: int, *, batch: int, count: int, seed: int) -> NDArray[np.int64]:
    """The rows of the batch of one step: a window over endless shuffled epochs.

    A pure function of the step, so that a resumed run draws what an unbroken one does. Every row comes once an
    epoch, nothing is dropped, and a set smaller than a batch is just drawn more than once.

    Args:
        step: Number of the step, from 0.
        batch: Rows to draw.
        count: Rows of the set, at least 1.
        seed: Of the order.

    Returns:
        int64 array [batch] of rows in [0, count).
    """
    places = np.arange(step * batch, (step + 1) * batch)
    orders = {epoch: np.random.default_rng((seed, epoch)).permutation(count) for epoch in np.unique(places // count)}
    return np.array([orders[place // count][place % count] for place in places], np.int64)


def pad_boxes(
    boxes: Sequence[NDArray[np.float32]], labels: Sequence[NDArray[np.int32]]
) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    """Boxes of several pictures as one block: float32 [B, N, 4] and int32 [B, N], N the most of any (at least 1)."""
    most = max(1, *(len(rows) for rows in labels)) if labels else 1
    padded_boxes = np.zeros((len(boxes), most, 4), np.float32)
    padded_labels = np.full((len(boxes), most), -1, np.int32)
    for row, (corners, classes) in enumerate(zip(boxes, labels, strict=True)):
        padded_boxes[row, : len(corners)] = corners
        padded_labels[row, : len(classes)] = classes
    return padded_boxes, padded_labels
