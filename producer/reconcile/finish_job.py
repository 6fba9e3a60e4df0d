"""A job whose shards are all done or failed -> its manifest and the files around it, or its failure."""

import logging

from producer.finalize.dataset_files import dataset_files
from producer.jobs.verify import queue_again, what_is_broken
from producer.reconcile.context import Context
from producer.reconcile.tracked_job import TrackedJob
from producer.state.stored import is_hopeless, stored_state
from shared import faults
from shared.jobs.identity import read_receipt, require_job
from shared.jobs.paths import JobPaths
from shared.jobs.receipts import ShardReceipt
from shared.leasing.scopes import job_scope

logger = logging.getLogger(__name__)


def finish_job(context: Context, tracked: TrackedJob) -> bool:
    """Write the manifest of `tracked`, or mark the job as failed if too many shards have failed.

    Returns:
        Whether the job was finished or failed; False if some shards have to be done again.

    Raises:
        Cancelled: The job was removed.
        StorageError: The store refused.
    """
    job, storage, failed_share = tracked.job, context.storage, context.settings.failed_share
    receipts = _checked_receipts(context, tracked)
    # Since the listing, a `retry` may have removed a failure, and a late worker may have done what had failed.
    stored = stored_state(storage, job, failed_share)
    tracked.see_storage(stored.done, stored.failed)
    if not tracked.is_settled() or {receipt.shard for receipt in receipts} != stored.done.keys():
        return False
    faults.reached("job:before_manifest")
    require_job(storage, job.job, job.incarnation)
    storage.remove_temporaries(JobPaths(job.job).shards)
    if is_hopeless(job, len(tracked.failed), failed_share):
        context.ledger.write_state(job_scope(job), state="FAILED")
        logger.error("job_failed", extra={"job": job.job, "shards_failed": len(tracked.failed)})
        return True
    dataset_files(job, receipts, storage)
    faults.reached("job:after_manifest")
    context.ledger.write_state(job_scope(job), state="DONE" if job.run is None else "FINALIZED")
    logger.info("job_finalized", extra={"job": job.job, "shards": len(receipts)})
    return True


def _checked_receipts(context: Context, tracked: TrackedJob) -> list[ShardReceipt]:
    """The receipts of all done shards, each compared with its file; one that differs is removed."""
    job, receipts = tracked.job, []
    for shard in list(tracked.done()):
        receipt = read_receipt(context.storage, job, shard)
        # The digest can be skipped for a first attempt, whose bytes no other attempt can have replaced.
        with_digest = receipt is not None and receipt.attempt > 1
        reason = what_is_broken(context.storage, job, shard, with_digest=with_digest)
        if receipt is not None and reason is None:
            receipts.append(receipt)
            continue
        logger.error("shard_done_again", extra={"job": job.job, "shard": shard, "reason": reason})
        queue_again(context.storage, context.ledger, job, [shard])
        tracked.take_back(shard)
    return receipts
