"""A request → its job, run here (embedded) or handed over to the service; the assembling module of `submit`."""

import tempfile
import uuid
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from producer import interrupts, texts
from producer.drive import drive
from producer.embedded import Local, pipeline
from producer.findings import Findings
from producer.lint_csv import merged_findings
from producer.lint_report import lint_report
from producer.local_lock import only_run_of
from producer.reconcile import Reconciler
from producer.settings import ProducerSettings
from producer.state import TERMINAL, JobStatus, job_status, load_job, stored_state
from producer.submit import Request, submit, tell
from producer.watch import Screen
from shared.broker import Broker
from shared.errors import PlanError
from shared.job import Job
from shared.ledger import Ledger, connect
from shared.manifest import Finding, JobPaths, read_receipt
from shared.storage import Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How a request is to be done: `local` runs broker, workers and trainer here, `wait` waits for the end."""

    settings: ProducerSettings
    local: bool
    wait: bool
    workers: int
    console: Console


def launch(request: Request, how: Launch) -> JobStatus:
    """Submit, show what lint found, and run the job or hand it over.

    Returns:
        The job's status: of its end, or as handed over.

    Raises:
        LintError: The set cannot be used as asked; nothing was written.
        PlanError: The job cannot be accepted, or another embedded run works on it.
        BrokerError: No embedded broker is to be had.
        PipelineError: One of an embedded run's processes dies again and again.
    """
    storage = Storage(how.settings.store)
    data_root = request.dataset if how.local else how.settings.data_root
    with Screen(how.console) as screen:
        admission = submit(request, storage=storage, data_root=data_root, progress=screen.stage)
    if not request.spec.dry:  # `lint --pixels` shows its report itself, when the pictures are known too
        how.console.print(lint_report(admission.planned.linted).render())
        stored = stored_state(storage, admission.job, how.settings.failed_share)
        how.console.print(texts.admission_text(admission, stored, storage), highlight=False, soft_wrap=True)
    if how.local:
        return run_here(admission.job, request.dataset.resolve(), how, storage)
    return _tell_and_wait(admission.job, how, storage, is_new=admission.outcome == "new")


def run_here(job: Job, data_root: Path, how: Launch, storage: Storage) -> JobStatus:
    """Do a job with processes of our own, until it is in a terminal state; only what is missing is done.

    Args:
        job: In the store.
        data_root: The folder that its paths are relative to.
        how: Its settings name a broker, or an embedded one is started.
        storage: The store, in a local folder.

    Returns:
        The job's last status.

    Raises:
        PlanError: Another embedded run works on it.
        StorageError: The store is not a local folder, or has no locks.
        BrokerError: No embedded broker is to be had.
        PipelineError: One of the processes dies again and again.
    """
    settings = how.settings
    status = job_status(storage, None, job, settings.failed_share)
    if status.state in TERMINAL:
        return status
    where = Local(
        store=storage.local_path("").absolute(),
        data_root=data_root,
        workers=how.workers,
        with_trainer=job.run is not None,
        broker_url=settings.broker() if settings.broker_url is not None else None,
    )
    quick = settings.model_copy(update={"tick_s": min(settings.tick_s, 0.5)})
    only = job.job if where.broker_url is None else None
    alone = only_run_of(where.store / JobPaths(only).root) if only else nullcontext()
    with alone, interrupts.held() as pause, pipeline(where) as (url, crew), Screen(how.console) as screen:
        ledger, broker = Ledger(connect(url)), Broker(url)
        reconciler = Reconciler(storage=storage, ledger=ledger, broker=broker, settings=quick, only=only)
        status = drive(job, reconciler=reconciler, settings=quick, screen=screen, keep=crew.keep, pause=pause)
        if only and status.state == "DONE":
            # Nobody is at work, and the broker is ours and goes too.
            crew.kill()
        return status


def _tell_and_wait(job: Job, how: Launch, storage: Storage, *, is_new: bool = False) -> JobStatus:
    """Tell the reconciler of the job; with `wait` do its part too until the job is done."""
    settings = how.settings
    ledger = Ledger(connect(settings.broker()))
    if not tell(ledger, job.job, is_new=is_new):
        how.console.print("Redis cannot be reached: the job is stored and starts once `producer serve` sees it.")
    if not how.wait:
        return job_status(storage, None, job, settings.failed_share)
    reconciler = Reconciler(storage=storage, ledger=ledger, broker=Broker(settings.broker()), settings=settings)
    with interrupts.held() as pause, Screen(how.console) as screen:
        return drive(job, reconciler=reconciler, settings=settings, screen=screen, keep=lambda: None, pause=pause)


def go_on(name: str, how: Launch) -> JobStatus:
    """Go on with a job that is in the store: here, or by telling the service.

    Raises:
        PlanError: There is no such job, or its pictures are not where they were.
    """
    storage = Storage(how.settings.store)
    job = load_job(storage, name)
    if not how.local:
        return _tell_and_wait(job, how, storage)
    data_root = Path(job.dataset)
    if job.folder != ".":
        data_root = data_root.parents[len(Path(job.folder).parts) - 1]
    if not Path(job.dataset).is_dir():
        raise PlanError(f"{job.dataset}: the pictures of job {name!r} are not there any more")
    return run_here(job, data_root, how, storage)


def lint_pixels(request: Request, how: Launch, submitted: list[Finding]) -> list[Finding]:
    """Let workers open every picture of a dry job, which leaves nothing behind.

    Args:
        request: Its spec is dry.
        how: Where the workers are; a store of its own is used where they run here.
        submitted: What names and XML said already.

    Returns:
        All findings, each once, sorted by file.
    """
    with tempfile.TemporaryDirectory(prefix="voc-lint-") as folder:
        store = folder if how.local else how.settings.store
        where = replace(how, settings=how.settings.model_copy(update={"store": store}), wait=True)
        name = f"lint-{uuid.uuid4().hex[:12]}"
        storage = Storage(store)
        try:
            status = launch(replace(request, name=name), where)
            receipts = (read_receipt(storage, name, shard) for shard in load_job(storage, name).shards)
            received = [finding for receipt in receipts if receipt for finding in receipt.findings]
        finally:
            storage.remove_tree(JobPaths(name).root)
    failures = [
        Finding(file=shard, rank="quarantined", kind="shard_failed", found=reason, done="not looked at")
        for shard, reason in status.failures.items()
    ]
    merged = Findings([*merged_findings(submitted, received), *failures])
    merged.sort()
    return list(merged)
