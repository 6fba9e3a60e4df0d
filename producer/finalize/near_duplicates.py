"""Perceptual hashes of a job's pictures -> findings for pictures nearly the same as one of another split.

Such a pair makes every measured figure look better: the model has seen the picture that it is tested on.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from shared.jobs.findings import Finding
from shared.jobs.job import SPLITS, Job, Split
from shared.jobs.paths import JobPaths
from shared.jobs.receipts import ShardReceipt
from shared.picture.alike import BANDS, MOST_COMPARED, NEAR_BITS, band_of
from shared.storage import Storage


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
    """Note in the `later` pictures which of the `earlier` ones is nearest. One band at a time, to save memory."""
    for band in range(BANDS if earlier else 0):
        buckets = defaultdict[int, list[HashedPicture]](list)
        for picture in later:
            bucket = buckets[band_of(picture.hash, band)]
            if len(bucket) < MOST_COMPARED:
                bucket.append(picture)
        for other in earlier:
            for picture in buckets.get(band_of(other.hash, band), ()):
                bits = (picture.hash ^ other.hash).bit_count()
                if bits < picture.bits:
                    picture.nearest, picture.bits = other, bits
