"""`lint --pixels`: a linted folder -> its findings, with those of workers that open every picture in a dry job."""

import tempfile
import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from producer.dataset.findings import Findings
from producer.dataset.lint import LintedFolder
from producer.finalize.lint_csv import merged_findings
from producer.finalize.near_duplicates import hashed_pictures, near_duplicates
from producer.jobs.submit import Request, submit
from producer.progress import no_progress
from producer.run.intent import StartOptions
from producer.run.start_job import run_or_hand_over
from shared.jobs.findings import Finding
from shared.jobs.identity import read_receipt
from shared.jobs.job import SPLITS
from shared.jobs.paths import JobPaths
from shared.jobs.receipts import ShardReceipt
from shared.storage import Storage


def lint_pixels(linted: LintedFolder, options: StartOptions) -> tuple[LintedFolder, list[Finding]]:
    """Let workers open every picture that lint found, with a dry job that leaves nothing behind.

    The spec of `linted` is dry; if the workers run here, the job gets a temporary store.

    Returns:
        `linted` with the counts of background pictures and of each class's objects as the workers found them, and all
        findings, including those of names and XML, each once, sorted by file.

    Raises:
        PlanError: The folder is not below the data root of the workers.
    """
    name = f"lint-{uuid.uuid4().hex[:12]}"
    request = Request(dataset=linted.folder, name=name, spec=linted.spec, run=None)
    data_root = options.data_root(linted.folder)
    with tempfile.TemporaryDirectory(prefix="voc-lint-") as folder:
        store = folder if options.local else options.settings.store
        settings, storage = options.settings.model_copy(update={"store": store}), Storage(store)
        try:
            job = submit(request, linted, storage=storage, data_root=data_root, progress=no_progress).job
            status = run_or_hand_over([job], data_root, replace(options, settings=settings, wait=True), storage)
            receipts = [receipt for shard in job.shards if (receipt := read_receipt(storage, job, shard))]
            received = [finding for receipt in receipts for finding in receipt.findings]
            received += near_duplicates(hashed_pictures(job, receipts, storage))
        finally:
            storage.remove_tree(JobPaths(name).root)
    failures = [
        Finding(file=shard, rank="quarantined", kind="shard_failed", found=reason, done="not looked at")
        for shard, reason in status.failures.items()
    ]
    merged = Findings([*merged_findings(linted.findings, received), *failures])
    merged.sort()
    return linted if failures else _counted_by_workers(linted, receipts), list(merged)


def _counted_by_workers(linted: LintedFolder, receipts: Sequence[ShardReceipt]) -> LintedFolder:
    """`linted` with the counts of photos, background and boxes that the workers kept; photos set aside do not count."""
    objects, photos = Counter[str](), Counter[str](dict.fromkeys(SPLITS, 0))
    for receipt in receipts:
        objects.update(receipt.class_counts)
        photos[receipt.split] += receipt.written
    found = {"background": sum(receipt.background for receipt in receipts), "emptied": 0, **photos}
    classes = {name: objects[name] for name in linted.class_counts}
    by_class = {f"class:{name}": count for name, count in classes.items()}
    return replace(linted, counts={**linted.counts, **found, **by_class}, class_counts=classes)
