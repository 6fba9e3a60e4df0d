"""The store -> where each of its jobs stands at this moment.

A job that is over is looked at again only when its folder or that of a run has changed, so a store of 1,000 finished
jobs costs a listing of its folders. A job that goes on is looked at whenever somebody asks, at most once a second. A
request waits for a look, but not for long: then the result of the last one is shown.
"""

import time
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from threading import Lock
from typing import Final

from redis.exceptions import RedisError

from producer.doctor.disk import sized
from producer.reconcile.settled_jobs import SettledJobs, StoredRequests
from producer.settings import ProducerSettings
from producer.state.runs import runs_of
from producer.state.status import JobStatus, job_status
from producer.state.stored import TERMINAL, load_job, run_state
from shared.errors import PipelineError, PlanError
from shared.jobs.identity import find_job, is_name, read_request
from shared.jobs.job import Job
from shared.leasing.ledger import Ledger
from shared.leasing.redis_client import connect
from shared.specs.run import RunSpec
from shared.storage import Storage

# Within twice this time a change is on the screen.
_LOOK_EVERY_S: Final = 0.9
# Longer in a bucket, whose folders have no marks, so that everything has to be read again.
_LOOK_EVERY_IN_BUCKET_S: Final = 10.0
_ASK_REDIS_EVERY_S: Final = 5.0
# How often the size on disk of a job that goes on is measured, which walks through its runs' folders.
_SIZE_EVERY_S: Final = 30.0
# A request waits for a look at most this long, unless there was none before.
_PATIENCE_S: Final = 0.15


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A job on the board: its status, or why it cannot be read. `submitted_at` is in s of Unix time."""

    name: str
    status: JobStatus | None = None
    submitted_at: float | None = None
    is_over: bool = False
    error: str = ""


class Board:
    """Where the jobs of a store stand; for several threads."""

    def __init__(self, storage: Storage, settings: ProducerSettings) -> None:
        self._storage, self._settings = storage, settings
        self._settled, self._requests = SettledJobs(storage), StoredRequests(storage)
        self._rows: dict[str, Row] | None = None
        self._looked_at = float("-inf")
        self._trouble = ""
        self._looker: Final = ThreadPoolExecutor(1, thread_name_prefix="board")
        self._looking: Future[None] | None = None
        # By job: when it was measured, and its bytes on disk.
        self._sizes: dict[str, tuple[float, int | None]] = {}
        self._ledger: Ledger | None = None
        self._asked_redis_at = float("-inf")
        self._lock: Final = Lock()

    def rows(self) -> list[Row]:
        """All jobs, those that go on first, then the newest first."""
        return sorted(self._seen().values(), key=lambda row: (row.is_over, -(row.submitted_at or 0), row.name))

    def row(self, name: str) -> Row | None:
        """One job; None if there is none of this name."""
        return self._seen().get(name)

    def trouble(self) -> str:
        """Why the last look at the store failed, so that what is shown is from an earlier one; "" if it did not."""
        return self._trouble

    def asked(self, run: str) -> RunSpec:
        """What was asked of a run.

        Raises:
            PlanError: There is no such run, or its job was removed.
        """
        asked = read_request(self._storage, run) or self._not_asked_yet(run)
        if asked is None:
            raise PlanError(f"no run {run!r} in {self._storage.root}")
        load_job(self._storage, asked.job)  # raises if the job was removed
        return asked

    def _not_asked_yet(self, run: str) -> RunSpec | None:
        """The run that a job was submitted with; the job's page links to it before its request is written."""
        statuses = (row.status for row in self.rows() if row.status is not None)
        job = next((each.job for each in statuses if any(view["run"] == run for view in each.runs)), None)
        first = load_job(self._storage, job).run if job is not None else None
        return first if first is not None and first.run == run else None

    def ledger(self) -> Ledger | None:
        """The ledger, or None while Redis does not answer."""
        with self._lock:
            return self._reachable_ledger()

    def look_again(self) -> None:
        """Look at the store at once, because this page has changed something."""
        with self._lock:
            try:
                self._look()
            except PipelineError as error:
                self._trouble = str(error)
                raise
            self._trouble = ""

    def _seen(self) -> dict[str, Row]:
        """The jobs by name, as found by a look just now or by the last one."""
        every_s = _LOOK_EVERY_S if self._storage.is_local else _LOOK_EVERY_IN_BUCKET_S
        if self._looking is None or (self._looking.done() and time.monotonic() - self._looked_at >= every_s):
            self._looking = self._looker.submit(self.look_again)
        wait([self._looking], timeout=_PATIENCE_S if self._rows is not None else None)
        if self._rows is None:
            self._looking.result()  # the first look failed, and says why
        return self._rows or {}

    def _look(self) -> None:
        self._requests.update()
        rows = dict(self._rows or {})
        due = self._settled.list_due() | self._requests.take_changed_jobs()
        due |= {row.name for row in rows.values() if not row.is_over}
        ledger = self._reachable_ledger()
        for name in sorted(filter(is_name, due)):
            row = self._row_of(name, ledger)
            self._settled.note_look(name, is_over=row is not None and row.is_over)
            if row is None:
                rows.pop(name, None)
            else:
                rows[name] = row
        self._rows, self._looked_at = rows, time.monotonic()

    def _row_of(self, name: str, ledger: Ledger | None) -> Row | None:
        try:
            job = find_job(self._storage, name)
            return None if job is None else self._read(job, ledger)
        except (PipelineError, RedisError) as error:
            return Row(name=name, error=str(error))

    def _read(self, job: Job, ledger: Ledger | None) -> Row:
        requests = self._requests.by_job()
        away = self._settings.broker_url is not None and ledger is None
        share = self._settings.failed_share
        status = job_status(self._storage, ledger, job, share, requests, is_unreachable=away)
        runs = [run_state(self._storage, asked) for asked in runs_of(self._storage, job, requests)]
        is_over = TERMINAL.issuperset({status.state, *(runs if status.state == "DONE" else ())})
        submitted = None if status.age_s is None else time.time() - status.age_s
        return Row(name=job.job, status=self._sized(status, is_over=is_over), submitted_at=submitted, is_over=is_over)

    def _sized(self, status: JobStatus, *, is_over: bool) -> JobStatus:
        """The status with what the job takes on disk; while the job goes on, measured at most every half minute."""
        looked_at, size_bytes = self._sizes.get(status.job, (float("-inf"), None))
        if is_over or time.monotonic() - looked_at > _SIZE_EVERY_S:
            size_bytes = sized(self._storage, status).size_bytes
            self._sizes[status.job] = (time.monotonic(), size_bytes)
        return replace(status, size_bytes=size_bytes)

    def _reachable_ledger(self) -> Ledger | None:
        """The ledger, or None while Redis does not answer; not asked at every look, as waiting for it takes seconds."""
        if self._settings.broker_url is None:
            return None
        if time.monotonic() - self._asked_redis_at > _ASK_REDIS_EVERY_S:
            ledger = Ledger(connect(self._settings.broker()))
            self._ledger = ledger if ledger.is_reachable() else None
            self._asked_redis_at = time.monotonic()
        return self._ledger
