"""What an audit by folds costs, in words for a person: how many trainings, on how many photos, for how long."""

from typing import Final

from shared.jobs.job import Job
from shared.specs.run import FoldOptions
from shared.text import counted

# The number of folds if nobody gives one.
USUAL_FOLDS: Final = 3


def photos_of(job: Job) -> int:
    """How many photos an audit looks at."""
    return sum(plan.pairs for plan in job.splits.values())


def fold_counts(job: Job, folds: int) -> dict[str, int]:
    """The job's counts for one fold, which learns from all photos except its part."""
    photos = photos_of(job)
    kept = job.counts.get("objects_kept", 0)
    return {"train": photos - photos // folds, "test": photos // folds, "objects_kept": kept}


def cost_text(job: Job, folds: int, training: FoldOptions) -> str:
    """`3 trainings of small on 47 photos, up to 30 min each, 90 min in all by one trainer`."""
    bound, learned = training.max_minutes, fold_counts(job, folds)["train"]
    long = "as long as their epochs take" if bound is None else f"up to {bound:g} min each"
    text = f"{folds} trainings of {training.model} on {counted(learned, 'photo')}, {long}"
    return text if bound is None else f"{text}, {bound * folds:g} min in all by one trainer"
