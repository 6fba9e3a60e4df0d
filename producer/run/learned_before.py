"""A network that a run goes on from, and the photos to measure by -> how many of these it has learned from.

They flatter every figure. Photos stay in their split as long as lists, folders, `--split`, `--group-by` and `--seed`
do.
"""

from collections.abc import Mapping
from typing import Final

from shared.audit.same_name import learned_along
from shared.jobs.job import Split
from shared.jobs.paths import name_of_weights
from shared.specs.training import TrainingOptions
from shared.storage import Storage
from shared.text import counted

_MEASURED: Final[tuple[Split, ...]] = ("val", "test")


def learned_text(typed: TrainingOptions | None, splits: Mapping[str, Split | None], storage: Storage) -> str:
    """A further line, where photos of val and test were learned by a run of the store, or by one that it went on from.

    Args:
        typed: What a person asked for.
        splits: Of the photos of the job, by their files.
        storage: Where runs and jobs are; of a run whose job was removed nothing is known.
    """
    if typed is None or typed.start is None:
        return ""
    run = name_of_weights(typed.start)
    names = set[str]().union(*(files for _, files in learned_along(storage, run)))
    measured = [image for image, split in splits.items() if split in _MEASURED]
    known = sum(image in names for image in measured)
    if not known:
        return ""
    return (
        f"\n{known} of {counted(len(measured), 'photo')} of val and test have names of photos that {run} has "
        "learned from: if they are the same, figures are too good; "
        "give it the same lists, --split, --group-by and --seed"
    )
