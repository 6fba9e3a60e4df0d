"""A request and what lint found -> a job in storage: planned and admitted, and the reconciler notified."""

import hashlib
import re
import uuid
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Final, Literal

from producer.dataset.lint import LintedFolder, lint_folder
from producer.dataset.set_checks import NOTHING_TO_LEARN
from producer.jobs.plan import PlanLines, dataset_digest, plan_job
from producer.jobs.removal import remove_files, remove_run
from producer.jobs.reuse import Reuse, reuse_shards
from producer.progress import Progress
from producer.state.runs import (
    add_run,
    check_name,
    command_for,
    decided,
    requests_by_job,
    require_free,
    run_asked,
)
from producer.state.stored import TERMINAL, stored_state
from shared import __version__, faults
from shared.command import hint
from shared.errors import PlanError
from shared.jobs.contents import contents_of
from shared.jobs.identity import asked_now, find_job, is_removed, read_job_file
from shared.jobs.job import Job
from shared.jobs.paths import JobPaths
from shared.jobs.schema import SHARD_FORMAT
from shared.specs.data import JobSpec
from shared.specs.frozen import SCHEMA_VERSION, canonical_json
from shared.specs.options import words
from shared.specs.run import ReleaseOptions, RunSpec
from shared.specs.training import TrainingOptions
from shared.storage import BucketFolder, DataFolder, Stamp, Storage

# How many folders of the data root an error names: enough to notice a typing mistake.
MOST_FOLDERS_NAMED: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a person asks for with `submit`: the folder, the job's name (None: made from the folder's), and two specs.

    `run_name` is given with `--run`, for a further training on the shards of a job; if None, the run has the job's
    name. `typed` are the fields of `spec` that a person typed, `archive` is the zip or tar that `dataset` came from.
    """

    dataset: DataFolder
    name: str | None
    spec: JobSpec
    run: TrainingOptions | None
    strict: bool = False
    run_name: str | None = None
    typed: frozenset[str] = frozenset()
    archive: Path | None = None

    @property
    def job(self) -> str:
        """The job's name."""
        return self.name or name_from(self.dataset)


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """The job as it is in storage now, seen with the run that was asked for, and what was reused.

    The job was made by this request (`new`), was there already (`known`), or got a further run (`run`).
    """

    job: Job
    outcome: Literal["new", "known", "run"]
    reuse: Reuse | None = None


def lint_request(request: Request, *, data_root: DataFolder, progress: Progress) -> LintedFolder:
    """Scan the request's folder and read its XML; the result is for `submit`.

    Raises:
        LintError: The set cannot be used as asked.
        OptionError: The name of the job or run is not valid.
        PlanError: The folder is not below `data_root`.
    """
    folder_below(request.dataset, data_root)
    check_name(request.job, "job")
    if request.run_name is not None:
        check_name(request.run_name, "run")
    linted = lint_folder(request.dataset, spec=request.spec, progress=progress, data_root=data_root)
    linted.require_usable(strict=request.strict, is_learned=request.run is not None)
    return linted


def with_backbone(request: Request, linted: LintedFolder, storage: Storage) -> Request:
    """The request with `auto` replaced by the backbone that it stands for, or that of the run if it exists already.

    Raises:
        OptionError: As `decided`.
    """
    if request.run is None:
        return request
    known = run_asked(storage, request.job, request.run_name)
    return replace(request, run=decided(request.run, linted.counts, known))


