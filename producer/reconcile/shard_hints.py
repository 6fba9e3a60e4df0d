"""Unfinished jobs and the ledger -> hints for workers. Sends lost hints again, gives up shards that fail too often."""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from itertools import islice, repeat
from typing import Final

from producer.jobs.control import note_of
from producer.reconcile.context import Context
from producer.reconcile.dispatch import in_turn, send_shard, window
from producer.reconcile.tracked_job import TrackedJob
from producer.reconcile.unfinished_jobs import UnfinishedJobs
from producer.state.status import times_retried
from shared.jobs.identity import require_job
from shared.jobs.job import Job
from shared.jobs.paths import JobPaths
from shared.leasing.scopes import SHARD_QUEUE, UnderWay, job_scope, message_id

logger = logging.getLogger(__name__)

# Weight of the newest round in the smoothed rate of pictures per second.
RATE_WEIGHT: Final = 0.3


class ShardHints:
    """Keeps the shards of the unfinished jobs queued; remembers only the rate of each job."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._rates: dict[str, tuple[float, int, float]] = {}

    def check(self, jobs: UnfinishedJobs) -> dict[str, UnderWay]:
        """Remove from the ledger what nobody works on any more; return what is under way, by job."""
        waiting_ids = cache(lambda: set(self._context.ledger.queued_ids(SHARD_QUEUE)))
        views = {}
        for name, tracked in list(jobs.by_name.items()):
            with jobs.errors_of(name):
                views[name] = self._check_job(tracked, waiting_ids)
        return views

    def send(self, jobs: UnfinishedJobs, views: Mapping[str, UnderWay]) -> None:
        """Send as many hints as the window allows, taking the jobs in turn.

        Raises:
            BrokerError: Redis did not take one.
        """
        views = {name: view for name, view in views.items() if name in jobs.by_name}
        free = window(self._context.ledger.slots("worker"), sum(len(view.queued) for view in views.values()))
        # The job with the fewest shards under way comes first: if only one message can be sent per round, it must not
        # always be for the same job.
        fewest_first = sorted(views.items(), key=lambda entry: len(entry[1].queued) + len(entry[1].leased))
        pending = [zip(repeat(name), jobs.by_name[name].pending(view)) for name, view in fewest_first]
        for name, shard in islice(in_turn(pending), max(0, free)):
            if name not in jobs.by_name:
                continue
            task = None
            with jobs.errors_of(name):
                task = jobs.by_name[name].task(shard)
            if task is not None:
                send_shard(self._context.broker, self._context.ledger, task)

    def _check_job(self, tracked: TrackedJob, waiting_ids: Callable[[], set[str]]) -> UnderWay:
        job, ledger, scope = tracked.job, self._context.ledger, job_scope(tracked.job)
        view = ledger.under_way(scope, job.has)
        tracked.see_ledger(ledger.done_bits(scope, len(job.shards)))
        view = self._drop_lost_hints(tracked, view, waiting_ids)
        for shard in view.expired:
            ledger.forget_leased(scope, shard)
            holder = {name: view.leased[shard].get(name) for name in ("worker", "pid")}
            logger.warning("lease_expired", extra={"job": job.job, "shard": shard, **holder})
        self._give_up(tracked, view)
        self._note_rate(job, view)
        return view

    def _drop_lost_hints(self, tracked: TrackedJob, view: UnderWay, waiting_ids: Callable[[], set[str]]) -> UnderWay:
        """Forget hints that were sent long ago, were never claimed, and are no longer in the queue."""
        job = tracked.job
        overdue = [shard for shard, sent_at in view.queued.items() if self._context.is_overdue(sent_at)]
        lost = {shard for shard in overdue if message_id(job_scope(job), shard) not in waiting_ids()}
        for shard in lost:
            self._context.ledger.forget_queued(job_scope(job), shard)
            if not tracked.is_done(shard):
                logger.warning("hint_lost", extra={"job": job.job, "shard": shard})
        return replace(view, queued={shard: at for shard, at in view.queued.items() if shard not in lost})

    def _give_up(self, tracked: TrackedJob, view: UnderWay) -> None:
        """Fail the shards that nobody holds and that were tried too often."""
        job, storage = tracked.job, self._context.storage
        for shard, attempts in view.attempts.items():
            is_held = shard in view.leased and shard not in view.expired
            if attempts < self._context.settings.attempts or is_held or tracked.has_ended(shard):
                continue
            if times_retried(storage, job) > self._context.ledger.read_state(job_scope(job)).retried:
                return  # these attempts were before a person's `retry` and are about to be reset
            reason = view.errors.get(shard, "every process that worked on it died or hung")
            require_job(storage, job.job, job.incarnation)
            facts: dict[str, float | str] = {"shard": shard, "attempts": attempts, "reason": reason}
            storage.write(JobPaths(job.job).failure(shard), note_of(job, at=round(time.time(), 3), **facts))
            self._context.ledger.forget_queued(job_scope(job), shard)
            tracked.give_up(shard)
            logger.error("shard_given_up", extra={"job": job.job, **facts})

    def _note_rate(self, job: Job, view: UnderWay) -> None:
        """Keep a smoothed rate of pictures a second in the ledger, for `status` and `watch`."""
        ledger, scope = self._context.ledger, job_scope(job)
        state = ledger.read_state(scope)
        done = state.written + state.quarantined
        done += sum(int(holder.get("images", 0)) for shard, holder in view.leased.items() if shard not in view.expired)
        now = self._context.clock()
        then, before, rate = self._rates.get(scope, (now, done, 0.0))
        if now - then >= self._context.settings.tick_s:
            newest = max(0, done - before) / (now - then)
            rate = newest if rate == 0 else RATE_WEIGHT * newest + (1 - RATE_WEIGHT) * rate
            ledger.write_state(scope, images_per_s=round(rate, 1))
            then, before = now, done
        self._rates[scope] = (then, before, rate)
