"""One run, from the manifest of a finished job to `run.json`: check, train, release, commit. Free of Celery.

Running it again goes on where the last attempt stopped: training from its checkpoint, everything after it anew.
"""

import logging
import time
from collections.abc import Callable
from typing import Any, Final

import cv2
import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from shared import __version__
from shared.errors import TrainingError
from shared.faults import reached
from shared.guard import Guard
from shared.job import RunSpec, Split, canonical_json
from shared.manifest import JobPaths, Manifest, RunPaths
from shared.storage import Storage
from shared.stored import read_stored
from trainer.augment import Recipe
from trainer.batches import batches_from_memory, batches_from_shards
from trainer.dataset import Examples, check_shards, fits_in_memory, read_examples, shard_urls
from trainer.evaluate import truth_from_store
from trainer.model import build_model, priors
from trainer.pictures import pictures_of, truth_of
from trainer.release import ReleaseRequest, release
from trainer.rerun import export_run
from trainer.settings import TrainerSettings
from trainer.strategy import make_strategy
from trainer.train import Trained, TrainingSet, train
from trainer.watching import show_batches

logger = logging.getLogger(__name__)

# Files named in an error; more help nobody.
_MOST_NAMES: Final = 64


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
    if request.quantize != "ptq":
        raise TrainingError(f"--quantize {request.quantize} is not built yet; int8 is made after training (ptq)")
    manifest = read_manifest(storage, request.job)
    check_shards(storage, manifest)
    use_threads(settings.threads)
    if request.kind == "export":
        metrics = export_run(request.run, store=storage.root, max_drop=request.max_drop)
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
    read_s = time.monotonic()
    batch = request.batch * strategy.num_replicas_in_sync
    dataset = load_training_set(request, manifest, storage=storage, batch=batch, cache_mb=settings.cache_mb)
    show_batches(storage, request.run, dataset.batches(0), manifest.labels)
    trained_s = time.monotonic()
    trained = train(
        request, dataset, strategy=strategy, storage=storage, guard=guard, build=_network_of(request, manifest)
    )
    released_s = time.monotonic()
    seconds = {"read": round(trained_s - read_s, 1), "train": round(released_s - trained_s, 1)}
    metrics = release(
        ReleaseRequest(
            spec=request,
            manifest=manifest,
            keras_model=trained.model,
            priors=priors(manifest.image_size),
            pictures=pictures_of(storage, manifest),
            truth=truth_of(storage, manifest),
            history=_history(trained),
            timings=seconds,
        ),
        storage=storage,
        guard=guard,
    )
    seconds["release"] = round(time.monotonic() - released_s, 1)
    return metrics, {"seconds": seconds, "training": _training_facts(trained, strategy.num_replicas_in_sync)}


def _network_of(request: RunSpec, manifest: Manifest) -> Callable[[], keras.Model]:
    return lambda: build_model(
        len(manifest.labels),
        manifest.image_size,
        request.model,
        backbone=request.backbone,
        weights=request.weights,
    )


def load_training_set(
    request: RunSpec, manifest: Manifest, *, storage: Storage, batch: int, cache_mb: int
) -> TrainingSet:
    """The pictures that `request` trains on and selects by: train and val, or with `final` both together.

    Args:
        request: The run.
        manifest: Of its job.
        storage: Holds the shards.
        batch: Pictures a step, over all replicas.
        cache_mb: Decoded pictures are kept in memory up to this size.
    """
    splits: list[Split] = ["train", "val"] if request.final else ["train"]
    urls, side, recipe = shard_urls(storage, manifest, splits), manifest.image_size, Recipe()
    has_validation = not request.final and manifest.examples("val") > 0
    examples = read_examples(urls, side) if fits_in_memory(manifest, splits, cache_mb=cache_mb) else None

    def batches(first_step: int) -> tf.data.Dataset:
        if examples is not None:
            return batches_from_memory(examples, batch=batch, recipe=recipe, seed=request.seed, first_step=first_step)
        return batches_from_shards(
            urls, batch=batch, image_size=side, recipe=recipe, seed=request.seed, first_step=first_step
        )

    return TrainingSet(
        labels=manifest.labels,
        image_size=side,
        pictures=sum(manifest.examples(split) for split in splits),
        fingerprint=manifest.digest(),
        batches=batches,
        names=lambda rows: _names(rows, examples),
        validation=read_examples(shard_urls(storage, manifest, ["val"]), side) if has_validation else None,
        truth=truth_from_store(storage, manifest, "val") if has_validation else {},
    )


def _names(rows: NDArray[np.int64], examples: Examples | None) -> list[str]:
    """File names of a batch; a streamed batch knows its source ids only, which `annotations_<split>.json` resolves."""
    if examples is None:
        return [f"source id {row}" for row in rows[:_MOST_NAMES]]
    return [examples.filenames[row] for row in rows[:_MOST_NAMES]]


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