def submit(
    request: Request, linted: LintedFolder, *, storage: Storage, data_root: DataFolder, progress: Progress
) -> Admission:
    """Plan and admit a job.

    `linted` comes from `lint_request`; workers find the pictures below `data_root`; `progress` is told how many shards
    of other jobs are reused.

    Raises:
        LintError: More pictures or shards than a job can have; nothing was written.
        PlanError: The name is taken by another request, or the folder is not below `data_root`.
    """
    folder = folder_below(request.dataset, data_root)
    leftover = read_job_file(storage, request.job)
    if leftover is not None and is_removed(storage, leftover):
        remove_files(storage, leftover)  # its removal was interrupted; nobody works on it any more
    job = find_job(storage, request.job)
    if job is None:
        if request.run is not None:
            require_free(storage, request.run_name or request.job, request.job)
        job = _admit(with_backbone(request, linted, storage), linted, folder, storage)
        if job is not None:
            reuse = reuse_shards(job, storage=storage, folder=request.dataset, progress=progress)
            contents_of(storage, job.job)  # notes them for later jobs now, so that the same submit again writes nothing
            return Admission(job=job, outcome="new", reuse=reuse)
        job = find_job(storage, request.job)
    if job is None:
        raise PlanError(f"job {request.job!r} was submitted by somebody else just now, and removed: submit again")
    require_as_known(request, linted, storage)
    request = with_backbone(request, linted, storage)
    if request.run is not None and request.run_name is not None:
        return further_run(job, request.run_name, request.run, storage)
    return Admission(job=job, outcome="known")


def require_as_known(request: Request, linted: LintedFolder, storage: Storage) -> None:
    """Check that the job of this name, if there is one, was asked for with the same pictures and options.

    Raises:
        LintError: More pictures or shards than a job can have.
        OptionError: As `decided`.
        PlanError: It was asked for with other pictures or options.
    """
    job = find_job(storage, request.job)
    if job is None:
        return
    asked, request = request, with_backbone(request, linted, storage)
    is_same = job.request_digest == request_digest(request, dataset_digest(linted))
    differing = [] if is_same else _differing(request, linted, job, storage)
    if differing:
        raise PlanError(_export_refusal(request, job, differing, storage) or _refusal(asked, job, differing, storage))


def further_run(job: Job, name: str, options: TrainingOptions, storage: Storage) -> Admission:
    """Ask for the run `name` of an existing job; raises what `add_run` does, too.

    Raises:
        PlanError: The job has no photo to train on, or none with an object to learn.
    """
    if "train" not in job.splits:
        raise PlanError(
            f"job {job.job!r} has no photo in train, expected some to learn from: submit its photos under another "
            f"name, with photos in train (`{hint('lint', job.archive or job.dataset)}` says how they are dealt)"
        )
    if job.counts.get(NOTHING_TO_LEARN):
        raise PlanError(
            f"job {job.job!r} has only objects marked difficult in train, and was asked for with --difficult ignore, "
            "which learns none: submit its photos under another name with --difficult keep"
        )
    seen, is_new = add_run(storage, job, name, options)
    return Admission(job=seen, outcome="run" if is_new else "known")


def for_known_job(request: Request, job: Job, storage: Storage) -> Request:
    """The request for a further run of `job`, with the job's data options.

    Raises:
        PlanError: A data option was typed that differs from the job's.
    """
    ours, usual, theirs = request.spec.model_dump(), JobSpec().model_dump(), job.spec.model_dump()
    # `--seed` serves both the split and training; here it can only mean training.
    differing = [name for name in ours if name != "seed" and ours[name] != theirs[name]]
    typed = [name for name in differing if name in request.typed or ours[name] != usual[name]]
    if typed:
        raise PlanError(_refusal(request, job, sorted(typed), storage))
    return replace(request, spec=job.spec)


def _export_refusal(request: Request, job: Job, differing: list[str], storage: Storage) -> str | None:
    """What to do if only the export options differ from those of the known run; None if more differs."""
    asked = _run_of(request, job.job, job.incarnation)
    if asked is None or job.run is None or not set(differing) <= ReleaseOptions.model_fields.keys():
        return None
    again = command_for(storage, job.run, ReleaseOptions.between(asked_now(storage, job.run), asked))
    return f"job {job.job!r} exists with other options for its export: `{again}` exports its model with these"


