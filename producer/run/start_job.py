"""A request -> its job, run here with our own processes or handed over to the service."""

from collections.abc import Iterable, Sequence
from functools import reduce

from producer.jobs.control import count_retry, tell_redis, verify
from producer.jobs.submit import Request, for_known_job, further_run, lint_request, require_as_known, submit
from producer.local import interrupts
from producer.local.pipeline import LocalPipeline, run_pipeline
from producer.reconcile.context import Context
from producer.reconcile.reconciler import Reconciler
from producer.run.intent import StartOptions, job_intent, run_intent, say_intent
from producer.run.wait_for_job import wait_for_job
from producer.settings import ProducerSettings
from producer.state.local_lock import lock_for_local_run
from producer.state.runs import change_release, check_name, known_run, require_free, with_its_folds
from producer.state.status import JobStatus, job_status
from producer.state.stored import TERMINAL, StoredState, load_job, stored_state
from producer.terminal import job_text
from producer.terminal.lint_page import lint_report
from producer.terminal.progress import Screen
from shared.broker import Broker
from shared.command import hint
from shared.errors import Interrupted, PlanError
from shared.jobs.identity import find_job
from shared.jobs.job import Job
from shared.leasing.ledger import Ledger
from shared.leasing.redis_client import connect
from shared.specs.data import JobSpec
from shared.specs.run import ReleaseOptions, RunSpec
from shared.specs.training import TrainingOptions
from shared.storage import DataFolder, Storage, data_folder


def start_job(request: Request, options: StartOptions) -> JobStatus:
    """Show what lint found and what is about to be done, then do it: submit, and run the job or hand it over.

    Returns:
        The job's status at its end, or as handed over.

    Raises:
        LintError: The set cannot be used as asked; nothing was written.
        PlanError: The job cannot be accepted, or another local run works on it.
        StorageError: The store refused, or is a folder without locks, which a local run needs.
        BrokerError: No server was found for a broker of our own.
        PipelineError: One of a local run's processes keeps dying.
    """
    storage, data_root = Storage(options.settings.store), options.data_root(request.dataset)
    request = _admissible(request, storage)
    with Screen(options.console) as screen:
        linted = lint_request(request, data_root=data_root, progress=screen.stage)
    require_as_known(request, linted, storage)
    options.console.print(lint_report(linted).render(), crop=False)
    is_known, with_trainer = find_job(storage, request.job) is not None, request.run is not None
    say_intent(job_intent(request, linted, storage), options, is_known=is_known, with_trainer=with_trainer)
    with Screen(options.console) as screen:
        admission = submit(request, linted, storage=storage, data_root=data_root, progress=screen.stage)
    stored = stored_state(storage, admission.job, options.settings.failed_share)
    options.console.print(job_text.admission_text(admission, stored, storage), highlight=False, soft_wrap=True)
    return run_or_hand_over([admission.job], data_root, options, storage)


def _admissible(request: Request, storage: Storage) -> Request:
    """Check `request` as far as that is possible before the photos are read; for a known job, use its data options.

    Raises:
        OptionError: A name is not valid.
        PlanError: The run's name is taken, or the run was asked for with other options before.
    """
    check_name(request.job, "job")
    known, run = find_job(storage, request.job), request.run_name
    if run is not None and known is not None:
        request = for_known_job(request, known, storage)
    if request.run is not None:
        if known is not None and run is not None:
            known_run(storage, known, run, request.run)
        elif known is None:
            require_free(storage, run or request.job, request.job)
    return request


def start_run(
    name: str,
    run: str,
    spec: JobSpec,
    training: TrainingOptions,
    options: StartOptions,
    typed: frozenset[str] = frozenset(),
) -> JobStatus:
    """Train once more on the shards of the job `name`, without looking at its photos: `submit --job J --run NAME`.

    `typed` are the fields of `spec` that a person has typed.

    Raises:
        OptionError: `run` is not a valid name.
        PlanError: There is no such job, its options differ from those typed for `spec`, or the name is taken.
    """
    storage = Storage(options.settings.store)
    job = load_job(storage, name)
    for_known_job(
        Request(dataset=data_folder(job.dataset), name=name, spec=spec, run=training, typed=typed), job, storage
    )
    is_known = known_run(storage, job, run, training) is not None
    say_intent(run_intent(run, job, training, storage), options, is_known=is_known, with_trainer=True)
    admission = further_run(job, run, training, storage)
    stored = stored_state(storage, admission.job, options.settings.failed_share)
    options.console.print(job_text.admission_text(admission, stored, storage), highlight=False, soft_wrap=True)
    return run_or_hand_over([admission.job], data_root_of(job, options, stored), options, storage)


