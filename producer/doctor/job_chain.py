"""One job from its request to its model, each step compared with the one before: `producer doctor JOB`.

The steps are asked, planned, written, finished, trained. What is not there yet is no fault; what is there must be of
this job, byte for byte.
"""

import io
import zipfile
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final

from producer.doctor.setup import CheckResult
from producer.jobs.plan import PlanReader
from producer.jobs.verify import broken_shards, manifest_faults, released_faults
from producer.progress import Progress
from producer.state.runs import run_words, runs_of, with_run
from producer.state.stored import TERMINAL, StoredState, run_state, stored_state
from shared.command import hint
from shared.errors import PipelineError, PlanError
from shared.jobs.identity import file_digest, find_job, read_note, read_receipt, read_request
from shared.jobs.job import Job
from shared.jobs.paths import JobPaths, RunPaths
from shared.specs.run import RunSpec
from shared.storage import Storage
from shared.text import counted

# How many faults of a step are named; the others are counted.
_NAMED: Final = 3
# Far more than the labels of any detector.
_LABELS_BYTES: Final = 2**20


def check_chain(storage: Storage, job: Job, failed_share: float, progress: Progress) -> list[CheckResult]:
    """Check a job from its request to its model: one check per step, in their order.

    `failed_share` is the share of failed shards that fails a job; `progress` is told how many shards are verified.
    """
    stored = stored_state(storage, job, failed_share)
    # In a finished job all shards but the failed ones should be there, otherwise only those that are done.
    is_finished = storage.exists(JobPaths(job.job).manifest)
    settled = [name for name in job.shards if (name not in stored.failed if is_finished else name in stored.done)]
    steps: dict[str, Callable[[], Iterable[str]]] = {
        "planned": lambda: _plan_faults(storage, job),
        "written": lambda: broken_shards(storage, job, settled, progress).values(),
        "finished": lambda: manifest_faults(storage, job),
        "trained": lambda: _run_faults(storage, job, job.run),
    }
    # If the job was loaded with an added run, the person asks about that run only.
    runs = runs_of(storage, job)
    added = [each for each in runs if each != job.run] if find_job(storage, job.job) == job else []
    steps |= {f"trained {each.run}": partial(_run_faults, storage, job, each) for each in added}
    identity = job.incarnation[:12] or "none (made by version 0.1.0)"
    size = f"{counted(len(job.labels), 'class', 'classes')}, {counted(len(job.shards), 'shard')}"
    asked = f"{job.job}, identity {identity}, {size}"
    checks = [CheckResult(name="asked", is_well=True, found=asked)]
    for name, find_faults in steps.items():
        try:
            faults = list(find_faults())
        except PipelineError as error:
            faults = [str(error)]
        found = _faults_text(faults) if faults else _good_text(name, job, stored, storage)
        advice = _advice(name, job, runs, storage) if faults else ""
        checks.append(CheckResult(name=name, is_well=not faults, found=found, advice=advice))
    return checks


def _good_text(name: str, job: Job, stored: StoredState, storage: Storage) -> str:
    done = f"{len(stored.done)} of {len(job.shards)} shards done"
    match name:
        case "planned":
            return "every line is as submitted"
        case "written":
            return f"{done}, each matches its receipt" + (f", {len(stored.failed)} failed" if stored.failed else "")
        case "finished":
            return "not yet" if stored.state in ("SUBMITTED", "RUNNING") else "manifest and labels match these shards"
    asked = with_run(storage, job, name.split()[1]).run if name != "trained" else job.run
    if asked is None:
        return "no training was asked for"
    state = run_state(storage, asked) if stored.is_finalized else stored.state
    what = "model" if asked.has_model else "audit's part"
    if state == "DONE":
        return f"the {what} was made from these shards"
    # Files do not tell whether somebody is at work; `status` asks those who are.
    return f"no {what}: {state}" if state in TERMINAL else f"no {what} yet"


def _advice(name: str, job: Job, runs: Iterable[RunSpec], storage: Storage) -> str:
    """How to repair the step `name`; `runs` are those of the job."""
    if name == "planned":
        remove = hint("rm", job.job, store=storage)
        return f"restore the file from a backup, or `{remove}` and submit the photos again"
    if not name.startswith("trained"):
        return f"`{hint('retry', job.job, store=storage)}` writes it again"
    run = job.run.run if name == "trained" and job.run is not None else name.split()[1]
    # Only its audit uses a fold, so the audit is named: retrying it does what is left of both.
    audit = next((asked.run for asked in runs if run in asked.audits and asked.folds), "")
    which = run_words(job.job, audit or run)
    what = "does it and its audit again" if audit else "trains it, or exports its model, again"
    return f"`{hint('retry', job.job, *which, store=storage)}` {what}"


def _faults_text(faults: list[str]) -> str:
    rest = f" … and {len(faults) - _NAMED} more" if len(faults) > _NAMED else ""
    return "; ".join(faults[:_NAMED]) + rest


def _plan_faults(storage: Storage, job: Job) -> Iterator[str]:
    plan = PlanReader(storage, job)
    for ordinal in range(len(job.shards)):
        try:
            task = plan.task(ordinal)
        except PlanError as error:
            yield str(error)
            continue
        if (task.job, task.incarnation, task.shard) != (job.job, job.incarnation, job.shards[ordinal]):
            yield f"line {ordinal + 1} of the plan belongs to {task.shard} of another job"
        receipt = read_receipt(storage, job, task.shard)
        if receipt is not None and receipt.written + receipt.quarantined != len(task.pairs):
            counts = f"{receipt.written + receipt.quarantined:,} in its receipt"
            yield f"{task.shard}: {counted(len(task.pairs), 'pair')} in the plan, {counts}"


def _run_faults(storage: Storage, job: Job, asked: RunSpec | None) -> Iterator[str]:
    if asked is None:
        return
    paths = RunPaths(asked.run)
    request = read_request(storage, asked.run)
    if request is not None and not request.trains_as(asked):
        yield f"{storage.url(paths.request)} asks for something other than job.json"
    summary = read_note(storage, paths.run, job.incarnation)
    if summary is None:
        failure = read_note(storage, paths.failed, job.incarnation)
        yield from () if failure is None else [str(failure.get("reason", "the run has failed"))]
        return
    if summary.get("manifest_digest") != file_digest(storage, JobPaths(job.job).manifest):
        yield "the model was trained on shards other than those in the store"
    if (summary.get("labels"), summary.get("job")) != (list(job.labels), job.job):
        yield f"{storage.url(paths.run)} has other classes or belongs to another job"
    altered = list(released_faults(storage, asked))
    yield from altered
    for key in (f"{paths.root}/{name}" for name in storage.list_names(paths.root) if name.endswith(".tflite")):
        is_altered = any(fault.startswith(f"{storage.url(key)}:") for fault in altered)
        if not is_altered and _labels_in(storage.read(key)) != list(job.labels):
            yield f"{storage.url(key)}: its labels are not those of the job"


def _labels_in(model: bytes) -> list[str] | None:
    """The class names in a `.tflite`, one per line of its `labels.txt`; None if it has none that can be read."""
    try:
        with zipfile.ZipFile(io.BytesIO(model)) as archive, archive.open("labels.txt") as file:
            return file.read(_LABELS_BYTES).decode().split("\n")[:-1]
    except (zipfile.BadZipFile, KeyError, UnicodeDecodeError, OSError):
        return None
