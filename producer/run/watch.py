"""`watch`: show where a job stands until it ends, without doing anything for it."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from redis.exceptions import RedisError
from rich.console import Console

from producer.settings import ProducerSettings
from producer.state.status import JobStatus, job_status
from producer.state.stored import TERMINAL, load_job, require_same
from producer.terminal.progress import Screen
from shared.errors import Interrupted, StorageError
from shared.jobs.job import Job
from shared.leasing.ledger import Ledger
from shared.leasing.redis_client import connect
from shared.storage import Storage

# How often the screen is brought up to date.
SHOW_EVERY_S: Final = 0.5


def watch(name: str, settings: ProducerSettings, console: Console, run: str | None = None) -> JobStatus:
    """Show the progress of the job `name`, seen with its run `run`, until it ends; return its last status.

    If the store refuses meanwhile, such as a bucket that is restarted, that is shown and it is tried again.
    """
    storage = Storage(settings.store)
    ledger = Ledger(connect(settings.broker())) if settings.broker_url is not None else None
    job = load_job(storage, name, run)
    with Screen(console) as screen, _looking_only(name):
        while True:
            try:
                status = show_status(job, storage, ledger, settings, screen)
                if status.state in TERMINAL:
                    return status
            except StorageError as error:
                screen.stage("waiting", 0, 0, f"{error}; trying again until the store answers, Ctrl-C stops that")
            time.sleep(SHOW_EVERY_S * 2)


@contextmanager
def _looking_only(name: str) -> Iterator[None]:
    """Make Ctrl-C say that only the watching has ended, not the job."""
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted(f"no longer watching {name}; the job is left as it is") from None


def show_status(
    job: Job, storage: Storage, ledger: Ledger | None, settings: ProducerSettings, screen: Screen
) -> JobStatus:
    """Show on `screen` where `job` stands, from storage alone while Redis is away; return its status.

    Raises:
        PlanError: The job was removed.
    """
    require_same(storage, job)
    try:
        status = job_status(storage, ledger, job, settings.failed_share)
        screen.job(status, ledger.slots("worker") if ledger else 0)
    except RedisError:
        status = job_status(storage, None, job, settings.failed_share, is_unreachable=True)
        screen.job(status, 0)
    return status
