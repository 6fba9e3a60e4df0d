"""A run that trained → its models exported or measured again; what `python -m trainer export` and `evaluate` do."""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import keras

from shared.errors import ExportError
from shared.guard import Guard
from shared.job import SPLITS, RunSpec
from shared.manifest import JobPaths, Manifest, RunPaths
from shared.storage import Storage
from shared.stored import read_stored
from trainer import measure, model
from trainer.export import FORMS
from trainer.pictures import pictures_of, truth_of
from trainer.predict import Detector
from trainer.release import ReleaseRequest, release

WEIGHTS_FILE: Final = "model.keras"


def export_run(run: str, *, storage: Storage, max_drop: float | None, guard: Guard) -> dict[str, Any]:
    """Export the saved weights of `run` again; what is there is replaced.

    Args:
        run: A run that trained.
        storage: Holds it and its job.
        max_drop: Points of mAP50 that int8 may lose; None as the run asked.
        guard: Asked before every phase and before anything is replaced.

    Raises:
        ExportError: The run has no weights, or the gate refused the model.
        StopRequested: Asked to stop; nothing was replaced.
    """
    spec, manifest = _asked(storage, run)
    if max_drop is not None:
        spec = spec.model_copy(update={"max_drop": max_drop})
    network = _load_weights(storage, run)
    request = ReleaseRequest(
        spec=spec,
        manifest=manifest,
        keras_model=network,
        priors=model.priors(manifest.image_size),
        pictures=pictures_of(storage, manifest),
        truth=truth_of(storage, manifest),
    )
    return release(request, storage=storage, guard=guard)


def evaluate_run(run: str, *, store: str, split: str, forms: Sequence[str] | None) -> dict[str, Any]:
    """`map50`, `map`, `per_class` and `bytes` of the exported models of `run` on a split, by form.

    Raises:
        ExportError: There is no such split, form or file.
    """
    storage = Storage(store)
    _, manifest = _asked(storage, run)
    chosen = next((known for known in SPLITS if known == split), None)
    unknown = sorted(set(forms or ()) - set(FORMS))
    if chosen is None or unknown:
        raise ExportError(f"there are splits {', '.join(SPLITS)} and forms {', '.join(FORMS)}, not {unknown or split}")
    pictures, truth = pictures_of(storage, manifest), truth_of(storage, manifest)(chosen)
    metrics = {}
    for form in forms or FORMS:
        content = storage.read(f"{RunPaths(run).root}/model_{form}.tflite")
        seen = measure.detect_all(Detector(content), pictures(chosen))
        metrics[form] = {**measure.figures(truth, seen, manifest.image_size), "bytes": len(content)}
    return metrics


def _asked(storage: Storage, run: str) -> tuple[RunSpec, Manifest]:
    key = RunPaths(run).request
    text = storage.read_or_none(key)
    if text is None:
        raise ExportError(f"{storage.root} holds no run {run!r}")
    spec = read_stored(RunSpec, text, storage.url(key))
    manifest = JobPaths(spec.job).manifest
    return spec, read_stored(Manifest, storage.read(manifest), storage.url(manifest))


def _load_weights(storage: Storage, run: str) -> Any:
    key = f"{RunPaths(run).root}/{WEIGHTS_FILE}"
    content = storage.read_or_none(key)
    if content is None:
        raise ExportError(f"{storage.url(key)} is not there: the run has not finished training")
    with tempfile.TemporaryDirectory(prefix="voc-weights-") as folder:
        path = Path(folder, WEIGHTS_FILE)
        path.write_bytes(content)
        return keras.models.load_model(path, compile=False)
