"""Shards of a finished job → stored pictures, one by one; what the exporter calibrates, measures and draws with."""

from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from shared.errors import ShardError
from shared.job import Split
from shared.manifest import Manifest
from shared.storage import Storage
from trainer.dataset import parse_record, shard_urls
from trainer.evaluate import truth_from_store
from trainer.measure import Pictures, StoredPicture, Truth


def pictures_of(storage: Storage, manifest: Manifest) -> Pictures:
    """A function from a split to its pictures, streamed anew at each call in the order of the shards."""

    def stream(split: Split) -> Iterator[StoredPicture]:
        urls = shard_urls(storage, manifest, [split])
        records = tf.data.TFRecordDataset(urls).map(parse_record).prefetch(tf.data.AUTOTUNE)
        try:
            for example in records.as_numpy_iterator():
                yield StoredPicture(
                    image_id=int(example["source_id"]), file_name=example["filename"].decode(), rgb=example["picture"]
                )
        except tf.errors.OpError as error:
            raise ShardError(f"{manifest.job}, split {split}: a record cannot be read: {error.message}") from error

    return stream


def truth_of(storage: Storage, manifest: Manifest) -> Truth:
    """A function from a split to its COCO-form truth, each read once."""
    read: dict[Split, dict[str, Any]] = {}

    def truth(split: Split) -> dict[str, Any]:
        if split not in read:
            read[split] = truth_from_store(storage, manifest, split)
        return read[split]

    return truth
