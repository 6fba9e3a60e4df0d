"""A release that passed the gate -> `run.json`, the commit point of a run, with digests of the run's files."""

import hashlib
import time
from typing import Any, Final

import keras
import tensorflow as tf

from shared import __version__
from shared.jobs.identity import make_note
from shared.jobs.manifest import Manifest
from shared.jobs.paths import RunPaths
from shared.specs.run import RunSpec
from shared.storage import Storage
from trainer.training.checkpoint import TrainingProgress

# The files that a run hands out besides its models; the last three are from audits. `audit.csv` is not here because
# people edit it.
_RELEASED: Final = ("labels.txt", "metrics.json", "detections.npz", "findings.json", "audit.html")

# The figures of each form in `metrics.json` that `run.json` repeats.
_SUMMED_UP: Final = ("map50", "map", "map50_interval", "map_interval", "pictures", "objects", "best_score")


def commit(request: RunSpec, manifest: Manifest, metrics: dict[str, Any], *, storage: Storage, **facts: Any) -> None:
    """Write the file that makes a run finished, and remove the notes that it failed or was taken back.

    Args:
        request: The request as it was carried out.
        manifest: The manifest of the shards that the run was trained on.
        metrics: The figures as in `metrics.json`.
        storage: Holds the run.
        facts: The other fields of `run.json`: `manifest_digest`, `seconds`, `training`, `warnings`, `advice`.
    """
    summary = {
        "schema_version": 1,
        "run": request.run,
        "job": request.job,
        "request_digest": request.digest(),
        "version": __version__,
        "labels": list(manifest.labels),
        "image_size": manifest.image_size,
        "resize": manifest.resize,
        "metrics": summary_of(metrics),
        "files": released_files(storage, request.run),
        "at": round(time.time(), 3),
        **facts,
    }
    paths = RunPaths(request.run)
    storage.write(paths.run, make_note(request.incarnation, **summary))
    storage.remove(paths.failed)
    storage.remove(paths.trained)


def training_facts(progress: TrainingProgress, network: keras.Model, replicas: int | None) -> dict[str, Any]:
    """What `run.json` says about a training that has ended; `replicas` is None if it is no longer known."""
    schedule = progress.schedule
    return {
        "steps": progress.step,
        "schedule": None if schedule is None else schedule.model_dump(mode="json"),
        "best_epoch": progress.best_epoch,
        "best_val_map": progress.best_map,
        "replicas": replicas,
        "precision": progress.precision,
        "parameters": int(network.count_params()),
        "tensorflow": tf.__version__,
    }


def released_files(storage: Storage, run: str) -> dict[str, dict[str, Any]]:
    """Size in bytes and SHA-256 of the files that a run hands out, by name, as noted in `run.json` for `doctor`."""
    root = RunPaths(run).root
    found = {}
    for name in storage.list_names(root):
        if name.endswith((".tflite", ".keras")) or name in _RELEASED:
            content = storage.read(f"{root}/{name}")
            found[name] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    return found


def summary_of(metrics: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The figures in `run.json` by form: mAP50 and mAP as fractions, their intervals, sample sizes, the threshold."""
    return {form: {name: row[name] for name in _SUMMED_UP} for form, row in metrics.items()}
