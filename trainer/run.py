"""One run, from the manifest of a finished job to `run.json`: check, train, release, commit. Independent of Celery.

Running it again continues where the last attempt stopped: training from its checkpoint, everything after it afresh.
"""

import hashlib
import logging
import tempfile
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import cv2
import keras
import tensorflow as tf

from shared.errors import Cancelled, ShardError, TrainingError
from shared.faults import reached
from shared.jobs.identity import asked_now, file_digest, find_job, read_manifest
from shared.jobs.labels import ClassChange, read_labels_txt
from shared.jobs.manifest import Manifest
from shared.jobs.paths import JobPaths, RunPaths, labels_of
from shared.leasing.guard import Guard
from shared.specs.run import RunSpec
from shared.storage import Storage
from trainer.audit.analysis import audit
from trainer.audit.deal import deal, photos_of
from trainer.audit.fold_detections import detect_part, pack
from trainer.commit import commit, training_facts
from trainer.data.examples import check_shards
from trainer.data.shard_cache import ShardCache, shard_cache
from trainer.data.shard_pictures import pictures_of, truth_of
from trainer.data.training_set import TrainingSet, load_training_set
from trainer.network.continued import go_on
from trainer.network.detector import build_model
from trainer.release import Release, timed
from trainer.rerun import FinishedTraining, finished_training
from trainer.settings import TrainerSettings
from trainer.training.distil import distilled
from trainer.training.loop import Trained, Training
from trainer.training.qat import fine_tune
from trainer.training.strategy import gains_by_precision, make_strategy

logger = logging.getLogger(__name__)

_PRECISION_HINT: Final = "on this machine float32 is faster for this backbone: leave --precision out"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Inputs:
    """What every kind of run starts from; `shards` is the cache for shards in a bucket, None for a store in a folder.

    `manifest_digest` is that of the manifest's file, before it was read.
    """

    request: RunSpec
    manifest: Manifest
    manifest_digest: str | None
    storage: Storage
    settings: TrainerSettings
    guard: Guard
    shards: ShardCache | None


def run(request: RunSpec, *, storage: Storage, settings: TrainerSettings, guard: Guard) -> None:
    """Do what `request` asks for, and write `run.json` last.

    Args:
        request: The run.
        storage: Holds the job; the run is written there.
        settings: The settings of this trainer: threads, replicas, memory.
        guard: Asked before every step and phase.

    Raises:
        ShardError: A shard differs from the manifest.
        TrainingError: Training cannot go on.
        ExportError: The exported model disagrees with the trained one.
        StopRequested: The process was asked to stop; the training so far is saved.
    """
    started_s = time.monotonic()
    guard.advance(phase="check")
    manifest_digest = file_digest(storage, JobPaths(request.job).manifest)
    manifest = manifest_of(request, storage)
    check_shards(storage, manifest)
    use_threads(settings.threads)
    inputs = _Inputs(
        request=request,
        manifest=manifest,
        manifest_digest=manifest_digest,
        storage=storage,
        settings=settings,
        guard=guard,
        shards=shard_cache(storage, manifest, settings.shard_folder()),
    )
    work = _audit if request.audits else _train_fold if request.fold else _train_and_release
    request, metrics, facts = work(inputs)
    guard.before_publish()
    reached("run:before_commit")
    seconds = facts["seconds"]
    seconds["total"] = round(max(time.monotonic() - started_s, sum(seconds.values())), 2)
    _require_same_shards(request, manifest_digest, storage)
    guard.require_wanted()
    commit(request, manifest, metrics, storage=storage, manifest_digest=manifest_digest, **facts)
    logger.info("run_finished", extra={"run": request.run, "seconds": seconds["total"]})


