"""The runs of a job: the one that it was submitted with, and those that `submit --run NAME` has added on its shards.

The first is in `job.json`. An added run is a `runs/<name>/request.json` that names the job and its identity; it is
created at the submit, which also reserves the name. Trainers are told of the run when the shards are finished.

How a run is exported and judged may be changed later, in its `request.json`, for example after the gate refused it.
"""

import json
import math
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from shared.command import hint
from shared.errors import ExportError, FormatError, OptionError, PlanError
from shared.jobs.identity import asked_now, find_job, is_name, read_note, read_request, readable_requests
from shared.jobs.job import Job
from shared.jobs.paths import JobPaths, RunPaths
from shared.specs.run import ReleaseOptions, RunSpec
from shared.specs.training import TrainingOptions
from shared.storage import Storage

NAME_RULE: Final = "1 to 64 characters of a-z, 0-9, '.', '_', '-', beginning with a letter or digit"

# Requests by name and identity of their job.
Requests = Mapping[tuple[str, str], Sequence[RunSpec]]


def requests_by_job(storage: Storage) -> Requests:
    """What was asked of all runs of the store, by job: for callers that look at many jobs and read it once."""
    found: dict[tuple[str, str], list[RunSpec]] = {}
    for asked in readable_requests(storage):
        found.setdefault((asked.job, asked.incarnation), []).append(asked)
    return found


def runs_of(storage: Storage, job: Job, requests: Requests | None = None) -> list[RunSpec]:
    """The runs of `job`: that of its submit first, then the added ones by name; `requests` if they are read already."""
    own = [job.run] if job.run is not None else []
    asked = (requests_by_job(storage) if requests is None else requests).get((job.job, job.incarnation), ())
    return own + [added for added in asked if job.run is None or added.run != job.run.run]


def with_run(storage: Storage, job: Job, run: str) -> Job:
    """The job as if it had been submitted with its run `run`, so that `job.run` is that run.

    Raises:
        PlanError: The job has no such run.
    """
    runs = runs_of(storage, job)
    for asked in runs:
        if asked.run == run:
            return job.model_copy(update={"run": asked})
    names = ", ".join(asked.run for asked in runs) or "none"
    raise PlanError(f"job {job.job!r} has no run {run!r} (there are: {names})")


def check_name(name: str, what: str) -> None:
    """Check the name of a new job or run, which also becomes a folder's name.

    Raises:
        OptionError: It is not a valid name.
    """
    if not is_name(name):
        raise OptionError(f"{name!r} is no {what} name: {NAME_RULE}")


def require_free(storage: Storage, run: str, job: str) -> None:
    """Check that no other job of the store has, or will have, a run of this name.

    Raises:
        PlanError: One has.
    """
    other = find_job(storage, run) if run != job else None
    if other is not None:
        raise PlanError(f"--run {run}: a job has this name, and so has its run: choose another name")
    asked = _living(storage, run)
    if asked is not None and asked.job != job:
        raise PlanError(f"run {run!r} of job {asked.job!r} has this name already: choose another one")


def add_run(storage: Storage, job: Job, run: str, options: TrainingOptions) -> tuple[Job, bool]:
    """Ask for a run of `job` on the shards that it has, or will have; safe to repeat.

    Returns:
        The job with that run, and whether the run is new.

    Raises:
        OptionError: `run` is not a valid name.
        PlanError: Another job has a run of this name, or this job has one with other options.
    """
    known = known_run(storage, job, run, options)
    if known is None and add_request(storage, asked := _spec_of(job, run, options, known)):
        return job.model_copy(update={"run": asked}), True
    known = known or known_run(storage, job, run, options)
    if known is None:
        raise PlanError(f"run {run!r} was asked for by somebody else just now, and removed: submit again")
    return job.model_copy(update={"run": known}), False


def add_request(storage: Storage, asked: RunSpec) -> bool:
    """Ask for a run whose name is free; return False if somebody else has taken the name meanwhile."""
    storage.remove_tree(RunPaths(asked.run).root)  # what a removed job has left there
    return storage.create(RunPaths(asked.run).request, asked.to_json().encode())


