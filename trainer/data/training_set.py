"""The shards of a finished job -> `TrainingSet`: what a run learns from, and what it selects its weights by."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from shared.errors import PipelineError
from shared.jobs.job import SPLITS, Split
from shared.jobs.manifest import Manifest
from shared.jobs.paths import RunPaths
from shared.specs.run import RunSpec
from shared.storage import Storage
from trainer.data.batches import batches_from_memory, batches_from_shards
from trainer.data.examples import Cache, Examples, choose_cache, picture_file, read_examples, shard_urls
from trainer.data.shard_cache import ShardCache
from trainer.data.shard_pictures import counted_objects, truth_from_store

# How many files an error names; more would help nobody.
_MOST_NAMES: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSet:
    """What a run learns from.

    `batches` gives the endless stream of batches from a step on; `opening`, if not None, gives the stream with mosaics
    that the first steps take instead. `pictures` is the size of the training set; `names` turns a batch's rows into
    file names. If there is nothing to select by, `validation` is None and its COCO-form `truth` empty. `why_unread`
    says why a stream has failed if TensorFlow's error does not.
    """

    labels: tuple[str, ...]
    image_size: int
    pictures: int
    fingerprint: str
    batches: Callable[[int], tf.data.Dataset]
    names: Callable[[NDArray[np.int64]], list[str]]
    validation: Examples | None
    truth: dict[str, Any]
    opening: Callable[[int], tf.data.Dataset] | None = None
    why_unread: Callable[[], PipelineError | None] = lambda: None


def load_training_set(  # long: a line for each argument and field
    request: RunSpec,
    manifest: Manifest,
    *,
    storage: Storage,
    batch: int,
    cache_mb: int,
    shards: ShardCache | None,
    without: Collection[int] = (),
) -> TrainingSet:
    """The pictures that `request` trains on and selects by: train and val, or with `final` both together.

    It selects by nothing if no object of val counts.
    A fold of an audit learns from the pictures of all splits except its own part, and selects by nothing.

    Args:
        request: The run.
        manifest: The manifest of its job.
        storage: Holds the shards.
        batch: Pictures per step, over all replicas.
        cache_mb: Decoded pictures are kept in memory up to this size in MB.
        shards: The cache for shards in a bucket; None for a store in a folder.
        without: The image ids of a fold's own part.
    """
    learned: list[Split] = [*SPLITS] if request.fold else ["train", "val"] if request.final else ["train"]
    truth = {} if "val" in learned or manifest.examples("val") == 0 else truth_from_store(storage, manifest, "val")
    # If no object counts, every validation gives 0: nothing can be selected by that, and `patience` would end training.
    judged: list[Split] = ["val"] if counted_objects(truth) else []
    count = sum(manifest.examples(split) for split in learned) - len(without)
    pictures = count + sum(manifest.examples(split) for split in judged)
    folder = storage.local_path(RunPaths(request.run).root) if shards is None else shards.folder
    kept = choose_cache(pictures * manifest.image_size**2 * 3, cache_mb=cache_mb, folder=folder)
    read = partial(_read, storage, manifest, folder, shards)
    examples = None if kept == "none" else read(learned, kept, without)
    # Always kept, because it is read again and again and is a small part of the set.
    validation = read(judged, "memory" if kept == "none" else kept, ()) if judged else None
    names: Callable[[NDArray[np.int64]], list[str]]
    stream: Callable[..., tf.data.Dataset]
    if examples is not None:
        names = lambda rows: [examples.filenames[row] for row in rows[:_MOST_NAMES]]  # noqa: E731
        stream = partial(batches_from_memory, examples, batch=batch, seed=request.seed)
    else:
        names = partial(_names_in_store, storage, manifest, learned)
        urls = shard_urls(storage, manifest, learned)
        size = manifest.image_size
        source: dict[str, Any] = {"image_size": size, "seed": request.seed, "cache": shards, "without": without}
        stream = partial(batches_from_shards, urls, batch=batch, **source)
    changes = request.effective_augmentation(count)
    return TrainingSet(
        labels=manifest.labels,
        image_size=manifest.image_size,
        pictures=count,
        fingerprint=manifest.digest(),
        batches=lambda step: stream(recipe=changes.model_copy(update={"mosaic": 0.0}), first_step=step),
        opening=(lambda step: stream(recipe=changes, first_step=step)) if changes.mosaic > 0 else None,
        names=names,
        validation=validation,
        truth=truth if judged else {},
        why_unread=lambda: None if shards is None else shards.take_failure(),
    )


def _read(
    storage: Storage,
    manifest: Manifest,
    folder: Path,
    shards: ShardCache | None,
    splits: Sequence[Split],
    kept: Cache,
    without: Collection[int],
) -> Examples:
    side, room = manifest.image_size, None
    if kept == "file":
        room = picture_file(folder, sum(manifest.examples(split) for split in splits) - len(without), side)
    return read_examples(shard_urls(storage, manifest, splits), side, room, shards, without)


def _names_in_store(
    storage: Storage, manifest: Manifest, splits: Sequence[Split], source_ids: NDArray[np.int64]
) -> list[str]:
    """File names by the source ids of a streamed batch."""
    truths = [truth_from_store(storage, manifest, split) for split in splits if manifest.examples(split)]
    known = {image["id"]: image["file_name"] for truth in truths for image in truth["images"]}
    return [known.get(int(source_id), f"source id {source_id}") for source_id in source_ids[:_MOST_NAMES]]
