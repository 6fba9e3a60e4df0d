"""A trained run -> its models exported or measured again: what the commands `export` and `evaluate` do."""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import keras

from shared.command import hint
from shared.errors import ExportError
from shared.jobs.identity import file_digest, read_note
from shared.jobs.job import SPLITS, Split
from shared.jobs.manifest import Manifest
from shared.jobs.paths import JobPaths, RunPaths
from shared.jobs.versioned import read_stored
from shared.leasing.guard import Guard
from shared.model.file import MOST_MODEL_BYTES, quoted
from shared.specs.frozen import canonical_json
from shared.specs.run import ReleaseOptions, RunSpec
from shared.specs.training import Nms
from shared.storage import Storage
from trainer.commit import commit, released_files, summary_of, training_facts
from trainer.data.shard_cache import ShardCache, shard_cache
from trainer.data.shard_pictures import Truth, pictures_of, truth_of
from trainer.data.training_set import load_training_set
from trainer.evaluation.forms import JudgingSplits
from trainer.evaluation.latency import latency_ms, timing
from trainer.evaluation.measure import detect_all, measure
from trainer.inference.detector import Detector
from trainer.network.detector import build_model
from trainer.release import Release, timed
from trainer.reporting.job_facts import read_summary
from trainer.settings import USUAL_FOLDER, CacheFolder
from trainer.tflite.convert import QAT_WEIGHTS_FILE, forms_of
from trainer.training.checkpoint import TrainingProgress, exportable_weights, newest_progress, saved_steps
from trainer.training.qat import fine_tune
from trainer.training.strategy import make_strategy
from trainer.training.train_step import load_average
from trainer.training.variable_layout import layout_of

WEIGHTS_FILE: Final = "model.keras"

# Decoded pictures are kept in memory up to this size in MB while fine-tuning.
_CACHE_MB: Final = 2048

# The stages before the release, as `run.json` names them.
_EARLIER_STAGES: Final = ("read", "train", "qat")


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """The result of an export: `metrics.json`, warnings for a person, and whether the run is finished."""

    metrics: dict[str, Any]
    warnings: list[str]
    is_finished: bool


def export_run(  # long: a line for each option
    run: str,
    *,
    storage: Storage,
    guard: Guard,
    max_drop: float | None = None,
    quantize: Literal["ptq", "qat"] | None = None,
    nms: Nms | None = None,
    step: int | None = None,
    cache_mb: int = _CACHE_MB,
    copies: CacheFolder = USUAL_FOLDER,
) -> Exported:
    """Export the saved weights of `run` again, without training; the existing files are replaced.

    Weights come from the `model.keras` that the training ended with. If it has not ended, or a step is named, they come
    from a checkpoint; a finished run keeps its own `model.keras` then. Quantization-aware fine-tuning runs if
    `quantize` asks for it; otherwise a run that was fine-tuned keeps its fine-tuned weights.

    An export that passes finishes a run that the gate had refused, and its changes become part of the run's request.
    If the gate refuses, the files of a finished run stay, and only a report is written into `refused/`.

    Args:
        run: A run that has trained.
        storage: Holds the run and its job.
        guard: Asked before every phase and before anything is replaced.
        max_drop: Points of mAP50 that int8 may lose; None: as the run asked.
        quantize: How int8 is made; None: as the run asked.
        nms: Where suppression is; None: as the run asked.
        step: The step of the checkpoint to take.
        cache_mb: Decoded pictures are kept in memory up to this size while fine-tuning.
        copies: Where copies of shards in a bucket are kept.

    Raises:
        ExportError: The run has no weights, or the gate refused the model.
        FormatError: Its request or its `run.json` is damaged.
        OptionError: The changes do not fit the rest of the request.
        TrainingError: The checkpoint is of a network with other variables.
        StopRequested: The process was asked to stop; nothing was replaced.
    """
    spec, manifest = _read_run(storage, run)
    spec = ReleaseOptions(max_drop=max_drop, quantize=quantize, nms=nms).applied_to(spec)
    timings = _earlier_timings(storage, run)
    network = _load_weights(storage, spec, manifest, step)
    keeps = quantize is None and step is None
    shards = shard_cache(storage, manifest, copies)
    release = Release(
        spec=spec,
        manifest=manifest,
        keras_model=network,
        pictures=pictures_of(storage, manifest, shards),
        truth=truth_of(storage, manifest),
        storage=storage,
        guard=guard,
        fine_tuned=_fine_tuned(
            network,
            spec,
            manifest,
            timings,
            keeps=keeps,
            storage=storage,
            guard=guard,
            shards=shards,
            cache_mb=cache_mb,
        ),
        best_epoch=_best_epoch(storage, spec, manifest),
        step=step,
        timings=timings,
    )
    with timed(timings, "release"):
        metrics = release.run()
    is_finished = _note_release(release, metrics, timings)
    return Exported(metrics=metrics, warnings=release.warnings, is_finished=is_finished)


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedTraining:
    """A training that has ended: its network, that for int8 if it is another, and what `run.json` says about it.

    `facts` are as `training_facts` gives them; `timings` are the seconds of its stages.
    """

    network: keras.Model
    fine_tuned: keras.Model | None
    facts: dict[str, Any]
    timings: dict[str, float]

    @property
    def best_epoch(self) -> int:
        """The epoch that the weights are from; 0 if it is not known."""
        return int(self.facts.get("best_epoch", 0))