def _refusal(request: Request, job: Job, differing: list[str], storage: Storage) -> str:
    """Why a job is not overwritten, and what to do about it; `differing` are names of fields, or "pictures"."""
    of_run = set(differing) <= TrainingOptions.model_fields.keys() - JobSpec.model_fields.keys()
    what = ", ".join(differing)
    remove = hint("rm", job.job, store=storage)
    if of_run or differing == ["training"]:
        return (
            f"job {job.job!r} exists with other training options ({what}): --run NAME trains on its shards with these, "
            f"or remove the job with `{remove}`"
        )
    other = what if differing == ["pictures"] else f"options ({what})"
    if job.dataset != str(request.dataset.resolve()):
        other = f"photos ({job.dataset})" + ("" if other == "pictures" else f" and {other}")
    elif other == "pictures" and stored_state(storage, job, failed_share=1).state not in TERMINAL:
        other += (
            f" (`{hint('resume', job.job, store=storage)}` goes on with those of its pictures that are still there)"
        )
    return (
        f"job {job.job!r} exists with other {other} and is never overwritten: `{_as_another_job(request, storage)}` "
        f"makes one beside it (shards that did not change are reused); `{remove}` removes it"
    )


def _as_another_job(request: Request, storage: Storage) -> str:
    """The command that asks for the same under a free name."""
    names = (f"{request.job[:60]}-{number}" for number in count(2))
    name = next(each for each in names if not storage.exists(JobPaths(each).job))
    run = request.run
    asked = ["--no-train"] if run is None else words(run.with_files_in(storage.root), TrainingOptions)
    return hint(
        "submit",
        request.archive or request.dataset,
        "--job",
        name,
        *words(request.spec, JobSpec),
        *asked,
        store=storage,
    )


def folder_below(dataset: DataFolder, data_root: DataFolder) -> str:
    """`dataset` as a path relative to `data_root`, `/` as separator, "." for the root itself.

    Raises:
        PlanError: It is not a folder, or not below the data root.
    """
    if isinstance(dataset, BucketFolder) or isinstance(data_root, BucketFolder):
        return _folder_in_bucket(dataset, data_root)
    if not dataset.is_dir():
        found = f"no folder{_folders_of(data_root)}"
        raise PlanError(f"{dataset}: expected a folder with images and Pascal-VOC XML, found {found}")
    try:
        return dataset.resolve().relative_to(data_root.resolve()).as_posix()
    except ValueError as error:
        raise PlanError(
            f"{dataset} is not below the data root {data_root} that the workers see: move it there, set "
            "VOC_DATA_ROOT for producer and workers, or use --local"
        ) from error


def _folder_in_bucket(dataset: DataFolder, data_root: DataFolder) -> str:
    """As `folder_below`, if one of the two is in a bucket; listing `dataset` later shows whether it holds anything."""
    if not isinstance(dataset, BucketFolder):
        raise PlanError(
            f"{dataset} is a folder, and the workers read below {data_root} (VOC_DATA_ROOT): copy it there and submit "
            f"{data_root}/{dataset.resolve().name}, or use --local"
        )
    if not isinstance(data_root, BucketFolder):
        raise PlanError(
            f"{dataset} is in a bucket, and the workers read below the folder {data_root}: set VOC_DATA_ROOT={dataset} "
            "for producer and workers, or use --local"
        )
    try:
        return dataset.inside(data_root)
    except ValueError as error:
        raise PlanError(f"{error}, which the workers read: set VOC_DATA_ROOT, or use --local") from error


