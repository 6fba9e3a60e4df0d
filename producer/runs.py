"""Runs that were asked for and are not done: a hint to the trainers until `run.json` (or a failure) is there."""

import logging
import time

from producer.feed import run_message_id, send_run
from producer.settings import ProducerSettings
from producer.state import run_state
from shared.broker import RUN_QUEUE, Broker
from shared.job import Job, canonical_json
from shared.ledger import RUN_UNIT, Ledger, job_scope, run_scope
from shared.manifest import RunPaths
from shared.storage import Storage

logger = logging.getLogger(__name__)


class RunKeeper:
    """Keeps the runs of one store going; part of the reconciler's round."""

    def __init__(self, storage: Storage, ledger: Ledger, broker: Broker, settings: ProducerSettings) -> None:
        self._storage, self._ledger, self._broker, self._settings = storage, ledger, broker, settings
        # run -> the job that asked for it, or None where somebody asked by hand
        self._runs: dict[str, str | None] = {}

    def ask(self, job: Job) -> None:
        """Write what the job asks of the trainer, and keep its run going."""
        assert job.run is not None  # noqa: S101  # the caller's promise, for the type checker
        self._storage.create(RunPaths(job.run.run).request, job.run.to_json().encode())
        self._runs[job.run.run] = job.job

    def look_at_storage(self) -> None:
        """Find the runs that were asked for."""
        for run in self._storage.list_names("runs"):
            if run_state(self._storage, run) == "TRAINING":
                self._runs.setdefault(run, None)

    def tick(self) -> None:
        """One round: hint every run that nobody works on."""
        for run, job in list(self._runs.items()):
            state = run_state(self._storage, run)
            scope = run_scope(run)
            self._ledger.write_state(scope, state=state, cancelled=int(state == "CANCELLED"))
            if job is not None:
                self._ledger.write_state(job_scope(job), state=state)
            if state != "TRAINING":
                del self._runs[run]
                continue
            self._hint(run, scope)

    def _hint(self, run: str, scope: str) -> None:
        if self._ledger.done_count(scope):
            # Of a run of this name whose files are gone: no trainer would take the new one.
            self._ledger.unmark_done(scope, 0)
            logger.warning("run_noted_as_done_without_result", extra={"run": run})
        view = self._ledger.under_way(scope)
        if RUN_UNIT in view.expired:
            self._ledger.forget_leased(scope, RUN_UNIT)
            logger.warning("lease_expired", extra={"run": run})
        elif RUN_UNIT in view.leased:
            return
        if view.attempts.get(RUN_UNIT, 0) >= self._settings.attempts:
            self._give_up(run, view.attempts[RUN_UNIT], view.errors.get(RUN_UNIT))
            return
        sent_at = view.queued.get(RUN_UNIT)
        if sent_at is not None and (
            time.time() - sent_at < self._settings.lost_after_s
            or run_message_id(run) in self._ledger.queued_ids(RUN_QUEUE)
        ):
            return
        send_run(self._broker, self._ledger, run)

    def _give_up(self, run: str, attempts: int, error: str | None) -> None:
        reason = error or "every trainer that worked on it died or hung"
        failure = canonical_json({"run": run, "attempts": attempts, "reason": reason})
        self._storage.write(RunPaths(run).failed, failure.encode())
        logger.error("run_given_up", extra={"run": run, "attempts": attempts, "reason": reason})
