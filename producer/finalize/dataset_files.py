"""A job's receipts -> its manifest and the files around it: labels, COCO annotations, split lists, lint report.

Called by the reconciler when every shard is done or failed. The manifest is written last: it is the commit point.
What grows with the number of pictures is streamed, one shard at a time.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

from producer.finalize.lint_csv import lint_rows, merged_findings
from producer.finalize.near_duplicates import hashed_pictures, near_duplicates
from producer.finalize.tfds_info import dataset_info, features
from shared.errors import ShardError
from shared.jobs.findings import Finding
from shared.jobs.job import SPLITS, Job, Split
from shared.jobs.labels import LabelMap
from shared.jobs.manifest import Manifest, ManifestShard
from shared.jobs.paths import JobPaths
from shared.jobs.receipts import ShardReceipt
from shared.jobs.versioned import read_stored
from shared.scenes import scene_of
from shared.specs.frozen import canonical_json
from shared.storage import Storage
from shared.text import printable


def dataset_files(job: Job, receipts: Iterable[ShardReceipt], storage: Storage) -> Manifest:
    """Write everything that describes the finished data set, the manifest last, and return the manifest.

    Shards without a receipt in `receipts` are listed as failed.

    Raises:
        ShardError: A shard's annotations are missing or cannot be read.
        StorageError: The store refused.
    """
    done = sorted(receipts, key=lambda receipt: job.ordinal(receipt.shard))
    manifest = make_manifest(job, done)
    paths, labels = JobPaths(job.job), LabelMap(job.labels)
    storage.write_lines(paths.lint, lint_rows(_all_findings(job, done, storage)))
    if not job.spec.dry:
        storage.write(paths.label_map, labels.to_pbtxt().encode())
        storage.write(paths.labels, labels.to_labels_txt().encode())
        for split in SPLITS:
            if split in job.splits:
                storage.write_lines(paths.annotations(split), _coco_lines(job, split, done, storage))
                storage.write_lines(paths.split_list(split), _listed(job, split, storage))
        storage.write(paths.features, canonical_json(features()).encode())
        storage.write(paths.dataset_info, canonical_json(dataset_info(job, manifest)).encode())
    storage.write(paths.manifest, manifest.to_json().encode())
    return manifest


def files_that_differ(job: Job, storage: Storage) -> list[str]:
    """Keys of the finished data set's files that are absent, or list other classes than the job's."""
    if job.spec.dry:
        return []
    paths, labels = JobPaths(job.job), LabelMap(job.labels)
    texts = {paths.labels: labels.to_labels_txt(), paths.label_map: labels.to_pbtxt()}
    others = [paths.lint, paths.features, paths.dataset_info]
    others += [key for split in job.splits for key in (paths.annotations(split), paths.split_list(split))]
    differing = [key for key, text in texts.items() if storage.read_or_none(key) != text.encode()]
    return differing + [key for key in others if not storage.exists(key)]


def check_annotations(storage: Storage, receipt: ShardReceipt) -> None:
    """Compare a shard's annotations with its receipt; a dry shard has none.

    Raises:
        ShardError: They are absent or differ.
    """
    if receipt.annotations_sha256 is None:
        return
    key = JobPaths(receipt.job).shard_annotations(receipt.shard)
    content = storage.read_or_none(key)
    if content is None or hashlib.sha256(content).hexdigest() != receipt.annotations_sha256:
        found = "no file" if content is None else "other content"
        raise ShardError(f"{storage.url(key)}: expected the annotations of the receipt, found {found}")


def make_manifest(job: Job, receipts: Sequence[ShardReceipt]) -> Manifest:
    """What the trainer reads, with sums over all receipts, which come in the order of the plan. Pure."""
    counters: Counter[str] = Counter()
    classes: dict[Split, Counter[str]] = {split: Counter() for split in job.splits}
    shards: dict[Split, list[ManifestShard]] = {split: [] for split in job.splits}
    for receipt in receipts:
        counters.update(receipt.counters)
        counters.update({name: getattr(receipt, name) for name in _SUMMED})
        classes[receipt.split].update(receipt.class_counts)
        if receipt.size_bytes is not None and receipt.sha256 is not None:
            shard = ManifestShard(
                file=f"{receipt.shard}.tfrecord",
                size_bytes=receipt.size_bytes,
                sha256=receipt.sha256,
                examples=receipt.written,
                objects=receipt.objects_written,
            )
            shards[receipt.split].append(shard)
    done = {receipt.shard for receipt in receipts}
    return Manifest(
        job=job.job,
        incarnation=job.incarnation,
        request_digest=job.request_digest,
        labels=job.labels,
        image_size=job.spec.image_size,
        resize=job.spec.resize,
        splits={split: tuple(files) for split, files in shards.items()},
        failed=tuple(shard for shard in job.shards if shard not in done),
        counters=dict(sorted(counters.items())),
        class_counts={split: {name: counts[name] for name in job.labels} for split, counts in classes.items()},
    )


# The counters of a receipt that are fields of their own.
_SUMMED = ("written", "quarantined", "background", "objects_read", "objects_written")


def _all_findings(job: Job, receipts: Sequence[ShardReceipt], storage: Storage) -> Iterator[Finding]:
    """Findings of the submit, then those that only the workers could make."""
    key = JobPaths(job.job).submit_findings(job.incarnation)
    lines = storage.lines(key) if storage.exists(key) else iter(())
    near = near_duplicates(hashed_pictures(job, receipts, storage))
    return merged_findings(
        (read_stored(Finding, line, storage.url(key)) for line in lines),
        chain((finding for receipt in receipts for finding in receipt.findings), near),
    )


def _coco_lines(job: Job, split: Split, receipts: Sequence[ShardReceipt], storage: Storage) -> Iterator[str]:
    """The split in COCO form: the pictures of all shards, then the boxes of all shards, one line per shard.

    Source: COCO data format, "Object Detection", https://cocodataset.org/#format-data.
    """
    mine = [receipt.shard for receipt in receipts if receipt.split == split]
    info = {"description": f"voc2tflite job {job.job}, split {split}", "version": "1.0"}
    yield f'{{"info":{canonical_json(info)},"licenses":[],"images":['
    yield from _joined(_images(job, shard, storage) for shard in mine)
    yield '],"annotations":['
    yield from _joined(_shard_annotations(job, shard, storage)["annotations"] for shard in mine)
    ids = LabelMap(job.labels).ids.items()
    categories = [{"id": class_id, "name": name, "supercategory": ""} for name, class_id in ids]
    yield f'],"categories":{canonical_json(categories)}}}'


def _images(job: Job, shard: str, storage: Storage) -> list[dict[str, Any]]:
    """A shard's pictures in COCO form, with a `scene` where their names tell it: intervals are drawn by scenes."""
    images = _shard_annotations(job, shard, storage)["images"]
    scenes = [scene_of(image["file_name"], job.spec.group_by) for image in images]
    return [image | ({"scene": scene} if scene else {}) for image, scene in zip(images, scenes, strict=True)]


def _joined(lists: Iterable[list[Any]]) -> Iterator[str]:
    """The elements of many lists as those of one JSON array, with the commas between them."""
    comma = ""
    for values in filter(None, lists):
        yield comma + canonical_json(values)[1:-1]
        comma = ","


def _shard_annotations(job: Job, shard: str, storage: Storage) -> dict[str, list[Any]]:
    key = JobPaths(job.job).shard_annotations(shard)
    content = storage.read_or_none(key)
    if content is None:
        raise ShardError(f"{storage.url(key)}: expected the shard's annotations, found no file")
    try:
        annotations: dict[str, list[Any]] = json.loads(content)
    except ValueError as error:
        raise ShardError(f"{storage.url(key)}: expected JSON: {error}") from error
    return annotations


def _listed(job: Job, split: Split, storage: Storage) -> Iterator[str]:
    """The paths of a split's pictures, in the order of the plan."""
    for line in storage.lines(JobPaths(job.job).plan(job.incarnation)):
        # Every worker has checked the digest of its line: no need to validate the plan again.
        task = json.loads(line)
        if task["split"] == split:
            # Names with line breaks are refused now, but a plan of an older version may have some.
            yield from (printable(pair["image"]) for pair in task["pairs"])
