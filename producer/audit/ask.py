"""`audit JOB` -> its folds and the run that compares what they saw with the labels, done here or handed over."""

from dataclasses import dataclass
from typing import Final

from producer.audit.cost import cost_text, fold_counts, photos_of
from producer.audit.decisions import with_decisions
from producer.audit.photo_sizes import note_photo_sizes, photos_folder
from producer.run.intent import StartOptions, choice_text, say_intent
from producer.run.start_job import data_root_of, run_or_hand_over
from producer.state.runs import add_request, check_name, differing_fields, require_free, run_asked
from producer.state.status import JobStatus, job_status
from producer.state.stored import load_job, run_state, stored_state
from producer.terminal.progress import Screen
from shared.command import hint
from shared.errors import OptionError, PlanError
from shared.jobs.identity import read_manifest
from shared.jobs.job import Job
from shared.specs.run import FoldOptions, RunSpec
from shared.storage import Storage
from shared.text import counted

# How much of a job's name is used in the names of its audit's runs, which have at most 64 letters.
_NAME_LETTERS: Final = 48
# With fewer photos a fold's model knows too little to doubt a person.
_FEW_PHOTOS: Final = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRequest:
    """An audit of the job `name`: by `folds` trainings, or by the model of its finished run `model_of` if not None."""

    name: str
    folds: int
    training: FoldOptions
    model_of: str | None = None


def audit_name(job: str, folds: int) -> str:
    """The name of the run that an audit ends with; `folds` is 0 for a quick audit."""
    return f"{job[:_NAME_LETTERS]}.audit-{folds or 'quick'}"


def start_audit(request: AuditRequest, options: StartOptions) -> JobStatus:
    """Say what is about to be done, then do it: ask for the runs, and do them or hand them over.

    Returns:
        The status of the job seen with the last of its runs that was waited for.

    Raises:
        OptionError: There are fewer photos than folds.
        PlanError: There is no such job or run, there is nothing to audit, or it was audited with other options.
        StorageError: The store or the photos' bucket refused.
    """
    storage = Storage(options.settings.store)
    job = load_job(storage, request.name)
    runs = _quick_run(job, request, storage) if request.model_of else _fold_runs(job, request, storage)
    is_known = _require_same(storage, job, runs)
    seen = [job.model_copy(update={"run": asked}) for asked in runs]
    if run_state(storage, runs[-1]) == "DONE":  # even if the photos are gone by now
        return job_status(storage, None, seen[-1], options.settings.failed_share)
    folder = photos_folder(job, options.settings.data_root)
    say_intent(_intent(job, request, runs, storage), options, is_known=is_known, with_trainer=True)
    with Screen(options.console) as screen:
        note_photo_sizes(job, folder, storage, screen.stage)
    for asked in runs:
        if run_asked(storage, job.job, asked.run) is None:
            add_request(storage, asked)
    stored = stored_state(storage, job, options.settings.failed_share)
    return run_or_hand_over(seen, data_root_of(job, options, stored), options, storage)


def _fold_runs(job: Job, request: AuditRequest, storage: Storage) -> list[RunSpec]:
    """The runs of an audit by folds, in the order in which they are done.

    Raises:
        OptionError: There are fewer photos than folds.
        PlanError: No photo has a box.
    """
    photos, folds = photos_of(job), request.folds
    _require_boxes(job, storage)
    if photos < folds:
        fewer = f"`--folds {photos}` or " if photos > 1 else ""
        raise OptionError(
            f"--folds {folds}: job {job.job} has {counted(photos, 'photo')}, and every fold needs one: {fewer}`--quick`"
        )
    counts = fold_counts(job, folds)
    ours = {"job": job.job, "incarnation": job.incarnation}
    runs = []
    for fold in range(1, folds + 1):
        name = f"{job.job[:_NAME_LETTERS]}.fold-{fold}-of-{folds}"
        training = request.training.with_backbone(counts, run_asked(storage, job.job, name))
        runs.append(RunSpec(**dict(training), **ours, run=name, fold=fold, folds=folds))
    audits = tuple(asked.run for asked in runs)
    return [*runs, RunSpec(**ours, run=audit_name(job.job, folds), folds=folds, audits=audits)]


def _quick_run(job: Job, request: AuditRequest, storage: Storage) -> list[RunSpec]:
    """The one run of a quick audit.

    Raises:
        PlanError: No photo has a box, or the run whose model is to be asked has no model (yet).
    """
    _require_boxes(job, storage)
    asked = run_asked(storage, job.job, request.model_of)
    if asked is None or (asked.job, asked.incarnation) != (job.job, job.incarnation) or not asked.has_model:
        raise PlanError(f"job {job.job!r} has no run {request.model_of!r} with a model, which --quick asks")
    state = run_state(storage, asked)
    if state != "DONE":
        raise PlanError(f"run {asked.run} is {state}, and --quick asks the model of a finished run")
    ours = {"job": job.job, "incarnation": job.incarnation}
    return [RunSpec(**ours, run=audit_name(job.job, 0), audits=(asked.run,))]


def _require_boxes(job: Job, storage: Storage) -> None:
    manifest = read_manifest(storage, job)  # counts what workers kept, once they are done
    kept = sum(sum(counts.values()) for counts in manifest.class_counts.values()) if manifest is not None else None
    if (job.counts.get("objects_kept", 1) if kept is None else kept) == 0:
        raise PlanError(
            f"job {job.job!r}: no photo has a box, so there are no labels to audit; "
            "`predict MODEL PHOTOS --voc FOLDER` proposes some"
        )


def _require_same(storage: Storage, job: Job, runs: list[RunSpec]) -> bool:
    """Whether all these runs were asked for before, with the same options.

    Raises:
        PlanError: One was asked for with other options, or its name is taken.
    """
    known = []
    for asked in runs:
        check_name(asked.run, "run")
        require_free(storage, asked.run, job.job)
        before = run_asked(storage, job.job, asked.run)
        if before is not None and (differing := differing_fields(before, asked)):
            remove = hint("rm", job.job, "--run", runs[-1].run, store=storage)
            lost = with_decisions(storage, runs[-1].run)
            found = f"audited with other options ({', '.join(differing)})"
            raise PlanError(f"job {job.job!r} was {found}: `{remove}` removes that audit{lost}")
        known.append(before is not None)
    return all(known)


def _intent(job: Job, request: AuditRequest, runs: list[RunSpec], storage: Storage) -> str:
    """What is about to be done, and how long it takes."""
    photos = photos_of(job)
    what = f"audit of job {job.job}: {counted(photos, 'photo')}"
    if request.model_of:
        return (
            f"{what}, judged by the model of run {request.model_of}, which has learned from most of these labels, "
            "wrong ones included: it finds fewer mistakes than an audit with folds"
        )
    text = f"{what} → {cost_text(job, request.folds, request.training)}"
    first = run_asked(storage, job.job, runs[0].run)
    text += choice_text(request.training, fold_counts(job, request.folds), first)
    if normalized := job.counts.get("boxes_normalized"):
        photos_of_these = counted(normalized, "photo")
        text += f"\nthe boxes of {photos_of_these} look normalized (0 to 1): mend them first, lint.csv names them"
    if photos < _FEW_PHOTOS:
        text += f"\n{counted(photos, 'photo')}: a model learns little from so few; check every finding yourself"
    return text
