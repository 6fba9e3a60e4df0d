"""`write_shard`: one task -> one shard and its receipt. All of a worker's work, independent of Celery.

The receipt counts each pair of the task once: written, or quarantined with a finding.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial

from shared.errors import StorageError
from shared.faults import reached
from shared.jobs.job import Job, PathPair, ShardTask
from shared.jobs.paths import JobPaths
from shared.jobs.receipts import ShardReceipt
from shared.jobs.schema import SHARD_FORMAT
from shared.leasing.guard import Guard
from shared.specs.frozen import canonical_json
from shared.storage import DataFolder, Storage
from worker.record.example import StoredObject
from worker.record.fetched_files import files_of
from worker.record.prepare import Outcome, PreparedExample, Quarantine, prepare_example, recipe_by
from worker.record.tfrecord import tfrecord

Prepare = Callable[[PathPair], Outcome]

# Makes annotation ids unique in the job, because source ids are.
_ANNOTATIONS_PER_IMAGE = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Files:
    """The bytes of a shard's two files."""

    tfrecord: bytes
    annotations: bytes


def write_shard(
    task: ShardTask,
    job: Job,
    *,
    storage: Storage,
    data_root: DataFolder,
    guard: Guard,
    attempt: int,
    prepare: Prepare | None = None,
) -> ShardReceipt:
    """Write one shard, its annotations and, last, its receipt, which is returned. The same input gives the same bytes.

    Args:
        task: The pairs.
        job: The task's job; the caller has checked the task against its plan.
        storage: Where the job lies.
        data_root: The folder, perhaps in a bucket, that holds the data set; nothing outside it is read.
        guard: Asked after each picture and before the files get their names.
        attempt: The number of this attempt, from 1; it is in the receipt.
        prepare: Makes the outcome of a pair, perhaps in another process; by default it is made in this one.

    Raises:
        StorageError: The store or the data set's folder is absent, full or refuses; or no pair is as it was submitted.
        StopRequested, Cancelled, LeaseLost: Raised by the guard; nothing is left behind then.
    """
    outcomes: list[Outcome] = []
    with nullcontext(prepare) if prepare else _prepared_here(task, job, data_root, guard) as prepare_one:
        for done, pair in enumerate(task.pairs, start=1):
            outcomes.append(prepare_one(pair))
            guard.advance(images=done)
    _check_it_is_the_set(outcomes, data_root / job.folder)
    files = None if job.spec.dry else _make_files(outcomes)
    receipt = _make_receipt(task, outcomes, files, attempt)
    _publish(task, files, storage, guard)
    with storage.staged({JobPaths(task.job).receipt(task.shard): receipt.to_json().encode()}) as publish:
        guard.before_publish()  # this process may have been frozen, and the lease lost or the job removed meanwhile
        publish(guard.before_publish)
    reached("shard:after_receipt")
    return receipt


@contextmanager
def _prepared_here(task: ShardTask, job: Job, data_root: DataFolder, guard: Guard) -> Iterator[Prepare]:
    """Prepare pairs in this process."""
    with files_of(task, job, data_root, guard) as read:
        yield partial(prepare_example, recipe=recipe_by(job, read))


def _check_it_is_the_set(outcomes: list[Outcome], folder: DataFolder) -> None:
    """Blame the data root, not the pairs, if it leads to another data set or to none.

    Raises:
        StorageError: There are several pairs, and none is in `folder` as it was submitted.
    """
    changed = [one.finding for one in outcomes if isinstance(one, Quarantine) and one.finding.kind == "pair_changed"]
    if len(outcomes) > 1 and len(changed) == len(outcomes):
        raise StorageError(
            f"{folder}: none of the {len(outcomes)} pairs of this shard is there as it was submitted, such as "
            f"{changed[0].file}: {changed[0].found}; set VOC_DATA_ROOT as the submit had it, or submit the set again"
        )


def _make_files(outcomes: list[Outcome]) -> _Files:
    prepared = [outcome for outcome in outcomes if isinstance(outcome, PreparedExample)]
    images = [
        {"id": one.pair.source_id, "file_name": one.pair.image, "width": one.size, "height": one.size}
        for one in prepared
    ]
    objects = ((one.pair.source_id, number, stored) for one in prepared for number, stored in enumerate(one.objects))
    annotations = [_coco_annotation(*numbered) for numbered in objects]
    return _Files(
        tfrecord=tfrecord(example.record for example in prepared),
        annotations=canonical_json({"images": images, "annotations": annotations}).encode(),
    )


def _coco_annotation(source_id: int, number: int, stored: StoredObject) -> dict[str, object]:
    """An object in COCO form; `bbox` is [x, y, width, height] in pixels of the stored picture."""
    xmin, ymin, xmax, ymax = stored.box
    return {
        "id": source_id * _ANNOTATIONS_PER_IMAGE + number,
        "image_id": source_id,
        "category_id": stored.class_id,
        "bbox": [round(value, 4) for value in (xmin, ymin, xmax - xmin, ymax - ymin)],
        "area": round(stored.area, 4),
        "iscrowd": int(stored.is_crowd),
        "ignore": int(stored.difficult),
    }


def _publish(task: ShardTask, files: _Files | None, storage: Storage, guard: Guard) -> None:
    """Give both files their names if the work is still ours; a dry job has no files."""
    if files is None:
        return
    paths = JobPaths(task.job)
    targets = {paths.tfrecord(task.shard): files.tfrecord, paths.shard_annotations(task.shard): files.annotations}
    with storage.staged(targets) as publish:
        guard.before_publish()
        reached("shard:before_rename")
        publish(guard.before_publish)
    reached("shard:after_rename")


def _make_receipt(task: ShardTask, outcomes: list[Outcome], files: _Files | None, attempt: int) -> ShardReceipt:
    prepared = [outcome for outcome in outcomes if isinstance(outcome, PreparedExample)]
    findings = [
        finding
        for outcome in outcomes
        for finding in (outcome.findings if isinstance(outcome, PreparedExample) else (outcome.finding,))
    ]
    return ShardReceipt(
        job=task.job,
        incarnation=task.incarnation,
        shard=task.shard,
        split=task.split,
        index=task.index,
        count=task.count,
        task_digest=task.digest(),
        shard_format=SHARD_FORMAT,
        attempt=attempt,
        size_bytes=None if files is None else len(files.tfrecord),
        sha256=None if files is None else hashlib.sha256(files.tfrecord).hexdigest(),
        annotations_sha256=None if files is None else hashlib.sha256(files.annotations).hexdigest(),
        written=len(prepared),
        quarantined=len(outcomes) - len(prepared),
        background=sum(not example.objects for example in prepared),
        objects_read=sum(example.objects_read for example in prepared),
        objects_written=sum(len(example.objects) for example in prepared),
        class_counts=_counts(stored.name for example in prepared for stored in example.objects),
        counters=_counts(finding.kind for finding in findings),
        findings=tuple(findings),
        hashes=tuple(outcome.hash if isinstance(outcome, PreparedExample) else "" for outcome in outcomes),
    )


def _counts(names: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(names).items()))
