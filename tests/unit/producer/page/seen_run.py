"""A store with a run whose model saw three photos, as the page meets it."""

from pathlib import Path
from typing import Any

import cv2
import numpy as np

from shared.audit.seen import SeenImage, SeenSplit
from shared.jobs.job import Job, SplitPlan
from shared.jobs.paths import JobPaths, RunPaths
from shared.specs.data import JobSpec
from shared.specs.run import RunSpec
from shared.storage import Storage

RUN, IDENTITY = "run", "cd" * 16
NAMES = ("photos/a.png", "photos/<b>.png", "photos/gone.png")


def box(image: int, category: int, left: float, score: float | None = None, **more: Any) -> dict[str, Any]:
    """An annotation, or with a score a detection: 20 px wide, in pixels of the stored square of 100 px."""
    row = {"image_id": image, "category_id": category, "bbox": [left, 10.0, 20.0, 20.0], **more}
    return row if score is None else row | {"score": score}


def made_split() -> SeenSplit:
    """a: both cats found, at 0.9 and 0.3. b: a cat missed, a dog made up at 0.6. gone: a difficult cat, seen at 0.8."""
    return SeenSplit(
        run=RUN,
        form="int8",
        split="test",
        labels=("cat", "dog<script>"),
        image_size=100,
        resize="stretch",
        images=tuple(SeenImage(id=number, file_name=name) for number, name in enumerate(NAMES, start=1)),
        annotations=(box(1, 1, 0), box(1, 1, 50), box(2, 1, 10), box(3, 1, 40, ignore=1)),
        detections=(box(1, 1, 52, 0.3), box(1, 1, 1, 0.9), box(2, 2, 10, 0.6), box(3, 1, 41, 0.8)),
    )


def make_seen(folder: Path) -> Path:
    """Write photos and store below a folder; the store's path."""
    photos = folder / "data" / "voc" / "photos"
    photos.mkdir(parents=True)
    for name in NAMES[:2]:
        cv2.imwrite(str(photos.parent / name), np.full((100, 200, 3), 120, np.uint8))
    store = Storage(str(folder / "store"))
    store.make_root()
    asked = RunSpec(job=RUN, incarnation=IDENTITY, run=RUN)
    job = Job(
        job=RUN,
        incarnation=IDENTITY,
        dataset=str(photos.parent),
        folder="voc",
        spec=JobSpec(),
        run=asked,
        labels=("cat",),
        splits={"test": SplitPlan(pairs=3, digests=("0" * 64,))},
        request_digest="0" * 64,
    )
    store.write(JobPaths(RUN).job, job.to_json().encode())
    store.write(RunPaths(RUN).request, asked.to_json().encode())
    store.write(f"{RunPaths(RUN).root}/detections_test.json", made_split().to_json().encode())
    return folder / "store"
