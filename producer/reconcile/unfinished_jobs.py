"""Storage -> the jobs whose shards are not finished; each is looked at when it changes, and all from time to time."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from redis.exceptions import ResponseError

from producer.jobs.control import scopes_of, verify
from producer.progress import no_progress
from producer.reconcile.announce import Announcer
from producer.reconcile.context import Context
from producer.reconcile.settled_jobs import SettledJobs, StoredRequests
from producer.reconcile.tracked_job import TrackedJob
from producer.reconcile.training_runs import TrainingRuns
from producer.state.local_lock import has_local_run
from producer.state.runs import requests_by_job, runs_of
from producer.state.status import claims_of, times_retried
from producer.state.stored import TERMINAL, StoredState, run_state, stored_state
from shared.errors import FormatError, PipelineError, ShardError, StorageError
from shared.jobs.identity import find_job, is_name, read_note
from shared.jobs.job import Job
from shared.jobs.paths import RunPaths
from shared.leasing.redis_client import is_wrong_type, remove_wrong_types
from shared.leasing.scopes import job_scope, run_scope
from shared.specs.run import RunSpec
from shared.storage import Stamp

logger = logging.getLogger(__name__)


class UnfinishedJobs:
    """The tracked jobs by name, brought up to date by `update`, which always looks at those in `next_round`."""

    def __init__(self, context: Context, runs: TrainingRuns, announcer: Announcer, only: str | None) -> None:
        """`only`: the one job to look at; None: all."""
        self._announcer = announcer
        self.by_name: dict[str, TrackedJob] = {}
        self._context, self._runs, self._only = context, runs, only
        self._listed_at = float("-inf")
        self.next_round: set[str] = set()
        self._verified_failures: set[Stamp | None] = set()
        self._settled, self._requests = SettledJobs(context.storage), StoredRequests(context.storage)
        self._are_requests_read = False

    def list_next_round(self) -> None:
        """Have the next `update` list the whole store and look at all jobs: changes may have been missed."""
        self._listed_at = float("-inf")
        self._settled.forget()

    def update(self) -> None:
        """Look at the jobs that Redis names; every `listing_s`, also at all jobs that are not over or that changed."""
        names, self.next_round = self._context.ledger.touched() | self.next_round, set()
        self._are_requests_read = False
        if self._context.clock() - self._listed_at > self._context.settings.listing_s:
            names |= self._list_store()
            self._listed_at = self._context.clock()
        for name in sorted(filter(is_name, names)):
            with self.errors_of(name):
                self._look_at(name)

    def _runs_of(self, job: Job) -> list[RunSpec]:
        """The runs of `job`; the store's requests are read at most once a round, and only if a job is looked at."""
        if not self._are_requests_read:
            self._read_requests()
        return runs_of(self._context.storage, job, self._requests.by_job())

    def _read_requests(self) -> None:
        self._requests.update()
        self._are_requests_read = True

    def _list_store(self) -> set[str]:
        """The names of all jobs that may need a look; abandoned half-written files are removed."""
        remove_keys_of_wrong_type(self._context)  # workers may have met one that we never read
        if self._only is not None:
            return {self._only}
        for folder in ("jobs", "runs"):
            self._context.storage.remove_temporaries(folder)
        self._read_requests()
        changed = self._requests.take_changed_jobs()
        return self._settled.list_due() | changed | self._announcer.unheard() | self.by_name.keys()

    @contextmanager
    def errors_of(self, name: str) -> Iterator[None]:
        """Catch errors about one job's files or keys, so that the other jobs go on."""
        try:
            yield
        except StorageError as error:
            self._context.complain(logger, error, job=name)
            self.by_name.pop(name, None)
            self.next_round.add(name)  # the store may answer by then
        except PipelineError as error:
            # Files that this version cannot read: left alone until the next listing.
            logger.error("job_unreadable", extra={"job": name, "reason": str(error)})
            self.by_name.pop(name, None)
        except ResponseError as error:
            if not is_wrong_type(error):
                raise
            job = find_job(self._context.storage, name)
            for scope in scopes_of(self._context.storage, job) if job is not None else ():
                self._context.ledger.forget_scope(scope)
            logger.error("keys_of_wrong_type_removed", extra={"job": name, "reason": str(error)})
            self.next_round.add(name)

    def _look_at(self, name: str) -> None:
        storage, ledger = self._context.storage, self._context.ledger
        job = find_job(storage, name)
        tracked = self.by_name.get(name)
        if tracked is not None and tracked.job != job:
            del self.by_name[name]  # its job was removed
            self._runs.stop_tracking(tracked.job)
        if job is None:
            self._settled.note_look(name, is_over=False)
            return
        if self._only is None and has_local_run(storage, name):
            self.by_name.pop(name, None)  # a local run works on it; its leases are in its own Redis
            return
        stored = self._with_damage_queued(job, stored_state(storage, job, self._context.settings.failed_share))
        ledger.write_state(job_scope(job), state=stored.state, cancelled=int(stored.state == "CANCELLED"))
        self._reset_attempts(job)
        self._announcer.see(job)
        if stored.state in ("SUBMITTED", "RUNNING"):
            self._runs.stop_tracking(job)
            self._settled.note_look(name, is_over=False)
            self._track(job, stored)
            return
        self.by_name.pop(name, None)
        runs = self._runs_of(job) if stored.is_finalized else []
        self._runs.start(job, runs)
        self._settled.note_look(name, is_over=all(run_state(storage, asked) in TERMINAL for asked in runs))

    def _track(self, job: Job, stored: StoredState) -> None:
        """Keep the shards of `job` going; fill the ledger from the receipts if it knows of fewer done shards."""
        ledger, scope = self._context.ledger, job_scope(job)
        tracked = self.by_name.get(job.job) or TrackedJob(self._context.storage, job)
        self.by_name[job.job] = tracked
        ordinals = tracked.see_storage(stored.done, stored.failed)
        if ledger.done_count(scope) >= len(ordinals):
            return
        ledger.mark_done(scope, ordinals)
        ledger.write_state(
            scope,
            written=sum(shard.written for shard in stored.done.values()),
            quarantined=sum(shard.quarantined for shard in stored.done.values()),
            attempts=claims_of(self._context.storage, job, stored.done, ledger.read_state(scope).attempts),
        )
        logger.info("ledger_rebuilt", extra={"job": job.job, "shards_done": len(stored.done)})

    def _with_damage_queued(self, job: Job, stored: StoredState) -> StoredState:
        """If a trainer found a shard that differs from the manifest, have it written again; return the new state."""
        storage = self._context.storage
        for asked in self._runs_of(job) if stored.is_finalized else ():
            key = RunPaths(asked.run).failed
            failure, stamp = read_note(storage, key, job.incarnation), storage.stamp_or_none(key)
            if failure is None or failure.get("kind") != ShardError.__name__ or stamp in self._verified_failures:
                continue
            self._verified_failures.add(stamp)
            found = verify(storage, self._context.ledger, job, stored, no_progress, self._runs_of(job))
            if found:
                storage.remove(key)
                logger.error("shards_done_again", extra={"job": job.job, "reason": found[0]})
                return stored_state(storage, job, self._context.settings.failed_share)
        return stored

    def _reset_attempts(self, job: Job) -> None:
        """Forget the attempts made before a person's `retry`, which may have come while Redis was away."""
        times = times_retried(self._context.storage, job)
        for scope in [job_scope(job), *map(run_scope, self._runs_of(job))]:
            if self._context.ledger.read_state(scope).retried < times:
                self._context.ledger.start_counting_anew(scope, times)


def has_unfinished_jobs(context: Context) -> bool:
    """Whether storage has a job that a worker or trainer may be working on."""
    storage, requests = context.storage, requests_by_job(context.storage)
    for name in storage.list_names("jobs"):
        try:
            job = find_job(storage, name)
            if job is None:
                continue
            stored = stored_state(storage, job, context.settings.failed_share)
            runs = runs_of(storage, job, requests) if stored.is_finalized else []
        except (FormatError, StorageError):
            return True  # perhaps written by another version, whose workers may be at work on it
        if stored.state not in TERMINAL or any(run_state(storage, asked) == "TRAINING" for asked in runs):
            return True
    return False


def remove_keys_of_wrong_type(context: Context) -> None:
    """Remove the common keys and queues of Redis that have a wrong type; they are filled in again."""
    for key in remove_wrong_types(context.ledger.client):
        logger.error("key_of_wrong_type_removed", extra={"key": key})