def finished_training(
    spec: RunSpec,
    manifest: Manifest,
    manifest_digest: str | None,
    *,
    storage: Storage,
    guard: Guard,
    shards: ShardCache | None,
    cache_mb: int,
) -> FinishedTraining | None:
    """The training of a run that had ended but was taken back because one of its released files is damaged.

    None if there was none, if it learned from other shards, or if its weights are not those that it ended with. If it
    is fine-tuned again, up to `cache_mb` MB of decoded pictures are kept in memory.
    """
    note = read_note(storage, RunPaths(spec.run).trained, spec.incarnation) or {}
    files = note.get("files") or {}
    weights = file_digest(storage, f"{RunPaths(spec.run).root}/{WEIGHTS_FILE}")
    if weights is None or files.get(WEIGHTS_FILE, {}).get("sha256") != weights:
        return None
    if note.get("run") != spec.run or note.get("manifest_digest") != manifest_digest:
        return None
    network = _load_network(storage, spec.run, WEIGHTS_FILE)
    if network is None:
        return None
    timings = {stage: note["seconds"][stage] for stage in _EARLIER_STAGES if stage in note["seconds"]}
    # Fine-tuned weights are kept if they are undamaged too.
    tuned = file_digest(storage, f"{RunPaths(spec.run).root}/{QAT_WEIGHTS_FILE}")
    keeps = tuned is not None and files.get(QAT_WEIGHTS_FILE, {}).get("sha256") == tuned
    fine_tuned = _fine_tuned(
        network, spec, manifest, timings, keeps=keeps, storage=storage, guard=guard, shards=shards, cache_mb=cache_mb
    )
    return FinishedTraining(network=network, fine_tuned=fine_tuned, facts=note["training"], timings=timings)


def _note_release(release: Release, metrics: dict[str, Any], timings: dict[str, float]) -> bool:
    """Note a release that passed in the `run.json` of a finished run, or finish a run that the gate had refused.

    Returns:
        Whether the run is finished; a run whose training has not ended is left to its trainer.
    """
    storage, spec = release.storage, release.spec
    paths = RunPaths(spec.run)
    summary = read_note(storage, paths.run, spec.incarnation)
    progress = _refused_training(storage, spec, release.manifest)
    if summary is None and progress is None:
        return False
    storage.write(paths.request, spec.to_json().encode())
    if summary is not None:
        summary |= {"files": released_files(storage, spec.run), "request_digest": spec.digest()}
        summary |= {"metrics": summary_of(metrics), **release.notes}
        storage.write(paths.run, canonical_json(summary).encode())
    elif progress is not None:
        seconds = {**timings, "train": round(progress.spent_s, 2)}
        seconds["total"] = round(sum(seconds.values()), 2)
        facts = {
            "manifest_digest": file_digest(storage, JobPaths(spec.job).manifest),
            "seconds": seconds,
            "training": training_facts(progress, release.keras_model, None),
            **release.notes,
        }
        commit(spec, release.manifest, metrics, storage=storage, **facts)
    return True


