"""Shards of a finished job -> batches for training and evaluation.

A batch has one layout everywhere: "pictures" uint8 [B, H, W, 3] RGB; "boxes" float32 [B, N, 4], (ymin, xmin, ymax,
xmax) as fractions of the picture; "labels" int32 [B, N], class from 0, `PADDING` (-1) where a row is padding, `IGNORED`
(-2) where an object is neither learned nor punished; "rows" int64 [B], the pictures' places in their split.
"""

import logging
import os
import shutil
import tempfile
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from shared.errors import ShardError, TrainingError
from shared.jobs.job import Split
from shared.jobs.manifest import Manifest
from shared.jobs.paths import JobPaths
from shared.jobs.receipts import check_file
from shared.storage import Storage
from trainer.data.records import decode_picture, own_cores, record_groups
from trainer.data.shard_cache import ShardCache
from trainer.tensors import PADDING

logger = logging.getLogger(__name__)

# The share of free memory that decoded pictures may take; the network's activations and the page cache need the rest.
CACHE_SHARE: Final = 0.4

# The share of free disk space that they may take instead; two trainers may ask for it at the same time.
FILE_SHARE: Final = 0.4

Cache = Literal["memory", "file", "none"]

# The size of the buffer that shuffles records if decoded pictures are not kept.
SHUFFLE_RECORDS: Final = 2048


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardPicture:
    """A picture as shards hold it: `rgb` is uint8 [H, W, 3] of the model's size, `image_id` is that of the truth."""

    image_id: int
    file_name: str
    rgb: NDArray[np.uint8]


@dataclass(frozen=True, slots=True, kw_only=True)
class Examples:
    """Decoded pictures with their boxes, held in memory.

    `pictures` uint8 [M, H, W, 3] RGB; `boxes` M float32 arrays [n, 4], (ymin, xmin, ymax, xmax) as fractions;
    `labels` M int32 arrays [n], from 0 or `IGNORED`; `source_ids` int64 [M]; `filenames` M names.
    """

    pictures: NDArray[np.uint8]
    boxes: tuple[NDArray[np.float32], ...]
    labels: tuple[NDArray[np.int32], ...]
    source_ids: NDArray[np.int64]
    filenames: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.filenames)

    def shard_pictures(self) -> Iterator[ShardPicture]:
        """The pictures, one by one."""
        for source_id, name, rgb in zip(self.source_ids, self.filenames, self.pictures, strict=True):
            yield ShardPicture(image_id=int(source_id), file_name=name, rgb=rgb)


def check_shards(storage: Storage, manifest: Manifest) -> None:
    """Check every shard of the job against the manifest, by its SHA-256; shards in a bucket are checked when fetched.

    Raises:
        ShardError: A shard is absent or differs.
        TrainingError: The job has no picture to train on, or none with an object.
    """
    paths = JobPaths(manifest.job)
    for shards in manifest.splits.values() if storage.is_local else ():
        for shard in shards:
            check_file(storage, f"{paths.shards}/{shard.file}", shard.size_bytes, shard.sha256)
    if manifest.examples("train") == 0:
        raise TrainingError(f"job {manifest.job}: the train split has no picture")
    if not any(shard.objects for shard in manifest.splits["train"]):
        raise TrainingError(f"job {manifest.job}: no photo of train has an object: lint.csv says why; submit them anew")


def shard_urls(storage: Storage, manifest: Manifest, splits: Sequence[Split]) -> list[str]:
    """Where the records of `splits` lie, in the manifest's order."""
    folder = JobPaths(manifest.job).shards
    return [storage.url(f"{folder}/{shard.file}") for split in splits for shard in manifest.splits.get(split, ())]


def choose_cache(needed_bytes: int, *, cache_mb: int, folder: Path | None) -> Cache:
    """Where to keep decoded pictures: in memory if they fit, otherwise in a file or nowhere; the log says which.

    Args:
        needed_bytes: The size of all decoded pictures.
        cache_mb: The most that may be kept in memory, in MB.
        folder: Where a file may be made; None if none may.
    """
    memory = min(cache_mb * 10**6, int(free_memory_bytes() * CACHE_SHARE))
    disk = 0 if folder is None else int(shutil.disk_usage(folder).free * FILE_SHARE)
    kept: Cache = "memory" if needed_bytes <= memory else "file" if needed_bytes <= disk else "none"
    sizes = {"needed_mib": needed_bytes >> 20, "memory_allowed_mib": memory >> 20, "file_allowed_mib": disk >> 20}
    logger.info("dataset_cache", extra={"kept": kept, **sizes})
    return kept


def picture_file(folder: Path, count: int, image_size: int) -> NDArray[np.uint8]:
    """Room for `count` decoded pictures in a file in `folder`: a writable uint8 array [count, H, W, 3].

    The file no longer has a name when this returns, so the system frees it however the process ends.
    """
    shape = (count, image_size, image_size, 3)
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".pictures-") as file:
        if hasattr(os, "posix_fallocate"):
            # Here a full disk raises an error; later, writing to a mapped page, it would be a SIGBUS.
            os.posix_fallocate(file.fileno(), 0, int(np.prod(shape)))
        return np.memmap(file.name, np.uint8, "w+", shape=shape)


