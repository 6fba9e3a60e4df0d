"""Our rows: the pictures through the corridor (submit, broker, workers, shards), then the trainer's own input."""

import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final
from unittest import mock

import cv2

from shared.jobs.job import Job, ShardTask
from shared.jobs.manifest import Manifest
from shared.jobs.paths import JobPaths
from shared.specs.augmentation import Augmentation
from shared.storage import Storage
from tests.bench.loaders import usual
from tests.bench.loaders.scripts import Fed
from tests.bench.loaders.work import BATCH, WORKERS, Work
from tests.unit.trainer.pictures import UNCHANGED
from trainer.data.augment import augment_batch
from trainer.data.batches import batches_from_memory, batches_from_shards
from trainer.data.examples import read_examples, shard_urls
from worker.record.prepare import PreparedExample, prepare_example, recipe_of

JOB: Final = "bench"


def prepare(work: Work) -> tuple[Storage, Manifest]:
    """Shards of all the pictures by the command that a person gives, with its broker, workers and their start."""
    store = work.scratch / "store"
    shutil.rmtree(store, ignore_errors=True)
    producer = [sys.executable, "-m", "producer", "submit", str(work.photos / "voc"), "--job", JOB]
    asked = ["--store", str(store), "--local", "--no-train", "--wait", "--workers", str(WORKERS)]
    shape = ["--image-size", str(work.side), "--split", "100/0/0"]
    subprocess.run([*producer, *asked, *shape], check=True, stdout=subprocess.DEVNULL)
    storage = Storage(str(store))
    return storage, Manifest.model_validate_json(storage.read(JobPaths(JOB).manifest))


def cold(work: Work) -> Fed:
    """Shards streamed and decoded anew in every epoch."""
    storage, manifest = prepare(work)
    cv2.setNumThreads(1)
    stream = batches_from_shards(
        shard_urls(storage, manifest, ["train"]), batch=BATCH, image_size=work.side, recipe=_recipe(work), seed=0
    )
    made, watching = _watched()
    return Fed(x=stream, steps=work.steps, close=watching, made=made)


def cached(work: Work) -> Fed:
    """Shards decoded once into memory; reading them is on the clock of the first epoch."""
    storage, manifest = prepare(work)
    urls = shard_urls(storage, manifest, ["train"])

    def opened() -> Any:
        examples = read_examples(urls, work.side)
        return batches_from_memory(examples, batch=BATCH, recipe=_recipe(work), seed=0)

    cv2.setNumThreads(1)
    made, watching = _watched()
    return Fed(late=opened, steps=work.steps, close=watching, made=made)


def _recipe(work: Work) -> Augmentation:
    return usual.OURS if work.is_augmented else UNCHANGED


def _watched() -> tuple[list[tuple[float, float]], Any]:
    """Notes when each of our batches began and ended to be changed, for the picture of the lanes."""
    made: list[tuple[float, float]] = []

    def noted(*arguments: Any, **keywords: Any) -> Any:
        began_s = time.perf_counter()
        changed = augment_batch(*arguments, **keywords)
        made.append((began_s, time.perf_counter()))
        return changed

    # A probe, not a substitute: two clock readings a batch.
    return made, mock.patch("trainer.data.batches.augment_batch", noted)


def worker_cpu_s(store: Path, photos: Path, most: int = 96) -> float:
    """Processor seconds that a worker takes for 1,000 pictures: read, parse, decode, resize, encode, serialize."""
    storage = Storage(str(store))
    job = Job.model_validate_json(storage.read(JobPaths(JOB).job))
    lines = storage.read(JobPaths(JOB).shown_plan).decode().splitlines()
    pairs = [pair for line in lines for pair in ShardTask.model_validate_json(line).pairs][:most]
    recipe = recipe_of(job, photos)
    began_s = time.process_time()
    prepared = [prepare_example(pair, recipe=recipe) for pair in pairs]
    spent_s = time.process_time() - began_s
    assert all(isinstance(one, PreparedExample) for one in prepared)
    return spent_s / len(prepared) * 1000
