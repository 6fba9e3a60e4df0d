"""Two runs -> the photos that have one name in both of their jobs, and are other pictures.

Cameras and tools number photos from 1 in each folder: of another folder `001.jpg` is another photo. Shards keep none as
it was; the perceptual hash in the receipt of its shard tells them apart.
"""

import json
from collections.abc import Collection
from typing import Final

from shared.jobs.identity import find_job, read_receipt
from shared.jobs.job import Job
from shared.jobs.paths import JobPaths
from shared.picture.alike import NEAR_BITS
from shared.specs.run import RunSpec
from shared.storage import Storage

# One photo, stored at another size or quality or edited, is within NEAR_BITS nearly always; other photos are at least
# 86 bits apart (docs/decisions/0066). Only what is surely another is called so.
_OTHER_BITS: Final = 2 * NEAR_BITS


def picture_hashes(storage: Storage, job: Job) -> dict[str, int]:
    """The perceptual hashes of a job's pictures, by file; receipts of older versions have none."""
    found: dict[str, int] = {}
    for shard, line in zip(job.shards, storage.lines(JobPaths(job.job).plan(job.incarnation)), strict=True):
        receipt = read_receipt(storage, job, shard)
        if receipt is not None and receipt.hashes:
            named = zip(json.loads(line)["pairs"], receipt.hashes, strict=True)
            found |= {pair["image"]: int(text, 16) for pair, text in named if text}
    return found


def other_pictures(
    storage: Storage, one: RunSpec | None, other: RunSpec | None, files: Collection[str] | None = None
) -> set[str]:
    """Those of `files`, by default of all, that are one picture in the job of `one` and another in that of `other`.

    Nothing is known of a job that was removed, and of pictures that were fitted otherwise.
    """
    if one is None or other is None or (one.job, one.incarnation) == (other.job, other.incarnation):
        return set()
    jobs = [find_job(storage, each.job) for each in (one, other)]
    first, second = (
        job if job and job.incarnation == run.incarnation else None for job, run in zip(jobs, (one, other), strict=True)
    )
    if first is None or second is None or first.spec.resize != second.spec.resize:
        return set()
    ours, theirs = picture_hashes(storage, first), picture_hashes(storage, second)
    known = ours.keys() & theirs if files is None else ours.keys() & theirs & set(files)
    return {file for file in known if (ours[file] ^ theirs[file]).bit_count() > _OTHER_BITS}
