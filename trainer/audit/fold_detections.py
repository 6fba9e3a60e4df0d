"""A trained network and its part of the photos -> `detections.npz`: what a model sees in photos it never learned."""

import io
from collections.abc import Collection, Iterator
from itertools import chain

import keras
import numpy as np

from shared.command import hint
from shared.errors import StorageError, TrainingError
from shared.jobs.job import SPLITS
from shared.jobs.manifest import Manifest
from shared.jobs.paths import RunPaths
from shared.leasing.guard import Guard
from shared.specs.run import RunSpec
from shared.storage import Storage
from shared.text import counted
from trainer.data.examples import ShardPicture
from trainer.data.shard_pictures import Pictures
from trainer.detections import Detect, Detections, DetectionsById
from trainer.evaluation.measure import detect_all
from trainer.network.detector import make_priors
from trainer.network.postprocess import keras_detector

# How many pictures the network gets at once.
_BATCH = 8


def every_picture(
    pictures: Pictures, manifest: Manifest, only: Collection[int] | None = None
) -> Iterator[ShardPicture]:
    """The stored pictures of all splits, or those with the image ids of `only`."""
    streams = (pictures(split) for split in SPLITS if manifest.examples(split))
    return (picture for picture in chain.from_iterable(streams) if only is None or picture.image_id in only)


def detect_part(
    model: keras.Model, manifest: Manifest, pictures: Pictures, part: Collection[int], guard: Guard
) -> DetectionsById:
    """What a Keras network sees in the pictures of `part` (image ids): the 100 best of each, in stored pixels."""
    detect: Detect = keras_detector(model, make_priors(manifest.image_size))

    def advance(pictures: int = 0) -> None:
        guard.advance(phase="detect", step=pictures, steps=len(part))

    advance()
    return detect_all(detect, every_picture(pictures, manifest, part), batch=_BATCH, advance=advance)


def pack(found: DetectionsById) -> bytes:
    """Detections as the bytes of a `.npz`; the same detections give the same bytes."""
    seen = [found[image_id] for image_id in sorted(found)]
    content = io.BytesIO()
    np.savez_compressed(
        content,
        image_ids=np.array(sorted(found), np.int64),
        counts=np.array([len(each.scores) for each in seen], np.int64),
        boxes=np.concatenate([np.zeros((0, 4), np.float32), *(each.boxes for each in seen)]),
        class_ids=np.concatenate([np.zeros(0, np.int64), *(each.class_ids for each in seen)]),
        scores=np.concatenate([np.zeros(0, np.float32), *(each.scores for each in seen)]),
    )
    return content.getvalue()


def unpack(content: bytes) -> DetectionsById:
    """The inverse of `pack`."""
    with np.load(io.BytesIO(content)) as arrays:
        bounds = np.concatenate([[0], np.cumsum(arrays["counts"])])
        columns = {name: arrays[name] for name in ("boxes", "class_ids", "scores")}
        ids = arrays["image_ids"].tolist()
    spans = zip(ids, bounds[:-1], bounds[1:], strict=True)
    return {
        image_id: Detections(**{name: column[start:end] for name, column in columns.items()})
        for image_id, start, end in spans
    }


def read_folds(storage: Storage, audit: RunSpec, photos: int) -> DetectionsById:
    """What the folds of an audit of this many photos saw, all parts together.

    Raises:
        StorageError: The file of a fold is absent.
        TrainingError: A photo was not in the part of any fold.
    """
    found: DetectionsById = {}
    for run in audit.audits:
        key = RunPaths(run).detections
        content = storage.read_or_none(key)
        if content is None:
            raise StorageError(f"{storage.url(key)}: absent")
        found |= unpack(content)
    if len(found) < photos:
        again = hint("rm", audit.job, "--run", audit.run, store=storage)
        unseen = counted(photos - len(found), "photo was", "photos were")
        raise TrainingError(f"{unseen} seen by no fold, as two versions dealt them: `{again}`, then audit again")
    return found
