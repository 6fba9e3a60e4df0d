"""The loop that makes the promise true: what storage lacks is queued until it is there, then the job is finalized.

Every round compares storage (the truth) with the ledger (what is under way) and sends hints for the difference.
Losing any message, worker, trainer, reconciler or all of Redis costs time, never work. Two of these may run: one leads.
"""

import logging
import time
import uuid
from contextlib import suppress
from dataclasses import replace
from itertools import islice, repeat
from typing import Final

from redis.exceptions import RedisError

from producer.dataset_files import check_annotations, dataset_files
from producer.feed import in_turn, send_shard, shard_message_id, window
from producer.local_lock import has_run
from producer.runs import RunKeeper
from producer.settings import ProducerSettings
from producer.state import TERMINAL, is_hopeless, job_names, load_job, reused_shards, stored_state
from producer.tracked import TrackedJob
from shared import faults
from shared.broker import SHARD_QUEUE, Broker
from shared.errors import BrokerError, FormatError, PipelineError, PlanError, ShardError, StorageError, VersionError
from shared.job import canonical_json
from shared.lease import RENEW_MOST_S
from shared.ledger import UNREACHABLE, Ledger, UnderWay, job_scope
from shared.manifest import JobPaths, ShardReceipt, check_shard, read_receipt
from shared.storage import Storage

logger = logging.getLogger(__name__)

# A leader that died is followed after this; a round takes far less.
LEADER_EXPIRY_S: Final = 10
# Weight of the newest round in the shown rate of images a second.
RATE_WEIGHT: Final = 0.3


