"""The loop that brings every job to its end: what storage lacks is queued until it is there, then the job is finished.

Every round compares storage (the truth) with the ledger (what is under way) and sends hints for the difference.
Losing any message, worker, trainer, reconciler or all of Redis costs time, never work. Two of these may run: one leads.
"""

import logging
import math
from contextlib import suppress

from redis.exceptions import RedisError

from producer.reconcile.announce import Announcer
from producer.reconcile.context import COMPLAINT_S, Context
from producer.reconcile.finish_job import finish_job
from producer.reconcile.leadership import Leadership
from producer.reconcile.shard_hints import ShardHints
from producer.reconcile.training_runs import TrainingRuns
from producer.reconcile.unfinished_jobs import UnfinishedJobs, remove_keys_of_wrong_type
from shared.errors import BrokerError, StorageError
from shared.jobs.job import Job
from shared.leasing.redis_client import NO_REDIS
from shared.leasing.scopes import SHARD_QUEUE, Demand

logger = logging.getLogger(__name__)


class Reconciler:
    """Keeps the jobs and runs of one store going; call `tick` every `settings.tick_s` seconds."""

    def __init__(self, context: Context, *, only: str | None = None, only_run: str | None = None) -> None:
        """`only`, `only_run`: the one job and run of a local run, whose Redis is new and cannot have lost a lease."""
        self.context = context
        self._leadership = Leadership(context, is_new_redis=only is not None)
        self._runs = TrainingRuns(context, only_run)
        self._announcer = Announcer(context.storage, context.settings)
        self._jobs = UnfinishedJobs(context, self._runs, self._announcer, only)
        self._hints = ShardHints(context)
        self._complained_s = -math.inf

    def tick(self) -> bool:
        """One round; False while Redis or the store cannot be reached, or another reconciler leads."""
        try:
            return self._round()
        except RedisError as error:
            self._complain(error)
            self._jobs.list_next_round()  # jobs may have changed without our being told
        except BrokerError as error:
            logger.warning("hint_not_sent", extra={"reason": str(error)})
        except StorageError as error:
            # A full disk or an absent mount: the next round tries the same again.
            self.context.complain(logger, error)
            with suppress(RedisError):
                self.context.ledger.note_refusal(str(error))
            return False
        with suppress(RedisError):
            remove_keys_of_wrong_type(self.context)
        return False

    def _complain(self, error: RedisError) -> None:
        if self.context.clock() - self._complained_s > COMPLAINT_S:
            logger.warning("redis_unreachable", extra={"reason": str(error), "hint": NO_REDIS})
            self._complained_s = self.context.clock()

    def _round(self) -> bool:
        if not self._leadership.acquire():
            self._jobs.list_next_round()
            return False
        self._complained_s = -math.inf
        if self._leadership.notice_lost_redis():
            self._jobs.list_next_round()
        if self._leadership.is_settling():
            return True
        with self._leadership.kept():
            self._do_round()
        return True

    def _do_round(self) -> None:
        self._jobs.update()
        under_way = self._hints.check(self._jobs)
        self._finish_jobs()
        self._hints.send(self._jobs, under_way)
        self._runs.tick()
        shards = sum(tracked.left() for tracked in self._jobs.by_name.values())
        self.context.ledger.note_round(Demand(shards=shards, runs=self._runs.left()))

    def _finish_jobs(self) -> None:
        for name, tracked in list(self._jobs.by_name.items()):
            with self._jobs.errors_of(name):
                if tracked.is_settled() and finish_job(self.context, tracked):
                    del self._jobs.by_name[name]
                    self._jobs.next_round.add(name)  # a person may have retried or cancelled it at this very moment

    def is_queue_empty(self) -> bool:
        """Whether workers may be waiting for the next round: jobs are under way, but the queue is empty."""
        try:
            return bool(self._jobs.by_name) and self.context.ledger.queue_length(SHARD_QUEUE) == 0
        except RedisError:
            return False

    def announce(self, job: Job) -> None:
        """Announce the end of `job` now instead of at the next round."""
        self._announcer.see(job)

    def stop(self, *, wait: bool = False) -> list[str]:
        """Let another reconciler lead at once; with `wait`, first finish the announcements and their retries.

        Returns:
            One line for each announcement that failed.
        """
        self._leadership.release()
        self._announcer.stop(wait=wait)
        return self._announcer.failures
