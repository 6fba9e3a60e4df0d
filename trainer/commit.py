"""A release that the gate let pass -> `run.json`, the commit point of a run; and what that says of its files."""

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

# What a run hands out besides its models; the last three are of audits. People edit `audit.csv`.
_RELEASED: Final = ("labels.txt", "metrics.json", "detections.npz", "findings.json", "audit.html")

# Of each form in `metrics.json`, in `run.json`.
_SUMMED_UP: Final = ("map50", "map", "map50_interval", "map_interval", "pictures", "objects", "best_score")


def commit(request: RunSpec, manifest: Manifest, metrics: dict[str, Any], *, storage: Storage, **facts: Any) -> None:
    """Write what makes a run finished, and take back what says that it failed.

    Args:
        request: What was asked, as it was done.
        manifest: Of the shards that it was trained on.
        metrics: As in `metrics.json`.
        storage: Holds the run.
        facts: What else `run.json` says: `manifest_digest`, `seconds`, `training`, `warnings`, `advice`.
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
    """What `run.json` says of a training that is at its end; `replicas` None where nobody knows any more."""
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
    """Bytes and SHA-256 of the files that a run hands out, by name: what `run.json` says, and `doctor` checks."""
    root = RunPaths(run).root
    found = {}
    for name in storage.list_names(root):
        if name.endswith((".tflite", ".keras")) or name in _RELEASED:
            content = storage.read(f"{root}/{name}")
            found[name] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    return found


def summary_of(metrics: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """What `run.json` says of the figures, by form: mAP50 and mAP as fractions, their intervals, and the threshold."""
    return {form: {name: row[name] for name in _SUMMED_UP} for form, row in metrics.items()}
