"""A network that a run goes on from, and the photos of val and test -> how many of these it has learned from.

Such photos make every figure look better. Photos stay in their split as long as lists, folders, `--split`, `--group-by`
and `--seed` are unchanged.
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
    """A further line if the run that `--from` names, or one that it went on from, has learned photos of val and test.

    Args:
        typed: What a person asked for.
        splits: The splits of the job's photos, by file.
        storage: The store with runs and jobs; what a run learned from is not known once its job was removed.
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
        "learned from: if these are the same photos, the figures will be too good; to keep val and test apart, give "
        "the same lists, --split, --group-by and --seed as for that run"
    )
