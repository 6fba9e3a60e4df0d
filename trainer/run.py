"""One run, from the manifest of a finished job to `run.json`: check, train, release, commit. Free of Celery.

Running it again goes on where the last attempt stopped: training from its checkpoint, everything after it anew.
"""

import logging
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import cv2
import keras
import tensorflow as tf

from shared import __version__
from shared.errors import TrainingError
from shared.faults import reached
from shared.guard import Guard
from shared.job import RunSpec, canonical_json
from shared.manifest import JobPaths, Manifest, RunPaths
from shared.storage import Storage
from shared.stored import read_stored
from trainer.dataset import check_shards
from trainer.model import build_model, priors
from trainer.pictures import pictures_of, truth_of
from trainer.qat import fine_tune
from trainer.release import ReleaseRequest, release
from trainer.rerun import Again, export_run
from trainer.settings import TrainerSettings
from trainer.strategy import gains_by_precision, make_strategy
from trainer.train import Trained, train
from trainer.training_set import load_training_set

logger = logging.getLogger(__name__)

_PRECISION_HINT: Final = "no GPU, and no bfloat16 units in this CPU: float32 is faster here"


def run(request: RunSpec, *, storage: Storage, settings: TrainerSettings, guard: Guard) -> None:
    """Do what `request` asks, and write `run.json` last.

    Args:
        request: The run.
        storage: Holds the job; gets the run.
        settings: Of this trainer: threads, replicas, memory.
        guard: Asked before every step and phase.

    Raises:
        ShardError: A shard differs from the manifest.
        TrainingError: Training cannot go on.
        ExportError: The exported model disagrees with the trained one.
        StopRequested: Asked to stop; what was trained is saved.
    """
    started_s = time.monotonic()
    guard.advance(phase="check")
    manifest = read_manifest(storage, request.job)
    check_shards(storage, manifest)
    use_threads(settings.threads)
    if request.kind == "export":
        again = Again(max_drop=request.max_drop, cache_mb=settings.cache_mb)
        metrics = export_run(request.run, storage=storage, again=again, guard=guard)
        facts: dict[str, Any] = {"seconds": {}}
    else:
        metrics, facts = _train_and_release(request, manifest, storage=storage, settings=settings, guard=guard)
    guard.before_publish()
    reached("run:before_commit")
    facts["seconds"]["total"] = round(time.monotonic() - started_s, 1)
    storage.write(RunPaths(request.run).run, canonical_json(_summary(request, manifest, metrics) | facts).encode())
    logger.info("run_finished", extra={"run": request.run, "seconds": facts["seconds"]["total"]})


def read_manifest(storage: Storage, job: str) -> Manifest:
    """The manifest of a finished job.

    Raises:
        TrainingError: There is none.
        FormatError: It was written by another version, or is damaged.
    """
    key = JobPaths(job).manifest
    text = storage.read_or_none(key)
    if text is None:
        raise TrainingError(f"job {job}: no manifest in {storage.root}; its shards are not finished")
    return read_stored(Manifest, text, storage.url(key))


def use_threads(threads: int | None) -> None:
    """Bound TensorFlow's threads; must come before TensorFlow has started its own. OpenCV gets one a caller."""
    if threads is not None:
        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(threads)
    # Several batches are made at once already.
    cv2.setNumThreads(1)


def _train_and_release(
    request: RunSpec, manifest: Manifest, *, storage: Storage, settings: TrainerSettings, guard: Guard
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The metrics, and what `run.json` says of the training."""
    strategy = make_strategy(settings.replicas or 1)
    if not gains_by_precision(request.precision):
        logger.warning("precision_gains_nothing", extra={"precision": request.precision, "hint": _PRECISION_HINT})
    read_s = time.monotonic()
    batch = request.batch * strategy.num_replicas_in_sync
    dataset = load_training_set(request, manifest, storage=storage, batch=batch, cache_mb=settings.cache_mb)
    trained_s = time.monotonic()
    trained = train(
        request,
        dataset,
        strategy=strategy,
        storage=storage,
        guard=guard,
        build=_network_of(request, manifest, local_weights(request.weights, storage)),
    )
    seconds = {"read": round(trained_s - read_s, 1), "train": round(time.monotonic() - trained_s, 1)}
    fine_tuned = None
    if request.quantize == "qat":
        settled_s = time.monotonic()
        fine_tuned = fine_tune(trained.model, dataset, strategy=strategy, guard=guard)
        seconds["qat"] = round(time.monotonic() - settled_s, 1)
    released_s = time.monotonic()
    metrics = release(
        ReleaseRequest(
            spec=request,
            manifest=manifest,
            keras_model=trained.model,
            priors=priors(manifest.image_size),
            pictures=pictures_of(storage, manifest),
            truth=truth_of(storage, manifest),
            fine_tuned=fine_tuned,
            history=_history(trained),
            timings=seconds,
        ),
        storage=storage,
        guard=guard,
    )
    seconds["release"] = round(time.monotonic() - released_s, 1)
    return metrics, {"seconds": seconds, "training": _training_facts(trained, strategy.num_replicas_in_sync)}


def _network_of(request: RunSpec, manifest: Manifest, weights: str) -> Callable[[], keras.Model]:
    return lambda: build_model(
        len(manifest.labels), manifest.image_size, request.model, backbone=request.backbone, weights=weights
    )


def local_weights(weights: str, storage: Storage) -> str:
    """`none` and `imagenet` as they are; a key of the store as the path of a file that Keras can open."""
    if weights in ("none", "imagenet") or storage.is_local:
        return weights if weights in ("none", "imagenet") else str(storage.local_path(weights))
    path = Path(tempfile.mkdtemp(prefix="voc-weights-"), Path(weights).name)
    path.write_bytes(storage.read(weights))
    return str(path)


def _history(trained: Trained) -> list[dict[str, float]]:
    """One row an epoch for the plots, without what was not measured."""
    return [
        {key: value for key, value in row.model_dump().items() if value is not None} for row in trained.progress.rows
    ]


def _training_facts(trained: Trained, replicas: int) -> dict[str, Any]:
    progress = trained.progress
    schedule = progress.schedule
    return {
        "steps": progress.step,
        "schedule": None if schedule is None else schedule.model_dump(mode="json"),
        "best_epoch": progress.best_epoch,
        "best_val_map": progress.best_map,
        "replicas": replicas,
        "parameters": int(trained.model.count_params()),
        "tensorflow": tf.__version__,
    }


def _summary(request: RunSpec, manifest: Manifest, metrics: dict[str, Any]) -> dict[str, Any]:
    return {
        "schema_version": 1,
        "run": request.run,
        "job": request.job,
        "request_digest": request.digest(),
        "manifest_digest": manifest.digest(),
        "version": __version__,
        "labels": list(manifest.labels),
        "image_size": manifest.image_size,
        "resize": manifest.resize,
        "metrics": {form: {"map50": row["map50"], "map": row["map"]} for form, row in metrics.items()},
    }