def free_memory_bytes() -> int:
    """How many bytes of memory this process may still take, given the machine and its control group."""
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limit, used = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")
    if limit.exists() and used.exists() and (text := limit.read_text().strip()) != "max":
        free = min(free, int(text) - int(used.read_text()))
    return free


def read_examples(
    urls: Sequence[str],
    image_size: int,
    room: NDArray[np.uint8] | None = None,
    cache: ShardCache | None = None,
    without: Collection[int] = (),
) -> Examples:
    """Read and decode all records of `urls`, in their order, with all cores.

    Args:
        urls: The shards' URLs.
        image_size: The side of their pictures in pixels.
        room: Where to put the pictures, uint8 [M, H, W, 3] for all M of them; None makes room in memory.
        cache: The cache for shards in a bucket; None for a store in a folder.
        without: The source ids of records to leave out.

    Raises:
        ShardError: A record is damaged or its picture has another size, or there are not M.
    """
    groups: Iterable[dict[str, NDArray[Any]]] = (_left_of(group, without) for group in record_groups(urls, cache))
    if room is None:
        # Encoded pictures take a sixth of the memory; growing a decoded array would take twice its size for a moment.
        groups = list(groups)
        room = np.empty((sum(len(group["encoded"]) for group in groups), image_size, image_size, 3), np.uint8)
    boxes, labels, names = list[NDArray[np.float32]](), list[NDArray[np.int32]](), list[str]()
    source_ids: list[int] = []
    with ThreadPoolExecutor(own_cores()) as pool:
        for group in groups:
            if len(names) + len(group["encoded"]) > len(room):
                raise ShardError(f"{urls[0]} and its like: more records than the manifest says")
            places = range(len(names), len(names) + len(group["encoded"]))
            added = [name.decode() for name in group["filename"]]
            deque(pool.map(partial(_decode_into, room), places, group["encoded"], added), maxlen=0)
            names += added
            source_ids += group["source_id"].tolist()
            for corners, classes in zip(group["boxes"], group["labels"], strict=True):
                boxes.append(corners[classes != PADDING])
                labels.append(classes[classes != PADDING])
    return Examples(
        pictures=room,
        boxes=tuple(boxes),
        labels=tuple(labels),
        source_ids=np.array(source_ids, np.int64),
        filenames=tuple(names),
    )


def _left_of(group: dict[str, NDArray[Any]], without: Collection[int]) -> dict[str, NDArray[Any]]:
    """The records of a group, without those with these source ids."""
    if not without:
        return group
    is_kept = np.isin(group["source_id"], list(without), invert=True)
    return {name: column[is_kept] for name, column in group.items()}


def _decode_into(room: NDArray[np.uint8], place: int, encoded: bytes, name: str) -> None:
    room[place] = decode_picture(encoded, name, room.shape[1])


def draw_rows(step: int, *, batch: int, count: int, seed: int) -> NDArray[np.int64]:
    """The rows of the batch of one step: a window over endless shuffled epochs.

    A pure function of its arguments, so that a resumed run draws what an uninterrupted one does. Every row comes once
    per epoch, none is dropped, and the rows of a set smaller than a batch come more than once in it.

    Args:
        step: The number of the step, from 0.
        batch: How many rows to draw.
        count: How many rows the set has, at least 1.
        seed: The seed of the order.

    Returns:
        int64 array [batch] of rows in [0, count).
    """
    places = np.arange(step * batch, (step + 1) * batch)
    epochs = places // count
    drawn = [_order(seed, int(epoch), count)[places[epochs == epoch] % count] for epoch in np.unique(epochs)]
    return np.concatenate(drawn)


@lru_cache(maxsize=4)
def _order(seed: int, epoch: int, count: int) -> NDArray[np.int64]:
    """The order of an epoch; cached because it takes milliseconds for a large set, and every batch needs it."""
    return np.random.default_rng((seed, epoch)).permutation(count)


def pad_boxes(
    boxes: NDArray[np.float32], labels: NDArray[np.int32], places: NDArray[np.int64], count: int
) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    """Boxes of several pictures as one block.

    Args:
        boxes: float32 [n, 4], of all pictures.
        labels: int32 [n], the boxes' labels.
        places: int64 [n], ascending: the picture of each box.
        count: The number of pictures, B.

    Returns:
        float32 [B, N, 4] and int32 [B, N], N the most boxes of any picture (at least 1); padding is labelled `PADDING`.
    """
    counts = np.bincount(places, minlength=count)
    columns = np.arange(len(places)) - np.repeat(np.cumsum(counts) - counts, counts)
    most = max(1, int(counts.max(initial=0)))
    padded_boxes = np.zeros((count, most, 4), np.float32)
    padded_labels = np.full((count, most), PADDING, np.int32)
    padded_boxes[places, columns] = boxes
    padded_labels[places, columns] = labels
    return padded_boxes, padded_labels
