"""Two jobs -> the photos that have the same name but are different pictures; and which photos a run was trained on.

Cameras and tools number photos from 1 in each folder, so `001.jpg` of another folder is another photo. Shards do not
keep the original files; the perceptual hashes in the shards' receipts tell the photos apart.
"""

import json
from collections.abc import Collection, Iterator
from typing import Final

from shared.errors import FormatError, StorageError
from shared.jobs.identity import find_job, read_receipt, read_request
from shared.jobs.job import Job, Split
from shared.jobs.paths import JobPaths, name_of_weights
from shared.picture.alike import NEAR_BITS
from shared.specs.run import RunSpec
from shared.storage import Storage

# A photo that was resized, recompressed or edited nearly always stays within NEAR_BITS; different photos are at least
# 86 bits apart (docs/decisions/0066). Photos are called different only where that is certain.
_OTHER_BITS: Final = 2 * NEAR_BITS


def written_hashes(storage: Storage, job: Job, files: Collection[str] | None = None) -> dict[str, str]:
    """The perceptual hash, in hex, of each photo of `files` (default: all) that has one in its shard's receipt.

    It is "" for a photo that shows hardly anything; receipts of older versions have no hashes. Only the receipts of
    shards with one of `files` are read.
    """
    found: dict[str, str] = {}
    for shard, line in zip(job.shards, storage.lines(JobPaths(job.job).plan(job.incarnation)), strict=True):
        images = [pair["image"] for pair in json.loads(line)["pairs"]]
        if files is not None and not any(image in files for image in images):
            continue
        receipt = read_receipt(storage, job, shard)
        if receipt is not None and receipt.hashes:
            found.update(zip(images, receipt.hashes, strict=True))
    return found


def picture_hashes(storage: Storage, job: Job) -> dict[str, int]:
    """The perceptual hashes of a job's photos by file, without photos that have none or show hardly anything."""
    return {image: int(text, 16) for image, text in written_hashes(storage, job).items() if text}


def learned_files(storage: Storage, run: str) -> tuple[Job, set[str]] | None:
    """The job of a run, and the files of the photos that it was trained on; None if that is not known."""
    try:
        asked = read_request(storage, run)
        job = None if asked is None else find_job(storage, asked.job)
        if asked is None or job is None or job.incarnation != asked.incarnation:
            return None
        learned = {"train", "val"} if asked.final else {"train"}
        return job, {image for image, split in splits_of(storage, job).items() if split in learned}
    except (FormatError, StorageError):  # a damaged file must not stop the caller, which is after something else
        return None


def learned_along(storage: Storage, run: str) -> Iterator[tuple[Job, set[str]]]:
    """`learned_files` of a run, then of the run that it continues, and so on, as far as they are known."""
    seen = set[str]()
    while run and run not in seen:
        seen.add(run)
        known = learned_files(storage, run)
        if known is not None:
            yield known
        run = _begun_from(storage, run)


def _begun_from(storage: Storage, run: str) -> str:
    """The name of the run that a run continues; "" if it starts afresh or nothing is known about it."""
    try:
        asked = read_request(storage, run)
    except (FormatError, StorageError):
        return ""
    return "" if asked is None or asked.start is None else name_of_weights(asked.start)


def learned_photos(storage: Storage, run: str, photos: tuple[Storage, Job]) -> set[str]:
    """Those of a job's photos that a run, or a run that it continues, was trained on.

    A photo is recognised by its name, unless that name is a different picture there, and under any other name by its
    picture.
    """
    hashes, found = picture_hashes(*photos), set[str]()
    for job, files in learned_along(storage, run):
        theirs = picture_hashes(storage, job)
        pictures = {theirs[file] for file in files & theirs.keys()}
        found |= files - unlike_pictures(photos, (storage, job))
        found |= {file for file, picture in hashes.items() if picture in pictures}
    return found


def splits_of(storage: Storage, job: Job) -> dict[str, Split]:
    """The split of each photo of a job, by its file."""
    lines = map(json.loads, storage.lines(JobPaths(job.job).plan(job.incarnation)))
    return {pair["image"]: task["split"] for task in lines for pair in task["pairs"]}


def unlike_pictures(one: tuple[Storage, Job], other: tuple[Storage, Job]) -> set[str]:
    """The files that are different pictures in the two jobs; none if the jobs resize pictures differently."""
    if one[1].spec.resize != other[1].spec.resize:
        return set()
    ours, theirs = picture_hashes(*one), picture_hashes(*other)
    return {file for file in ours.keys() & theirs if (ours[file] ^ theirs[file]).bit_count() > _OTHER_BITS}


def other_pictures(
    storage: Storage, one: RunSpec | None, other: RunSpec | None, files: Collection[str] | None = None
) -> set[str]:
    """Those of `files` (default: all) that are different pictures in the jobs of the two runs.

    The result is empty if one of the jobs was removed, or if they resize pictures differently.
    """
    if one is None or other is None or (one.job, one.incarnation) == (other.job, other.incarnation):
        return set()
    jobs = [find_job(storage, each.job) for each in (one, other)]
    first, second = (
        job if job and job.incarnation == run.incarnation else None for job, run in zip(jobs, (one, other), strict=True)
    )
    if first is None or second is None:
        return set()
    unlike = unlike_pictures((storage, first), (storage, second))
    return unlike if files is None else unlike & set(files)
