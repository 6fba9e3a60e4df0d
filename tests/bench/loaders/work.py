"""What every row of the table is given: the pictures, the geometry, the step. And which rows there are."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

BATCH: Final = 32

# Of every loader that may have some: this machine's cores.
WORKERS: Final = 2

# What a row is called in the table, in its order; rows.py builds them.
ROWS: Final[dict[str, str]] = {
    "memory": "everything in memory, fit(x, y), augmentation in the model",
    "generator": "Python generator",
    "pydataset": f"keras.utils.PyDataset, {WORKERS} threads",
    "pydataset-processes": f"keras.utils.PyDataset, {WORKERS} processes",
    "imagedatagenerator": "ImageDataGenerator.flow_from_directory",
    "pool": f"process pool over image + XML, {WORKERS} processes, batches ahead",
    "pool-serial": "process pool, submit().result() one by one",
    "tfdata-naive": "tf.data on raw files, naive",
    "tfdata-interleave": "tf.data naive + parallel interleave",
    "tfdata-map": "tf.data naive + parallel map",
    "tfdata-prefetch": "tf.data naive + prefetch",
    "tfdata-all": "tf.data, interleave + map + prefetch",
    "tfdata-cache": "tf.data, all of it + cache()",
    "ours-cold": "ours from shards, no cache",
    "ours-cached": "ours from shards, decoded cache",
}

# Measured for all epochs, because a target hangs on them; the others' last epochs are extrapolated.
WHOLE: Final = ("imagedatagenerator", "ours-cold", "ours-cached")


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The same for every row.

    `photos` holds `voc/` and `classes/` (photos.py); `scratch` is a folder of the row's own; `side` px; `step_s` is
    the simulated accelerator's time for a batch; `is_augmented` asks for the usual changes of pictures.
    """

    photos: Path
    scratch: Path
    pictures: int
    side: int
    epochs: int
    step_s: float
    is_augmented: bool
    on_cpu: bool = False

    @property
    def steps(self) -> int:
        """Batches an epoch; the pictures divide evenly."""
        return self.pictures // BATCH

    def to_json(self) -> str:
        """One line."""
        return json.dumps(asdict(self), default=str)

    @classmethod
    def from_json(cls, line: str) -> "Work":
        """Back from `to_json`."""
        fields = json.loads(line)
        return cls(**{**fields, "photos": Path(fields["photos"]), "scratch": Path(fields["scratch"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class Took:
    """What one fit of a row took.

    `epochs_s` seconds of each epoch, the first from the call of `fit`; `cpu_s` processor seconds of each, of the
    whole process tree; `steps` (asked, began, ended) of each step in seconds from the start of `fit`; `made` the same
    (began, ended) of the batches made beside it, where that is known; `pictures` delivered.
    """

    prepare_s: float
    fit_s: float
    epochs_s: list[float]
    cpu_s: list[float]
    pictures: int
    steps: list[tuple[float, float, float]]
    made: list[tuple[float, float]]
    peak_mb: float = 0.0
