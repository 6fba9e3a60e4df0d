"""Which files of a store belong to which job: decided here for the producer, the workers and the trainer.

A job exists if its `job.json` does, and the `incarnation` there is its identity. Receipts, notes, requests and models
in its folder with another incarnation belong to a removed job of the same name and count as absent. Files of version
0.1.0 have none. Files with names that we never give (`.DS_Store`, `x (1).json`) belong to no job.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Final, TypeVar

from pydantic import BaseModel

from shared.errors import Cancelled, FormatError, StorageError, VersionError
from shared.jobs.job import Job
from shared.jobs.manifest import Manifest
from shared.jobs.paths import JobPaths, RunPaths
from shared.jobs.receipts import ShardReceipt
from shared.jobs.versioned import read_stored
from shared.specs.frozen import NAME_PATTERN, canonical_json
from shared.specs.run import RunSpec
from shared.storage import TEMPORARY_MARK, Stamp, Storage

# Files are looked at again and again but seldom change, so what was read is remembered until the file is replaced.
_FILES_REMEMBERED: Final = 256
_RECEIPTS_REMEMBERED: Final = 2**17

_DAMAGED: Final = "use that version, restore the file from a backup, or remove its folder by hand and submit again"
_COPY: Final = "give the folder its old name back, or delete it by hand"

M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True, slots=True, kw_only=True)
class DoneShard:
    """What is kept of a receipt: the identity of the shard that it proves, and the numbers that are added up."""

    identity: "_Identity"
    attempt: int
    written: int
    quarantined: int
    size_bytes: int | None


# Job, incarnation, shard and digest of the plan's line: what a receipt must carry to prove a shard.
_Identity = tuple[str, str, str, str]


def is_name(name: str) -> bool:
    """Whether a job or a run can have this name."""
    return re.fullmatch(NAME_PATTERN, name) is not None and TEMPORARY_MARK not in name


def find_job(storage: Storage, name: str) -> Job | None:
    """The job `name`, or None if there is none: never submitted, removed, or being removed.

    Raises:
        FormatError: Its file is damaged, of another version, or of a job with another name (a copied folder).
    """
    removed = storage.begin(partial(storage.read_or_none, JobPaths(name).removed)) if is_name(name) else lambda: None
    job = read_job_file(storage, name)
    return None if job is None or note_of(removed(), job.incarnation) is not None else job


def readable_jobs(storage: Storage) -> Iterator[Job]:
    """All jobs of a store whose files can be read, by name."""
    return _readable(storage, "jobs", find_job)


def is_removed(storage: Storage, job: Job) -> bool:
    """Whether somebody has begun to remove `job`, however much of it is still there."""
    return read_note(storage, JobPaths(job.job).removed, job.incarnation) is not None


def read_job_file(storage: Storage, name: str) -> Job | None:
    """What `job.json` says, even if the job is being removed; None if there is no such file.

    Raises:
        FormatError: As `find_job`.
        StorageError: It cannot be read; also if the bucket is gone, which reading a single object does not show.
    """
    key = JobPaths(name).job
    try:
        job = _remembered(Job, storage, key) if is_name(name) else None
    except VersionError:
        raise
    except FormatError as error:
        raise FormatError(f"{error}; {_DAMAGED}") from error
    if job is None and not storage.is_local:
        storage.has_files("jobs")  # raises if the bucket is gone
    if job is not None and job.job != name:
        raise FormatError(f"{storage.url(key)}: the file of job {job.job!r}: a copied folder? {_COPY}")
    return job


def require_job(storage: Storage, name: str, incarnation: str) -> None:
    """Check that a job is still there, before anything is published for it.

    Raises:
        Cancelled: It was removed, or another one was submitted under its name.
    """
    try:
        job = find_job(storage, name)
    except FormatError as error:
        raise Cancelled(f"job {name}: {error}") from error
    if job is None or job.incarnation != incarnation:
        raise Cancelled(f"job {name} was removed{'' if job is None else ', and another one submitted under its name'}")


def read_note(storage: Storage, key: str, incarnation: str) -> dict[str, Any] | None:
    """A small JSON file about a job or a run (cancelled, failed, retried, removed, ...), or None if it has none.

    A file that is not a JSON object, or has another incarnation, does not count.
    """
    return note_of(storage.read_or_none(key), incarnation)


def note_of(content: bytes | None, incarnation: str) -> dict[str, Any] | None:
    """What the bytes of a note say, under the rules of `read_note`."""
    try:
        note = None if content is None else json.loads(content)
    except (ValueError, RecursionError):
        return None
    return note if isinstance(note, dict) and note.get("incarnation", "") == incarnation else None


def make_note(incarnation: str, **facts: Any) -> bytes:
    """The content of a small JSON file about a job or a run, as `read_note` expects it."""
    return canonical_json({**facts, **({"incarnation": incarnation} if incarnation else {})}).encode()


def read_request(storage: Storage, run: str) -> RunSpec | None:
    """The request for the run `run`, of whichever job; None if nobody asked for it.

    Raises:
        FormatError: The request is damaged, of another version, or of a run with another name (a copied folder).
    """
    key = RunPaths(run).request
    request = _remembered(RunSpec, storage, key) if is_name(run) else None
    if request is not None and request.run != run:
        raise FormatError(f"{storage.url(key)}: the request of run {request.run!r}: a copied folder? {_COPY}")
    return request


def words_of(storage: Storage, run: str) -> list[str]:
    """The arguments that name a run to a command: its job, and `--run` if it is not the job's own run.

    Raises:
        FormatError: As `read_request`.
    """
    asked = read_request(storage, run)
    return [run] if asked is None or asked.job == run else [asked.job, "--run", run]


def asked_now(storage: Storage, run: RunSpec) -> RunSpec:
    """The present request for a run that a job asked for: a person may have changed its export and evaluation.

    Raises:
        FormatError: As `read_request`.
    """
    request = read_request(storage, run.run)
    return request if request is not None and request.trains_as(run) else run


def readable_requests(storage: Storage) -> Iterator[RunSpec]:
    """The requests for all runs of a store that can be read, by name."""
    return _readable(storage, "runs", read_request)


def _readable(storage: Storage, folder: str, read: Callable[[Storage, str], M | None]) -> Iterator[M]:
    for name in storage.list_names(folder):
        with suppress(FormatError, StorageError):
            found = read(storage, name)
            if found is not None:
                yield found


def read_manifest(storage: Storage, job: Job) -> Manifest | None:
    """The manifest of `job`, or None if it has none.

    Raises:
        FormatError: It is damaged, or of another version.
    """
    manifest = _remembered(Manifest, storage, JobPaths(job.job).manifest)
    return manifest if manifest is not None and manifest.incarnation == job.incarnation else None


def file_digest(storage: Storage, key: str) -> str | None:
    """Hex SHA-256 of the file `key`, or None if it is absent; remembered until the file is replaced."""
    stamp = storage.stamp_or_none(key)
    return None if stamp is None else _file_digest(storage, key, stamp)


def read_receipt(storage: Storage, job: Job, shard: str) -> ShardReceipt | None:
    """The receipt of `shard`, or None if it has none: not written yet, damaged, or of another job or plan.

    Raises:
        VersionError: It was written by another version, and only that version can judge it.
    """
    receipt = _parsed_receipt(storage, JobPaths(job.job).receipt(shard))
    return receipt if receipt is not None and _identity_of(receipt) == _identity(job, shard) else None


def done_shards(storage: Storage, job: Job) -> dict[str, DoneShard]:
    """The shards that have a receipt and files of the size that it states; from one listing.

    Raises:
        VersionError: As `read_receipt`.
    """
    paths = JobPaths(job.job)
    found = storage.list_stamps(paths.shards)
    done = {}
    for name, stamp in found.items():
        shard = name.removesuffix(".json")
        if shard == name or not job.has(shard):
            continue
        kept = _receipted(storage, paths.receipt(shard), stamp)
        if kept and kept.identity == _identity(job, shard) and _has_files(shard, kept, found):
            done[shard] = kept
    return done


def _remembered(model: type[M], storage: Storage, key: str) -> M | None:
    """The file `key` as a `model`, parsed only once until it is replaced; None if it is absent."""
    stamp = storage.stamp_or_none(key)
    return None if stamp is None else _parsed(model, storage, key, stamp)


@lru_cache(maxsize=_FILES_REMEMBERED)
def _parsed(model: type[M], storage: Storage, key: str, _stamp: Stamp) -> M | None:
    text = storage.read_or_none(key)
    return None if text is None else read_stored(model, text, storage.url(key))


@lru_cache(maxsize=_FILES_REMEMBERED)
def _file_digest(storage: Storage, key: str, _stamp: Stamp) -> str | None:
    content = storage.read_or_none(key)
    return None if content is None else hashlib.sha256(content).hexdigest()


@lru_cache(maxsize=_RECEIPTS_REMEMBERED)
def _receipted(storage: Storage, key: str, _stamp: Stamp) -> DoneShard | None:
    """What is kept of a receipt; not all of it, because there may be 100,000 of them."""
    receipt = _parsed_receipt(storage, key)
    if receipt is None:
        return None
    return DoneShard(
        identity=_identity_of(receipt),
        attempt=receipt.attempt,
        written=receipt.written,
        quarantined=receipt.quarantined,
        size_bytes=receipt.size_bytes,
    )


def _parsed_receipt(storage: Storage, key: str) -> ShardReceipt | None:
    text = storage.read_or_none(key)
    try:
        return None if text is None else read_stored(ShardReceipt, text, storage.url(key))
    except VersionError:
        raise
    except FormatError:
        return None


def _identity(job: Job, shard: str) -> _Identity:
    return job.job, job.incarnation, shard, job.task_digest(shard)


def _identity_of(receipt: ShardReceipt) -> _Identity:
    return receipt.job, receipt.incarnation, receipt.shard, receipt.task_digest


def _has_files(name: str, shard: DoneShard, found: dict[str, Stamp]) -> bool:
    """Whether the files that a receipt proves are in a listing; a dry shard has none."""
    if shard.size_bytes is None:
        return True
    records = found.get(f"{name}.tfrecord")
    return records is not None and records.size_bytes == shard.size_bytes and f"{name}.coco.json" in found