def _best_epoch(storage: Storage, spec: RunSpec, manifest: Manifest) -> int:
    """The epoch of the weights that a run ended with, or would end with now; 0 if not known."""
    summary = read_note(storage, RunPaths(spec.run).run, spec.incarnation)
    if summary is not None:
        return int(summary.get("training", {}).get("best_epoch", 0))
    progress = _newest_training(storage, spec, manifest)
    return 0 if progress is None else progress.best_epoch


def _refused_training(storage: Storage, spec: RunSpec, manifest: Manifest) -> TrainingProgress | None:
    """The training progress of a run that failed at its export, if it was trained on these shards."""
    return _newest_training(storage, spec, manifest) if _is_refused(storage, spec) else None


def _newest_training(storage: Storage, spec: RunSpec, manifest: Manifest) -> TrainingProgress | None:
    progress = newest_progress(storage, spec.run)
    return progress if progress is not None and progress.manifest in ("", manifest.digest()) else None


def evaluate_run(
    run: str,
    *,
    storage: Storage,
    split: str | None,
    forms: Sequence[str] | None,
    threads: int = 1,
    timed_threads: Sequence[int] = (1,),
    copies: CacheFolder = USUAL_FOLDER,
) -> dict[str, Any]:
    """`map50`, `map`, `per_class`, `bytes` and `latency_ms` of the exported models of `run`, by form.

    They are measured with `threads` threads on `split`, or on the report's split (`JudgingSplits`); `latency_ms` has
    the milliseconds for each of `timed_threads`, and `median_ms` those for the first. Copies of shards in a bucket are
    kept in `copies`.

    Raises:
        ExportError: There is no such split, form or file, or no photo in the split.
    """
    spec, manifest = _read_run(storage, run)
    unknown = sorted(set(forms or ()) - set(forms_of("both")))
    if unknown or split not in (None, *SPLITS):
        raise ExportError(
            f"there are splits {', '.join(SPLITS)} and forms {', '.join(forms_of('both'))}, not {unknown or split}"
        )
    truths = truth_of(storage, manifest)
    chosen = _split_of(manifest, truths, split)
    pictures, truth = pictures_of(storage, manifest, shard_cache(storage, manifest, copies)), truths(chosen)
    metrics, contents = {}, {}
    for form in forms or forms_of(spec.nms):
        key = f"{RunPaths(run).root}/model_{form}.tflite"
        if not storage.exists(key):
            raise _no_model(spec, form, storage.url(key), storage)
        # One byte more than the limit is enough to refuse a file of whatever size.
        content = storage.read_range(key, 0, MOST_MODEL_BYTES + 1)
        detector, contents[form] = _detector_of(manifest, content, storage.url(key), threads), content
        seen = detect_all(detector.detect_batch, pictures(chosen))
        metrics[form] = {**measure(truth, seen).figures, "bytes": len(content)}
    times = latency_ms(contents, next(iter(pictures(chosen))).rgb, threads=timed_threads)
    return {form: {**row, **timing(times[form])} for form, row in metrics.items()}


def _no_model(spec: RunSpec, form: str, shown: str, storage: Storage) -> ExportError:
    """The error for a form that a run did not export, or whose file is gone."""
    other_kind = () if form in forms_of(spec.nms) else ("--nms", "both")
    again = hint("export", spec.run, *other_kind, store=storage)
    return ExportError(f"{shown}: no such file; expected a model of run {spec.run}: `{again}` makes it")


def _split_of(manifest: Manifest, truth: Truth, named: str | None) -> Split:
    """The split `named`; if None, the one that a release measures on.

    Raises:
        ExportError: The split has no photo.
    """
    there: dict[Split, int] = {split: count for split in SPLITS if (count := manifest.examples(split))}
    chosen = [split for split in there if named in (None, split)]
    if not chosen:
        counts = ", ".join(f"{split} {count:,}" for split, count in there.items()) or "none"
        raise ExportError(f"job {manifest.job} has no photo in {named or 'any split'}; there are {counts}")
    return chosen[0] if named else JudgingSplits.of(manifest, truth).measured


