"""A set of two batches, for tests of the rows."""

from pathlib import Path
from typing import Final

from tests.bench.loaders.fitting import fit
from tests.bench.loaders.photos import make_photos
from tests.bench.loaders.work import BATCH, Took, Work

PICTURES: Final = 2 * BATCH
EPOCHS: Final = 2


def fit_tiny(name: str, folder: Path, scratch: Path) -> Took:
    """Two epochs of a row, pictures of 32 px, no augmentation, a step that takes no time."""
    work = Work(
        photos=make_photos(folder, PICTURES),
        scratch=scratch,
        pictures=PICTURES,
        side=32,
        epochs=EPOCHS,
        step_s=0.0,
        is_augmented=False,
    )
    return fit(name, work)