def manifest_of(request: RunSpec, storage: Storage) -> Manifest:
    """The manifest of the finished job that asked for a run.

    Raises:
        Cancelled: The job was removed.
        TrainingError: The job is not finished.
        ShardError: The manifest is not of this job: its labels or its request differ.
        FormatError: The manifest was written by another version, or is damaged.
    """
    job = find_job(storage, request.job)
    if job is None or job.incarnation != request.incarnation:
        raise Cancelled(f"job {request.job} was removed")
    manifest = read_manifest(storage, job)
    if manifest is None:
        raise TrainingError(f"job {job.job}: no manifest in {storage.root}; its shards are not finished")
    if (manifest.labels, manifest.request_digest) != (job.labels, job.request_digest):
        raise ShardError(
            f"{storage.url(JobPaths(job.job).manifest)} is not this job's: its classes are "
            f"{', '.join(manifest.labels)}, those of the job {', '.join(job.labels)}"
        )
    return manifest


def _require_same_shards(request: RunSpec, manifest_digest: str | None, storage: Storage) -> None:
    """Check that the job's shards are still those that the model was trained on, and were not made again meanwhile.

    Raises:
        Cancelled: The job's manifest has changed, or is being made again.
    """
    key = JobPaths(request.job).manifest
    if file_digest(storage, key) != manifest_digest:
        raise Cancelled(f"{storage.url(key)}: the job's shards are not those any more that this run was trained on")


def use_threads(threads: int | None) -> None:
    """Limit TensorFlow's threads, before TensorFlow starts them; OpenCV gets one thread for each caller."""
    if threads is not None:
        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(threads)
    # Several batches are already made in parallel.
    cv2.setNumThreads(1)


def _train_and_release(inputs: _Inputs) -> tuple[RunSpec, dict[str, Any], dict[str, Any]]:
    """Train, if that has not been done, and release.

    Returns:
        The request as it was carried out, the metrics, and what `run.json` says about the run.
    """
    manifest, storage, guard = inputs.manifest, inputs.storage, inputs.guard
    asked = asked_now(storage, inputs.request)
    ended = finished_training(
        asked,
        manifest,
        inputs.manifest_digest,
        storage=storage,
        guard=guard,
        shards=inputs.shards,
        cache_mb=inputs.settings.cache_mb,
    )
    if ended is None:
        learned = _train(inputs)
        asked = asked_now(storage, inputs.request)  # a person may have changed the export options meanwhile
        ended = _fine_tuned(learned, asked, guard)
    seconds = dict(ended.timings)
    with timed(seconds, "release"):
        release = Release(
            spec=asked,
            manifest=manifest,
            keras_model=ended.network,
            pictures=pictures_of(storage, manifest, inputs.shards),
            truth=truth_of(storage, manifest),
            storage=storage,
            guard=guard,
            fine_tuned=ended.fine_tuned,
            best_epoch=ended.best_epoch,
            timings=seconds,
        )
        metrics = release.run()
    return asked, metrics, {"seconds": seconds, "training": ended.facts, **release.notes}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Learned:
    """A training that has ended: its result, its data set, its strategy, and the seconds of its stages."""

    trained: Trained
    dataset: TrainingSet
    strategy: tf.distribute.Strategy
    seconds: dict[str, float]

    @property
    def facts(self) -> dict[str, Any]:
        return training_facts(self.trained.progress, self.trained.model, self.strategy.num_replicas_in_sync)


def _train(inputs: _Inputs, without: Collection[int] = ()) -> _Learned:
    """Train to the end, without the pictures in `without` (image ids)."""
    request, manifest, storage, guard = inputs.request, inputs.manifest, inputs.storage, inputs.guard
    strategy = make_strategy(inputs.settings.replicas or 1)
    if request.precision is not None and not gains_by_precision(request.precision, request.backbone):
        logger.warning("precision_gains_nothing", extra={"precision": request.precision, "hint": _PRECISION_HINT})
    seconds: dict[str, float] = {}
    with timed(seconds, "read"):
        dataset = load_training_set(
            request,
            manifest,
            storage=storage,
            batch=request.batch * strategy.num_replicas_in_sync,
            cache_mb=inputs.settings.cache_mb,
            shards=inputs.shards,
            without=without,
        )
    build = network_builder(request, manifest, storage)
    if request.distil:
        with timed(seconds, "distil"):
            build = distilled(build, dataset, request, storage=storage, guard=guard)
    with timed(seconds, "train"):
        trained = Training(request, dataset, strategy=strategy, storage=storage, guard=guard, build=build).run()
    # The training time of attempts that were killed, or failed after training, counts too.
    seconds["train"] = max(seconds["train"], round(trained.progress.spent_s, 2))
    return _Learned(trained=trained, dataset=dataset, strategy=strategy, seconds=seconds)


