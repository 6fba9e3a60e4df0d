"""Keeps a hint for the trainers queued for each run that was asked for, until its `run.json` or a failure is there."""

import logging
import time
from collections.abc import Iterable

from redis.exceptions import ResponseError

from producer.reconcile.context import Context
from producer.reconcile.dispatch import send_run
from producer.state.stored import TERMINAL, is_ready, run_state
from shared.errors import FormatError, StorageError
from shared.jobs.identity import find_job, make_note, read_note
from shared.jobs.job import Job
from shared.jobs.paths import RunPaths
from shared.leasing.redis_client import is_wrong_type
from shared.leasing.scopes import RUN_QUEUE, RUN_UNIT, UnderWay, is_run_unit, job_scope, message_id, run_scope
from shared.specs.run import RunSpec

logger = logging.getLogger(__name__)


class TrainingRuns:
    """Keeps the runs of one store going; part of the reconciler's round."""

    def __init__(self, context: Context, only: str | None = None) -> None:
        """`only`: the one run to keep going, for a local run."""
        self._context, self._only = context, only
        self._runs: dict[str, RunSpec] = {}

    def start(self, job: Job, runs: Iterable[RunSpec]) -> None:
        """Keep the `runs` of `job` going that have not ended; the request of the job's own run is written first."""
        storage = self._context.storage
        for asked in runs:
            if self._only not in (None, asked.run) or run_state(storage, asked) in TERMINAL:
                continue
            if asked == job.run and not self._has_request(asked):  # there is none, or one of a removed job
                storage.write(RunPaths(asked.run).request, asked.to_json().encode())
            self._runs[asked.run] = asked

    def stop_tracking(self, job: Job) -> None:
        """Do not keep the runs of `job` going, because its shards are not finished, or no longer are."""
        self._runs = {name: asked for name, asked in self._runs.items() if asked.job != job.job}

    def left(self) -> int:
        """How many runs have not ended and can be worked on now."""
        return sum(is_ready(self._context.storage, asked) for asked in self._runs.values())

    def tick(self) -> None:
        """One round: send a hint for every run that nobody works on."""
        for asked in list(self._runs.values()):
            try:
                self._keep_going(asked)
            except StorageError as error:
                self._context.complain(logger, error, run=asked.run)
            except ResponseError as error:
                if not is_wrong_type(error):
                    raise
                self._context.ledger.forget_scope(run_scope(asked))
                logger.error("keys_of_wrong_type_removed", extra={"run": asked.run, "reason": str(error)})

    def _keep_going(self, asked: RunSpec) -> None:
        ledger, job = self._context.ledger, self._job_of(asked)
        if job is None or not self._has_request(asked):  # a person has removed the job, or only the run
            del self._runs[asked.run]
            return
        state = run_state(self._context.storage, asked)
        ledger.write_state(run_scope(asked), state=state, cancelled=int(state == "CANCELLED"))
        if job.run == asked:
            ledger.write_state(job_scope(job), state=state)
        if state == "TRAINING":
            if is_ready(self._context.storage, asked):
                self._send_if_idle(asked)
            return
        del self._runs[asked.run]
        ledger.touch(job.job)  # have the job looked at: if the run failed, a damaged shard may be the cause

    def _has_request(self, asked: RunSpec) -> bool:
        return read_note(self._context.storage, RunPaths(asked.run).request, asked.incarnation) is not None

    def _job_of(self, asked: RunSpec) -> Job | None:
        """The job that asked for the run; None if it was removed or cannot be read."""
        try:
            job = find_job(self._context.storage, asked.job)
        except FormatError:
            return None
        return job if job is not None and job.incarnation == asked.incarnation else None

    def _send_if_idle(self, asked: RunSpec) -> None:
        """Send a hint for a run that nobody works on, or give it up after too many attempts."""
        ledger, scope = self._context.ledger, run_scope(asked)
        if ledger.done_count(scope):
            # Its files were removed since, but no trainer would claim it while it is noted as done.
            ledger.unmark_done(scope, 0)
            logger.warning("run_noted_as_done_without_result", extra={"run": asked.run})
        view = ledger.under_way(scope, is_run_unit)
        if RUN_UNIT in view.expired:
            ledger.forget_leased(scope, RUN_UNIT)
            logger.warning("lease_expired", extra={"run": asked.run})
        elif RUN_UNIT in view.leased:
            return
        if view.attempts.get(RUN_UNIT, 0) >= self._context.settings.attempts:
            self._give_up(asked, view.attempts[RUN_UNIT], view.errors.get(RUN_UNIT))
        elif not self._is_queued(asked, view):
            send_run(self._context.broker, ledger, asked)

    def _is_queued(self, asked: RunSpec, view: UnderWay) -> bool:
        """Whether a hint was sent a moment ago, or is still in the queue."""
        if RUN_UNIT not in view.queued:
            return False
        is_recent = not self._context.is_overdue(view.queued[RUN_UNIT])
        return is_recent or message_id(run_scope(asked), RUN_UNIT) in self._context.ledger.queued_ids(RUN_QUEUE)

    def _give_up(self, asked: RunSpec, attempts: int, error: str | None) -> None:
        reason = error or "every trainer that worked on it died or hung"
        facts = {"run": asked.run, "attempts": attempts, "reason": reason}
        self._context.storage.write(
            RunPaths(asked.run).failed, make_note(asked.incarnation, at=round(time.time(), 3), **facts)
        )
        logger.error("run_given_up", extra=facts)
