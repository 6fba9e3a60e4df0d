"""A store with finished runs that keep what they saw, without a training: hostile names, turned photos, one gone."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from shared.jobs.identity import make_note
from shared.jobs.job import Job, Split, SplitPlan
from shared.jobs.manifest import Manifest
from shared.jobs.paths import JobPaths, RunPaths
from shared.specs.data import JobSpec
from shared.specs.run import RunSpec
from shared.storage import Storage

JOB, IDENTITY, SIDE = "job", "cd" * 16, 100
LABELS = ("cat", "<script>dog</script>")
# Of 240 x 320 and 320 x 240 pixels; the third is not there.
FILES = ("photos/a.jpg", "photos/b.jpg", "photos/gone.jpg")

Row = Mapping[str, Any]


def there(photo: int, class_id: int, box: Sequence[float], *, ignore: int = 0) -> Row:
    """An object: `box` as x, y, width, height in pixels of the stored picture."""
    return {"image_id": photo + 7, "category_id": class_id, "bbox": list(box), "ignore": ignore}


def seen(photo: int, class_id: int, score: float, box: Sequence[float]) -> Row:
    """A detection."""
    return {"image_id": photo + 7, "category_id": class_id, "bbox": list(box), "score": score}


OBJECTS = [
    there(0, 1, (10, 10, 20, 20)),
    there(0, 2, (60, 60, 20, 20)),
    there(1, 1, (10, 10, 20, 20)),
    there(1, 2, (50, 50, 20, 20), ignore=1),
]
DETECTIONS = [
    seen(0, 1, 0.9, (10, 10, 20, 20)),
    seen(0, 1, 0.8, (60, 60, 20, 20)),
    seen(0, 2, 0.3, (5, 70, 10, 10)),
    seen(1, 2, 0.7, (50, 50, 20, 20)),
    seen(1, 1, 0.6, (22, 10, 20, 20)),
    seen(2, 1, 0.5, (1, 1, 5, 5)),
]


def seen_file(annotations: Sequence[Row] = OBJECTS, detections: Sequence[Row] = DETECTIONS, **changes: Any) -> bytes:
    """The content of a `detections_test.json`."""
    said = {
        "schema_version": 1,
        "run": "run",
        "form": "int8",
        "split": "test",
        "labels": LABELS,
        "image_size": SIDE,
        "resize": "stretch",
        "images": [{"id": number + 7, "file_name": name} for number, name in enumerate(FILES)],
        "annotations": annotations,
        "detections": detections,
    }
    return json.dumps(said | changes).encode()


def form_figures(map50: float, dog: float) -> Row:
    """A form's part of `metrics.json`."""
    classes = {"cat": (map50, 30), LABELS[1]: (dog, 20)}
    return {
        "split": "test",
        "map50": map50,
        "map": map50 / 2,
        "map50_interval": [map50 - 0.1, map50 + 0.05],
        "map_interval": [map50 / 2 - 0.1, map50 / 2 + 0.05],
        "pictures": 3,
        "objects": 50,
        "best_score": 0.44,
        "bytes": 1_600_000,
        "median_ms": 2.0,
        "per_class": {
            name: {"ap50": ap, "ap50_interval": [ap - 0.03, ap + 0.04], "ap": ap / 2, "objects": objects}
            for name, (ap, objects) in classes.items()
        },
    }


def add_run(store: Storage, run: str, figures: Row, content: bytes, **options: Any) -> None:
    """A finished run of the job."""
    asked = RunSpec(job=JOB, incarnation=IDENTITY, run=run, **options)
    store.write(RunPaths(run).request, asked.to_json().encode())
    store.write(RunPaths(run).metrics, json.dumps({"int8": figures}).encode())
    store.write(f"{RunPaths(run).root}/detections_test.json", content)
    store.write(RunPaths(run).run, make_note(IDENTITY))


def make_measured(folder: Path) -> Path:
    """Write photos and store below a folder; the store's path. Runs are `first` and `second`, of 60 and 90 %."""
    photos = folder / "data" / "voc" / "photos"
    photos.mkdir(parents=True)
    for name, shape in zip("ab", ((320, 240, 3), (240, 320, 3)), strict=True):
        (photos / f"{name}.jpg").write_bytes(cv2.imencode(".jpg", np.full(shape, 200, np.uint8))[1].tobytes())
    store = Storage(str(folder / "store"))
    store.make_root()
    job = Job(
        job=JOB,
        incarnation=IDENTITY,
        dataset=str(photos.parent),
        folder="voc",
        spec=JobSpec(),
        run=None,
        labels=LABELS,
        splits={"test": SplitPlan(pairs=3, digests=("0" * 64,))},
        request_digest="0" * 64,
    )
    store.write(JobPaths(JOB).job, job.to_json().encode())
    add_run(store, "first", form_figures(0.6, 0.5), seen_file())
    better = [*DETECTIONS, seen(0, 2, 0.95, (60, 60, 20, 20))]
    add_run(store, "second", form_figures(0.9, 0.7), seen_file(detections=better), seed=5)
    return folder / "store"


def finish_job(store: Storage, splits: Mapping[Split, SplitPlan]) -> None:
    """Make the job one of `splits` without a shard: then it is finished as soon as there is a manifest."""
    job = Job.model_validate_json(store.read(JobPaths(JOB).job)).model_copy(update={"splits": dict(splits)})
    store.write(JobPaths(JOB).job, job.to_json().encode())
    manifest = Manifest(
        job=JOB,
        incarnation=IDENTITY,
        request_digest=job.request_digest,
        labels=LABELS,
        image_size=320,
        resize="stretch",
        splits={},
        failed=(),
        counters={},
        class_counts={},
    )
    store.write(JobPaths(JOB).manifest, manifest.to_json().encode())