def resume_job(name: str, options: StartOptions, changes: ReleaseOptions, run: str | None = None) -> JobStatus:
    """Go on with a job that is in the store, seen with its run `run`: here, or by notifying the service.

    `changes` say how that run is exported and judged from now on.

    Raises:
        PlanError: There is no such job or run, its pictures are not where they were, or there are changes to a run that
            is done.
        OptionError: The changes do not fit what was asked.
    """
    storage, settings = Storage(options.settings.store), options.settings
    job = load_job(storage, name, run)
    ledger = Ledger(connect(settings.broker())) if settings.broker_url is not None else None
    stored = stored_state(storage, job, settings.failed_share)
    runs = with_its_folds(storage, job, job.run) if job.run else []
    with Screen(options.console) as screen:
        found = change_release(storage, job, changes)
        if found:
            count_retry(storage, job)
        found += verify(storage, ledger, job, stored, screen.stage, runs)
    for text in found:
        options.console.print(f"{name}: {text}", highlight=False, soft_wrap=True)
    return continue_job(job, options)


def continue_job(job: Job, options: StartOptions, others: Sequence[RunSpec] = ()) -> JobStatus:
    """Do what is missing of a job in the store, seen with a run: here, or by notifying the service.

    `others` are further runs of the job that are to be done, in this order.

    Raises:
        PlanError: Pictures have to be read but are not where they were.
    """
    storage = Storage(options.settings.store)
    stored = stored_state(storage, job, options.settings.failed_share)
    # If the run that `job` is seen with has ended and stays so, only the others are waited for.
    own = [] if others and stored.state in TERMINAL else [job]
    seen = [*own, *(job.model_copy(update={"run": asked}) for asked in others if asked != job.run)]
    return run_or_hand_over(folds_first(storage, seen), data_root_of(job, options, stored), options, storage)


def folds_first(storage: Storage, jobs: Iterable[Job]) -> list[Job]:
    """A job seen with each of its runs once, an audit after its folds."""
    seen: dict[str, Job] = {}
    for job in jobs:
        for asked in with_its_folds(storage, job, job.run)[1:] if job.run else []:
            seen.setdefault(asked.run, job.model_copy(update={"run": asked}))
        seen.setdefault(job.run.run if job.run else "", job)
    return list(seen.values())


def data_root_of(job: Job, options: StartOptions, stored: StoredState) -> DataFolder:
    """The folder that the job's paths are relative to, for workers that run here.

    Raises:
        PlanError: The pictures are not there any more, but are needed for what is missing.
    """
    dataset = data_folder(job.dataset)
    if options.local and not stored.is_finalized and not dataset.is_dir():
        raise PlanError(f"{job.dataset}: the pictures of job {job.job!r} are not there any more")
    levels = 0 if job.folder == "." else job.folder.count("/") + 1
    return reduce(lambda folder, _: folder.parent, range(levels), dataset)


def run_or_hand_over(jobs: Sequence[Job], data_root: DataFolder, options: StartOptions, storage: Storage) -> JobStatus:
    """Run a job with our own processes until it is in a terminal state, or hand it over to the service.

    Only what is missing is done. `jobs` is the job seen with each run that is to be done, in that order; if one does
    not end as DONE, the rest is not done. `data_root` is what the job's paths are relative to here.

    Returns:
        The status seen with the last run that was waited for.
    """
    statuses = [job_status(storage, None, seen, options.settings.failed_share) for seen in jobs]
    ended_badly = [status for status in statuses if status.state in TERMINAL and status.state != "DONE"]
    if ended_badly and len(jobs) > 1:
        return ended_badly[0]  # otherwise the others may wait for it in vain
    if not options.local:
        return _hand_over(jobs, options, storage)
    left = [seen for seen, status in zip(jobs, statuses, strict=True) if status.state not in TERMINAL]
    return _run_here(left, data_root, options, storage) if left else statuses[-1]


