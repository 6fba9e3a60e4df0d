"""The one checkpoint format: everything that a run needs to go on as if it had never stopped.

`runs/<run>/checkpoints/step-<step>.npz`: the learner's flat float32 vectors, the best average so far, and `meta`, a
JSON text (a `Progress`). Written whole or not at all; zip's own CRCs find damage.
"""

import io
import logging
import zipfile
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from shared.errors import StorageError, TrainingError
from shared.faults import reached
from shared.job import SCHEMA_VERSION, Frozen
from shared.manifest import RunPaths
from shared.storage import Storage
from shared.stored import read_stored
from trainer.schedule import Schedule

logger = logging.getLogger(__name__)

# The newest, and the one before it in case the newest was damaged on disk.
KEPT: Final = 2

Arrays = dict[str, NDArray[np.float32]]


class EpochRow(Frozen):
    """One line of `results.csv`. Losses are means over the epoch's steps; `busy` is the share of the time in steps.

    The mean average precisions are of the averaged weights on the validation split, None where not measured.
    """

    epoch: int
    step: int
    seconds: float
    loss: float
    loss_score: float
    loss_box: float
    learning_rate: float
    images_per_s: float
    busy: float
    val_map50: float | None = None
    val_map: float | None = None


class Progress(Frozen):
    """Where a run stands. `identity` is what must be equal for its checkpoints to be of use.

    `step` steps are done; the data order is a pure function of `seed` and the step. `schedule` is None until it is
    frozen. `best_map` is that of the array "best". `spent_s` counts the training time of all attempts.
    """

    schema_version: Literal[1] = SCHEMA_VERSION
    identity: str
    seed: int
    step: int = 0
    schedule: Schedule | None = None
    best_map: float | None = None
    best_epoch: int = 0
    spent_s: float = 0.0
    rows: tuple[EpochRow, ...] = Field(default=())


def save_checkpoint(storage: Storage, run: str, progress: Progress, arrays: Arrays) -> None:
    """Write a checkpoint, then remove all but the newest `KEPT`."""
    content = io.BytesIO()
    meta = np.frombuffer(progress.to_json().encode(), np.uint8)
    # numpy's stub takes keyword arrays for its own flag.
    np.savez(content, meta=meta, **arrays)  # type: ignore[arg-type]
    storage.write(f"{_folder(run)}/step-{progress.step:09d}.npz", content.getvalue())
    reached("run:after_checkpoint")
    for name in _names(storage, run)[:-KEPT]:
        storage.remove(f"{_folder(run)}/{name}")
    logger.info("checkpoint_saved", extra={"run": run, "step": progress.step})


def load_checkpoint(storage: Storage, run: str, identity: str) -> tuple[Progress, Arrays] | None:
    """The newest whole checkpoint of `run`, or None where there is none.

    Raises:
        TrainingError: It is of another run: other data, labels, network or request.
        FormatError: It was written by another version.
    """
    for name in reversed(_names(storage, run)):
        key = f"{_folder(run)}/{name}"
        try:
            with np.load(io.BytesIO(storage.read(key))) as stored:
                arrays: dict[str, Any] = {entry: stored[entry] for entry in stored.files}
        except (zipfile.BadZipFile, ValueError, StorageError) as error:
            logger.warning("checkpoint_damaged", extra={"key": storage.url(key), "reason": str(error)})
            continue
        progress = read_stored(Progress, arrays.pop("meta").tobytes(), storage.url(key))
        if progress.identity != identity:
            raise TrainingError(
                f"{storage.url(key)}: a checkpoint of another request, data set or version; to train from the start, "
                f"remove {storage.url(_folder(run))} and `producer retry` the job"
            )
        return progress, arrays
    return None


def exportable_weights(storage: Storage, run: str, step: int | None = None) -> NDArray[np.float32] | None:
    """What a checkpoint would hand out if the run ended there, for `learner.load_average`.

    Args:
        storage: Where the run lies.
        run: Its name.
        step: Of the checkpoint; None takes the newest.

    Returns:
        The weights of the best validation so far, their average where there was none yet; None without a checkpoint.
    """
    names = _names(storage, run) if step is None else [f"step-{step:09d}.npz"]
    content = storage.read_or_none(f"{_folder(run)}/{names[-1]}") if names else None
    if content is None:
        return None
    with np.load(io.BytesIO(content)) as stored:
        weights: NDArray[np.float32] = stored["best" if "best" in stored.files else "average"]
    return weights


def _folder(run: str) -> str:
    return f"{RunPaths(run).root}/checkpoints"


def _names(storage: Storage, run: str) -> list[str]:
    return [name for name in storage.list_names(_folder(run)) if name.endswith(".npz")]
