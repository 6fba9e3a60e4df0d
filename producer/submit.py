"""A folder and what is asked of it → a job in storage: planned, linted, admitted, and the reconciler told."""

import hashlib
import logging
import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from producer.plan import PlanLines, PlannedJob, plan_job
from producer.reuse import Reuse, reuse_shards
from producer.state import load_job
from shared import __version__, faults
from shared.errors import PlanError
from shared.job import NAME_PATTERN, Job, JobSpec, RunSpec, canonical_json
from shared.ledger import UNREACHABLE, Ledger, job_scope, run_scope
from shared.manifest import JobPaths
from shared.storage import Storage

logger = logging.getLogger(__name__)

# Folders of the data root that an error names: enough to see a slip of the pen.
MOST_FOLDERS_NAMED: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a person asks with `submit`: the folder, the job's name (None: from the folder's), and the two specs.

    `run` carries the name `job` for itself and its job until the job's name is known.
    """

    dataset: Path
    name: str | None
    spec: JobSpec
    run: RunSpec | None
    strict: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """The job as it is in storage now, whether this request made it or found it, and what other jobs lent to it."""

    job: Job
    outcome: Literal["new", "known"]
    planned: PlannedJob
    reuse: Reuse | None = None


def submit(
    request: Request, *, storage: Storage, data_root: Path, progress: Callable[[str, int, int], None]
) -> Admission:
    """Plan, lint and admit a job.

    Args:
        request: What is asked.
        storage: Where jobs are kept.
        data_root: The folder below which workers find the pictures.
        progress: Called with the stage's name, how many are done, and of how many (0: not known yet).

    Returns:
        The job as it stands in storage.

    Raises:
        LintError: The set cannot be used as asked; nothing was written.
        PlanError: The name is invalid or taken by another request, or the folder is not below `data_root`.
    """
    folder = folder_below(request.dataset, data_root)
    name = request.name or name_from(request.dataset)
    if re.fullmatch(NAME_PATTERN, name) is None:
        raise PlanError(f"{name!r} is no job name: 1 to 64 of a-z, 0-9, '.', '_', '-', not beginning with a sign")
    planned = plan_job(
        request.dataset, spec=request.spec, job=name, progress=progress, data_root=data_root, strict=request.strict
    )
    digest = request_digest(request, planned.fingerprint)
    known = _known(request, planned, name=name, digest=digest, storage=storage)
    if known is not None:
        return Admission(job=known, outcome="known", planned=planned)
    job = _admit(request, planned, name=name, folder=folder, digest=digest, storage=storage)
    reuse = reuse_shards(job, storage=storage, folder=request.dataset, progress=progress)
    return Admission(job=job, outcome="new", planned=planned, reuse=reuse)


def folder_below(dataset: Path, data_root: Path) -> str:
    """`dataset` as a path relative to `data_root`, `/` as separator, "." for the root itself.

    Raises:
        PlanError: It is not a folder, or not below the data root.
    """
    if not dataset.is_dir():
        raise PlanError(
            f"{dataset}: expected a folder with images and Pascal-VOC XML, found no folder{_folders_of(data_root)}"
        )
    try:
        return dataset.resolve().relative_to(data_root.resolve()).as_posix()
    except ValueError as error:
        raise PlanError(
            f"{dataset} is not below the data root {data_root} that the workers see: move it there, set "
            "VOC_DATA_ROOT for producer and workers, or use --local"
        ) from error


def _folders_of(data_root: Path) -> str:
    """What could have been meant: in a container the data root is a mount, whose folders a person cannot see."""
    if not data_root.is_dir():
        return ""
    folders = sorted(entry.name for entry in data_root.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    return f" (in {data_root} there are: {', '.join(folders[:MOST_FOLDERS_NAMED]) or 'none'})"


def name_from(dataset: Path) -> str:
    """A job name made of the folder's: lower case, other letters than a-z, 0-9, '.', '_', '-' replaced."""
    slug = re.sub(r"[^a-z0-9._-]+", "-", dataset.resolve().name.lower()).strip("-._")
    return slug[:64] or "job"


def request_digest(request: Request, fingerprint: str) -> str:
    """Hex SHA-256 of all that decides the outcome: data set, spec and run, but not the names."""
    run = request.run.model_dump(mode="json", exclude={"run", "job"}) if request.run else None
    asked = {"dataset": fingerprint, "spec": request.spec.model_dump(mode="json"), "run": run}
    return hashlib.sha256(canonical_json(asked).encode()).hexdigest()


def _known(request: Request, planned: PlannedJob, *, name: str, digest: str, storage: Storage) -> Job | None:
    """The job `name` if it is there and was the same request.

    Raises:
        PlanError: The name belongs to another request.
    """
    if not storage.exists(JobPaths(name).job):
        return None
    job = load_job(storage, name)
    differing = [] if job.request_digest == digest else _differing(request, planned, job)
    if differing:
        raise PlanError(
            f"job {name!r} exists with other pictures or options ({', '.join(differing)}) and is never overwritten: "
            f"choose another --job (shards that did not change are reused), or remove it with `producer rm {name}`"
        )
    return job


def _differing(request: Request, planned: PlannedJob, job: Job) -> list[str]:
    """What `request` asks otherwise than `job`: names of options, or "pictures".

    Nothing where only the digests differ: `job` is of a version without the options that `request` leaves as they are.
    """
    run = request.run.model_copy(update={"run": job.job, "job": job.job}) if request.run else None
    asked = {**request.spec.model_dump(), "labels": planned.labels.names, **(run.model_dump() if run else {})}
    known = {**job.spec.model_dump(), "labels": job.labels, **(job.run.model_dump() if job.run else {})}
    names = sorted(name for name in asked.keys() | known.keys() if asked.get(name) != known.get(name))
    if names:
        return ["training"] if (run is None) != (job.run is None) else names
    lines = PlanLines(planned.tasks)
    deque(lines, maxlen=0)
    return [] if planned.split_plans(lines.digests) == job.splits else ["pictures"]


def _admit(request: Request, planned: PlannedJob, *, name: str, folder: str, digest: str, storage: Storage) -> Job:
    paths = JobPaths(name)
    storage.make_root()
    lines = PlanLines(planned.tasks)
    storage.write_lines(paths.plan, lines)
    storage.write_lines(paths.submit_findings, (finding.to_json() for finding in planned.findings))
    faults.reached("submit:after_plan")
    job = Job(
        job=name,
        dataset=str(request.dataset.resolve()),
        folder=folder,
        spec=request.spec,
        run=request.run.model_copy(update={"run": name, "job": name}) if request.run else None,
        labels=planned.labels.names,
        splits=planned.split_plans(lines.digests),
        counts=dict(planned.counts),
        request_digest=digest,
        made_by=f"voc2tflite {__version__}",
    )
    if not storage.create(paths.job, job.to_json().encode()):
        raise PlanError(f"job {name!r} was submitted by somebody else just now: submit again to see it")
    faults.reached("submit:after_job")
    return job


def tell(ledger: Ledger | None, job: str, *, is_new: bool = False) -> bool:
    """Tell the reconciler that `job` changed; False if it has to find out by itself within its next listing.

    What Redis knows of a job of this name, if it `is_new`, is of one whose files are gone: done shards, attempts.
    """
    try:
        if ledger is not None:
            for scope in (job_scope(job), run_scope(job)) if is_new else ():
                ledger.forget_scope(scope)
            ledger.touch(job)
            return True
    except UNREACHABLE as error:
        logger.warning("reconciler_not_told", extra={"job": job, "reason": str(error)})
    return False