def _detector_of(manifest: Manifest, content: bytes, file: str, threads: int) -> Detector:
    """The detector of a run's model, which must match the picture size and classes of its job."""
    detector = Detector(content, threads, file=file)
    found = (detector.labels, detector.description.image_size)
    if found != (manifest.labels, manifest.image_size):
        (labels, size), (wanted, wanted_size) = found, (manifest.labels, manifest.image_size)
        expected = f"the job's {quoted(', '.join(wanted))} and {wanted_size} px"
        raise detector.refusal(f"labels {quoted(', '.join(labels))} and {size} px", expected)
    return detector


def _read_run(storage: Storage, run: str) -> tuple[RunSpec, Manifest]:
    key = RunPaths(run).request
    text = storage.read_or_none(key)
    if text is None:
        raise ExportError(f"{storage.root} holds no run {run!r}")
    spec = read_stored(RunSpec, text, storage.url(key))
    manifest = JobPaths(spec.job).manifest
    return spec, read_stored(Manifest, storage.read(manifest), storage.url(manifest))


def _load_weights(storage: Storage, spec: RunSpec, manifest: Manifest, step: int | None) -> keras.Model:
    """The network of a run: the one it ended with, or the one in a checkpoint.

    A run that has not ended may have learned more since an export wrote its `model.keras`.
    """
    if step is None and _has_ended(storage, spec):
        saved = _load_network(storage, spec.run, WEIGHTS_FILE)
        if saved is not None:
            return saved
    network = build_model(len(manifest.labels), manifest.image_size, spec.model, backbone=spec.backbone)
    weights = exportable_weights(storage, spec.run, layout_of(network), step)
    if weights is not None:
        load_average(network, weights)
        return network
    saved = None if step is not None else _load_network(storage, spec.run, WEIGHTS_FILE)
    if saved is None:
        raise _nothing_to_export(storage, spec.run, step)
    return saved


def _has_ended(storage: Storage, spec: RunSpec) -> bool:
    """Whether a run's training is over: the run is finished, or the gate refused its model."""
    return read_note(storage, RunPaths(spec.run).run, spec.incarnation) is not None or _is_refused(storage, spec)


def _is_refused(storage: Storage, spec: RunSpec) -> bool:
    note = read_note(storage, RunPaths(spec.run).failed, spec.incarnation)
    return note is not None and note.get("kind") == ExportError.__name__


def _nothing_to_export(storage: Storage, run: str, step: int | None) -> ExportError:
    root, steps = storage.url(RunPaths(run).root), saved_steps(storage, run)
    if step is None:
        return ExportError(f"{root} has no {WEIGHTS_FILE} and no checkpoint: there is nothing to export yet")
    there = f"there are those of {', '.join(map(str, steps))}" if steps else "there is none"
    return ExportError(f"{root} has no checkpoint of step {step}: {there}; without --step the best weights are taken")


def _load_network(storage: Storage, run: str, file: str) -> keras.Model | None:
    content = storage.read_or_none(f"{RunPaths(run).root}/{file}")
    if content is None:
        return None
    with tempfile.TemporaryDirectory(prefix="voc-weights-") as folder:
        path = Path(folder, file)
        path.write_bytes(content)
        return keras.models.load_model(path, compile=False)


def _fine_tuned(
    network: keras.Model,
    spec: RunSpec,
    manifest: Manifest,
    timings: dict[str, float],
    *,
    keeps: bool,
    storage: Storage,
    guard: Guard,
    shards: ShardCache | None,
    cache_mb: int,
) -> keras.Model | None:
    """The fine-tuned network that int8 is made from, if QAT is asked for; with `keeps`, the one that exists already."""
    if spec.quantize != "qat":
        return None
    with timed(timings, "qat"):
        saved = _load_network(storage, spec.run, QAT_WEIGHTS_FILE) if keeps else None
        if saved is not None:
            return saved
        strategy = make_strategy(1)
        batch = spec.batch * strategy.num_replicas_in_sync
        dataset = load_training_set(spec, manifest, storage=storage, batch=batch, cache_mb=cache_mb, shards=shards)
        return fine_tune(network, dataset, strategy=strategy, guard=guard)


def _earlier_timings(storage: Storage, run: str) -> dict[str, float]:
    """The seconds of the stages before the release, as far as the run noted them."""
    seconds = (read_summary(storage, run) or {}).get("seconds") or {}
    return {stage: seconds[stage] for stage in _EARLIER_STAGES if stage in seconds}
