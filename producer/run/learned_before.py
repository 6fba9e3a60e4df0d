"""A network that a run goes on from, and the photos to measure by -> how many of these it has learned from.

They flatter every figure. Photos stay in their split as long as lists, folders, `--split` and `--seed` do.
"""

import json
from collections.abc import Mapping
from typing import Final

from shared.errors import FormatError, StorageError
from shared.jobs.identity import find_job, read_request
from shared.jobs.job import Job, Split
from shared.jobs.paths import JobPaths, name_of_weights
from shared.specs.training import TrainingOptions
from shared.storage import Storage
from shared.text import counted

_MEASURED: Final[tuple[Split, ...]] = ("val", "test")


def splits_of(job: Job, storage: Storage) -> dict[str, Split]:
    """The split of each photo of a job, by its file."""
    lines = map(json.loads, storage.lines(JobPaths(job.job).plan(job.incarnation)))
    return {pair["image"]: task["split"] for task in lines for pair in task["pairs"]}


def learned_text(typed: TrainingOptions | None, splits: Mapping[str, Split | None], storage: Storage) -> str:
    """A further line, where photos of val and test were learned by the network that a run of the store made.

    Args:
        typed: What a person asked for.
        splits: Of the photos of the job, by their files.
        storage: Where runs and jobs are; of a run whose job was removed nothing is known.
    """
    if typed is None or typed.start is None:
        return ""
    run = name_of_weights(typed.start)
    names = _learned(run, storage)
    measured = [image for image, split in splits.items() if split in _MEASURED]
    known = sum(image in names for image in measured)
    if not known:
        return ""
    return (
        f"\n{known} of {counted(len(measured), 'photo')} of val and test have names of photos that {run} has "
        "learned from: if they are the same, figures are too good; give it the same lists, --split and --seed"
    )


def _learned(run: str, storage: Storage) -> set[str]:
    """The photos that a run of the store has learned from, as far as its files say it."""
    try:
        asked = read_request(storage, run)
        job = None if asked is None else find_job(storage, asked.job)
        if asked is None or job is None or job.incarnation != asked.incarnation:
            return set()
        learned = {"train", "val"} if asked.final else {"train"}
        return {image for image, split in splits_of(job, storage).items() if split in learned}
    except (FormatError, StorageError):  # damaged: no reason not to train something else
        return set()