def known_run(storage: Storage, job: Job, run: str, options: TrainingOptions) -> RunSpec | None:
    """The run `run` of `job` if it was asked for already; None if the name is free.

    Raises:
        OptionError: `run` is not a valid name.
        PlanError: Another job has a run of this name, or this job has one with other options.
    """
    check_name(run, "run")
    require_free(storage, run, job.job)
    known = run_asked(storage, job.job, run)
    differing = [] if known is None else differing_fields(known, _spec_of(job, run, options, known))
    if differing:
        remove = hint("rm", job.job, "--run", run, store=storage)
        found = f"with other options ({', '.join(differing)})"
        raise PlanError(f"run {run!r} exists {found}: choose another --run, or remove it with `{remove}`")
    return known


def decided(options: TrainingOptions, counts: Mapping[str, int], known: RunSpec | None) -> TrainingOptions:
    """The options with `auto` replaced by a backbone: that of the known run, else one chosen by the job's `counts`.

    Raises:
        OptionError: A new run is to stop by its validation figures, but no photo is in val.
    """
    asked = {"--stop-at-map": options.stop_at_map, "--patience": options.patience}
    rules = [f"{option} {value:g}" for option, value in asked.items() if value is not None]
    if known is None and rules and counts.get("val") == 0:
        raise OptionError(
            f"{', '.join(rules)}: expected photos in val to stop by, found none; leave it out, or put some there by "
            "--split or a list"
        )
    return options.with_backbone(counts, known)


def _spec_of(job: Job, run: str, options: TrainingOptions, known: RunSpec | None) -> RunSpec:
    options = decided(options, job.counts, known)
    return RunSpec(**dict(options), run=run, job=job.job, incarnation=job.incarnation)


def differing_fields(known: RunSpec, asked: RunSpec) -> list[str]:
    """The fields in which two requests differ, sorted."""
    theirs, ours = known.model_dump(), asked.model_dump()
    if asked.precision is None and known.precision == "float32":
        del theirs["precision"]  # an older version always noted it, even for an audit, which trains nothing
    return sorted(name for name in ours.keys() | theirs.keys() if theirs.get(name) != ours.get(name))


def with_its_folds(storage: Storage, job: Job, asked: RunSpec) -> list[RunSpec]:
    """A run and, if it is an audit, the folds that were asked for with it: nothing else uses them."""
    folds = [run_asked(storage, job.job, name) for name in asked.audits]
    return [asked, *(fold for fold in folds if fold is not None and fold.fold)]


def names_of(runs: Iterable[RunSpec]) -> str:
    """The names of runs, for a person."""
    return ", ".join(asked.run for asked in runs)


def run_asked(storage: Storage, job: str, run: str | None) -> RunSpec | None:
    """The request of the run `run` of a job, or of the run that it was submitted with if None; None if there is none.

    Raises:
        PlanError: The run's request cannot be read.
    """
    found = find_job(storage, job)
    own = None if found is None else found.run
    if run is None or (own is not None and own.run == run):
        return own
    return _living(storage, run)


def _living(storage: Storage, run: str) -> RunSpec | None:
    """The request of the run `run`; None if there is none, or its job was removed.

    Raises:
        PlanError: The request or its job cannot be read, so it must not be replaced.
    """
    try:
        asked = read_request(storage, run)
        job = find_job(storage, asked.job) if asked is not None else None
    except FormatError as error:
        raise PlanError(f"run {run!r} cannot be read: {error}") from error
    return asked if job is not None and asked is not None and job.incarnation == asked.incarnation else None


def change_release(storage: Storage, job: Job, changes: ReleaseOptions) -> list[str]:
    """Have the job's run exported and judged with `changes` from now on; return what was done, for a person.

    A run that the gate refused is released again, without training.

    Raises:
        OptionError: The job has no training, or the changes do not fit what was asked.
        PlanError: The run is done.
    """
    if not changes.typed:
        return []
    if job.run is None:
        raise OptionError(f"{shlex.join(changes.typed)}: job {job.job} has no training (--no-train)")
    if _is_finished(storage, job.run):
        raise PlanError(
            f"run {job.run.run} is DONE: `{command_for(storage, job.run, changes)}` exports its model again"
        )
    paths, before = RunPaths(job.run.run), asked_now(storage, job.run)
    storage.write(paths.request, changes.applied_to(before).to_json().encode())
    done = [f"from now on with {shlex.join(changes.typed)}"]
    if is_refused(storage, job.run):
        storage.remove(paths.failed)
        done.append("the refused model is released again")
    return done