def _fine_tuned(learned: _Learned, asked: RunSpec, guard: Guard) -> FinishedTraining:
    """A training that has just ended, with its fine-tuned network if `asked` wants one for int8."""
    network, fine_tuned = learned.trained.model, None
    if asked.quantize == "qat":
        with timed(learned.seconds, "qat"):
            fine_tuned = fine_tune(network, learned.dataset, strategy=learned.strategy, guard=guard)
    return FinishedTraining(network=network, fine_tuned=fine_tuned, facts=learned.facts, timings=learned.seconds)


def _train_fold(inputs: _Inputs) -> tuple[RunSpec, dict[str, Any], dict[str, Any]]:
    """A fold of an audit: train without its part, and write what it sees there; there is no model, so no metrics."""
    request, manifest, storage, guard = inputs.request, inputs.manifest, inputs.storage, inputs.guard
    dealt = deal(photos_of(storage, manifest), request.folds)
    part = frozenset(image_id for image_id, at in dealt.items() if at == request.fold)
    learned = _train(inputs, without=part)
    with timed(learned.seconds, "detect"):
        pictures = pictures_of(storage, manifest, inputs.shards)
        found = detect_part(learned.trained.model, manifest, pictures, part, guard)
    guard.require_wanted()
    storage.write(RunPaths(request.run).detections, pack(found))
    return request, {}, {"seconds": learned.seconds, "training": learned.facts, "pictures": len(part)}


def _audit(inputs: _Inputs) -> tuple[RunSpec, dict[str, Any], dict[str, Any]]:
    """The last run of an audit: compare what the runs before it saw with the labels."""
    seconds: dict[str, float] = {}
    with timed(seconds, "audit"):
        counts = audit(
            inputs.request, inputs.manifest, storage=inputs.storage, guard=inputs.guard, shards=inputs.shards
        )
    return inputs.request, {}, {"seconds": seconds, **counts}


def network_builder(request: RunSpec, manifest: Manifest, storage: Storage) -> Callable[[], keras.Model]:
    """A function that makes a run's network for the start of training: with fresh, published or trained weights.

    Raises:
        TrainingError: The file that the run continues is not the one that the submit put there.
    """
    weights, labels = local_weights(request.weights, storage), manifest.labels

    def fresh(classes: int) -> keras.Model:
        return build_model(classes, manifest.image_size, request.model, backbone=request.backbone, weights=weights)

    if request.start is None:
        return partial(fresh, len(labels))
    file = _trained_file(request.start, storage)
    before = read_labels_txt(storage.read(labels_of(request.start)))
    change = ClassChange.between(before, labels)
    said = {"kept": list(change.kept), "new": list(change.new), "gone": list(change.gone)}
    logger.info("training_goes_on", extra={"run": request.run, "start": request.start, **said})
    return lambda: go_on(fresh(len(labels)), file, fresh, before=before, now=labels)


def _trained_file(key: str, storage: Storage) -> Path:
    """The file of the network that a run continues; its name begins with its digest.

    Raises:
        TrainingError: It, or the list of its classes, is absent or not the one that the submit put there.
    """
    for name in (key, labels_of(key)):
        if not storage.exists(name):
            raise TrainingError(f"{storage.url(name)}: the run goes on from it, and it is not there any more")
    file = Path(local_weights(key, storage))
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    if not file.name.startswith(digest[:16]):
        raise TrainingError(f"{storage.url(key)}: its SHA-256 begins with {digest[:16]}, expected what its name says")
    return file


def local_weights(weights: str, storage: Storage) -> str:
    """`none` and `imagenet` unchanged; a key in the store as the path of a file that Keras can open."""
    if weights in ("none", "imagenet"):
        return weights
    if storage.is_local:
        return str(storage.local_path(weights))
    path = Path(tempfile.mkdtemp(prefix="voc-weights-"), Path(weights).name)
    path.write_bytes(storage.read(weights))
    return str(path)
