"""Pictures of one split -> shards, cut so that an added picture changes one shard and renumbers no other. Pure."""

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final

from producer.dataset.split import seeded_fraction
from shared.errors import LintError
from shared.jobs.job import Split

# A training split of this many pictures has at least 8 shards: the trainer reads them interleaved.
TRAIN_PICTURES_FOR_LEAST: Final = 128
TRAIN_SHARDS_LEAST: Final = 8

# The limit of `ShardTask.count`, because a shard's name has five digits.
SHARDS_MOST: Final = 100_000

# automl's decoder reads source_id as float32, which is exact below 2**24.
SOURCE_IDS: Final = 2**24 - 1

# Cutting by hash ranges takes more shards than cutting evenly: 1.2x at 256 pictures per shard, 1.8x at 16. With fewer
# pictures per shard it would take too many, and equal cuts are made.
_MOST_EXTRA: Final = 2.0


def cut_shards(
    images: Sequence[str], indices: Sequence[int], *, split: Split, limit: int, seed: int
) -> list["array[int]"]:
    """Cut one split into shards of at most `limit` pictures.

    Shard i of n holds the pictures whose seeded hash lies in [i/n, (i+1)/n), so an added picture changes one shard.
    n takes only values with three significant bits (…, 8, 10, 12, 14, 16, 20, …), so that it seldom changes.

    `images` are the relative paths of all pictures, `indices` those of this `split`.

    Returns:
        Indices into `images` for each shard, in the order of their hashes; no shard is empty.

    Raises:
        LintError: More shards than a job can have.
    """
    if not indices:
        return []
    place = {index: seeded_fraction(seed, images[index]) for index in indices}
    order = array("I", sorted(indices, key=place.__getitem__))
    places = array("d", (place[index] for index in order))
    least = least_shards(len(order), split=split, limit=limit)
    if least > SHARDS_MOST:
        raise LintError(f"{len(order)} pictures at {limit} a shard are {least} shards; the most is {SHARDS_MOST}")
    bounds = _range_bounds(places, least, limit) or [rank * len(order) // least for rank in range(least + 1)]
    return [order[start:end] for start, end in pairwise(bounds)]


def least_shards(pictures: int, *, split: Split, limit: int) -> int:
    """The fewest shards into which this number of pictures of a split may be cut."""
    least = -(-pictures // limit)
    return max(least, TRAIN_SHARDS_LEAST) if split == "train" and pictures >= TRAIN_PICTURES_FOR_LEAST else least


def number_sources(images: Iterable[str]) -> "array[int]":
    """A number for each picture, unique, from 1 to 2**24 - 1: 24 bits of its path's hash, the next free one if taken.

    An added picture changes the number of another one only if their hashes collide. `images` are sorted.

    Raises:
        LintError: More pictures than numbers.
    """
    taken = bytearray(SOURCE_IDS + 1)
    numbers = array("I")
    for image in images:
        if len(numbers) == SOURCE_IDS:
            raise LintError(f"a job can have {SOURCE_IDS} pictures; this folder has more")
        number = 1 + int(seeded_fraction(0, image) * SOURCE_IDS)
        while taken[number]:
            number = number % SOURCE_IDS + 1
        taken[number] = 1
        numbers.append(number)
    return numbers


def _range_bounds(places: "array[float]", least: int, limit: int) -> list[int] | None:
    """Where to cut sorted `places` in [0, 1) into the fewest equal ranges that hold 1 to `limit` each.

    None if that would take over twice as many shards as `least`.
    """
    for count in _counts(least):
        if count > least * _MOST_EXTRA or count > SHARDS_MOST:
            return None
        bounds = [bisect_left(places, rank / count) for rank in range(count)] + [len(places)]
        sizes = [end - start for start, end in pairwise(bounds)]
        if min(sizes) > 0 and max(sizes) <= limit:
            return bounds
    return None


def _counts(least: int) -> Iterable[int]:
    """The numbers of at most three significant bits, from `least` on."""
    count = max(1, least)
    while True:
        step = 1 << max(0, count.bit_length() - 3)
        count = -(-count // step) * step
        yield count
        count += 1
