"""Perceptual hashes of a job's pictures -> findings for pictures nearly the same as one of another split.

Such a pair flatters every figure that is measured: the model has seen the picture that it is tested with.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from shared.jobs.findings import Finding
from shared.jobs.job import SPLITS, Job, Split
from shared.jobs.paths import JobPaths
from shared.jobs.receipts import ShardReceipt
from shared.storage import Storage

# Of 256 bits. Resized, recompressed or brighter pictures differ in up to 26 (99 of 100), two frames of one scene in up
# to 31, other pictures of BCCD and raccoon in at least 86 (docs/decisions/0066). PDQ's own limit is 31 too.
NEAR_BITS: Final = 31

# Hashes are compared only where 16 neighbouring bits are equal: all pairs that differ in up to 15 bits meet, and 9 of
# 10 that differ in 31. At 100,000 pictures that is about a second instead of an hour.
_BANDS: Final = 16
_BAND_BITS: Final = 16
# Of one band's equal bits so many are looked at: a set of one scene must not take the square of its pictures.
_MOST_COMPARED: Final = 64


@dataclass(slots=True)
class HashedPicture:
    """A picture of a split, its hash, and the nearest picture of an earlier split, once found (`bits` apart)."""

    file: str
    split: Split
    hash: int
    nearest: "HashedPicture | None" = None
    bits: int = NEAR_BITS + 1


def hashed_pictures(job: Job, receipts: Iterable[ShardReceipt], storage: Storage) -> Iterator[HashedPicture]:
    """The pictures of a job's finished shards that have a hash, in the order of the plan."""
    hashes = {receipt.shard: receipt.hashes for receipt in receipts}
    for shard, line in zip(job.shards, storage.lines(JobPaths(job.job).plan(job.incarnation)), strict=True):
        if hashes.get(shard):
            task = json.loads(line)
            for pair, text in zip(task["pairs"], hashes[shard], strict=True):
                if text:
                    yield HashedPicture(file=pair["image"], split=task["split"], hash=int(text, 16))


def near_duplicates(pictures: Iterable[HashedPicture]) -> Iterator[Finding]:
    """A finding for each picture that is nearly the same as one of an earlier split (train, val, test), by file."""
    by_split = {split: list[HashedPicture]() for split in SPLITS}
    for picture in pictures:
        by_split[picture.split].append(picture)
    for at, split in enumerate(SPLITS):
        _find_nearest(by_split[split], [picture for later in SPLITS[at + 1 :] for picture in by_split[later]])
    later = (picture for split in SPLITS[1:] for picture in by_split[split])
    for picture in sorted(later, key=lambda picture: picture.file):
        if picture.nearest is not None:
            near = picture.nearest
            found = f"in {picture.split}, nearly the same picture as {near.file} in {near.split}"
            done = "kept; it flatters what is measured"
            kind = "near_duplicate_across_splits"
            yield Finding(file=picture.file, rank="info", kind=kind, found=found, done=done)


def _find_nearest(earlier: list[HashedPicture], later: list[HashedPicture]) -> None:
    """Note in the `later` pictures which of the `earlier` ones is nearest. One band at a time, for little memory."""
    for band in range(_BANDS if earlier else 0):
        shift, mask = band * _BAND_BITS, (1 << _BAND_BITS) - 1
        buckets = defaultdict[int, list[HashedPicture]](list)
        for picture in later:
            bucket = buckets[picture.hash >> shift & mask]
            if len(bucket) < _MOST_COMPARED:
                bucket.append(picture)
        for other in earlier:
            for picture in buckets.get(other.hash >> shift & mask, ()):
                bits = (picture.hash ^ other.hash).bit_count()
                if bits < picture.bits:
                    picture.nearest, picture.bits = other, bits