def command_for(storage: Storage, run: RunSpec, changes: ReleaseOptions) -> str:
    """The command to export and judge a run with `changes`: `export` if it is finished, otherwise `retry`."""
    if _is_finished(storage, run):
        return hint("export", run.run, *changes.typed, store=storage)
    return _retry(run, changes, storage)


def retry_hint(storage: Storage, job: Job) -> str:
    """The command that does again what failed or was cancelled of a job, seen with its run.

    A run that was cancelled by name is only continued by name (`--run`).
    """
    is_alone = job.run is not None and read_note(storage, JobPaths(job.job).cancelled, job.incarnation) is None
    note = read_note(storage, RunPaths(job.run.run).cancelled, job.incarnation) if job.run and is_alone else None
    if job.run is None or (note is None and job.run.run == job.job):
        return hint("retry", job.job, store=storage)
    run = _audit_of(storage, job, job.run, is_cancelled=note is not None)
    return hint("retry", job.job, *(["--run", run] if is_alone else []), store=storage)


def _audit_of(storage: Storage, job: Job, run: RunSpec, *, is_cancelled: bool) -> str:
    """The audit that `run` is a fold of, which stopped with it and is done again with all its folds; else `run` itself.

    If the fold is cancelled but the audit is not, the audit has no cancel to undo, and `run` itself is returned.
    """
    audits = [each for each in runs_of(storage, job) if run.run in each.audits] if run.fold else []
    if is_cancelled:
        audits = [each for each in audits if read_note(storage, RunPaths(each.run).cancelled, each.incarnation)]
    return (audits or [run])[0].run


def run_words(job: str, run: str | None) -> list[str]:
    """The option that names a run of a job, unless the run has the job's name, which is the default."""
    return [] if run is None or run == job else ["--run", run]


def is_refused(storage: Storage, run: RunSpec) -> bool:
    """Whether a run failed at its export: it was trained, but the gate refused it."""
    note = read_note(storage, RunPaths(run.run).failed, run.incarnation)
    return note is not None and note.get("kind") == ExportError.__name__


def ways_on(storage: Storage, job: Job) -> list[str]:
    """The commands to try after a refusal for loss of accuracy, the most promising first; none for other failures."""
    if job.run is None or not is_refused(storage, job.run):
        return []
    asked, drop = asked_now(storage, job.run), _refused_drop(storage, job.run)
    if drop is None:
        return []
    ways = [ReleaseOptions(max_drop=math.ceil(round(10 * drop, 3)) / 10)]
    if asked.backbone == "conv" and asked.quantize == "ptq":
        ways.insert(0, ReleaseOptions(quantize="qat"))
    return [_retry(asked, way, storage) for way in ways]


def _retry(run: RunSpec, changes: ReleaseOptions, storage: Storage) -> str:
    return hint("retry", run.job, *run_words(run.job, run.run), *changes.typed, store=storage)


def _is_finished(storage: Storage, run: RunSpec) -> bool:
    return read_note(storage, RunPaths(run.run).run, run.incarnation) is not None


def _refused_drop(storage: Storage, run: RunSpec) -> float | None:
    """The most points (percent) of mAP50 that a form lost; None if something else, or nothing, was refused."""
    root = RunPaths(run.run)
    checks = json.loads(storage.read_or_none(f"{root.root}/gate.json") or "[]")
    refused = [check["name"] for check in checks if not check["is_ok"]]
    lossy = [name.split(":")[0] for name in refused if name.endswith(": accuracy kept")]
    metrics: dict[str, Any] = json.loads(storage.read_or_none(root.metrics) or "{}")
    if not lossy or len(lossy) < len(refused):
        return None
    map50 = {form: float(row["gate"]["map50"]) for form, row in metrics.items()}
    return max(100 * (map50["float32"] - map50[form]) for form in lossy)
