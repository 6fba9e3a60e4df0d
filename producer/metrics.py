"""What Prometheus scrapes from `producer serve`, read from the ledger and storage at every scrape.

A finished job costs a scrape one read of Redis, a live one a listing of its shards.
"""

import time
from collections import Counter
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from producer.settings import ProducerSettings
from producer.state import JobStatus, job_names, job_status, load_job
from shared.broker import RUN_QUEUE, SHARD_QUEUE
from shared.errors import FormatError
from shared.ledger import UNREACHABLE, Ledger, job_scope
from shared.storage import Storage

SHARD_STATES = ("done", "queued", "leased", "failed", "pending")


class PipelineMetrics(Collector):
    """Jobs by state; of the live ones shards, pictures, attempts, failures, leases; workers, queues, the reconciler."""

    def __init__(self, storage: Storage, ledger: Ledger, failed_share: float) -> None:
        self._storage, self._ledger, self._failed_share = storage, ledger, failed_share

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """One scrape; while Redis is away just `voc_redis_up 0`."""
        try:
            yield from [*self._jobs(), *self._queues(), _gauge("redis_up", "Whether Redis answers", 1)]
        except UNREACHABLE:
            yield _gauge("redis_up", "Whether Redis answers", 0)

    def _jobs(self) -> Iterator[GaugeMetricFamily]:
        states: Counter[str] = Counter()
        live: list[JobStatus] = []
        for name in job_names(self._storage):
            state = self._ledger.read_state(job_scope(name)).get("state", "SUBMITTED")
            if state in ("SUBMITTED", "RUNNING", "TRAINING", "FAILED"):
                try:
                    job = load_job(self._storage, name)
                except FormatError:
                    state = "UNREADABLE"
                else:
                    live.append(job_status(self._storage, self._ledger, job, self._failed_share))
            states[state] += 1
        yield _by("jobs", "Jobs by state", "state", states)
        yield _shards(live)
        images = {status.job: float(status.images_done) for status in live}
        yield _by("images_done", "Pictures written or quarantined, of jobs that are not finished", "job_name", images)
        rates = {status.job: status.images_per_s for status in live}
        yield _by("images_per_second", "Pictures a second, smoothed", "job_name", rates)
        attempts = {status.job: float(status.attempts or 0) for status in live}
        yield _by("attempts", "Claims of shards, of jobs that are not finished", "job_name", attempts)
        yield _failures(live)
        leases = {status.job: _lease_ages_s(status) for status in live}
        held = {job: float(len(ages)) for job, ages in leases.items()}
        yield _by("leases", "Shards and runs that somebody holds", "job_name", held)
        oldest = {job: max(ages) for job, ages in leases.items() if ages}
        yield _by("oldest_lease_seconds", "For how long the longest holder has worked", "job_name", oldest)
        yield self._oldest_pending(live)

    def _oldest_pending(self, live: list[JobStatus]) -> GaugeMetricFamily:
        sent = [at for status in live for at in self._ledger.under_way(job_scope(status.job)).queued.values()]
        wait_s = max(0.0, time.time() - min(sent)) if sent else 0.0
        return _gauge("oldest_pending_shard_seconds", "How long the oldest hint waits for a worker", wait_s)

    def _queues(self) -> Iterator[GaugeMetricFamily]:
        slots: Counter[str] = Counter()
        for facts in self._ledger.workers().values():
            slots[facts["kind"]] += facts["slots"]
        yield _by("worker_processes", "Live processes by kind", "kind", {"worker": 0, "trainer": 0, **slots})
        lengths = {queue: float(self._ledger.queue_length(queue)) for queue in (SHARD_QUEUE, RUN_QUEUE)}
        yield _by("queue_messages", "Messages that wait", "queue", lengths)
        age_s = self._ledger.round_age_s()
        if age_s is not None:
            yield _gauge("reconcile_age_seconds", "Since the reconciler's last whole round", age_s)


def serve_metrics(settings: ProducerSettings, storage: Storage, ledger: Ledger) -> None:
    """Serve `/metrics` from a thread, on every address: inside Compose's network only, nothing publishes the port."""
    if settings.metrics_port is None:
        return
    registry = CollectorRegistry()
    registry.register(PipelineMetrics(storage, ledger, settings.failed_share))
    start_http_server(settings.metrics_port, registry=registry)


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"voc_{name}", text, value=value)


def _by(name: str, text: str, label: str, values: "Counter[str] | dict[str, float]") -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"voc_{name}", text, labels=[label])
    for key, value in sorted(values.items()):
        family.add_metric([key], value)
    return family


def _lease_ages_s(status: JobStatus) -> list[float]:
    """For how long each holder of a shard, or of the job's run, has worked on it."""
    holders = [*status.holders, *([status.run] if status.run and "since" in status.run else [])]
    return [max(0.0, time.time() - float(holder["since"])) for holder in holders]


def _failures(live: list[JobStatus]) -> GaugeMetricFamily:
    """Shards given up by reason: the last part of its text names no file, so equal causes are one series."""
    family = GaugeMetricFamily("voc_failures", "Shards given up, by reason", labels=["job_name", "reason"])
    for status in live:
        reasons = Counter(reason.rsplit(": ", 1)[-1][:80] for reason in status.failures.values())
        for reason, count in sorted(reasons.items()):
            family.add_metric([status.job, reason], count)
    return family


def _shards(live: list[JobStatus]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(
        "voc_shards", "Shards by state, of jobs that are not finished", labels=["job_name", "state"]
    )
    for status in live:
        for state in SHARD_STATES:
            family.add_metric([status.job, state], getattr(status, state))
    return family