def _folders_of(data_root: Path) -> str:
    """The folders that may have been meant: in a container the data root is a mount that a person cannot look into."""
    if not data_root.is_dir():
        return ""
    folders = sorted(entry.name for entry in data_root.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    return f" (in {data_root} there are: {', '.join(folders[:MOST_FOLDERS_NAMED]) or 'none'})"


def name_from(dataset: DataFolder) -> str:
    """A job name made from the folder's: in lower case, all but a-z, 0-9, '.', '_', '-' replaced by '-'."""
    slug = re.sub(r"[^a-z0-9._-]+", "-", dataset.resolve().name.lower()).strip("-._")
    return slug[:64] or "job"


def request_digest(request: Request, fingerprint: str) -> str:
    """Hex SHA-256 of all that decides the outcome: data set, spec and run, but not the names."""
    # With the fields that a `RunSpec` adds besides names, because the digests of 0.1.0 included them.
    run = request.run and {"schema_version": SCHEMA_VERSION, "kind": "train", **request.run.model_dump(mode="json")}
    asked = {"dataset": fingerprint, "spec": request.spec.model_dump(mode="json"), "run": run}
    return hashlib.sha256(canonical_json(asked).encode()).hexdigest()


def _differing(request: Request, linted: LintedFolder, job: Job, storage: Storage) -> list[str]:
    """In what `request` differs from `job`: names of options, or "pictures".

    Empty if only the digests differ: then an older version made `job`, without options that `request` leaves at their
    defaults. A request for a further run may differ in what is asked of the trainer.
    """
    asked = {**request.spec.model_dump(), "labels": linted.labels.names}
    known = {**job.spec.model_dump(), "labels": job.labels}
    if request.run_name is None:
        run = _run_of(request, job.job, job.incarnation)
        if (run is None) != (job.run is None):
            return ["training"]
        asked |= run.model_dump() if run else {}
        known |= asked_now(storage, job.run).model_dump() if job.run else {}
    names = sorted(name for name in asked.keys() | known.keys() if asked.get(name) != known.get(name))
    if "labels" in names:  # they follow from pictures and options
        names = [name for name in names if name != "labels"] or ["pictures"]
    if names:
        return names
    tasks = plan_job(linted, job=job.job, incarnation=job.incarnation, storage=storage)
    lines = PlanLines(tasks)
    deque(lines, maxlen=0)
    return [] if tasks.split_plans(lines.digests) == job.splits else ["pictures"]


def _run_of(request: Request, job: str, incarnation: str) -> RunSpec | None:
    """What the request asks of the trainer, as a run of `job`; None without training."""
    name = request.run_name or job
    return RunSpec(**dict(request.run), run=name, job=job, incarnation=incarnation) if request.run else None


def _admit(request: Request, linted: LintedFolder, folder: str, storage: Storage) -> Job | None:
    """Write the plan and then `job.json`; None if another job has taken the name meanwhile."""
    tasks = plan_job(linted, job=request.job, incarnation=uuid.uuid4().hex, storage=storage)
    paths, lines = JobPaths(tasks.job), PlanLines(tasks)
    storage.make_root()
    leftovers = storage.walk(paths.root)
    plan, findings = paths.plan(tasks.incarnation), paths.submit_findings(tasks.incarnation)
    storage.write_lines(plan, lines)
    storage.write_lines(findings, (finding.to_json() for finding in linted.findings))
    faults.reached("submit:after_plan")
    job = Job(
        job=tasks.job,
        incarnation=tasks.incarnation,
        dataset=str(request.dataset.resolve()),
        archive="" if request.archive is None else str(request.archive.absolute()),
        folder=folder,
        spec=request.spec,
        run=_run_of(request, tasks.job, tasks.incarnation),
        labels=linted.labels.names,
        splits=tasks.split_plans(lines.digests),
        counts=dict(linted.counts),
        request_digest=request_digest(request, dataset_digest(linted)),
        made_by=f"voc2tflite {__version__}",
        shard_format=SHARD_FORMAT,
    )
    storage.make_shared_folder(paths.shards)
    if not storage.create(paths.job, job.to_json().encode()):
        storage.remove(plan)
        storage.remove(findings)
        return None
    faults.reached("submit:after_job")
    storage.link(plan, paths.shown_plan)  # a plain name for people; programs read the other
    _remove_leftovers(storage, job, leftovers)
    return job


def _remove_leftovers(storage: Storage, job: Job, leftovers: Mapping[str, Stamp]) -> None:
    """Remove what a removed job of this name has left: the files listed before `job` was written.

    A file that was replaced since then belongs to the new job, or to somebody else who submits under the same name.
    """
    for key, stamp in leftovers.items():
        if storage.stamp_or_none(key) == stamp:
            storage.remove(key)
    for (name, incarnation), runs in requests_by_job(storage).items():
        for asked in runs if name == job.job and incarnation != job.incarnation else ():
            remove_run(storage, asked.run, name, but=job.incarnation)
    remove_run(storage, job.job, job.job, but=job.incarnation)