def _run_here(jobs: Sequence[Job], data_root: DataFolder, options: StartOptions, storage: Storage) -> JobStatus:
    # It gets its own broker, even if one is set: workers on that one may read below another data root, without our
    # photos, and our workers would read below one without the photos of that broker's other jobs.
    settings, job = options.settings, jobs[0]
    local = LocalPipeline(
        store=storage.root,
        logs=storage.local_path("logs") if storage.is_local else None,
        data_root=str(data_root.resolve()),
        workers=options.workers,
        with_trainer=any(seen.run is not None for seen in jobs),
        broker_url=settings.broker() if settings.broker_url is not None else None,
    )
    quick = settings.model_copy(update={"tick_s": min(settings.tick_s, 0.5)})
    pipeline, screen = run_pipeline(local), Screen(options.console)
    lock = lock_for_local_run(storage, job.job)
    try:
        with lock as require_lock, interrupts.deferred() as pause, pipeline as (url, processes), screen:

            def each_round() -> None:
                require_lock()
                processes.restart_dead()

            context = Context(storage=storage, ledger=Ledger(connect(url)), broker=Broker(url), settings=quick)
            for job in jobs:
                _say_run(job, jobs, options)
                reconciler = Reconciler(context, only=job.job, only_run=job.run.run if job.run else None)
                status = wait_for_job(job, reconciler, screen, each_round=each_round, pause=pause)
                if status.state != "DONE":
                    return status
            if url != local.broker_url:
                processes.kill()  # nobody is at work, and our own broker ends too
            return status
    except KeyboardInterrupt:
        raise Interrupted(f"{_how_far(job, settings, storage)}; the same command goes on") from None


def _say_run(job: Job, jobs: Sequence[Job], options: StartOptions) -> None:
    """Print which of several runs is waited for."""
    if len(jobs) > 1 and job.run is not None:
        place = f"{jobs.index(job) + 1} of {len(jobs)}"
        options.console.print(f"run {job.run.run} ({place})", highlight=False, soft_wrap=True)


def _how_far(job: Job, settings: ProducerSettings, storage: Storage) -> str:
    """How far a job is, after the processes that worked on it have ended."""
    left = job_status(storage, None, job, settings.failed_share)
    is_training = left.state not in ("SUBMITTED", "RUNNING")
    shards = "before its first checkpoint" if is_training else f"{left.done} of {left.shards} shards are done"
    place = str(left.why or shards).removesuffix("nobody works on it").rstrip(", ") or "before the training"
    name = job.job if job.run is None or job.run.run == job.job else f"{job.job} --run {job.run.run}"
    return f"{name}, {place.removeprefix('interrupted ')}"


def _hand_over(jobs: Sequence[Job], options: StartOptions, storage: Storage) -> JobStatus:
    """Notify the reconciler of a job; with `wait`, also do its part until the job, seen with each run, has ended."""
    settings, job = options.settings, jobs[0]
    ledger = Ledger(connect(settings.broker()))
    if tell_redis(ledger, job):
        options.console.print("Redis cannot be reached: the job is stored and starts once the service sees it.")
    if not options.wait:
        return job_status(storage, None, jobs[-1], settings.failed_share)
    context = Context(storage=storage, ledger=ledger, broker=Broker(settings.broker()), settings=settings)
    with interrupts.deferred() as pause, Screen(options.console) as screen:
        try:
            for job in jobs:
                _say_run(job, jobs, options)
                status = wait_for_job(job, Reconciler(context), screen, pause=pause)
                if status.state != "DONE":
                    break
            return status
        except KeyboardInterrupt:
            looked = hint("watch", job.job, store=storage)
            raise Interrupted(f"no longer waiting for {job.job}, which goes on; `{looked}` shows it") from None
