"""Shards that a job of the same store has written already → the same files in a new job, each with its receipt last.

Part of `submit`, after `job.json`: whatever is not taken over, workers write. A shard's bytes follow from its pairs
(paths, source ids, fingerprints), the job's options and labels, and the program; where all of these are equal and no
picture was touched since the lender was submitted, a fresh run would write the very same bytes.
"""

import hashlib
import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from producer.dataset_files import check_annotations
from producer.state import job_names, load_job
from shared import faults
from shared.errors import PipelineError
from shared.job import Job, canonical_json
from shared.manifest import JobPaths, ShardReceipt, check_shard, read_receipt
from shared.storage import Storage

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reuse:
    """How many shards were taken over, from which jobs, and why other jobs of the same folder could not lend."""

    shards: int
    lenders: tuple[str, ...]
    refusals: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """What a new job lacks: content key -> name of the shard; `taken` gets the names of those taken over."""

    job: Job
    folder: Path
    shards: dict[str, str]
    taken: list[str]


def reuse_shards(job: Job, *, storage: Storage, folder: Path, progress: Callable[[str, int, int], None]) -> Reuse:
    """Take over every shard that another job of the store holds with the same content. Safe to repeat.

    Args:
        job: The new job; its plan is in the store.
        storage: The store of both.
        folder: The data set, to see which pictures were touched since.
        progress: Called with the stage's name, how many shards are taken over, and of how many.
    """
    lenders, refusals = [], []
    wanted: _Wanted | None = None
    for name in job_names(storage) if not job.spec.dry else ():
        if name == job.job:
            continue
        try:
            lender = load_job(storage, name)
            reason = why_not(job, lender)
            if reason is None:
                wanted = wanted or _Wanted(job=job, folder=folder, shards=_contents(job, storage), taken=[])
                before = len(wanted.taken)
                _borrow(wanted, lender, storage, progress)
                lenders += [name] if len(wanted.taken) > before else []
            elif lender.dataset == job.dataset:
                refusals.append(f"{name}: {reason}")
        except PipelineError as error:
            logger.warning("lender_unreadable", extra={"job": name, "reason": str(error)})
    taken = len(wanted.taken) if wanted else 0
    if taken:
        storage.write(JobPaths(job.job).reused, canonical_json({"shards": taken, "from": lenders}).encode())
    return Reuse(shards=taken, lenders=tuple(lenders), refusals=tuple(refusals))


def why_not(job: Job, lender: Job) -> str | None:
    """Why no shard of `lender` can hold what a shard of `job` has to, or None."""
    if lender.made_by != job.made_by:
        return f"made by {lender.made_by or 'an older program'}, this is {job.made_by}"
    ours, theirs = job.spec.model_dump(), lender.spec.model_dump()
    differing = [name for name, value in ours.items() if theirs[name] != value]
    if differing:
        return f"other {', '.join(differing)}"
    if lender.labels != job.labels:
        return f"other classes: {', '.join(sorted(set(job.labels) ^ set(lender.labels)))}"
    return None


def _contents(job: Job, storage: Storage) -> dict[str, str]:
    """Content key -> shard, of the shards of `job` without a receipt."""
    return {key: shard for shard, key, _ in _plan(job, storage) if not storage.exists(JobPaths(job.job).receipt(shard))}


def _plan(job: Job, storage: Storage) -> Iterator[tuple[str, str, list[dict[str, Any]]]]:
    """Name, content key and pairs of each shard, streamed."""
    for shard, line in zip(job.shards, storage.lines(JobPaths(job.job).plan), strict=True):
        pairs = json.loads(line)["pairs"]
        yield shard, hashlib.sha256(canonical_json(pairs).encode()).hexdigest(), pairs


def _borrow(wanted: _Wanted, lender: Job, storage: Storage, progress: Callable[[str, int, int], None]) -> None:
    submitted_at = storage.written_at(JobPaths(lender.job).job)
    for shard, key, pairs in _plan(lender, storage):
        target = wanted.shards.get(key)
        if target is None:
            continue
        receipt = read_receipt(storage, lender.job, shard)
        if receipt is None or not _is_repeatable(receipt) or _is_touched(wanted.folder, pairs, submitted_at):
            continue
        try:
            check_shard(storage, receipt, with_digest=True)
            check_annotations(storage, receipt)
        except PipelineError as error:
            logger.warning("shard_not_lent", extra={"job": lender.job, "shard": shard, "reason": str(error)})
            continue
        _take_over(wanted.job, target, receipt, storage)
        del wanted.shards[key]
        wanted.taken.append(target)
        progress("reusing shards", len(wanted.taken), len(wanted.job.shards))
        faults.reached("submit:after_reuse_of_one")


def _is_repeatable(receipt: ShardReceipt) -> bool:
    """Whether a fresh run would set the same pictures aside: what died in isolation may not die again."""
    return receipt.attempt == 1 or receipt.quarantined == 0


def _is_touched(folder: Path, pairs: list[dict[str, Any]], since: float) -> bool:
    """Whether a picture was written, replaced or moved after `since`: its fingerprint knows only its size and ends."""
    try:
        return any((folder / pair["image"]).stat().st_ctime >= since for pair in pairs)
    except OSError:
        return True


def _take_over(job: Job, shard: str, lent: ShardReceipt, storage: Storage) -> None:
    """Give the lender's files their names in `job`, the receipt last. Others may write the same bytes meanwhile."""
    theirs, ours = JobPaths(lent.job), JobPaths(job.job)
    storage.link(theirs.tfrecord(lent.shard), ours.tfrecord(shard))
    storage.link(theirs.shard_annotations(lent.shard), ours.shard_annotations(shard))
    split, index, count = job.place(shard)
    receipt = lent.model_copy(
        update={
            "job": job.job,
            "shard": shard,
            "split": split,
            "index": index,
            "count": count,
            "task_digest": job.task_digest(shard),
        }
    )
    storage.create(ours.receipt(shard), receipt.to_json().encode())
