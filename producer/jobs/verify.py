"""Compares the files of a job with its receipts, byte for byte, and queues for the workers again what differs.

A finished job can be verified at any time: disks lose data, and people restore backups and clean up by hand.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from producer.finalize.dataset_files import check_annotations, files_that_differ, make_manifest
from producer.progress import Progress, no_progress
from shared.errors import FormatError, ShardError, VersionError
from shared.jobs.identity import file_digest, read_manifest, read_note, read_receipt
from shared.jobs.job import Job
from shared.jobs.paths import JobPaths, RunPaths
from shared.jobs.receipts import check_shard
from shared.leasing.ledger import Ledger
from shared.leasing.redis_client import UNREACHABLE
from shared.leasing.scopes import job_scope
from shared.specs.run import RunSpec
from shared.storage import Storage


def broken_shards(
    storage: Storage, job: Job, shards: Iterable[str], progress: Progress = no_progress
) -> dict[str, str]:
    """Which of `shards` have no receipt, or a file that differs from it, and why; raises as `what_is_broken` does."""
    names = list(shards)
    broken = {}
    for number, shard in enumerate(names, start=1):
        if (reason := what_is_broken(storage, job, shard, with_digest=True)) is not None:
            broken[shard] = reason
        progress("verifying", number, len(names))
    return broken


def what_is_broken(storage: Storage, job: Job, shard: str, *, with_digest: bool) -> str | None:
    """Why the files of `shard` are not those of its receipt, or None if they are.

    The size of the records is always compared; `with_digest` reads them and compares their digest too.

    Raises:
        StorageError: A file is there and cannot be read.
        VersionError: The receipt was written by another version.
    """
    receipt = read_receipt(storage, job, shard)
    if receipt is None:
        return f"{storage.url(JobPaths(job.job).receipt(shard))}: no receipt of this job"
    try:
        check_shard(storage, receipt, with_digest=with_digest)
        check_annotations(storage, receipt)
    except ShardError as error:
        return str(error)
    return None


def queue_again(storage: Storage, ledger: Ledger | None, job: Job, shards: Iterable[str]) -> None:
    """Remove the manifest and the receipts of `shards`, so that workers write these shards again.

    The ledger is told if Redis can be reached; otherwise the reconciler sees it in storage.
    """
    # The manifest goes first: if this process is killed before the receipts are gone, the same manifest is made again.
    storage.remove(JobPaths(job.job).manifest)
    for shard in shards:
        storage.remove(JobPaths(job.job).receipt(shard))
        if ledger is not None:
            try:
                ledger.unmark_done(job_scope(job), job.ordinal(shard))
            except UNREACHABLE:
                ledger = None


def manifest_faults(storage: Storage, job: Job) -> Iterator[str]:
    """What is wrong with the manifest of a finished job, all of whose receipts are there, and with the files around it.

    Raises:
        VersionError: One was written by another version.
    """
    key = JobPaths(job.job).manifest
    if not storage.exists(key):
        return
    receipts = [receipt for shard in job.shards if (receipt := read_receipt(storage, job, shard))]
    try:
        manifest = read_manifest(storage, job)
    except VersionError:
        raise
    except FormatError as error:
        yield str(error)
        return
    if manifest is None:
        yield f"{storage.url(key)} belongs to a removed job of this name"
    elif len(receipts) + len(manifest.failed) < len(job.shards):
        return  # shards are missing, which `broken_shards` says; the manifest is made again with them
    elif manifest != make_manifest(job, [each for each in receipts if each.shard not in manifest.failed]):
        yield f"{storage.url(key)} does not match the job and its receipts"
    yield from (f"{storage.url(name)}: absent, or of other classes" for name in files_that_differ(job, storage))


def weights_are_intact(storage: Storage, asked: RunSpec) -> bool:
    """Whether the weights of a finished run are unchanged since it ended, and were trained on the present shards."""
    paths = RunPaths(asked.run)
    summary = read_note(storage, paths.run, asked.incarnation) or {}
    files = summary.get("files")
    facts: Any = files.get("model.keras") if isinstance(files, dict) else None
    digest = file_digest(storage, f"{paths.root}/model.keras")
    is_same = isinstance(facts, dict) and digest is not None and facts.get("sha256") == digest
    # An absent manifest is being made again and will be the same; the trainer compares it once more.
    manifest = file_digest(storage, JobPaths(asked.job).manifest)
    return is_same and manifest in (None, summary.get("manifest_digest"))


def released_faults(storage: Storage, asked: RunSpec) -> Iterator[str]:
    """One line for each file of a finished run that is absent or differs from what was released."""
    paths = RunPaths(asked.run)
    summary = read_note(storage, paths.run, asked.incarnation) or {}
    files: Any = summary.get("files")
    for name, facts in files.items() if isinstance(files, dict) else ():
        key = f"{paths.root}/{name}"
        if isinstance(facts, dict) and file_digest(storage, key) == facts.get("sha256"):
            continue
        stamp, expected = storage.stamp_or_none(key), facts.get("bytes") if isinstance(facts, dict) else None
        if stamp is None:
            yield f"{storage.url(key)}: absent"
        elif isinstance(expected, int) and stamp.size_bytes < expected:
            yield f"{storage.url(key)}: cut short, {stamp.size_bytes} of the {expected} bytes that run.json says"
        else:
            yield f"{storage.url(key)}: its bytes are not those that run.json says"
