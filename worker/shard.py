"""`write_shard`: one task → one shard and its receipt. The whole of a worker's work, free of Celery.

Each pair of the task ends in exactly one counter of the receipt: written, or quarantined with a finding.
"""

import hashlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from shared.faults import reached
from shared.guard import Guard
from shared.job import Job, PathPair, ShardTask, canonical_json
from shared.manifest import JobPaths, ShardReceipt
from shared.storage import Storage
from worker.prepare import PreparedExample, Quarantine, count_kinds, prepare_example, recipe_of
from worker.tfrecord import tfrecord

Outcome = PreparedExample | Quarantine
Prepare = Callable[[PathPair], Outcome]

# Ids of annotations in the sidecar: unique in the job, because source ids are.
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
    data_root: Path,
    guard: Guard,
    attempt: int,
    prepare: Prepare | None = None,
) -> ShardReceipt:
    """Write one shard, its annotations and, last, its receipt. The same input gives the same bytes.

    Args:
        task: The pairs.
        job: The job that the task is of; the caller has held the task against it.
        storage: Where the job lies.
        data_root: Folder that holds the data set; nothing outside it is read.
        guard: Asked after each picture and before the files get their names.
        attempt: Number of this attempt, from 1; it is in the receipt.
        prepare: Makes the outcome of a pair; another process may do it. In this process by default.

    Returns:
        The receipt, as written.

    Raises:
        StorageError: The store or the data set's folder is absent, full or refuses.
        StopRequested, Cancelled, LeaseLost: From the guard; nothing is left behind then.
    """
    recipe = recipe_of(job, data_root)
    prepare = prepare or partial(prepare_example, recipe=recipe)
    outcomes: list[Outcome] = []
    for done, pair in enumerate(task.pairs, start=1):
        outcomes.append(prepare(pair))
        guard.advance(images=done)
    files = None if job.spec.dry else _make_files(outcomes)
    receipt = _make_receipt(task, outcomes, files, attempt)
    if files is None:
        guard.before_publish()
    else:
        _publish(task, files, storage, guard)
    storage.write(JobPaths(task.job).receipt(task.shard), receipt.to_json().encode())
    reached("shard:after_receipt")
    return receipt


def _make_files(outcomes: list[Outcome]) -> _Files:
    prepared = [outcome for outcome in outcomes if isinstance(outcome, PreparedExample)]
    images = [
        {
            "id": example.pair.source_id,
            "file_name": example.pair.image,
            "width": example.size,
            "height": example.size,
        }
        for example in prepared
    ]
    annotations = [annotation for example in prepared for annotation in _coco_annotations(example)]
    return _Files(
        tfrecord=tfrecord(example.record for example in prepared),
        annotations=canonical_json({"images": images, "annotations": annotations}).encode(),
    )


def _coco_annotations(example: PreparedExample) -> list[dict[str, object]]:
    """COCO form: `bbox` is [x, y, width, height] in pixels of the stored picture."""
    annotations = []
    for number, stored in enumerate(example.objects):
        xmin, ymin, xmax, ymax = stored.box
        annotations.append(
            {
                "id": example.pair.source_id * _ANNOTATIONS_PER_IMAGE + number,
                "image_id": example.pair.source_id,
                "category_id": stored.class_id,
                "bbox": [round(value, 4) for value in (xmin, ymin, xmax - xmin, ymax - ymin)],
                "area": round(stored.area, 4),
                "iscrowd": int(stored.is_crowd),
                "ignore": int(stored.difficult),
            }
        )
    return annotations


def _publish(task: ShardTask, files: _Files, storage: Storage, guard: Guard) -> None:
    """Give both files their names, while the work is still ours."""
    paths = JobPaths(task.job)
    targets = {
        paths.tfrecord(task.shard): files.tfrecord,
        paths.shard_annotations(task.shard): files.annotations,
    }
    if storage.is_local:
        staged: dict[str, Path] = {}
        try:
            for key, content in targets.items():
                staged[key] = storage.stage(key, content)
            guard.before_publish()
            reached("shard:before_rename")
            for key, temporary in staged.items():
                storage.publish(temporary, key)
        finally:
            for temporary in staged.values():
                temporary.unlink(missing_ok=True)
    else:
        guard.before_publish()
        reached("shard:before_rename")
        for key, content in targets.items():
            storage.write(key, content)
    reached("shard:after_rename")


def _make_receipt(task: ShardTask, outcomes: list[Outcome], files: _Files | None, attempt: int) -> ShardReceipt:
    prepared = [outcome for outcome in outcomes if isinstance(outcome, PreparedExample)]
    findings = [
        finding
        for outcome in outcomes
        for finding in (outcome.findings if isinstance(outcome, PreparedExample) else (outcome.finding,))
    ]
    classes = Counter(stored.name for example in prepared for stored in example.objects)
    return ShardReceipt(
        job=task.job,
        shard=task.shard,
        split=task.split,
        index=task.index,
        count=task.count,
        task_digest=task.digest(),
        attempt=attempt,
        size_bytes=None if files is None else len(files.tfrecord),
        sha256=None if files is None else hashlib.sha256(files.tfrecord).hexdigest(),
        annotations_sha256=None if files is None else hashlib.sha256(files.annotations).hexdigest(),
        written=len(prepared),
        quarantined=len(outcomes) - len(prepared),
        background=sum(not example.objects for example in prepared),
        objects_read=sum(example.objects_read for example in prepared),
        objects_written=sum(len(example.objects) for example in prepared),
        class_counts=dict(sorted(classes.items())),
        counters=count_kinds(findings),
        findings=tuple(findings),
    )