class Reconciler:
    """Keeps the jobs and runs of one store going; call `tick` every `settings.tick_s` seconds."""

    def __init__(
        self, *, storage: Storage, ledger: Ledger, broker: Broker, settings: ProducerSettings, only: str | None = None
    ) -> None:
        """`only`: the one job of a new Redis, which has forgotten no lease and knows nothing of the others' leases."""
        self.storage, self.ledger, self._broker, self._settings = storage, ledger, broker, settings
        self._token = uuid.uuid4().hex
        self._jobs: dict[str, TrackedJob] = {}
        self._runs = RunKeeper(storage, ledger, broker, settings)
        self._run_id: str | None = None
        self._wait_until, self._listed_at = 0.0, float("-inf")
        self._rates: dict[str, tuple[float, int, float]] = {}
        self._only = only
        self._again: set[str] = set()
        if only is not None:
            self._run_id = ledger.identity()[0]
            ledger.set_generation(self._token)

    def tick(self) -> bool:
        """One round; False while Redis cannot be reached or another reconciler leads."""
        try:
            if not self.ledger.lead(self._token, LEADER_EXPIRY_S):
                self._listed_at = float("-inf")
                return False
            if self._is_settling():
                return True
            self._look_at_storage()
            self._feed()
            self._runs.tick()
            self.ledger.note_round()
            return True
        except RedisError as error:
            logger.warning("redis_unreachable", extra={"reason": str(error)})
            self._listed_at = float("-inf")  # who was touched may have been told to nobody
        except BrokerError as error:
            logger.warning("hint_not_sent", extra={"reason": str(error)})
        except StorageError as error:
            # A full disk or an absent mount: what is due is still due at the next round.
            logger.error("store_refuses", extra={"reason": str(error)})
        return False

    def is_hungry(self) -> bool:
        """Whether workers may be waiting for the next round: jobs are under way, and the queue is empty."""
        try:
            return bool(self._jobs) and self.ledger.queue_length(SHARD_QUEUE) == 0
        except UNREACHABLE:
            return False

    def stop(self) -> None:
        """Let another reconciler lead at once; where Redis cannot be told, the leadership expires."""
        with suppress(*UNREACHABLE):
            self.ledger.stop_leading(self._token)

    def _is_settling(self) -> bool:
        """Whether Redis is another than before, or empty, and holders may not have re-asserted their leases yet."""
        run_id, generation = self.ledger.identity()
        is_wiped = generation is None
        if is_wiped and self._run_id is None and not self._has_unfinished():
            self.ledger.set_generation(self._token)  # a first start: nobody can hold anything
        elif is_wiped or self._run_id not in (None, run_id):
            logger.warning("redis_lost", extra={"wiped": is_wiped})
            # Holders renew every third of a lease: then all that live are known again. After a wipe one may have to
            # reconnect first: it gets the whole lease, and trainers what they renew by.
            wait_s = max(self._settings.lease_s, RENEW_MOST_S + 1) if is_wiped else self._settings.lease_s / 3 + 1
            self._wait_until = time.monotonic() + wait_s
            self._listed_at = float("-inf")
            self.ledger.set_generation(self._token)
        self._run_id = run_id
        return time.monotonic() < self._wait_until

    def _has_unfinished(self) -> bool:
        """Whether storage has a job that a worker or trainer may be working on."""
        for name in job_names(self.storage):
            try:
                job = load_job(self.storage, name)
            except FormatError:
                return True  # of another version, whose workers may be at it
            if stored_state(self.storage, job, self._settings.failed_share).state not in TERMINAL:
                return True
        return False

    def _look_at_storage(self) -> None:
        """List everything at the start, after a loss and now and then; in between just what somebody touched."""
        touched, self._again = self.ledger.touched() | self._again, set()
        if time.monotonic() - self._listed_at > self._settings.listing_s:
            if self._only is None:
                self._runs.look_at_storage()
                touched |= set(job_names(self.storage)) | self._jobs.keys()
            else:
                touched.add(self._only)
            self._listed_at = time.monotonic()
        for name in sorted(touched):
            try:
                self._look_at_job(name)
            except PipelineError as error:
                self._refuse(name, error)
                self._again |= {name} if isinstance(error, StorageError) else set()  # the store may answer then

    def _refuse(self, name: str, error: PipelineError) -> None:
        """Leave a job alone whose files this version cannot read, until the next listing; the others go on."""
        self._jobs.pop(name, None)
        logger.error("job_unreadable", extra={"job": name, "reason": str(error)})

    def _look_at_job(self, name: str) -> None:
        if not self.storage.exists(JobPaths(name).job):
            self._jobs.pop(name, None)
            self.ledger.forget_scope(job_scope(name))
            return
        if self._only is None and self.storage.is_local and has_run(self.storage.local_path(JobPaths(name).root)):
            self._jobs.pop(name, None)  # of an embedded run, whose own Redis holds its leases
            return
        job = load_job(self.storage, name)
        stored = stored_state(self.storage, job, self._settings.failed_share)
        scope = job_scope(name)
        self.ledger.write_state(scope, state=stored.state, cancelled=int(stored.state == "CANCELLED"))
        if stored.state in TERMINAL or stored.state in ("FINALIZED", "TRAINING"):
            self._jobs.pop(name, None)
            if stored.state in ("FINALIZED", "TRAINING"):
                self._runs.ask(job)
            return
        tracked = self._jobs.setdefault(name, TrackedJob(self.storage, job))
        ordinals = tracked.see_storage(stored.done, set(stored.failed))
        if self.ledger.done_count(scope) < len(ordinals):
            self._rebuild(scope, name, stored.done, ordinals)

    def _rebuild(self, scope: str, job: str, done: frozenset[str], ordinals: list[int]) -> None:
        """Fill the ledger's view of a job from its receipts."""
        self.ledger.mark_done(scope, ordinals)
        receipts = [receipt for shard in done if (receipt := read_receipt(self.storage, job, shard))]
        claims = sum(receipt.attempt for receipt in receipts) - reused_shards(self.storage, job)
        self.ledger.write_state(
            scope,
            written=sum(receipt.written for receipt in receipts),
            quarantined=sum(receipt.quarantined for receipt in receipts),
            attempts=max(claims, int(self.ledger.read_state(scope).get("attempts", 0))),
        )
        logger.info("ledger_rebuilt", extra={"job": job, "shards_done": len(done)})

    def _feed(self) -> None:
        views: dict[str, UnderWay] = {}
        waiting: set[str] | None = None
        for name, tracked in list(self._jobs.items()):
            view = self.ledger.under_way(job_scope(name))
            tracked.see_ledger(self.ledger.done_bits(job_scope(name)))
            overdue = [unit for unit, at in view.queued.items() if time.time() - at > self._settings.lost_after_s]
            if overdue:
                waiting = self.ledger.queued_ids(SHARD_QUEUE) if waiting is None else waiting
                view = self._drop_lost(tracked, view, overdue, waiting)
            for unit in view.expired:
                self.ledger.forget_leased(job_scope(name), unit)
                logger.warning("lease_expired", extra={"job": name, "shard": unit, **_who(view.leased[unit])})
            views[name] = self._give_up(tracked, view)
            self._note_rate(name, view)
            if tracked.is_settled():
                try:
                    self._finalize(tracked)
                except FormatError as error:
                    self._refuse(name, error)
        self._send({name: view for name, view in views.items() if name in self._jobs})

    def _drop_lost(self, tracked: TrackedJob, view: UnderWay, overdue: list[str], waiting: set[str]) -> UnderWay:
        """Forget hints that were sent long ago, were never claimed, and are not in the queue any more."""
        name = tracked.job.job
        lost = {unit for unit in overdue if shard_message_id(name, unit) not in waiting}
        for unit in lost:
            self.ledger.forget_queued(job_scope(name), unit)
            if not tracked.is_done(unit):
                logger.warning("hint_lost", extra={"job": name, "shard": unit})
        queued = {unit: at for unit, at in view.queued.items() if unit not in lost}
        return replace(view, queued=queued)

    def _give_up(self, tracked: TrackedJob, view: UnderWay) -> UnderWay:
        """Fail the shards that nobody holds and that were tried too often."""
        name = tracked.job.job
        for unit, attempts in view.attempts.items():
            is_held = unit in view.leased and unit not in view.expired
            if attempts < self._settings.attempts or is_held or tracked.is_done(unit) or unit in tracked.failed:
                continue
            reason = view.errors.get(unit, "every process that worked on it died or hung")
            failure = canonical_json({"shard": unit, "attempts": attempts, "reason": reason})
            self.storage.write(JobPaths(name).failure(unit), failure.encode())
            self.ledger.forget_queued(job_scope(name), unit)
            tracked.failed.add(unit)
            logger.error("shard_given_up", extra={"job": name, "shard": unit, "attempts": attempts, "reason": reason})
        return view

    def _send(self, views: dict[str, UnderWay]) -> None:
        slots = sum(facts["slots"] for facts in self.ledger.workers().values() if facts["kind"] == "worker")
        free = window(slots, sum(len(view.queued) for view in views.values()))
        # Who has least under way comes first: where one message is free a round, its turn must not always be the same.
        hungry = sorted(views.items(), key=lambda item: len(item[1].queued) + len(item[1].leased))
        pending = [zip(repeat(name), self._jobs[name].pending(view)) for name, view in hungry]
        for name, shard in islice(in_turn(pending), max(0, free)):
            if name not in self._jobs:
                continue
            try:
                task = self._jobs[name].task(shard)
            except (PlanError, FormatError) as error:
                self._refuse(name, error)
                continue
            send_shard(self._broker, self.ledger, task)

    def _note_rate(self, name: str, view: UnderWay) -> None:
        """Keep a smoothed rate of pictures a second in the ledger, for `status` and `watch`."""
        state = self.ledger.read_state(job_scope(name))
        done = int(state.get("written", 0)) + int(state.get("quarantined", 0))
        done += sum(int(holder.get("images", 0)) for unit, holder in view.leased.items() if unit not in view.expired)
        now = time.monotonic()
        then, before, rate = self._rates.get(name, (now, done, 0.0))
        if now - then >= self._settings.tick_s:
            newest = max(0, done - before) / (now - then)
            rate = newest if rate == 0 else RATE_WEIGHT * newest + (1 - RATE_WEIGHT) * rate
            self.ledger.write_state(job_scope(name), images_per_s=round(rate, 1))
            then, before = now, done
        self._rates[name] = (then, before, rate)

    def _finalize(self, tracked: TrackedJob) -> None:
        job = tracked.job
        receipts = self._checked_receipts(tracked)
        if not tracked.is_settled():
            return
        self._jobs.pop(job.job)
        self.storage.remove_temporaries(JobPaths(job.job).shards)
        if is_hopeless(job, len(tracked.failed), self._settings.failed_share):
            self.ledger.write_state(job_scope(job.job), state="FAILED")
            logger.error("job_failed", extra={"job": job.job, "shards_failed": len(tracked.failed)})
            return
        dataset_files(job, receipts, self.storage)
        faults.reached("job:after_manifest")
        self.ledger.write_state(job_scope(job.job), state="DONE" if job.run is None else "FINALIZED")
        logger.info("job_finalized", extra={"job": job.job, "shards": len(receipts)})
        if job.run is not None:
            self._runs.ask(job)

    def _checked_receipts(self, tracked: TrackedJob) -> list[ShardReceipt]:
        """The receipts of all done shards, each held against its file; one that does not hold is removed."""
        name = tracked.job.job
        receipts = []
        for shard in list(tracked.done()):
            try:
                receipt = read_receipt(self.storage, name, shard)
                if receipt is None:
                    raise ShardError(f"{shard}: noted as done, but there is no receipt")
                check_shard(self.storage, receipt, with_digest=receipt.attempt > 1)
                check_annotations(self.storage, receipt)
                receipts.append(receipt)
            except VersionError:
                raise
            except (ShardError, FormatError) as error:
                logger.error("shard_done_again", extra={"job": name, "shard": shard, "reason": str(error)})
                self.storage.remove(JobPaths(name).receipt(shard))
                self.ledger.unmark_done(job_scope(name), tracked.job.ordinal(shard))
                tracked.take_back(shard)
        return receipts


def _who(holder: dict[str, object]) -> dict[str, object]:
    return {"worker": holder.get("worker"), "pid": holder.get("pid")}
