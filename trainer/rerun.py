"""A run that trained → its models exported or measured again; what `python -m trainer export` and `evaluate` do."""

import json
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import keras

from shared.errors import ExportError
from shared.guard import Guard
from shared.job import SPLITS, RunSpec
from shared.manifest import JobPaths, Manifest, RunPaths
from shared.storage import Storage
from shared.stored import read_stored
from trainer import measure, model
from trainer.asked import read_history
from trainer.checkpoint import exportable_weights
from trainer.export import FORMS, QAT_WEIGHTS_FILE
from trainer.learner import load_average
from trainer.pictures import pictures_of, truth_of
from trainer.predict import Detector
from trainer.qat import fine_tune
from trainer.release import ReleaseRequest, release
from trainer.strategy import make_strategy
from trainer.training_set import load_training_set

WEIGHTS_FILE: Final = "model.keras"

# Stages before the release, in `run.json`.
_EARLIER_STAGES: Final = ("read", "train", "qat")


@dataclass(frozen=True, slots=True, kw_only=True)
class Again:
    """What an export does otherwise than its run asked; None is as it was.

    `max_drop` in points of mAP50; `step` names a checkpoint; `cache_mb` bounds the pictures kept in memory while
    fine-tuning.
    """

    max_drop: float | None = None
    quantize: Literal["ptq", "qat"] | None = None
    step: int | None = None
    cache_mb: int = 2048


def export_run(run: str, *, storage: Storage, again: Again, guard: Guard) -> dict[str, Any]:
    """Export the saved weights of `run` again, without training; what is there is replaced.

    Weights come from `model.keras`, and from a checkpoint where there is none or one is named. Quantization-aware
    fine-tuning runs where `again` asks for it; a run that was fine-tuned keeps its fine-tuned weights.

    Args:
        run: A run that trained.
        storage: Holds it and its job.
        again: What to do otherwise.
        guard: Asked before every phase and before anything is replaced.

    Raises:
        ExportError: The run has no weights, or the gate refused the model.
        StopRequested: Asked to stop; nothing was replaced.
    """
    spec, manifest = _asked(storage, run)
    changes = {name: value for name in ("max_drop", "quantize") if (value := getattr(again, name)) is not None}
    spec = RunSpec.model_validate(spec.model_dump() | changes)
    network = _load_weights(storage, spec, manifest, again.step)
    timings = _earlier_timings(storage, run)
    fine_tuned = None
    if spec.quantize == "qat":
        start_s = time.monotonic()
        fine_tuned = _fine_tuned(network, spec, manifest, again, storage=storage, guard=guard)
        timings["qat"] = round(time.monotonic() - start_s, 1)
    request = ReleaseRequest(
        spec=spec,
        manifest=manifest,
        keras_model=network,
        priors=model.priors(manifest.image_size),
        pictures=pictures_of(storage, manifest),
        truth=truth_of(storage, manifest),
        fine_tuned=fine_tuned,
        history=read_history(storage, run),
        timings=timings,
    )
    return release(request, storage=storage, guard=guard)


def evaluate_run(run: str, *, storage: Storage, split: str, forms: Sequence[str] | None) -> dict[str, Any]:
    """`map50`, `map`, `per_class` and `bytes` of the exported models of `run` on a split, by form.

    Raises:
        ExportError: There is no such split, form or file.
    """
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


def _load_weights(storage: Storage, spec: RunSpec, manifest: Manifest, step: int | None) -> Any:
    """The network of a run: what it ended with, or what a checkpoint holds."""
    saved = None if step is not None else _load_network(storage, spec.run, WEIGHTS_FILE)
    if saved is not None:
        return saved
    weights = exportable_weights(storage, spec.run, step)
    if weights is None:
        wanted = f"checkpoint of step {step}" if step is not None else f"{WEIGHTS_FILE} and no checkpoint"
        raise ExportError(f"{storage.url(RunPaths(spec.run).root)} has no {wanted}: there is nothing to export yet")
    network = model.build_model(len(manifest.labels), manifest.image_size, spec.model, backbone=spec.backbone)
    load_average(network, weights)
    return network


def _load_network(storage: Storage, run: str, file: str) -> Any | None:
    content = storage.read_or_none(f"{RunPaths(run).root}/{file}")
    if content is None:
        return None
    with tempfile.TemporaryDirectory(prefix="voc-weights-") as folder:
        path = Path(folder, file)
        path.write_bytes(content)
        return keras.models.load_model(path, compile=False)


def _fine_tuned(
    network: Any, spec: RunSpec, manifest: Manifest, again: Again, *, storage: Storage, guard: Guard
) -> Any:
    """The network that learnt on with int8's rounding: the run's own where nothing else is asked, else made now."""
    if again.quantize is None and again.step is None:
        saved = _load_network(storage, spec.run, QAT_WEIGHTS_FILE)
        if saved is not None:
            return saved
    strategy = make_strategy(1)
    batch = spec.batch * strategy.num_replicas_in_sync
    dataset = load_training_set(spec, manifest, storage=storage, batch=batch, cache_mb=again.cache_mb)
    return fine_tune(network, dataset, strategy=strategy, guard=guard)


def _earlier_timings(storage: Storage, run: str) -> dict[str, float]:
    """Seconds of the stages before the release, where the run noted them."""
    content = storage.read_or_none(RunPaths(run).run)
    seconds = {} if content is None else json.loads(content).get("seconds", {})
    return {stage: seconds[stage] for stage in _EARLIER_STAGES if stage in seconds}
