"""The one checkpoint format: everything that a run needs to continue as if it had never stopped.

`runs/<run>/checkpoints/step-<step>.npz` has the learner's flat float32 vectors, the best average so far, for a run with
branches the weights of the fork and the mean of the finished branches, and two JSON texts: `meta` (a
`TrainingProgress`) and `variables` (a `Layout`: which variables the vectors hold). It is written whole or not at all;
zip's own CRCs detect damage.
"""

import io
import logging
import struct
import zipfile
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from shared.command import hint
from shared.errors import StorageError, TrainingError
from shared.faults import reached
from shared.jobs.identity import words_of
from shared.jobs.paths import RunPaths
from shared.jobs.versioned import read_stored
from shared.specs.frozen import SCHEMA_VERSION, Frozen
from shared.storage import Storage
from trainer.training.schedule import Schedule
from trainer.training.variable_layout import Layout

logger = logging.getLogger(__name__)

# How many are kept: the newest, and the one before it in case the newest was damaged on disk.
KEPT: Final = 2

Arrays = dict[str, NDArray[np.float32]]


class EpochRow(Frozen):
    """One line of `results.csv`; losses are means over the epoch's steps, `busy` is the share of time spent in steps.

    The mean average precisions are those of the averaged weights on the validation split, None if not measured; at the
    end of a branch they are those of the mean of the finished branches. `branch` is the epoch's (`Schedule.branch`).
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
    branch: int = 0


class TrainingProgress(Frozen):
    """How far a run is; `identity` must be equal for its checkpoints to be usable.

    `manifest` is the digest of the manifest that it learns from: a checkpoint with another one (from a removed job of
    the same name, or from shards that were made again) counts as absent. Version 0.1.0 wrote "".
    `step` steps are done; the data order is a pure function of `seed` and the step. `schedule` is None until it is
    frozen. `precision` is that of the first attempt ("" from version 0.1.0). `best_map` is that of the array "best".
    `spent_s` is the training time of all attempts in seconds.
    """

    schema_version: Literal[1] = SCHEMA_VERSION
    identity: str
    manifest: str = ""
    seed: int
    precision: str = ""
    step: int = 0
    schedule: Schedule | None = None
    best_map: float | None = None
    best_epoch: int = 0
    spent_s: float = 0.0
    rows: tuple[EpochRow, ...] = ()


def save_checkpoint(storage: Storage, run: str, progress: TrainingProgress, arrays: Arrays, layout: Layout) -> None:
    """Write a checkpoint of the network with `layout`, then remove all but the newest `KEPT`."""
    content = io.BytesIO()
    texts = {"meta": _text(progress), "variables": _text(layout)}
    # numpy's stub takes keyword arrays for its own flag.
    np.savez(content, **texts, **arrays)  # type: ignore[arg-type]
    storage.write(f"{_folder(run)}/step-{progress.step:09d}.npz", content.getvalue())
    reached("run:after_checkpoint")
    for name in _names(storage, run)[:-KEPT]:
        storage.remove(f"{_folder(run)}/{name}")
    logger.info("checkpoint_saved", extra={"run": run, "step": progress.step})


def load_checkpoint(
    storage: Storage, run: str, wanted: TrainingProgress, layout: Layout
) -> tuple[TrainingProgress, Arrays] | None:
    """The newest undamaged checkpoint of `run` with the manifest of `wanted`, or None if there is none.

    A checkpoint of version 0.1.0 does not name its variables and counts as absent: training starts again.

    Raises:
        TrainingError: Its identity differs from that of `wanted`, or its variables from `layout`: it is of another
            network, version or request.
        FormatError: It was written by another version.
    """
    for name in reversed(_names(storage, run)):
        key = f"{_folder(run)}/{name}"
        arrays = _read(storage, key)
        if arrays is None:
            continue
        progress = read_stored(TrainingProgress, arrays.pop("meta").tobytes(), storage.url(key))
        if progress.manifest != wanted.manifest and progress.identity != wanted.identity:
            logger.warning("checkpoint_of_other_shards", extra={"key": storage.url(key)})
            continue
        if "variables" not in arrays:
            # Written by version 0.1.0: equal lengths prove nothing, so the run is trained again from the start.
            logger.warning("checkpoint_without_names", extra={"key": storage.url(key)})
            continue
        if progress.identity != wanted.identity:
            raise TrainingError(
                f"{storage.url(key)}: a checkpoint of another request, data set or version; {_remedy(storage, run)}"
            )
        _check_layout(arrays.pop("variables"), layout, storage.url(key), _remedy(storage, run))
        return progress, arrays
    return None


def saved_steps(storage: Storage, run: str) -> list[int]:
    """The steps of a run's checkpoints, ascending."""
    return [int(name.removeprefix("step-").removesuffix(".npz")) for name in _names(storage, run)]


