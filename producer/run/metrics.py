"""What Prometheus scrapes from `serve`, read from the ledger and storage at every scrape.

For a finished job a scrape costs one read of Redis; for a live one, a listing of its shards.
"""

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from redis.exceptions import RedisError

from producer.state.status import JobStatus, job_status
from producer.state.stored import job_names
from shared.errors import FormatError, StorageError
from shared.jobs.identity import find_job
from shared.jobs.job import Job
from shared.leasing.ledger import Ledger
from shared.leasing.scopes import RUN_QUEUE, SHARD_QUEUE, job_scope
from shared.storage import Storage

SHARD_STATES = ("done", "queued", "leased", "failed", "pending")


class PipelineMetrics(Collector):
    """Jobs by state; shards, pictures, attempts, failures, leases of live jobs; workers, queues, the reconciler."""

    def __init__(self, storage: Storage, ledger: Ledger, failed_share: float) -> None:
        self._storage, self._ledger, self._failed_share = storage, ledger, failed_share

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """The metrics of one scrape; while Redis is away, only `voc_redis_up 0`."""
        try:
            yield from [*self._jobs(), *self._queues(), _gauge("redis_up", "Whether Redis answers", 1)]
        except RedisError:
            yield _gauge("redis_up", "Whether Redis answers", 0)

    def _jobs(self) -> Iterator[GaugeMetricFamily]:
        states: Counter[tuple[str]] = Counter()
        live: list[tuple[Job, JobStatus]] = []
        for name in job_names(self._storage):
            try:
                if (job := find_job(self._storage, name)) is None:
                    continue
                state = self._ledger.read_state(job_scope(job)).state or "SUBMITTED"
                if state not in ("DONE", "FINALIZED", "CANCELLED"):
                    status = job_status(self._storage, self._ledger, job, self._failed_share)
                    live.append((job, status))
                    state = status.state
            except (FormatError, StorageError):
                state = "UNREADABLE"
            states[(state,)] += 1
        yield _by("jobs", "Jobs by state", ["state"], states)
        yield self._oldest_pending([job for job, _ in live])
        yield from _live_jobs([status for _, status in live])

    def _oldest_pending(self, live: list[Job]) -> GaugeMetricFamily:
        sent = [at for job in live for at in self._ledger.under_way(job_scope(job), job.has).queued.values()]
        wait_s = max(0.0, time.time() - min(sent)) if sent else 0.0
        return _gauge("oldest_pending_shard_seconds", "How long the oldest hint waits for a worker", wait_s)

    def _queues(self) -> Iterator[GaugeMetricFamily]:
        slots = {(kind,): self._ledger.slots(kind) for kind in ("worker", "trainer")}
        yield _by("worker_processes", "Live processes by kind", ["kind"], slots)
        lengths = {(queue,): self._ledger.queue_length(queue) for queue in (SHARD_QUEUE, RUN_QUEUE)}
        yield _by("queue_messages", "Messages that wait", ["queue"], lengths)
        age_s = self._ledger.round_age_s()
        if age_s is not None:
            yield _gauge("reconcile_age_seconds", "Since the reconciler's last whole round", age_s)


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"voc_{name}", text, value=value)


def _by(name: str, text: str, labels: Sequence[str], values: Mapping[Any, float]) -> GaugeMetricFamily:
    """One gauge with a series for each key of `values`; a key is a tuple of the values of the `labels`."""
    family = GaugeMetricFamily(f"voc_{name}", text, labels=labels)
    for key, value in sorted(values.items()):
        family.add_metric(key, value)
    return family


def _live_jobs(live: list[JobStatus]) -> Iterator[GaugeMetricFamily]:
    job, unfinished = ["job_name"], "of jobs that are not finished"
    shards = {(each.job, state): getattr(each, state) for each in live for state in SHARD_STATES}
    yield _by("shards", f"Shards by state, {unfinished}", ["job_name", "state"], shards)
    images = {(each.job,): each.images_done for each in live}
    yield _by("images_done", f"Pictures written or quarantined, {unfinished}", job, images)
    rates = {(each.job,): each.images_per_s for each in live}
    yield _by("images_per_second", "Pictures a second, smoothed", job, rates)
    attempts = {(each.job,): each.attempts or 0 for each in live}
    yield _by("attempts", f"Claims of shards, {unfinished}", job, attempts)
    # Only the last part of a reason, which names no file, so that equal causes form one series.
    reasons = Counter((each.job, text.rsplit(": ", 1)[-1][:80]) for each in live for text in each.failures.values())
    yield _by("failures", "Shards given up, by reason", ["job_name", "reason"], reasons)
    leases = {(each.job,): _lease_ages_s(each) for each in live}
    yield _by("leases", "Shards and runs that somebody holds", job, {key: len(ages) for key, ages in leases.items()})
    oldest = {key: max(ages) for key, ages in leases.items() if ages}
    yield _by("oldest_lease_seconds", "For how long the longest holder has worked", job, oldest)


def _lease_ages_s(status: JobStatus) -> list[float]:
    """How many seconds each holder of a shard, or of the job's run, has worked on it."""
    holders = [*status.holders, *([status.run] if status.run and "since" in status.run else [])]
    return [max(0.0, time.time() - float(holder["since"])) for holder in holders]