def exportable_weights(
    storage: Storage, run: str, layout: Layout, step: int | None = None
) -> NDArray[np.float32] | None:
    """The weights that would be exported if the run ended at a checkpoint, for `load_average`.

    Args:
        storage: Where the run lies.
        run: Its name.
        layout: The layout of the network that the weights are for.
        step: The checkpoint's step; None takes the newest undamaged one.

    Returns:
        The weights of the best validation so far; if there was none yet, the mean of the finished branches or else the
        average over steps; None without an undamaged checkpoint.

    Raises:
        TrainingError: Its variables differ from `layout`.
        FormatError: It was written by another version.
    """
    wanted = None if step is None else f"step-{step:09d}.npz"
    for name in reversed(_names(storage, run)):
        key = f"{_folder(run)}/{name}"
        arrays = _read(storage, key) if wanted in (None, name) else None
        if arrays is None:
            continue
        _check_layout(arrays.get("variables"), layout, storage.url(key), _remedy(storage, run))
        weights: NDArray[np.float32] = next(arrays[name] for name in ("best", "mean", "average") if name in arrays)
        return weights
    return None


def newest_progress(storage: Storage, run: str) -> TrainingProgress | None:
    """The progress in the newest checkpoint of `run` that can be read; None if there is none.

    Raises:
        FormatError: It was written by another version.
    """
    for name in reversed(_names(storage, run)):
        key = f"{_folder(run)}/{name}"
        arrays = _read(storage, key)
        if arrays is not None:
            return read_stored(TrainingProgress, arrays["meta"].tobytes(), storage.url(key))
    return None


def _read(storage: Storage, key: str) -> dict[str, NDArray[Any]] | None:
    """The arrays of a checkpoint by name; None if it is damaged or gone."""
    try:
        content = storage.read(key)
        with np.load(io.BytesIO(content)) as stored:
            arrays = {entry: stored[entry] for entry in stored.files}
        # zip's CRCs cover only what its directory lists; if damage ends the directory early, only the count in the last
        # record shows it (APPNOTE.TXT, 4.3.16).
        (count,) = struct.unpack_from("<H", content, len(content) - 12)
        if len(arrays) != count or "meta" not in arrays:
            raise ValueError(f"of {count} arrays its directory lists {', '.join(arrays) or 'none'}")
    # RuntimeError: one flipped bit in the directory may ask for a password, or for an unknown compression method.
    except (zipfile.BadZipFile, EOFError, ValueError, RuntimeError, StorageError) as error:
        logger.warning("checkpoint_damaged", extra={"key": storage.url(key), "reason": str(error)})
        return None
    return arrays


def _text(value: Frozen) -> NDArray[np.uint8]:
    return np.frombuffer(value.to_json().encode(), np.uint8)


def _check_layout(text: NDArray[np.uint8] | None, expected: Layout, where: str, remedy: str) -> None:
    """Refuse a checkpoint whose vectors do not hold the variables of a network with the layout `expected`."""
    if text is None:
        raise TrainingError(
            f"{where} does not name its variables: written by version 0.1.0 or an earlier one, whose network may have "
            f"had others; {remedy}"
        )
    difference = read_stored(Layout, text.tobytes(), where).difference(expected)
    if difference is not None:
        raise TrainingError(f"{where}: {difference} in this version's network; {remedy}")


def _remedy(storage: Storage, run: str) -> str:
    again = hint("retry", *words_of(storage, run), store=storage)
    return f"to train from the start, remove {storage.url(_folder(run))} and `{again}`"


def _folder(run: str) -> str:
    return f"{RunPaths(run).root}/checkpoints"


def _names(storage: Storage, run: str) -> list[str]:
    return [name for name in storage.list_names(_folder(run)) if name.startswith("step-") and name.endswith(".npz")]
